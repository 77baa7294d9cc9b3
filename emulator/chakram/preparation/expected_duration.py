"""Expected duration of a run in real time, to show before the run starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.summary.interval_lines import time_left

if TYPE_CHECKING:
    from chakram.plan.plan import Plan

_LONG_NS = 20 * 10**9


def computing_ns(plan: Plan) -> int:
    """Return the computing time of the rank that computes longest, in all iterations.

    Computations of several streams may overlap, so this is an estimate.
    """
    count_of = plan.iterations_of()
    return max(
        (
            rank.program.columns.compute_ns * count_of.get(rank.number, 0)
            for rank in plan.ranks()
        ),
        default=0,
    )


def duration_note(run_ns: int, compute_ns: int, *, dilation: int) -> str | None:
    """Return a sentence about the duration of a run, or None if it is short.

    Args:
        run_ns: Expected duration.
        compute_ns: Part of this duration that consists of computations.
        dilation: Dilation of the run, which both times include.
    """
    if run_ns < _LONG_NS:
        return None
    stretched = f", because time is stretched {dilation} times" if dilation > 1 else ""
    note = f"the run will take about {time_left(run_ns)}{stretched}"
    if 2 * compute_ns < run_ns:
        return note
    computing = time_left(min(run_ns, compute_ns))
    return (
        f"{note}; computations take {computing} of it: a smaller compute.scale or "
        "compute.from: none shortens them"
    )
