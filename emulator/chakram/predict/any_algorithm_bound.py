"""The ceiling of a collective: a lower bound on its time with any algorithm.

The ceiling is the time in which the required bytes cross the group's ports. It includes
headers at the path MTU, but not latency. S is the input of one rank. The group has n
ranks on q ports. A port with m of the ranks must carry, in its busier direction,

    all_reduce             S, and all q ports together 2(q - 1)S
    all_gather             max(m, n - m) S
    reduce_scatter         max(m, n - m) S/n
    all_to_all             m(n - m) S/n
    all_to_all_v           the larger of the bytes to and from ranks on other ports
    broadcast, reduce      S
    gather, scatter        n - m shards at the root's port, m shards at other ports
    send_recv              S per rank whose next rank is on another port

With one rank per port, all_reduce therefore needs 2(n - 1)/n S. The sum over the ports
holds because each of q - 1 ports must send its contribution and receive the result.
Reductions inside switches are not considered. Token buckets may run ahead of their rate
by a limited time. The bound is lower by this time.

If messages between ranks of one host stay within the host, all ports of the host count
as one port with their total rate. The host may use any of these ports for its traffic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Matrix
from chakram.plan.wire_cost import wire_bytes
from chakram.predict.fabric_model import FabricModel


def ceiling_ns(
    op: CollectiveOp,
    *,
    ranks: Sequence[int],
    root: int,
    input_bytes: int,
    fabric: FabricModel,
    path_mtu: int,
    verb: str = "write",
    matrix: Matrix | None = None,
) -> int | None:
    """Return a lower bound on the time of any algorithm: see the module docstring.

    For an all_to_all_v, *matrix* contains the bytes between each pair of positions.

    Returns:
        The time in nanoseconds. None if there is no bound, because no bytes cross
        ports, ports have no rate limit, or all ranks are on one port or host.
    """
    host_of = _hosts(fabric)
    hosts = [host_of[fabric.port_of[rank]] for rank in ranks]
    rates_bps = _rates(fabric, [fabric.port_of[rank] for rank in ranks], hosts)
    if len(rates_bps) == 1:
        return None

    ahead_ns = max(fabric.ahead_ns, default=0.0)

    def time_ns(payload_bytes: int, rate_bps: int | None) -> int:
        if not payload_bytes or rate_bps is None:
            return 0
        nbytes = wire_bytes(
            payload_bytes,
            path_mtu=path_mtu,
            verb=verb,
            overhead_bytes=fabric.overhead_bytes,
        )
        # Round down, like all bounds.
        return max(0, int(nbytes * 8 * 10**9 // rate_bps - ahead_ns))

    crossing = (
        {
            host: _crossing_bytes(op, host, hosts, hosts[root], input_bytes)
            for host in rates_bps
        }
        if matrix is None
        else _uneven_crossing_bytes(hosts, matrix)
    )
    bounds_ns = [
        time_ns(payload_bytes, rates_bps[host])
        for host, payload_bytes in crossing.items()
    ]
    if op == CollectiveOp.ALL_REDUCE and None not in rates_bps.values():
        total_bytes = 2 * (len(rates_bps) - 1) * input_bytes
        total_bps = sum(rate for rate in rates_bps.values() if rate)
        bounds_ns.append(time_ns(total_bytes, total_bps))
    return max(bounds_ns) or None


def _hosts(fabric: FabricModel) -> list[int]:
    """Return a representative port for each port.

    If messages stay within a host, all ports of the host have the same representative.
    """
    host_of = list(range(len(fabric.ports_bps)))

    def first(port: int) -> int:
        while host_of[port] != port:
            port = host_of[port]
        return port

    for src, dst in fabric.local_bps:
        one, other = sorted((first(fabric.port_of[src]), first(fabric.port_of[dst])))
        host_of[other] = one
    return [first(port) for port in host_of]


def _rates(
    fabric: FabricModel, ports: Sequence[int], hosts: Sequence[int]
) -> dict[int, int | None]:
    """Return the total port rate by host; None means that a port is unlimited."""
    rates: dict[int, int | None] = dict.fromkeys(hosts, 0)
    for port, host in dict(zip(ports, hosts, strict=True)).items():
        rate_bps, so_far = fabric.ports_bps[port], rates[host]
        rates[host] = None if rate_bps is None or so_far is None else so_far + rate_bps
    return rates


def _uneven_crossing_bytes(hosts: Sequence[int], matrix: Matrix) -> dict[int, int]:
    """Return the payload of an all_to_all_v in each host's busier direction."""
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    for src, row in zip(hosts, matrix, strict=True):
        for dst, size_bytes in zip(hosts, row, strict=True):
            if src != dst:
                out[src] += size_bytes
                into[dst] += size_bytes
    return {host: max(out[host], into[host]) for host in hosts}


def _crossing_bytes(
    op: CollectiveOp, port: int, ports: Sequence[int], root_port: int, input_bytes: int
) -> int:
    """Return the payload that must cross *port* in its busier direction."""
    nranks = len(ports)
    here = ports.count(port)
    away = nranks - here
    match op:
        case CollectiveOp.ALL_REDUCE | CollectiveOp.BROADCAST | CollectiveOp.REDUCE:
            return input_bytes
        case CollectiveOp.ALL_GATHER:
            return max(here, away) * input_bytes
        case CollectiveOp.REDUCE_SCATTER:
            return max(here, away) * input_bytes // nranks
        case CollectiveOp.ALL_TO_ALL | CollectiveOp.ALL_TO_ALL_V:
            return here * away * input_bytes // nranks
        case CollectiveOp.GATHER:
            return (away if port == root_port else here) * input_bytes
        case CollectiveOp.SCATTER:
            return (away if port == root_port else here) * input_bytes // nranks
        case CollectiveOp.SEND_RECV:
            following = [*ports[1:], ports[0]]
            leaving = sum(a == port != b for a, b in zip(ports, following, strict=True))
            return leaving * input_bytes
        case CollectiveOp.BARRIER:
            return 0
