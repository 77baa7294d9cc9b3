"""Checks of packet faults: by themselves, and against the jobs they are about."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from chakram.settings.mistakes import Location, Mistake

if TYPE_CHECKING:
    from chakram.config.transport import Faults, PacketFaultSettings, Transport

_LISTED = 6
_EXAMPLES = "e.g. {action: drop, nth: 5} or {action: delay, by: 1ms, probability: 0.01}"


def check_packet_faults(
    faults: Faults,
    ranks_of: Mapping[str, int | None],
    groups_of: Mapping[str, Collection[str]] | None = None,
) -> Iterator[Mistake]:
    """Refuse faults that contradict themselves, or of packets that nobody sends.

    Args:
        faults: What the experiment says.
        ranks_of: The ranks of every job by its name; None: not known before its trace
            is read.
        groups_of: The process groups of every job, once its trace is read.
    """
    for index, fault in enumerate(faults.packets):
        where: Location = ("faults", "packets", index)
        try:
            fault.fault()
        except ValueError as error:
            yield Mistake(location=where, found=str(error), hint=_EXAMPLES)
        if fault.job is not None and fault.job not in ranks_of:
            yield Mistake(
                location=(*where, "job"),
                found=f"there is no job {fault.job!r}",
                hint=f"known: {', '.join(ranks_of)}",
            )
            # Of whose ranks the others would be is not known.
            continue
        counts = ranks_of.values() if fault.job is None else (ranks_of[fault.job],)
        ranks = _most(tuple(counts))
        for name in ("source", "destination"):
            rank = getattr(fault, name)
            if rank is not None and ranks is not None and rank >= ranks:
                yield Mistake(
                    location=(*where, name),
                    found=f"there is no rank {rank}",
                    hint=f"ranks are 0 to {ranks - 1}",
                )
        yield from _check_group(fault, where, groups_of)


def check_fault_queue_pairs(faults: Faults, transport: Transport) -> list[Mistake]:
    """Refuse faults of queue pairs that no two ranks have."""
    count = transport.queue_pairs.count
    return [
        Mistake(
            location=("faults", "packets", index, "queue_pair"),
            found=f"there is no queue pair {fault.queue_pair}",
            hint=f"transport.queue_pairs.count is {count}: they are 0 to {count - 1}",
        )
        for index, fault in enumerate(faults.packets)
        if fault.queue_pair is not None and fault.queue_pair >= count
    ]


def _check_group(
    fault: PacketFaultSettings,
    where: Location,
    groups_of: Mapping[str, Collection[str]] | None,
) -> Iterator[Mistake]:
    if fault.group is None or groups_of is None:
        return
    known = {
        group
        for job, groups in groups_of.items()
        if fault.job in (None, job)
        for group in groups
    }
    if fault.group in known:
        return
    listed = ", ".join(sorted(known)[:_LISTED])
    yield Mistake(
        location=(*where, "group"),
        found=f"there is no process group {fault.group!r}",
        hint=f"e.g. {listed}; chakram trace show tells them all",
    )


def _most(counts: tuple[int | None, ...]) -> int | None:
    """Return the largest of some numbers, None if one of them is not known."""
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None
