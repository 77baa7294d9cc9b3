"""What confirms or refutes a suspicion: evidence that busy hosts cannot forge.

A host that shares its cores with others sends late, receives late, and asks again for
what was not lost.  Three things do not depend on that:

* Trains: packets that leave back to back, whose arrival the receiver's kernel stamps.
  The link sets how far apart they arrive.
* Many single packets, less those that the receiver's socket had no room for.
* Negative acknowledgements: a receiver misses a packet only if a later one has come.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import exp
from statistics import median
from typing import TYPE_CHECKING

from chakram.plan.probes import ETHERNET_BYTES, MOST_COPIES, ProbePacket
from chakram.preflight.probe_plan import SMALL_BYTES, PathReport, headers_bytes
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS

if TYPE_CHECKING:
    from chakram.control.events import ShardLoad
    from chakram.plan.plan import PortPlan
    from chakram.plan.transport import TransportPlan


Pair = tuple[int, int]
"""Who sends and who receives."""

TRAINS = 8
"""Trains that a pair is sent."""

LEAST_TRAINS = 3
"""As many have to agree that a link is slow."""

_LATE_NS = 5_000_000
_QUEUED_SHARE = 0.05
"""A data plane that was later than that for its work, or waited for a core for more of
its time than that, may be why a pair is slow."""

LOSS_PROBES = 1200
"""Single packets that tell loss from none."""

_TRAIN_PACKETS = 96
_FEW_PACKETS = 24
_SHORT_TRAIN_NS = 25_000_000
_LONG_TRAIN_NS = 100_000_000
_SMALL_MTU = 1024
_LATE_SHARE = 0.05
"""Part of its time by which the sender of a train may fall behind the link's rate."""

_DOUBT = 1e-4
"""How likely a link that loses no more than it may is to lose what was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of one direction of a pair, beside its figures.

    Attributes:
        hosts_late: Whether the data plane of one of the two was late for its work.
        naks: Whether packets were sent again for negative acknowledgements while the
            receiver's socket dropped none.
        train_share: What the fastest train reached of the rate of the links; None:
            none arrived whole.
        slow_share: What trains reached if enough of them agree; None: too few arrived
            whole, of those that left in time.
        probed: Single packets that were sent to find loss.
        lost: Those that the fabric has lost.
    """

    hosts_late: bool = False
    naks: bool = False
    train_share: float | None = None
    slow_share: float | None = None
    probed: int = 0
    lost: int = 0

    def loses(self, share: float) -> bool | None:
        """Tell whether the fabric loses more than *share*; None: that is unknown."""
        if not self.probed:
            return True if self.naks else None
        if self.lost <= self.probed * share:
            return False
        return True if _tail(self.lost, self.probed * share) < _DOUBT else None


def is_late(load: ShardLoad) -> bool:
    """Tell whether a data plane may have been what limited."""
    wanted_ns = load.queued_ns + load.cpu_ns
    return load.max_lag_ns > _LATE_NS or load.queued_ns > _QUEUED_SHARE * wanted_ns


def _tail(count: int, mean: float) -> float:
    """Return how likely a Poisson variable of *mean* is to reach *count*."""
    term = below = exp(-mean)
    for number in range(1, count):
        term *= mean / number
        below += term
    return max(0.0, 1 - below) if count else 1.0


def may_lose(passes: Set[Pair], *, resent: Set[Pair], naks: Set[Pair]) -> set[Pair]:
    """Return the pairs whose losses single packets have to count.

    Where one pair loses, the others of its two ports tell which port is at fault.

    Args:
        passes: Pairs whose longest packets arrive.
        resent: Those of them that sent more packets again than they may.
        naks: Those that sent any again for negative acknowledgements; with the other
            sign this proves a loss.
    """
    signs = resent | naks
    sources, destinations = {a for a, _ in signs}, {b for _, b in signs}
    near = {(a, b) for a, b in passes if a in sources or b in destinations}
    return near - (resent & naks)


def loss_copies(npaths: int) -> int:
    """Return how many single packets tell loss from none on each of some paths."""
    return min(MOST_COPIES, -(-LOSS_PROBES // npaths))


def train_packet(
    address: str, transport: TransportPlan, rate_bps: int
) -> tuple[ProbePacket, int]:
    """Return a packet of a train and how many it has, for a link of some rate."""
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
    """Return ``train_share`` and ``slow_share`` of an ``Evidence``."""
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
    """Return the pairs whose receiver missed packets that its socket had not dropped.

    Args:
        queue_pairs: Rows of samples of queue pairs.
        port_rows: Likewise of ports.
        places: Position of the port of each rank, by its number in the plan.
        ports: All ports.
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
