"""Summary of one collective algorithm for one group size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from chakram.collectives.schedule import Algorithm, transfer_bytes
from chakram.collectives.schedule_check import build_schedule
from chakram.predict.any_algorithm_bound import ceiling_ns
from chakram.predict.bound import ScheduleBounds
from chakram.predict.topology_to_fabric_model import fabric_model
from chakram.topology.topology_helpers import single_switch

PATH_MTU = 4096
"""Payload of a full packet in bytes, used to count headers in the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmStep:
    """One step of concurrent transfers. The busiest rank sends the most bytes."""

    step: int
    transfers: int
    bytes: int
    busiest_bytes: int
    largest_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSummary:
    """Figures of an algorithm for one group size and buffer size.

    Attributes:
        op: The collective.
        algorithm: Name of the algorithm.
        nranks: Number of ranks of the group.
        root: Position of the root.
        input_bytes: Input size of one rank.
        steps: The steps of the algorithm.
        transfers: Number of messages of all ranks.
        bytes: Payload bytes of all ranks.
        busiest_bytes: Payload bytes of the rank that sends the most.
        channels: Largest number of queue pairs between two ranks.
        queue_pairs: Number of queue pairs, where both ends count as one.
        bound_ns: Lower bound on the completion time on one switch, including headers.
        ceiling_ns: Lower bound for any algorithm on that switch, or None if there is no
            such bound.
        checked: Property that the check has proven.
        warnings: Warnings to show with the summary.
    """

    op: str
    algorithm: str
    nranks: int
    root: int
    input_bytes: int
    steps: tuple[AlgorithmStep, ...]
    transfers: int
    bytes: int
    busiest_bytes: int
    channels: int
    queue_pairs: int
    bound_ns: int
    ceiling_ns: int | None
    checked: str
    warnings: tuple[str, ...]


def summarize_algorithm(
    how: Algorithm,
    *,
    nranks: int,
    root: int,
    input_bytes: int,
    rate_bps: int,
    delay_ns: int,
    warnings: Sequence[str] = (),
) -> AlgorithmSummary:
    """Return the summary of *how* with each rank on a separate port of one switch.

    Args:
        how: The algorithm, already checked.
        nranks: Ranks of the group.
        root: Position of the root.
        input_bytes: Input size of one rank.
        rate_bps: Rate of every port.
        delay_ns: Delay of every link.
        warnings: Additional warnings from the check.
    """
    schedule = build_schedule(how, nranks=nranks, root=root)
    by_step: dict[int, list[tuple[int, int]]] = {}
    sent: Counter[int] = Counter()
    for transfer in schedule.transfers:
        size = transfer_bytes(how, transfer, nranks=nranks, input_bytes=input_bytes)
        by_step.setdefault(transfer.step, []).append((transfer.src, size))
        sent[transfer.src] += size
    links = {
        (each.channel, min(each.src, each.dst), max(each.src, each.dst))
        for each in schedule.transfers
    }
    fabric = fabric_model(
        single_switch(nranks, rate_bps, host_delay_ns=delay_ns),
        {rank: f"h{rank}" for rank in range(nranks)},
    )
    return AlgorithmSummary(
        op=how.op.value,
        algorithm=how.name,
        nranks=nranks,
        root=root,
        input_bytes=input_bytes,
        steps=tuple(_step(step, sends) for step, sends in sorted(by_step.items())),
        transfers=len(schedule.transfers),
        bytes=sent.total(),
        busiest_bytes=max(sent.values(), default=0),
        channels=max(Counter((a, b) for _, a, b in links).values(), default=0),
        queue_pairs=len(links),
        bound_ns=ScheduleBounds(fabric, path_mtu=PATH_MTU).collective_ns(
            how, ranks=range(nranks), root=root, input_bytes=input_bytes
        ),
        ceiling_ns=ceiling_ns(
            how.op,
            ranks=range(nranks),
            root=root,
            input_bytes=input_bytes,
            fabric=fabric,
            path_mtu=PATH_MTU,
        ),
        checked=(
            "data can reach all ranks that need it"
            if warnings
            else "every rank ends with the data that the collective specifies"
        ),
        warnings=tuple(warnings),
    )


def _step(step: int, sends: Sequence[tuple[int, int]]) -> AlgorithmStep:
    by_rank: Counter[int] = Counter()
    for rank, size in sends:
        by_rank[rank] += size
    return AlgorithmStep(
        step=step,
        transfers=len(sends),
        bytes=by_rank.total(),
        busiest_bytes=max(by_rank.values()),
        largest_bytes=max(size for _, size in sends),
    )
