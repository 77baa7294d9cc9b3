"""Compares the output of ``chakram why --json`` with the planted causes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.diagnosis.draws import Draw
    from tests.diagnosis.plants import Plant

LEAST_SHARE = 0.03
"""What is less than this share of the time is no cause, in answers without classes."""

POINTS = 0.02
"""So much a saving that is printed may differ."""

MOST_OBJECTS = 2
"""So many objects an answer that cannot tell them apart may name."""

FAULTS = frozenset(
    {
        *("slow link", "dead uplink", "loss", "corruption", "pause", "slow compute"),
        *("late rank", "hash imbalance", "generator slow", "spurious timeout"),
    }
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Outcome of a draw.

    Attributes:
        is_hit: Whether the plant was named, with its place.
        answer: What was named, in words.
        saving_error: By how much the saving that is printed of the cause that was
            named differs; 0 within its interval; None: none is printed, or the plant
            was not named.
    """

    is_hit: bool
    answer: str
    saving_error: float | None = None

    @property
    def is_saving_right(self) -> bool | None:
        """Whether the saving that is printed holds; None: none is."""
        return None if self.saving_error is None else self.saving_error <= POINTS


def judge(draw: Draw, document: dict[str, Any]) -> Verdict:
    """Return whether an answer names the planted cause."""
    faults = [each for each in document["causes"] if _is_fault(each, document)]
    limits = [each for each in document["causes"] if not _is_fault(each, document)]
    first = document["first"]
    answer = _text(first, faults, limits)
    if not draw.plants:
        return Verdict(is_hit=first is None or not _accuses(first), answer=answer)
    if draw.plants[0].is_fault:
        is_hit, named = _of_faults(draw, first, faults, document)
    else:
        is_hit, named = _of_limit(draw.plants[0], first, limits, document)
    error = _saving_error(draw, named) if is_hit and named is not None else None
    return Verdict(is_hit=is_hit, answer=answer, saving_error=error)


def _of_faults(
    draw: Draw,
    first: dict[str, Any] | None,
    faults: list[dict[str, Any]],
    document: dict[str, Any],
) -> tuple[bool, dict[str, Any] | None]:
    if first is None or not any(is_named(plant, first) for plant in draw.plants):
        return False, None
    if not _has_classes(document):
        faults = document["causes"]
    among = faults[: len(draw.plants)]
    right = all(any(is_named(plant, each) for each in among) for plant in draw.plants)
    return right, first


def _of_limit(
    plant: Plant,
    first: dict[str, Any] | None,
    limits: list[dict[str, Any]],
    document: dict[str, Any],
) -> tuple[bool, dict[str, Any] | None]:
    if not _has_classes(document):
        return first is not None and is_named(plant, first), first
    if first is not None or not limits:
        return False, None
    return is_named(plant, limits[0]), limits[0]


def is_named(plant: Plant, cause: dict[str, Any]) -> bool:
    """Return whether a printed cause is the planted one, at its place.

    If hypotheses are indistinguishable, one of at most two must be.
    """
    rivals = cause.get("rivals") or []
    if len(rivals) >= MOST_OBJECTS:
        rivals = []
    return any(
        each["cause"] in plant.causes and _is_place(plant, each["place"])
        for each in (cause, *rivals)
    )


def _is_place(plant: Plant, place: str) -> bool:
    """Return whether a place is right; one of two, if it names two."""
    if not plant.places:
        return True
    named = place.split(" or ")
    if len(named) > MOST_OBJECTS:
        return False
    # A link without a direction is both of them.
    links = {
        link
        for link in (right.removesuffix(" up") for right in plant.places)
        if f"{link} up" in plant.places and f"{link} down" in plant.places
    }
    return any(
        each == right or each.startswith(f"{right},")
        for each in named
        for right in (*plant.places, *links)
    )


def _saving_error(draw: Draw, cause: dict[str, Any]) -> float | None:
    saving = cause.get("saving")
    numbers = [n for n, plant in enumerate(draw.plants) if is_named(plant, cause)]
    if saving is None or not numbers:
        return None
    # Of a late rank and slow compute at one rank, the one that was named.
    exact = [n for n in numbers if draw.plants[n].kind == cause["cause"]]
    numbers = exact or numbers
    low, high = draw.savings(numbers[0])
    if len(numbers) > 1:
        # Of the same kind and at the same place, they are one cause.
        low = high = 1 - draw.clean_ns / draw.time_ns
    if saving["low"] <= high and low <= saving["high"]:
        return 0.0
    share = float(saving["share"])
    return min(abs(share - low), abs(share - high))


def _has_classes(document: dict[str, Any]) -> bool:
    """Return whether causes have classes: since the second schema."""
    return str(document.get("schema")) not in ("chakram.why/1", "1")


def _is_fault(cause: dict[str, Any], document: dict[str, Any]) -> bool:
    if _has_classes(document):
        return bool(cause["class"] == "fault")
    return cause["cause"] in FAULTS


def _accuses(cause: dict[str, Any]) -> bool:
    """Return whether the first cause reports a fault."""
    return cause.get("class") == "fault" or (
        "class" not in cause
        and cause["cause"] in FAULTS
        and cause["share"] >= LEAST_SHARE
    )


def _share(cause: dict[str, Any]) -> float:
    saving = cause.get("saving")
    return float(saving["share"]) if saving else 0.0


def _text(
    first: dict[str, Any] | None,
    faults: list[dict[str, Any]],
    limits: list[dict[str, Any]],
) -> str:
    """Return an answer in a line."""
    said = "nothing first" if first is None else f"first {_cause_text(first)}"
    others = [each for each in (*faults[:3], *limits[:2]) if each != first][:3]
    rest = ", ".join(map(_cause_text, others))
    return f"{said}; then {rest}" if rest else said


def _cause_text(cause: dict[str, Any]) -> str:
    saving = cause.get("saving")
    share = saving["share"] if saving else cause["share"]
    how = "saves" if saving else "charged"
    return f"{cause['cause']} at {cause['place']} ({how} {share:.0%})"
