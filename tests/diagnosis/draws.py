"""Draws of experiments with planted causes, determined by a seed.

What a plant costs is found by simulating the design with and without it, and set by
bisection: its *saving* is the share of the time that a design without it does not take.
``look`` is what simulates.  A place where a plant costs too little is drawn again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import islice

from chakram.foundation.units import parse_time
from tests.diagnosis import bases, faults, lab_faults, limits
from tests.diagnosis.bases import NAMESPACES, VIRTUAL
from tests.diagnosis.decoys import decoys as decoys_of
from tests.diagnosis.design import Design
from tests.diagnosis.judge import LEAST_SHARE
from tests.diagnosis.plants import (
    FAULTS,
    LAB_FAULTS,
    LEAST,
    LIMITS,
    MOST,
    Look,
    NoEffect,
    Plant,
    time_of,
)
from tests.diagnosis.virtual import CannotSimulate

ATTEMPTS = 100
"""Designs or places that are tried for a draw."""

MOST_JOINT = 0.95
"""Of two plants together."""

MARGIN, LEAST_FIRST = 0.01, 0.05
"""By so much two plants may speed one another up; and so much has to be saved first."""

WITH_DECOYS = 1 / 3
COUNTS = (0, 1, 2)
COUNT_WEIGHTS = (0.15, 0.62, 0.23)

LIMIT_WEIGHT = 0.45
"""How often a limit is drawn, compared with a fault."""

CLEAN = "clean"

_UNEVEN = frozenset({"hash imbalance", lab_faults.ROUTE})

_PLANTERS = faults.PLANTERS | limits.PLANTERS | lab_faults.PLANTERS


@dataclass(frozen=True, kw_only=True)
class Draw:
    """An experiment, its planted causes, and their cost.

    Attributes:
        seed: What it follows from.
        design: The whole.
        clean: It without plants.
        rests: By plant, it without that one.
        plants: None: it is clean.
        decoys: What is in it, too, and costs nothing.
        time_ns: What an iteration takes.
        without_ns: By plant, what it takes without that one: from, to.
        clean_ns: What it takes without all plants.
        job: The one that is asked for; None: all.
    """

    seed: int
    design: Design
    clean: Design
    rests: tuple[Design, ...]
    plants: tuple[Plant, ...]
    decoys: tuple[str, ...]
    time_ns: float
    without_ns: tuple[tuple[float, float], ...]
    clean_ns: float
    job: str | None = None

    @property
    def kind(self) -> str:
        """The planted causes, in words."""
        return " + ".join(sorted(plant.kind for plant in self.plants)) or CLEAN

    def savings(self, number: int) -> tuple[float, float]:
        """Return the saving by removing a planted cause, as a range."""
        low, high = self.without_ns[number]
        return 1 - high / self.time_ns, 1 - low / self.time_ns

    def describe(self) -> str:
        """Return it in a line."""
        shape = self.design.shape
        parts = [f"{shape.kind} of {len(shape.hosts)} hosts"]
        for number, plant in enumerate(self.plants):
            low, high = (round(100 * each) for each in self.savings(number))
            span = f"{low}" if low == high else f"{low}..{high}"
            parts.append(f"{plant.kind} [{plant.detail}] saving {span} %")
        parts += [f"decoy [{each}]" for each in self.decoys]
        return "; ".join(parts)


def draw(
    seed: int,
    look: Look,
    *,
    world: str = VIRTUAL,
    clean: bool | None = None,
    kind: str | None = None,
    attempt: int = 0,
) -> Draw:
    """Return the draw of a seed.

    Args:
        seed: What all follows from.
        look: Simulates designs.
        world: Where it will run.
        clean: Whether to plant nothing; None: that is drawn, too.
        kind: The one cause to plant; None: drawn.
        attempt: Another one draws other designs and places for the same causes.
    """
    rng = random.Random(f"diagnosis {'' if world == VIRTUAL else world}{seed}")
    kinds = (kind,) if kind else _kinds(rng, clean, world)
    with_decoys = rng.random() < WITH_DECOYS
    rng.seed(rng.random() + attempt)
    for _ in range(ATTEMPTS):
        try:
            own = random.Random(rng.random())
            return _draw(seed, kinds, own, look, world, with_decoys)
        except (NoEffect, CannotSimulate):
            continue
    raise NoEffect(f"seed {seed}: no design has {' and '.join(kinds)}")


def _kinds(rng: random.Random, clean: bool | None, world: str) -> tuple[str, ...]:
    (count,) = rng.choices(COUNTS, COUNT_WEIGHTS)
    if clean or (clean is None and count == 0):
        return ()
    if count == 2:
        first, second = rng.sample(FAULTS, 2)
        # Of paths that a fault takes away the hash chooses none.
        if {first, second} != {"dead uplink", "hash imbalance"}:
            return first, second
    if world == NAMESPACES:
        return (rng.choice((*FAULTS, *LAB_FAULTS)),)
    every = (*FAULTS, *LIMITS)
    weights = [1.0] * len(FAULTS) + [LIMIT_WEIGHT] * len(LIMITS)
    return tuple(rng.choices(every, weights))


def _draw(
    seed: int,
    kinds: tuple[str, ...],
    rng: random.Random,
    look: Look,
    world: str,
    with_decoys: bool,
) -> Draw:
    base = bases.settled(
        bases.drawn(rng, kinds, world),
        rng,
        look,
        is_hash_uneven=not _UNEVEN.isdisjoint(kinds),
    )
    plants = tuple(_PLANTERS[each](base, rng, look) for each in kinds)
    design, decoys = base.design, []
    if with_decoys:
        for decoy, detail in islice(decoys_of(base, plants, rng, look), 1):
            design = decoy(design)
            decoys.append(detail)

    def with_plants(*chosen: Plant) -> Design:
        changed = design
        for plant in chosen:
            changed = plant.change(changed)
        return changed

    whole = with_plants(*plants)
    job = "main" if kinds == ("contention",) else None
    time_ns = time_of(look(whole), job)
    rests = tuple(
        with_plants(*(each for each in plants if each is not plant)) for plant in plants
    )
    without = []
    for plant, rest in zip(plants, rests, strict=True):
        # The last one leaves everything else as it is.
        cures = plant.cures if len(plants) == 1 else plant.cures[-1:]
        cured = [cure(whole) for cure in cures] or [rest]
        times = [time_of(look(each), job) for each in cured]
        without.append((min(times), max(times)))
    if not plants:
        clean_ns = time_ns
    elif len(plants) == 1:
        clean_ns = without[0][0]
    else:
        clean_ns = time_of(look(design), job)
    made = Draw(
        seed=seed,
        design=whole,
        clean=design,
        rests=rests,
        plants=plants,
        decoys=tuple(decoys),
        time_ns=time_ns,
        without_ns=tuple(without),
        clean_ns=clean_ns,
        job=job,
    )
    joint = 1 - clean_ns / time_ns
    # Of two each has to save something while the other one is there, or behind it.
    single = [1 - high / time_ns for _, high in without]
    if len(plants) > 1 and (min(single) < -MARGIN or max(single) < LEAST_FIRST):
        raise NoEffect("they hide one another")
    if any(plant.lab for plant in plants):
        return made  # what it costs the lab will say
    for (_, alone_ns), (_, behind_ns) in zip(without, reversed(without), strict=True):
        if plants and 1 - min(alone_ns / time_ns, clean_ns / behind_ns) < LEAST_SHARE:
            raise NoEffect("one saves nothing, not even behind the other")
    if world == NAMESPACES and _is_on_a_dead_link(whole):
        raise NoEffect("nothing can be measured of a link that is down")
    if world == NAMESPACES and _gives_up(whole):
        raise NoEffect("queue pairs give up before the pause ends")
    if plants and not LEAST <= joint <= (MOST if len(plants) == 1 else MOST_JOINT):
        raise NoEffect("together they cost too little, or too much")
    return made


def _gives_up(design: Design) -> bool:
    """Return whether a pause lasts for half of the retransmission timeout."""
    timeout_ns = _time_ns(design.transport["retransmit_timeout"])
    patience_ns = int(design.transport["retry_limit"]) * timeout_ns
    return any(
        2 * _time_ns(fault["for"]) > patience_ns
        for fault in design.links
        if fault["kind"] == "pause_storm"
    )


def _time_ns(text: object) -> int:
    return parse_time(str(text), where="draw")


def _is_on_a_dead_link(design: Design) -> bool:
    dead = {fault["link"] for fault in design.links if fault["kind"] == "down"}
    faulty = {fault["link"] for fault in design.links if fault["kind"] != "down"}
    return bool(dead & (faulty | design.own_rates_bps.keys()))
