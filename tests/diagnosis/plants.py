"""Definition of a planted cause, and search for its severity."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.diagnosis.bases import Base
from tests.diagnosis.design import Design
from tests.diagnosis.virtual import CannotSimulate, Measured

LEAST, MOST = 0.10, 0.80
"""Savings that plants have."""

NEAR = 0.02
"""So near to the saving that was drawn a search ends."""

SEARCH = 9
"""Simulations of a search."""

FAULTS = (
    *("slow link", "dead uplink", "loss", "corruption", "pause"),
    *("slow compute", "late rank", "hash imbalance"),
)
LAB_FAULTS = (
    *("changed route", "stopped process", "loaded core"),
    *("other traffic", "slow for a while"),
)
"""What only happens to labs."""

LIMITS = ("window", "congestion control", "contention")

Change = Callable[[Design], Design]
"""Puts a plant, or a decoy, into a design."""

Graded = Callable[[Design, float], Design]
"""Changes a design with a severity from 0 (almost none) to 1."""


class Look(Protocol):
    """Simulates a design."""

    def __call__(self, design: Design) -> Measured: ...


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A cause of lost time, and how it has to be named.

    Attributes:
        kind: As in FAULTS or LIMITS.
        causes: Names that are right.
        places: Correct places: links with their directions, switches, ranks (with
            any operation); empty: any.
        detail: What was done, for people.
        is_declared: Whether the experiment says it in its ``faults``.
        change: What it is.
        cures: Designs without it, in place of the one that lacks *change*; where they
            differ, each is right, and so is what lies between them.
        lab: What is done to a lab instead: what, and where; nothing simulates it.
    """

    kind: str
    causes: frozenset[str]
    places: tuple[str, ...]
    detail: str
    is_declared: bool
    change: Change
    cures: tuple[Change, ...] = ()
    lab: tuple[str, ...] = ()

    @property
    def is_fault(self) -> bool:
        """Whether something is broken; else it is a limit of the design."""
        return self.kind in (*FAULTS, *LAB_FAULTS)


class NoEffect(Exception):
    """A planted cause cannot have the intended cost in this design."""


def time_of(measured: Measured, job: str | None) -> float:
    return measured.mean_ns if job is None else measured.of_job_ns[job]


def search(
    base: Base,
    look: Look,
    graded: Graded,
    target: float,
    *,
    cure: Change | None = None,
    job: str | None = None,
) -> Change:
    """Return a plant of the severity that saves nearly *target*.

    Raises:
        NoEffect: If none saves what plants have to.
    """
    low, high = 0.0, 1.0
    best: tuple[float, float] | None = None
    for _ in range(SEARCH):
        severity = (low + high) / 2
        planted = graded(base.design, severity)
        try:
            with_ns = time_of(look(planted), job)
            without_ns = (
                time_of(base.measured, job)
                if cure is None
                else time_of(look(cure(planted)), job)
            )
            saving = 1 - without_ns / with_ns
        except CannotSimulate:
            saving = 1.0  # nothing gets through
        miss = abs(saving - target)
        if LEAST <= saving <= MOST and (best is None or miss < best[0]):
            best = miss, severity
        if miss < NEAR:
            break
        low, high = (severity, high) if saving < target else (low, severity)
    if best is None:
        raise NoEffect(f"no severity saves {target:.0%}")
    chosen = best[1]
    return lambda design: graded(design, chosen)


def drawn_target(rng: random.Random) -> float:
    return rng.uniform(LEAST, MOST)


def used_link(base: Base, rng: random.Random) -> tuple[str, str]:
    """Return a link that carries something, and one of its directions that does."""
    ways = sorted(
        way for way, use in base.measured.links.items() if use.bytes > 100_000
    )
    if not ways:
        raise NoEffect("nothing is carried")
    names = sorted({way.rpartition(" ")[0] for way in ways})
    name = rng.choice(names)
    direction = rng.choice([d for d in ("up", "down") if f"{name} {d}" in ways])
    return name, direction


def places_of(name: str, direction: str) -> tuple[str, ...]:
    both = direction == "both"
    return tuple(
        f"{name} {each}" for each in ("up", "down") if both or each == direction
    )
