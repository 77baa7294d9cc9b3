"""Functions that open ports from specifications in the format ``kind:details``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from chakram.fabric.labs.enter_namespace import in_namespace
from chakram.foundation.errors import ConfigError, PeerError
from chakram.plan.port_plan import HEARS_PAUSES
from chakram_agent.dataplane.loop import Line
from chakram_agent.dataplane.memory_port import MemoryNetwork, MemoryPort
from chakram_agent.dataplane.pause_listener import PauseListener
from chakram_agent.dataplane.port_options import PortOptions, of_class
from chakram_agent.dataplane.route_check import check_route
from chakram_agent.dataplane.udp_port import open_udp_port
from chakram_agent.dataplane.verbs_engine import VerbsEngine
from chakram_agent.dataplane.verbs_port import open_verbs_line

if TYPE_CHECKING:
    import socket

    from chakram.plan.port_plan import PortPlan
    from chakram.plan.transport import TransportPlan
    from chakram.replay.endpoint import Endpoint
    from chakram_agent.dataplane.port_base import Port
    from chakram_agent.send_limits import Policy


PORT_KINDS = ("udp", "verbs", "memory")


def open_port(
    specification: str, options: PortOptions, network: MemoryNetwork | None = None
) -> Port:
    """Open a port in the calling thread's network namespace.

    Args:
        specification: ``udp:``, ``udp:INTERFACE`` or ``memory:``. The suffix
            ``,pauses`` may follow an interface (see ``open_line``).
        options: Addresses, source ports and buffers of the port.
        network: Network that connects the ``memory:`` ports of this process.

    Raises:
        ConfigError: If the kind of port is unknown.
        EnvironmentProblem: If the port cannot be opened.
    """
    kind, colon, details = specification.partition(":")
    if colon and kind == "udp":
        return open_udp_port(details.removesuffix(HEARS_PAUSES), options)
    if colon and kind == "memory" and not details:
        return MemoryPort(network or MemoryNetwork(), options)
    raise ConfigError(
        f"port {specification!r}",
        "this agent does not support that kind of port",
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
    """Enter the namespace of a port and check the *addresses* that the port sends to.

    Raises:
        ChakramError: If an address is not allowed, is not a member of the plan, or has
            a route through ``lo``.
    """
    where = f"port {port.number} ({port.host})"
    # A process cannot leave the namespace of a rootless lab. A shard does not need to
    # leave it.
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

    If the specification ends with ``,pauses``, the port obeys pause frames that arrive.

    Args:
        endpoint: The endpoint with all its queue pairs.
        transport: Settings of the queue pairs.
        policy: Limits on destinations of this agent.
        members: Addresses of the plan. The agent sends nothing to other addresses.
        network: Network that connects the ``memory:`` ports of this process.
        receiver: Receiving socket of this part of a divided port. If it is None, the
            port opens a socket.

    Raises:
        ChakramError: If the port cannot be opened, or a destination is not allowed or
            has a route through ``lo``.
    """
    port = endpoint.port
    addresses = [address for address, _ in endpoint.destinations]
    if isinstance(endpoint.engine, VerbsEngine):
        with place_of(port, addresses, policy=policy, members=members):
            return open_verbs_line(endpoint, endpoint.engine, transport)
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
    with place_of(port, addresses, policy=policy, members=members):
        line = Line(endpoint, open_port(port.open, options, network), transport)
        # ACKs and NAKs use the class of their queue pair's data, unless the plan sets a
        # separate class for ACKs and NAKs.
        together = transport.dscp_ack == transport.dscp_data
        line.use_classes(sources, sources if together else {})
        if port.obeys_pauses:
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
