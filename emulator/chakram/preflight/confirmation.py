"""Evidence on suspected faults that does not depend on busy hosts.

A host that shares its cores with other work sends late, receives late, and requests
packets that were not lost.  Three kinds of evidence do not depend on such a host:

* Trains: packets sent back to back, with arrival times from the receiver's kernel.  The
  link determines the spacing of these packets.
* Many single packets, except those dropped by the full socket of the receiver.
* Negative acknowledgments: a receiver misses a packet only if a later packet has
  arrived.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import exp
from statistics import median

from chakram.control.events import ShardLoad
from chakram.plan.port_plan import PortPlan
from chakram.plan.probes import ETHERNET_BYTES, MOST_COPIES, ProbePacket
from chakram.plan.transport import TransportPlan
from chakram.preflight.probe_plan import SMALL_BYTES, PathReport, headers_bytes
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS

Pair = tuple[int, int]
"""Positions of the sending and the receiving port."""

TRAINS = 8
"""Number of trains sent for a pair."""

LEAST_TRAINS = 3
"""Minimum number of trains that can show that a link is slow."""

_LATE_NS = 5_000_000
_QUEUED_SHARE = 0.05
"""Maximum lag of a data plane, and its maximum share of time waiting for a core.

Above either limit, the data plane may be the cause of a slow pair.
"""

LOSS_PROBES = 1200
"""Number of single packets that are sent to detect loss."""

_TRAIN_PACKETS = 96
_FEW_PACKETS = 24
_SHORT_TRAIN_NS = 25_000_000
_LONG_TRAIN_NS = 100_000_000
_SMALL_MTU = 1024
_LATE_SHARE = 0.05
"""Share of a train's duration by which its sender may lag behind the link rate."""

_DOUBT = 1e-4
"""Maximum probability that a link within its loss limit causes the counted losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence on one direction of a pair, in addition to its figures.

    Attributes:
        hosts_late: Whether the data plane of one of the two hosts was late.
        naks: Whether packets were retransmitted for negative acknowledgments although
            the receiver's socket dropped none.
        train_share: Rate of the fastest train, as a share of the link rate. None if no
            train arrived completely.
        slow_share: Median rate of the trains that left in time, as a share of the link
            rate. None if too few such trains arrived completely.
        probed: Number of single packets sent to detect loss.
        lost: Number of these packets that the fabric lost.
    """

    hosts_late: bool = False
    naks: bool = False
    train_share: float | None = None
    slow_share: float | None = None
    probed: int = 0
    lost: int = 0

    def loses(self, share: float) -> bool | None:
        """Return whether the loss in the fabric exceeds *share*, or None if unknown."""
        if not self.probed:
            return True if self.naks else None
        if self.lost <= self.probed * share:
            return False
        return True if _tail(self.lost, self.probed * share) < _DOUBT else None


def is_late(load: ShardLoad) -> bool:
    """Return whether a data plane may have limited the measurements."""
    wanted_ns = load.queued_ns + load.cpu_ns
    return load.max_lag_ns > _LATE_NS or load.queued_ns > _QUEUED_SHARE * wanted_ns


def _tail(count: int, mean: float) -> float:
    """Return the probability that a Poisson variable of *mean* reaches *count*."""
    term = below = exp(-mean)
    for number in range(1, count):
        term *= mean / number
        below += term
    return max(0.0, 1 - below) if count else 1.0


def may_lose(passes: Set[Pair], *, resent: Set[Pair], naks: Set[Pair]) -> set[Pair]:
    """Return the pairs to test for loss with single packets.

    If one pair loses packets, other pairs of its two ports show which port is at fault.

    Args:
        passes: Pairs whose longest packets arrive.
        resent: Pairs with more retransmissions than allowed.
        naks: Pairs with retransmissions for negative acknowledgments.  Pairs in both
            sets lose packets for certain, and need no test.
    """
    signs = resent | naks
    sources, destinations = {a for a, _ in signs}, {b for _, b in signs}
    near = {(a, b) for a, b in passes if a in sources or b in destinations}
    return near - (resent & naks)


def loss_copies(npaths: int) -> int:
    """Return how many packets on each of *npaths* paths suffice to detect loss."""
    return min(MOST_COPIES, -(-LOSS_PROBES // npaths))


def train_packet(
    address: str, transport: TransportPlan, rate_bps: int
) -> tuple[ProbePacket, int]:
    """Return the packet and the number of packets of a train for a link rate."""
    path_mtu = transport.path_mtu
    if 8e9 * path_mtu * _TRAIN_PACKETS > rate_bps * _SHORT_TRAIN_NS:
        path_mtu = min(path_mtu, _SMALL_MTU)
    size_bytes = max(SMALL_BYTES, path_mtu + headers_bytes(address))
    tos = transport.dscp_data << 2 | transport.ecn
    fitting = int(rate_bps * _LONG_TRAIN_NS / 8e9 / size_bytes)
    return (
        ProbePacket(size_bytes=size_bytes, tos=tos),
        min(max(fitting, _FEW_PACKETS), _TRAIN_PACKETS),
    )


def train_evidence(
    report: PathReport, *, size_bytes: int, packets: int, rate_bps: int
) -> tuple[float | None, float | None]:
    """Return the values of ``train_share`` and ``slow_share`` for an ``Evidence``."""
    wire_ns = 8e9 * (size_bytes + ETHERNET_BYTES) / rate_bps
    shares = {
        where: min(1.0, count * wire_ns / span_ns) if span_ns else 1.0
        for where, (count, span_ns) in report.spans.items()
        if report.sent[where] == report.arrived[where] == packets
    }
    in_time = [
        share
        for where, share in shares.items()
        if report.late_ns.get(where, 0) <= _LATE_SHARE * packets * wire_ns
    ]
    return (
        max(shares.values(), default=None),
        median(in_time) if len(in_time) >= LEAST_TRAINS else None,
    )


def resent_for_naks(
    queue_pairs: array[int],
    port_rows: array[int],
    *,
    places: Sequence[int],
    ports: Sequence[PortPlan],
) -> set[Pair]:
    """Return the pairs whose receiver missed packets without dropping them itself.

    Args:
        queue_pairs: Rows of queue pair samples.
        port_rows: Rows of port samples.
        places: Position of each rank's port, by the number of the rank in the plan.
        ports: All ports, in the order of their positions.
    """
    dropped = {
        row["port"] for row in _rows(port_rows, PORT_FIELDS) if row["socket_drops"]
    }
    return {
        (places[row["rank"]], places[row["peer"]])
        for row in _rows(queue_pairs, QUEUE_PAIR_FIELDS)
        if row["retransmitted_nak"] > 0
        and min(row["rank"], row["peer"]) >= 0
        and max(row["rank"], row["peer"]) < len(places)
        and ports[places[row["peer"]]].number not in dropped
    }


def _rows(values: array[int], names: Sequence[str]) -> list[Mapping[str, int]]:
    width = len(names)
    return [
        dict(zip(names, values[start : start + width], strict=True))
        for start in range(0, len(values), width)
    ]
