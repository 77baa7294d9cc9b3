"""Builder of labs from namespaces: interfaces, addresses, routes and shaping.

Every host is a namespace with one interface. Every switch is also a namespace. The
switch's hosts connect to a bridge that has the gateway's address, and links to other
switches are routed. Both interfaces of a link are created directly in their namespaces,
so that no interface appears outside the lab.

Neighbors, bridge entries and routes are static. No ARP, neighbor discovery, flooding or
learning happens during a run.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyroute2.ethtool.ioctl import EthtoolError, IoctlEthtool

from chakram.fabric.core_assignment import forwarding_cores
from chakram.fabric.labs.built_lab import BuiltLab, Port
from chakram.fabric.labs.enter_namespace import require_ipv6, run_in_namespace
from chakram.fabric.labs.lab_spec import LabSpec
from chakram.fabric.labs.namespaces import (
    Namespace,
    Sysctl,
    close_namespaces,
    forwarding_sysctls,
    host_sysctls,
    make_namespaces,
    switch_sysctls,
    write_settings,
)
from chakram.fabric.labs.netlink import ask
from chakram.fabric.labs.netlink_requests import Request, new_bridge, new_veth
from chakram.fabric.labs.node_configuration import (
    BRIDGE_INDEX,
    FIRST_INDEX,
    NetworkRequests,
)
from chakram.fabric.labs.shaping import shape_end
from chakram.foundation.errors import FabricError
from chakram.foundation.ip_addresses import IPV6
from chakram.topology.addressing import AddressPlan, plan_addresses
from chakram.topology.topology import HOST_INTERFACE, Link, PortRef, Topology

if TYPE_CHECKING:
    from pyroute2 import AsyncIPRoute

log = logging.getLogger(__name__)

_BRIDGE = "br0"


def build_lab(spec: LabSpec) -> BuiltLab:
    """Build the lab that *spec* describes, or remove everything if a step fails.

    Raises:
        PrivilegeError: If this process lacks privileges.
        FabricError: If the kernel cannot build the lab.
    """
    addresses = plan_addresses(spec.topology, spec.addressing)
    if spec.addressing == IPV6:
        require_ipv6()
    settings: dict[str, tuple[Sysctl, ...]] = {
        host: host_sysctls(spec.addressing) for host in spec.topology.hosts
    }
    if spec.forwarding == "model":
        settings[spec.model_switch] = switch_sysctls(spec.addressing, spec.seed, 0)
    else:
        # On links without a rate, latency matters most, and moving packets to another
        # core increases it.
        shaped = any(link.rate_bps is not None for link in spec.topology.links)
        cores = forwarding_cores(os.sched_getaffinity(0)) if shaped else ()
        for number, switch in enumerate(spec.topology.switches):
            # Steering hashes each packet with the kernel's own key. If this or a later
            # switch chooses among equal-cost paths, it would use that hash instead of
            # its seeded hash.
            steered = () if spec.topology.path_has_choice(switch) else cores
            settings[switch] = switch_sysctls(
                spec.addressing, spec.seed, number, steered
            )
    namespaces, notes = make_namespaces(settings)
    builder = _Builder(spec, addresses, namespaces)
    try:
        builder.build()
    except BaseException:
        close_namespaces(namespaces)
        raise
    return BuiltLab(
        namespaces=namespaces,
        ports=builder.ports,
        addresses=addresses,
        prefix_lengths=builder.prefix_lengths,
        notes=(*notes, *builder.notes),
    )


class _Builder:
    def __init__(
        self, spec: LabSpec, addresses: AddressPlan, namespaces: dict[str, Namespace]
    ) -> None:
        self._spec = spec
        self._topology: Topology = spec.topology
        self._addresses = addresses
        self._namespaces = namespaces
        self._hosts = frozenset(spec.topology.hosts)
        self._model = spec.forwarding == "model"
        self._model_interfaces = spec.model_interfaces()
        self._silent = spec.addressing == IPV6
        self._next_index = dict.fromkeys(namespaces, FIRST_INDEX + 1)
        self._routed = {each.link: each for each in addresses.routed_links}
        self._subnets = {each.switch: each for each in addresses.subnets}
        self.ports: dict[PortRef, Port] = {}
        self.prefix_lengths: dict[str, int] = {}
        self.notes: list[str] = []

    def build(self) -> None:
        started_ns = time.monotonic_ns()
        self._make_links()
        network = NetworkRequests(
            self._topology,
            self._addresses,
            {end: port.index for end, port in self.ports.items()},
            is_model=self._model,
        )
        for switch in () if self._model else self._topology.switches:
            self._execute(switch, network.of_switch(switch))
            self._forward(switch)
        for host in self._topology.hosts:
            self._execute(host, network.of_host(host))
            self.prefix_lengths[host] = network.prefix_length(host)
        self._shape()
        self._cut_bursts()
        self._note_what_is_missing()
        wait_until_ready(
            [each for name, each in self._namespaces.items() if name not in self._hosts]
        )
        log.info(
            "lab built name=%s namespaces=%d links=%d elapsed_ms=%d",
            self._spec.name,
            len(self._namespaces),
            len(self._topology.links),
            (time.monotonic_ns() - started_ns) // 10**6,
        )

    def _execute(self, node: str, requests: list[Request]) -> None:
        self._namespaces[node].netlink.execute(requests)

    # Interfaces

    def _make_links(self) -> None:
        requests: dict[str, list[Request]] = {name: [] for name in self._namespaces}
        if not self._model:
            for switch, subnet in self._subnets.items():
                requests[switch].append(
                    new_bridge(
                        _BRIDGE,
                        index=BRIDGE_INDEX,
                        mac=subnet.gateway_mac,
                        mtu=self._spec.mtu,
                        silent=self._silent,
                    )
                )
        uplinks = frozenset(self._topology.uplinks())
        for link in self._topology.links:
            if link not in uplinks:
                self._make_host_link(link, requests)
            elif not self._model:
                self._make_uplink(link, requests)
        for name, some in requests.items():
            self._execute(name, some)

    def _make_host_link(self, link: Link, requests: dict[str, list[Request]]) -> None:
        host = link.a if link.a.node in self._hosts else link.b
        far = link.other_end(host.node)
        near_port = self._add_port(host, host.node, HOST_INTERFACE)
        if self._model:
            # Host names are unique, but port names are unique only within a switch.
            interface = self._model_interfaces[host.node]
            far_port = self._add_port(far, self._spec.model_switch, interface)
        else:
            far_port = self._add_port(far, far.node, far.port)
        requests[far_port.namespace].append(
            new_veth(
                far_port.interface,
                index=far_port.index,
                mac=None,
                master=None if self._model else BRIDGE_INDEX,
                mtu=self._spec.mtu,
                peer_name=near_port.interface,
                peer_index=near_port.index,
                peer_mac=self._addresses.host(host.node).mac,
                peer_namespace=self._namespaces[host.node].descriptor,
                silent=self._silent,
            )
        )

    def _make_uplink(self, link: Link, requests: dict[str, list[Request]]) -> None:
        routed = self._routed[link.name]
        a = self._add_port(link.a, link.a.node, link.a.port)
        b = self._add_port(link.b, link.b.node, link.b.port)
        requests[a.namespace].append(
            new_veth(
                a.interface,
                index=a.index,
                mac=routed.a_mac,
                master=None,
                mtu=self._spec.mtu,
                peer_name=b.interface,
                peer_index=b.index,
                peer_mac=routed.b_mac,
                peer_namespace=self._namespaces[b.namespace].descriptor,
                silent=self._silent,
            )
        )

    def _add_port(self, port: PortRef, namespace: str, interface: str) -> Port:
        index = self._next_index[namespace]
        self._next_index[namespace] = index + 1
        made = Port(namespace=namespace, interface=interface, index=index)
        self.ports[port] = made
        return made

    def _forward(self, switch: str) -> None:
        """Enable routing last, so that a switch's IPv6 ports do not announce it."""
        namespace = self._namespaces[switch]
        settings = forwarding_sysctls(self._spec.addressing)
        run_in_namespace(namespace.descriptor, write_settings, switch, settings)

    # Shaping and readiness

    def _shape(self) -> None:
        if self._model:
            return  # the modeled ports enforce rates and queue limits
        requests: dict[str, list[Request]] = {}
        for link in self._topology.links:
            if link.rate_bps is None:
                continue
            for end in (link.a, link.b):
                port = self.ports[end]
                requests.setdefault(port.namespace, []).extend(
                    shape_end(
                        port.index,
                        link,
                        rate_bps=link.rate_bps,
                        is_host=end.node in self._hosts,
                    )
                )
        for name, some in requests.items():
            self._execute(name, some)

    def _cut_bursts(self) -> None:
        """Split bursts into packets on links to a switch process and on captured links.

        A burst that crosses a link as a whole is captured as a whole at both ends.
        Therefore both ends of a captured host's link split bursts. All other links keep
        segmentation offload.
        """
        captured = self._spec.capture_hosts
        ends = [
            self._topology.host_link(host).end_at(host)
            for host in (self._topology.hosts if self._model else captured)
        ]
        if captured and not self._model:
            ends += [
                self._topology.host_link(host).other_end(host) for host in captured
            ]
            self.notes.append(
                f"packets to and from {', '.join(captured)} are sent one at a time, so "
                "that they can be captured: this may reduce the rate"
            )
        for port in (self.ports[end] for end in ends):
            run_in_namespace(
                self._namespaces[port.namespace].descriptor,
                switch_off_udp_segmentation,
                port.namespace,
                port.interface,
            )

    def _note_what_is_missing(self) -> None:
        if not self._model and any(link.delay_ns for link in self._topology.links):
            self.notes.append(
                "link delays are not emulated: each hop has the kernel's own delay of "
                "about 10 us"
            )


_OPERATIONAL = "UP"
_BRIDGE_PORT_FORWARDS = 3
_READY_WITHIN_NS = 10 * 10**9
_READY_POLL_S = 0.005


def switch_off_udp_segmentation(node: str, interface: str) -> None:
    """Disable UDP segmentation offload. Call this in the node's namespace.

    Args:
        node: Name of the host or switch, for error messages.
        interface: Interface of the node.

    Raises:
        FabricError: If the kernel cannot disable it.
    """
    device = IoctlEthtool(interface)
    try:
        features = device.get_features()
        features["tx-udp-segmentation"] = False
        device.set_features(features)
    except (OSError, EthtoolError, KeyError) as error:
        raise FabricError(
            f"interface {interface} of {node}",
            f"cannot disable tx-udp-segmentation ({error!r})",
            "leave out fabric.capture",
        ) from error
    finally:
        device.close()


def wait_until_ready(switches: Iterable[Namespace]) -> None:
    """Wait until every port of every switch is up and forwards.

    The kernel sets up the switch's end of an interface pair, and opens the ports of a
    bridge, in the background. Packets that are sent before these ports are ready are
    lost. Host interfaces can send as soon as they are up, whatever state they report.

    Raises:
        FabricError: If this takes longer than 10 s.
    """
    deadline_ns = time.monotonic_ns() + _READY_WITHIN_NS
    waiting = list(switches)
    while True:
        sockets = [each.netlink for each in waiting]
        ready = ask(sockets, _all_ready, "reading its interfaces")
        waiting = [
            each for each, is_ready in zip(waiting, ready, strict=True) if not is_ready
        ]
        if not waiting:
            return
        if time.monotonic_ns() > deadline_ns:
            names = ", ".join(each.name for each in waiting)
            raise FabricError(
                "fabric", f"ports of {names} did not come up", "see the kernel's log"
            )
        time.sleep(_READY_POLL_S)


async def _all_ready(route: AsyncIPRoute) -> bool:
    return all(
        [
            _is_ready(link)
            async for link in await route.link("dump")
            if link["index"] >= FIRST_INDEX
        ]
    )


def _is_ready(link: Any) -> bool:
    if link.get_attr("IFLA_OPERSTATE") != _OPERATIONAL:
        return False
    state = link.get_nested(
        "IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA", "IFLA_BRPORT_STATE"
    )
    return state is None or state == _BRIDGE_PORT_FORWARDS
