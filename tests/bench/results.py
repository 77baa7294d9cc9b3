"""What was measured, against what, and what has to be reached."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Result", "compare", "table", "turns"]

WORTH_SAYING = 0.001
"""A smaller share of lost packets changes no figure that is printed."""

Figure = TypeVar("Figure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of the table.

    Attributes:
        name: What was measured.
        value: The median.
        unit: Of the value.
        compared_to: What else was measured, alternately.
        other: Its median, in the same unit; None if it could not be measured.
        ratio: Value by other; of times the other way round, so that more is better.
        ratios: The least and the most of a single turn.
        floor: What the ratio has to be at least; None: nothing is demanded.
        note: What there is to say.
    """

    name: str
    value: float
    unit: str
    compared_to: str
    other: float | None
    ratio: float | None
    ratios: tuple[float, float] | None
    floor: float | None
    note: str = ""

    def is_short(self) -> bool:
        """Return whether the required value was missed or not measured."""
        if self.floor is None:
            return False
        return self.ratio is None or self.ratio < self.floor


def turns(
    ours: Callable[[], Figure], others: Callable[[], Figure], rounds: int
) -> tuple[list[Figure], list[Figure]]:
    """Measure both *rounds* times, alternately.

    Who is first changes from turn to turn: a machine that gets faster or slower must
    not favor one of them.
    """
    found: tuple[list[Figure], list[Figure]] = [], []
    for turn in range(rounds):
        for which in (turn % 2, 1 - turn % 2):
            found[which].append((ours, others)[which]())
    return found


def compare(
    name: str,
    ours: list[float],
    unit: str,
    compared_to: str,
    others: list[float],
    *,
    is_time: bool = False,
    floor: float | None = None,
    without: str = "no C compiler: not compared",
    losses: Sequence[float] = (),
) -> Result:
    """Return medians: of both, and of the ratios of neighboring turns.

    Args:
        name: See `Result` for what is not explained here.
        ours: A figure of each turn.
        unit: See `Result`.
        compared_to: See `Result`.
        others: The figures of the same turns; empty: they could not be measured.
        is_time: Whether less is better.
        floor: See `Result`.
        without: What to say if there are no others.
        losses: Which share of what they sent the others lost, turn by turn.
    """
    # A turn in which nothing was measured, as where no bare packet arrived, has none.
    ratios = [
        other / value if is_time else value / other
        for value, other in zip(ours, others, strict=bool(others))
        if value and other
    ]
    return Result(
        name=name,
        value=median(ours),
        unit=unit,
        compared_to=compared_to,
        other=median(others) if others else None,
        ratio=median(ratios) if ratios else None,
        ratios=(min(ratios), max(ratios)) if ratios else None,
        floor=floor,
        note=loss_note(losses) if others else without,
    )


def loss_note(losses: Sequence[float]) -> str:
    """Return a note about packets that were sent but not received."""
    if not losses or max(losses) < WORTH_SAYING:
        return ""
    return (
        f"the bare sender lost {median(losses):.1%} of its packets (at most "
        f"{max(losses):.1%}); what arrived is compared"
    )


def table(results: list[Result]) -> str:
    """Return the results as lines of text."""
    lines = []
    for each in results:
        lines.append(each.name)
        lines.append(f"    {each.value:10.2f} {each.unit}")
        if each.other is not None and each.ratio is not None and each.ratios:
            least, most = each.ratios
            lines.append(f"    {each.other:10.2f} {each.unit:8} {each.compared_to}")
            demanded = "" if each.floor is None else f", at least {each.floor:g}"
            lines.append(
                f"    {each.ratio:10.2f} ratio    ({least:.2f} to {most:.2f}{demanded}"
                f"{': too little' if each.is_short() else ''})"
            )
        if each.note:
            lines.append(f"    {each.note}")
    return "\n".join(lines)
