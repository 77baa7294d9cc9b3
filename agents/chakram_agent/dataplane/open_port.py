"""Opens ports by their specification: ``kind:details``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from chakram.fabric.labs.enter_namespace import in_namespace
from chakram.foundation.errors import ConfigError, PeerError
from chakram.plan.plan import HEARS_PAUSES
from chakram_agent.dataplane.loop import Line
from chakram_agent.dataplane.memory_port import MemoryNetwork, MemoryPort
from chakram_agent.dataplane.pause_listener import PauseListener
from chakram_agent.dataplane.port_options import PortOptions, of_class
from chakram_agent.dataplane.route_check import check_route
from chakram_agent.dataplane.udp_port import open_udp_port

if TYPE_CHECKING:
    import socket

    from chakram.plan.plan import PortPlan
    from chakram.plan.transport import TransportPlan
    from chakram.replay.endpoint import Endpoint
    from chakram_agent.dataplane.port_options import Port
    from chakram_agent.send_limits import Policy


PORT_KINDS = ("udp", "memory")


def open_port(
    specification: str, options: PortOptions, network: MemoryNetwork | None = None
) -> Port:
    """Open a port in the calling thread's network namespace.

    Args:
        specification: ``udp:``, ``udp:INTERFACE`` or ``memory:``; behind an interface
            may stand ``,pauses``, see ``open_line``.
        options: Addresses, source ports, buffers.
        network: Where ``memory:`` ports of this process meet.

    Raises:
        ConfigError: If the specification is not known here.
        EnvironmentProblem: If the port cannot be opened.
    """
    kind, colon, details = specification.partition(":")
    if colon and kind == "udp":
        return open_udp_port(details.removesuffix(HEARS_PAUSES), options)
    if colon and kind == "memory" and not details:
        return MemoryPort(network or MemoryNetwork(), options)
    raise ConfigError(
        f"port {specification!r}",
        "that is not a kind of port this agent has",
        f"known: {', '.join(f'{each}:' for each in PORT_KINDS)}",
    )


@contextmanager
def place_of(
    port: PortPlan,
    addresses: Iterable[str],
    *,
    policy: Policy,
    members: Collection[str],
) -> Iterator[None]:
    """Enter the namespace of a port that is to send to *addresses*.

    Raises:
        ChakramError: If one of them is not allowed, is no member of the plan, or would
            be reached through ``lo``.
    """
    where = f"port {port.number} ({port.host})"
    # Inside a rootless lab there is no way back; a shard does nothing else there.
    with (
        nullcontext() if port.netns is None else in_namespace(port.netns, may_stay=True)
    ):
        for address in addresses:
            policy.check_destination(address, where=where)
            if address not in members:
                raise PeerError(where, f"{address} is not a member of the plan")
            if port.open.startswith("udp:"):
                check_route(address, source=port.address)
        yield


def open_line(
    endpoint: Endpoint,
    transport: TransportPlan,
    *,
    policy: Policy,
    members: Collection[str],
    network: MemoryNetwork | None = None,
    receiver: socket.socket | None = None,
) -> Line:
    """Open the port of *endpoint* in its network namespace.

    Where ``,pauses`` stands behind its interface, it obeys pause frames that come.

    Args:
        endpoint: With all its queue pairs.
        transport: Settings of these.
        policy: What this agent may send to.
        members: Addresses of the plan: nothing is sent to others either.
        network: Where ``memory:`` ports of this process meet.
        receiver: The socket to receive on, where the port is divided.

    Raises:
        ChakramError: If the port cannot be opened, or a destination is not allowed or
            would be reached through ``lo``.
    """
    port = endpoint.port
    queue_pairs = endpoint.engine.queue_pairs()
    sources: dict[int, int] = {}
    if port.open.startswith("udp:"):
        sources = {
            pair.qpn: of_class(
                pair.source_port, endpoint.dscps[pair.qpn] << 2 | transport.ecn
            )
            for pair in queue_pairs
            if pair.qpn in endpoint.dscps
        }
    options = PortOptions(
        address=port.address,
        udp_port=port.udp_port,
        destinations=endpoint.destinations,
        source_ports=sorted(
            {pair.source_port for pair in queue_pairs}.union(sources.values())
        ),
        data_tos=transport.dscp_data << 2 | transport.ecn,
        control_tos=transport.dscp_ack << 2 | transport.ecn,
        cnp_tos=transport.dscp_cnp << 2 | transport.ecn,
        receiver=receiver,
    )
    addresses = [address for address, _ in endpoint.destinations]
    with place_of(port, addresses, policy=policy, members=members):
        line = Line(endpoint, open_port(port.open, options, network), transport)
        # Answers go along, unless they have a class of their own.
        together = transport.dscp_ack == transport.dscp_data
        line.use_classes(sources, sources if together else {})
        if port.hears_pauses:
            try:
                line.pauses = PauseListener(
                    port.interface,
                    rate_bps=port.rate_bps,
                    data_dscps={
                        endpoint.dscps.get(pair.qpn, transport.dscp_data)
                        for pair in queue_pairs
                    },
                    ack_dscp=transport.dscp_ack,
                )
            except BaseException:
                line.port.close()
                raise
        return line
