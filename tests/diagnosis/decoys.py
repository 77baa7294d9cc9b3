"""Decoys: properties that look like a cause but cost no time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.diagnosis.bases import Base
from tests.diagnosis.design import NANOSECOND, Design
from tests.diagnosis.plants import Change, Look, Plant, places_of, used_link
from tests.diagnosis.virtual import CannotSimulate

MOST = 0.01
"""A decoy saves less."""

TRIES = 8


def decoys(
    base: Base, plants: tuple[Plant, ...], rng: random.Random, look: Look
) -> Iterator[tuple[Change, str]]:
    """Yield decoys without cost, with the planted causes and without them."""
    planted = base.design
    for plant in plants:
        planted = plant.change(planted)
    before = [(base.design, base.measured.mean_ns)]
    if plants:
        before.append((planted, look(planted).mean_ns))
    for _ in range(TRIES):
        found = rng.choice(_DECOYS)(base, rng)
        if found is None:
            continue
        change, detail = found
        try:
            if all(
                abs(1 - time_ns / look(change(design)).mean_ns) < MOST
                for design, time_ns in before
            ):
                yield change, detail
        except CannotSimulate:
            continue


def _idle_links(base: Base) -> list[str]:
    links = base.measured.links
    return sorted(
        wire.name
        for wire in base.design.shape.wires
        if not any(links[place].bytes for place in places_of(wire.name, "both"))
    )


def _idle_fault(base: Base, rng: random.Random) -> tuple[Change, str] | None:
    names = _idle_links(base)
    if not names:
        return None
    name = rng.choice(names)
    fault: dict[str, Any] = rng.choice(
        [
            {"kind": "degrade", "rate": f"{base.design.rate_bps(name) // 20}bit"},
            {"kind": "loss", "probability": 0.2},
            {"kind": "corruption", "probability": 0.2},
        ]
    )
    return (
        lambda design: design.with_link_fault(link=name, **fault),
        f"{fault['kind']} of {name}, which carries nothing",
    )


def _idle_slow_link(base: Base, rng: random.Random) -> tuple[Change, str] | None:
    names = _idle_links(base)
    if not names:
        return None
    name = rng.choice(names)
    slow_bps = base.design.rate_bps(name) // rng.randrange(4, 40)

    def change(design: Design) -> Design:
        return replace(design, own_rates_bps={**design.own_rates_bps, name: slow_bps})

    return change, f"{name} is slow, and carries nothing"


def _late_fault(base: Base, rng: random.Random) -> tuple[Change, str] | None:
    name, direction = used_link(base, rng)
    at_s = round(1 + 200 * base.measured.mean_ns / NANOSECOND)
    return (
        lambda design: design.with_link_fault(
            kind="loss", link=name, direction=direction, probability=0.3, at=f"{at_s}s"
        ),
        f"loss of {name} after the end",
    )


def _rare_fault(base: Base, rng: random.Random) -> tuple[Change, str] | None:
    name, direction = used_link(base, rng)
    return (
        lambda design: design.with_link_fault(
            kind="loss", link=name, direction=direction, probability=1e-8
        ),
        f"loss of one packet in 1e8 at {name} {direction}",
    )


def _slightly_slow(base: Base, rng: random.Random) -> tuple[Change, str] | None:
    name, _ = used_link(base, rng)
    slow_bps = round(base.design.rate_bps(name) * rng.uniform(0.6, 0.97))

    def change(design: Design) -> Design:
        own = {name: slow_bps, **design.own_rates_bps}
        return replace(design, own_rates_bps=own)

    return change, f"{name} has {slow_bps} bit/s and does not need more"


def _hidden_compute(base: Base, rng: random.Random) -> tuple[Change, str] | None:
    index = rng.randrange(len(base.design.jobs))
    job = base.design.jobs[index]
    if not job.steps:
        return None
    rank = rng.randrange(job.ranks)
    beside_ns = round(base.measured.mean_ns * rng.uniform(0.2, 0.7))
    return (
        lambda design: design.with_job(index, beside_ns={rank: beside_ns}),
        f"{job.name} rank {rank} computes {beside_ns} ns that nothing waits for",
    )


_DECOYS: tuple[Callable[[Base, random.Random], tuple[Change, str] | None], ...] = (
    _idle_fault,
    _idle_slow_link,
    _late_fault,
    _rare_fault,
    _slightly_slow,
    _hidden_compute,
)
