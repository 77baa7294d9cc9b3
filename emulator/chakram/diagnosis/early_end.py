"""Why a run ended early: queue pairs that gave up, and the links on their paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from chakram.diagnosis.counterfactual import planned, without_declared_faults
from chakram.diagnosis.run_evidence import End, paths_of
from chakram.foundation.errors import ChakramError
from chakram.foundation.units import format_time
from chakram.records.run_records import LinkRecord
from chakram.run_directory.reader import RunResults

_NAMED = 4
_COUNTED = ("data_frames_tx", "data_frames_rx", "ack_tx", "ack_rx")
_FEW = 8
_MISSING, _ARRIVED = 0.8, 0.98
"""Shares of arrived packets that make a queue pair lossy (below) or sound (above).

A sound queue pair misses at most its last packets.
"""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A direction of a link with unusual counters, and the evidence."""

    place: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyEnd:
    """Queue pairs that gave up, which ended a run.

    Attributes:
        pairs: Job, rank and peer of each such queue pair, most timeouts first.
        path: Directions of links that the packets or ACKs of the first queue pair
            cross. Empty if the paths are unknown.
        suspicions: Links on the paths whose counters differ from those of a sound link,
            most significant first.
    """

    pairs: tuple[tuple[str, int, int], ...]
    path: tuple[str, ...]
    suspicions: tuple[Suspicion, ...]

    def __str__(self) -> str:
        (job, rank, peer), *others = self.pairs
        text = f"the queue pair of job {job}, rank {rank}, to rank {peer} gave up"
        if others:
            text += f", as did {len(others)} more"
        if self.suspicions:
            found = "; ".join(
                f"{each.place} {each.evidence}" for each in self.suspicions
            )
            where = "their paths" if others else "its path"
            return f"{text}. On {where}, {found}"
        if self.path:
            return (
                f"{text}. Counters of the links on its path show nothing unusual: "
                f"{', '.join(self.path)}"
            )
        return f"{text}. Its path is unknown"


def early_end(results: RunResults) -> EarlyEnd | None:
    """Return how an incomplete run ended, or None if no queue pair gave up."""
    failed = _failed(results) if results.incomplete else {}
    if not failed:
        return None
    try:
        paths = paths_of(planned(without_declared_faults(results)))
    except ChakramError:
        paths = {}
    crossed = [list(_both_ways(end, paths)) for end in failed]
    ends = {*failed, *(paths[end][1] for end in failed if end in paths)}
    votes = Counter(port for ports in crossed for port in ports)
    links = {each.port: each for each in results.links() if each.port}
    found: dict[str, Suspicion] = {}
    for each in (
        *_suspicions(votes, links, results.manifest.dilation),
        *_losing(_deliveries(results, paths), ends, links),
    ):
        found.setdefault(each.place, each)
    return EarlyEnd(
        pairs=tuple((job, rank, peer) for (job, rank, _), peer in failed.items()),
        path=tuple(_place(links[port]) for port in crossed[0] if port in links),
        suspicions=tuple(found.values())[:_NAMED],
    )


def _failed(results: RunResults) -> dict[End, int]:
    """Return the peer of each end of a queue pair that gave up."""
    ends = ["job", "rank", "qpn", "peer"]
    counted = ["message_fail", "ack_timeouts"]
    table = results.table("queue_pairs", *ends, *counted).group_by(ends)
    rows = table.aggregate([(name, "max") for name in counted]).to_pylist()
    rows = [row for row in rows if row["message_fail_max"]]
    rows.sort(key=lambda row: -(row["ack_timeouts_max"] or 0))
    return {(row["job"], row["rank"], row["qpn"]): row["peer"] for row in rows}


@dataclass(frozen=True, slots=True)
class Delivery:
    """Numbers of packets that one end of a queue pair sent, and that arrived."""

    end: End
    ports: frozenset[str]
    sent: int
    arrived: int


def _deliveries(
    results: RunResults, paths: Mapping[End, tuple[frozenset[str], End]]
) -> list[Delivery]:
    """Return the deliveries of data and ACKs on known paths."""
    ends = ["job", "rank", "qpn"]
    table = results.table("queue_pairs", *ends, *_COUNTED).group_by(ends)
    rows = table.aggregate([(name, "max") for name in _COUNTED]).to_pylist()
    counted = {
        (row["job"], row["rank"], row["qpn"]): [row[f"{name}_max"] for name in _COUNTED]
        for row in rows
    }
    found = []
    for end, (ports, other) in paths.items():
        here, there = counted.get(end, [None]), counted.get(other, [None])
        if None not in (*here, *there):
            sent, arrived = here[0] + here[2], there[1] + there[3]
            found.append(Delivery(end, ports, sent, arrived))
    return found


def _losing(
    deliveries: Sequence[Delivery],
    failed: Collection[End],
    links: Mapping[str, LinkRecord],
) -> Iterator[Suspicion]:
    """Yield links that all lossy failed queue pairs but no sound queue pairs cross.

    This finds losses that counters miss. Some switches do not count drops, or a filter
    drops packets before the counters.
    """
    lossy = [
        each
        for each in deliveries
        if each.end in failed
        and each.sent >= _FEW
        and each.arrived < _MISSING * each.sent
    ]
    if not lossy:
        return
    sound = {
        port
        for each in deliveries
        if each.sent and each.arrived >= _ARRIVED * each.sent
        for port in each.ports
    }
    sent, arrived = (
        sum(each.sent for each in lossy),
        sum(each.arrived for each in lossy),
    )
    text = f"was crossed by {sent} packets of which {arrived} arrived"
    for port in sorted(frozenset.intersection(*(each.ports for each in lossy)) - sound):
        if port in links:
            yield Suspicion(_place(links[port]), text)


def _both_ways(
    end: End, paths: Mapping[End, tuple[frozenset[str], End]]
) -> Iterator[str]:
    """Yield the egress ports that packets of a queue pair, or their ACKs, cross."""
    if end in paths:
        ports, other = paths[end]
        yield from sorted(ports)
        yield from sorted(paths[other][0] if other in paths else ())


def _suspicions(
    votes: Mapping[str, int], links: Mapping[str, LinkRecord], dilation: int
) -> Iterable[Suspicion]:
    """Return unusual counters of ports: drops, then pauses, then idle links.

    Args:
        votes: Number of queue pairs whose packets or ACKs cross an egress port, by
            port.
        links: Links by egress port.
        dilation: Factor by which the run stretched time.
    """
    found = []
    for port, count in votes.items():
        link = links.get(port)
        if link is None:
            continue
        if link.drops:
            text, rank, size = f"dropped {link.drops} packets", 0, link.drops
        elif link.paused_ns:
            text = f"was paused for {format_time(link.paused_ns / dilation)}"
            rank, size = 1, link.paused_ns
        elif not link.bytes and link.observed is not None:
            text, rank, size = "carried no packet", 2, 0
        else:
            continue
        found.append((rank, -count, -size, Suspicion(_place(link), text)))
    found.sort(key=lambda each: each[:3])
    return [each for *_, each in found]


def _place(link: LinkRecord) -> str:
    return f"{link.link} {link.direction}"
