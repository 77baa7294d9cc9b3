"""Conversion of Open Traffic Generator (OTG) configurations to experiments.

The models are those of open-traffic-generator/models 1.62 (``snappi``): ports, devices
with RoCEv2 interfaces, peers and queue pairs, and stateful flows between queue pairs.
Each flow becomes a job of two ranks. The first rank sends messages to the second until
the traffic is stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chakram.foundation.errors import InputError
from chakram.service.otg_collectives import (
    ECN,
    CollectivePlan,
    experiment,
    read_collectives,
)
from chakram.service.otg_reader import ConfigReader, numeral
from chakram.settings.located_errors import Location

MOST_FLOWS = 64
"""Maximum number of flows in a configuration, because each flow is a job."""

_ITERATION_BYTES = 1 << 20
_MOST_MESSAGES = 4_096
_UNITS = {"bytes": 1, "kb": 1_000, "mb": 1_000_000, "gb": 1_000_000_000}
_VERBS = {
    **dict.fromkeys(("write", "write_with_immediate"), "write"),
    **dict.fromkeys(("send", "send_with_immediate"), "send"),
}
_MTUS = (4096, 2048, 1024, 512, 256)
_LARGEST_MESSAGE = 1 << 31
_DCQCN = (
    *("alpha_g", "initial_alpha", "alpha_update_period", "rate_reduction_time_period"),
    *("initial_rate_after_first_cnp", "minimum_rate_limmit"),
    *("maximum_rate_decrement_at_time", "clamp_target_rate", "rate_increment_time"),
    *("rate_increment_byte_counter", "rate_increment_threshold"),
    *("additive_increment_rate", "hyper_increment_rate"),
)
"""DCQCN settings, with the names that OTG uses in a profile."""

_RETRANSMISSION = (
    ("retransmission_retry_count", "retry_limit", 1000),
    ("retransmission_timeout_value", "local_ack_timeout", 31),
)
"""OTG retransmission settings: name, key in ``transport``, and largest value."""

_VENDOR = ("transport", "congestion_control", "dcqcn", "vendor")
"""Location of the DCQCN settings in an experiment."""


_Addresses = dict[str, tuple[str, str]]
"""Port and address, by the name of the address in the configuration."""


class OtgProblem(InputError):
    """A configuration that cannot be used.

    Attributes:
        status: 400 if the configuration is wrong, 501 if it is not supported.
        errors: One sentence per mistake, which begins with the place of the mistake.
    """

    def __init__(self, status: int, errors: list[str]) -> None:
        super().__init__("config", errors[0] if errors else "is wrong")
        self.status = status
        self.errors = errors


@dataclass(frozen=True, slots=True, kw_only=True)
class OtgFlow:
    """An OTG flow, which becomes a job of two ranks.

    Attributes:
        name: Name of the flow.
        job: Name of its job in the experiment.
        port_tx: Name of the port that sends.
        port_rx: Name of the port that receives.
        message_bytes: Size of a message.
        share: Send rate in percent of the sending port's line rate.
        verb: ``write`` or ``send``.
        queue_pairs: Names of its queue pairs, first the sender's.
        dscp: DSCP of its packets, or None for the default.
    """

    name: str
    job: str
    port_tx: str
    port_rx: str
    message_bytes: int
    share: float
    verb: str
    queue_pairs: tuple[str, ...]
    dscp: int | None = None


@dataclass(slots=True)
class OtgPlan:
    """A configuration that can be run.

    Attributes:
        locations: Fabric port of each OTG port, by name of the OTG port.
        ethernets: Port name of each Ethernet interface, by name of the interface.
        peers: Queue pair names by IP version, then by name of the peer.
        flows: Flows between queue pairs.
        collectives: The collectives, which run instead of flows.
        transport: Section ``transport`` of the experiment.
        places: Places in the configuration from which some experiment keys come.
        warnings: Differences between the configuration and its runs.
    """

    locations: dict[str, str] = field(default_factory=dict)
    ethernets: dict[str, str] = field(default_factory=dict)
    peers: dict[str, dict[str, list[str]]] = field(
        default_factory=lambda: {"ipv4": {}, "ipv6": {}}
    )
    flows: list[OtgFlow] = field(default_factory=list)
    collectives: CollectivePlan | None = None
    transport: dict[str, Any] = field(default_factory=dict)
    places: dict[Location, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def experiment(self, fabric: str) -> dict[str, Any]:
        """Return the experiment that sends all flows until it is canceled."""
        jobs, rules = [], []
        for each in self.flows:
            if each.dscp is not None:
                rules.append({"job": each.job, "dscp": each.dscp})
            trace = {
                "synth": "one_to_all",
                "ranks": 2,
                "size": f"{each.message_bytes}B",
                "repeats": _messages(each.message_bytes),
                "barrier": False,
            }
            ports = [self.locations[name] for name in (each.port_tx, each.port_rx)]
            jobs.append(
                {
                    "name": each.job,
                    "trace": trace,
                    "compute": {"from": "none"},
                    "placement": {"ports": ports},
                }
            )
        transport = self.transport | ({"class_of": rules} if rules else {})
        return experiment(jobs, fabric, transport)


def _messages(size_bytes: int) -> int:
    """Return the number of messages of one iteration."""
    return max(1, min(_MOST_MESSAGES, math.ceil(_ITERATION_BYTES / size_bytes)))


@dataclass(slots=True)
class _QueuePair:
    port: str
    address: str
    destination: str
    index: int
    dscp: int | None
    ecn: str | None


class _Converter:
    def __init__(self, config: Any, locations: Mapping[str, str]) -> None:
        self.wrong: list[str] = []
        self.unable: list[str] = []
        self._known = locations
        self._plan = OtgPlan()
        self._queue_pairs: dict[str, _QueuePair] = {}
        # First queue pair, by own address, peer address, and position.
        self._by_ends: dict[tuple[str, str, int], str] = {}
        self._port_of_address: dict[str, str] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._slow: list[str] = []  # places of rates below 100 %
        self._port_of_device: dict[str, str] = {}
        self._config = ConfigReader(config, "", self.wrong, self.unable)

    def convert(self) -> OtgPlan:
        config = self._config
        for port in config.many("ports"):
            self._port(port)
        for device in config.many("devices"):
            self._device(device)
        for stateful in config.one("stateful_flows"):
            stateful.skip("choice")
            for group in stateful.many("rocev2"):
                for tx_port in group.many("tx_ports"):
                    self._tx_port(tx_port)
        controls: list[dict[str, Any]] = []
        for options in config.one("options"):
            controls += self._options(options)
        if 0 < len(controls) < len(self._plan.locations):
            self._warn("options of some ports apply to all ports")
        pairs = self._queue_pairs.values()
        given = sum(each.ecn is not None for each in pairs)
        if 0 < given < len(pairs):
            self._warn("ecn of some queue pairs applies to all queue pairs")
        for name in ("layer1", "events"):
            if config.data.get(name):
                self._warn(f"{name} has no effect here")
        config.skip("layer1", "events")
        self._transport(controls)
        for collectives in config.one("ccl"):
            self._collectives(collectives)
        config.end()
        if self.wrong:
            raise OtgProblem(400, self.wrong)
        if self.unable:
            raise OtgProblem(501, self.unable)
        return self._plan

    def _port(self, port: ConfigReader) -> None:
        name = self._unique(port, "name")
        location = port.text("location")
        if location and location not in self._known:
            known = ", ".join(list(self._known)[:8])
            found = f"{location:.60} is not a port of the fabric; its ports are {known}"
            port.note_wrong("location", found)
        elif location in self._plan.locations.values():
            port.note_wrong("location", f"{location} is used twice")
        else:
            self._plan.locations[name] = location

    def _device(self, device: ConfigReader) -> None:
        name = self._unique(device, "name")
        own: _Addresses = {}
        for ethernet in device.many("ethernets"):
            self._ethernet(ethernet, own)
        for rocev2 in device.one("rocev2"):
            for version in ("ipv4", "ipv6"):
                for interface in rocev2.many(f"{version}_interfaces"):
                    self._interface(interface, version, own)
        ports = {port for port, _ in own.values() if port in self._plan.locations}
        if len(ports) == 1:
            self._port_of_device[name] = self._plan.locations[ports.pop()]

    def _collectives(self, collectives: ConfigReader) -> None:
        plan = self._plan
        is_ipv6 = any(":" in address for address in self._known.values())
        family = "ipv6" if is_ipv6 else "ipv4"
        plan.collectives = read_collectives(
            collectives, self._port_of_device, plan.transport, family=family
        )
        if plan.flows:
            found = "collectives and flows need separate configurations"
            self.unable.append(f"{collectives.path}: {found}")

    def _ethernet(self, ethernet: ConfigReader, own: _Addresses) -> None:
        name = self._unique(ethernet, "name")
        ethernet.skip("mac", "mtu")
        port = ""
        for connection in ethernet.one("connection", is_required=True):
            connection.choice("choice", ("port_name",), "port_name")
            port = connection.text("port_name")
            if port and port not in self._plan.locations:
                connection.note_wrong("port_name", f"{port} is unknown")
        self._plan.ethernets[name] = port
        for version in ("ipv4", "ipv6"):
            for address in ethernet.many(f"{version}_addresses"):
                text = address.text("address")
                address.skip("gateway", "prefix", "gateway_mac")
                own[self._unique(address, "name")] = (port, text)
                actual = self._known.get(self._plan.locations.get(port, ""))
                if actual is not None and text and text != actual:
                    self._warn(f"port {port} keeps its address {actual}")
                self._port_of_address[text] = port

    def _interface(
        self, interface: ConfigReader, version: str, own: _Addresses
    ) -> None:
        key = f"{version}_name"
        name = interface.text(key)
        if name and name not in own:
            interface.note_wrong(key, f"{name:.60} is unknown")
        port, address = own.get(name, ("", ""))
        asked = interface.whole("ib_mtu", 4096, 256, 9216)
        mtu = next(each for each in _MTUS if each <= asked)
        if mtu != asked:
            self._warn(f"the path MTU is {mtu}, the largest up to {asked}")
        if self._plan.transport.setdefault("path_mtu", mtu) != mtu:
            interface.note_unable("ib_mtu", "all interfaces must have the same")
        for peer in interface.many("peers"):
            peer_name = self._unique(peer, "name")
            destination = peer.text("destination_ip_address")
            names: list[str] = []
            for index, queue_pair in enumerate(peer.many("qps")):
                qp_name = self._unique(queue_pair, "qp_name")
                dscp, ecn = self._connection(queue_pair)
                self._queue_pairs[qp_name] = _QueuePair(
                    port, address, destination, index, dscp, ecn
                )
                self._by_ends.setdefault((address, destination, index), qp_name)
                names.append(qp_name)
            self._plan.peers[version][peer_name] = names

    def _connection(self, queue_pair: ConfigReader) -> tuple[int | None, str | None]:
        """Return the DSCP and ECN of a queue pair, with None for a missing value."""
        dscp: int | None = None
        ecn: str | None = None
        for kind in queue_pair.one("connection_type"):
            for settings in kind.only("reliable_connection"):
                if "dscp" in settings.data:
                    dscp = settings.whole("dscp", 26, 0, 63)
                if "ecn" in settings.data:
                    ecn = ECN[settings.choice("ecn", ECN, "ect_0")]
                for ignored in ("source_qp_number", "initial_psn", "udp_source_port"):
                    if ignored in settings.data:
                        settings.skip(ignored)
                        self._warn(f"{ignored} is chosen by the engine")
                settings.skip("virtual_address", "remote_key")
        return dscp, ecn

    def _tx_port(self, tx_port: ConfigReader) -> None:
        port = tx_port.text("port_name")
        if port and port not in self._plan.locations:
            tx_port.note_wrong("port_name", f"{port:.60} is unknown")
        for kind in tx_port.one("transmit_type", is_required=True):
            kind.choice("choice", ("target_line_rate",), "target_line_rate")
            for rate in kind.one("target_line_rate", is_required=True):
                share = rate.number("value", 100, 1, 100)
                if share < 100:
                    self._slow.append(rate.at("value"))
                flows = rate.data.get("flows")
                count = len(flows) if isinstance(flows, list) else 1
                for flow in rate.many("flows"):
                    self._flow(flow, port, share / count)

    def _flow(self, flow: ConfigReader, port: str, share: float) -> None:
        name = self._unique(flow, "name", kind="flow")
        ends: list[str] = []
        for key in ("tx_endpoint", "rx_endpoint"):
            if key == "rx_endpoint" and not flow.data.get(key):
                endpoint = self._opposite(ends[0])
                flow.skip(key)
                if not endpoint:
                    found = f"no queue pair is opposite to {ends[0]:.60}"
                    flow.note_wrong(key, f"is missing, and {found}")
            else:
                endpoint = flow.text(key)
            if endpoint and endpoint not in self._queue_pairs:
                flow.note_wrong(key, f"{endpoint:.60} is not a queue pair")
            ends.append(endpoint)
        first, second = (self._queue_pairs.get(each) for each in ends)
        if first is not None and first.port != port:
            flow.note_wrong("tx_endpoint", f"is not at port {port}")
        known = self._names.setdefault(("tx_endpoint", ends[0]), flow.path)
        if known != flow.path:
            flow.note_wrong("tx_endpoint", f"is also that of {known}")
        unit = flow.choice("message_size_unit", _UNITS, "bytes")
        size = flow.whole("message_size", 64, 1, 1 << 32) * _UNITS[unit]
        if size > _LARGEST_MESSAGE:
            flow.note_wrong("message_size", "is above 2 GiB")
        word = "write"
        for verb in flow.one("rocev2_verb"):
            word = verb.choice("choice", _VERBS, "write")
            verb.skip("write_with_immediate", "send_with_immediate")
        if first is None or second is None or not name:
            return
        if first.port == second.port:
            flow.note_wrong("rx_endpoint", "is at the same port")
        elif self._port_of_address.get(first.destination) not in (None, second.port):
            found = f"destination of {ends[0]:.60}, {first.destination:.60}"
            flow.note_wrong("rx_endpoint", f"is not at the {found}")
        self._plan.flows.append(
            OtgFlow(
                name=name,
                job=f"f{len(self._plan.flows)}",
                port_tx=first.port,
                port_rx=second.port,
                message_bytes=size,
                share=share,
                verb=_VERBS[word],
                queue_pairs=tuple(ends),
                dscp=first.dscp,
            )
        )

    def _options(self, options: ConfigReader) -> list[dict[str, Any]]:
        """Return the congestion control settings of each port that has any."""
        found: list[dict[str, Any]] = []
        options.skip("port_options", "protocol_options", "flow_options")
        for port in options.many("per_port_options"):
            name = port.text("port_name")
            if name and name not in self._plan.locations:
                port.note_wrong("port_name", f"{name:.60} is unknown")
            for protocol in port.many("protocols"):
                found += [self._of_port(each) for each in protocol.only("rocev2")]
        return found

    def _of_port(self, settings: ConfigReader) -> dict[str, Any]:
        control: dict[str, Any] = {}
        for dcqcn in settings.one("dcqcn_settings"):
            is_on = dcqcn.data.get("enable_dcqcn", True)
            dcqcn.skip("enable_dcqcn", *_DCQCN)
            if not isinstance(is_on, bool):
                dcqcn.note_wrong("enable_dcqcn", "is not true or false")
            given: dict[str, Any] = {}
            for name in _DCQCN:
                value = dcqcn.data.get(name)
                if value is None:
                    continue
                self._plan.places.setdefault((*_VENDOR, name), dcqcn.at(name))
                # One of these values is a boolean. The profile checks which one.
                given[name] = value if isinstance(value, bool) else numeral(value)
                if given[name] is None:
                    dcqcn.note_wrong(name, "is not a number")
            if is_on:
                section: dict[str, Any] = {"vendor": given} if given else {}
                control["congestion_control"] = {"dcqcn": section}
        for cnp in settings.one("cnp"):
            for value in cnp.only("ip_dscp"):
                control["cnp_dscp"] = value.whole("value", 48, 0, 63)
            cnp.skip("ecn_value")
            if "cnp_delay_timer" in cnp.data:
                timer = cnp.number("cnp_delay_timer", 55, 0, 10**6)
                vendor = control.get("congestion_control", {}).get("dcqcn")
                if vendor is not None:
                    vendor.setdefault("vendor", {})["cnp_delay_timer"] = timer
                else:
                    self._warn("cnp_delay_timer has no effect without DCQCN")
        for kind in settings.one("connection_type"):
            for answers in kind.only("reliable_connection"):
                answers.skip("ack", "nak", "enable_retransmission_timeout")
                for name, key, most in _RETRANSMISSION:
                    if name in answers.data:
                        control[key] = answers.whole(name, 0, 0, most)
        return control

    def _transport(self, controls: list[dict[str, Any]]) -> None:
        """Set the transport, which is the same for all ports."""
        transport = self._plan.transport
        if any(each != controls[0] for each in controls):
            self.unable.append(
                "options.per_port_options: must be the same for all ports"
            )
        if controls:
            transport |= controls[0]
        shares = {each.share for each in self._plan.flows}
        if "congestion_control" in transport:
            found = "must be 100 with DCQCN, which sets the rates"
            self.unable += [f"{place}: {found}" for place in self._slow]
            shares = set()
        codes = {each.ecn for each in self._queue_pairs.values()} - {None}
        if ecn := self._shared("ecn", codes):
            transport["ecn"] = ecn
        verbs = {each.verb for each in self._plan.flows}
        if verb := self._shared("rocev2_verb", verbs):
            transport["verb"] = verb
        if share := self._shared("target_line_rate", shares):
            # A queue pair sends at this share of the line rate.
            rate = {"rate": f"{share:.6g}%"}
            transport["congestion_control"] = {"fixed_rate": rate}
        if "cnp_dscp" in transport:
            transport["dscp"] = {"cnp": transport.pop("cnp_dscp")}
        if len(self._plan.flows) > MOST_FLOWS:
            self.unable.append(f"stateful_flows: more than {MOST_FLOWS} flows")

    def _shared(self, name: str, values: set[Any]) -> Any:
        """Return the value that all queue pairs share, or None if there is no value."""
        if len(values) > 1:
            self.unable.append(f"{name}: must be the same for all queue pairs")
        return next(iter(values), None)

    def _opposite(self, name: str) -> str:
        """Return the queue pair at the other end of *name*, empty if there is none."""
        own = self._queue_pairs.get(name)
        if own is None:
            return ""
        return self._by_ends.get((own.destination, own.address, own.index), "")

    def _unique(self, reader: ConfigReader, key: str, *, kind: str = "") -> str:
        name = reader.text(key)
        known = self._names.setdefault((kind, name), reader.path)
        if name and known != reader.path:
            reader.note_wrong(key, f"{name:.60} is also the name of {known}")
        return name

    def _warn(self, text: str) -> None:
        if text not in self._plan.warnings:
            self._plan.warnings.append(text)


def convert_config(config: Any, ports: Mapping[str, str]) -> OtgPlan:
    """Return the plan of a configuration.

    Args:
        config: The configuration, as parsed JSON with OTG's names.
        ports: Address of each fabric port, by port name.

    Raises:
        OtgProblem: If the configuration is wrong or not supported. The error lists all
            places.
    """
    return _Converter(config, ports).convert()
