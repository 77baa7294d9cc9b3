"""Planted limits of the design: nothing is broken, but it could be faster."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.diagnosis.bases import EVEN, Base, ideally_balanced
from tests.diagnosis.design import Design
from tests.diagnosis.plants import (
    LEAST,
    MOST,
    Change,
    Look,
    NoEffect,
    Plant,
    drawn_target,
    search,
    time_of,
)


def _window(base: Base, rng: random.Random, look: Look) -> Plant:
    def graded(design: Design, severity: float) -> Design:
        size = round(2 ** (20 - 8 * severity))
        return design.with_transport(window=f"{size}B")

    def doubled(design: Design) -> Design:
        size = int(str(design.transport["window"]).removesuffix("B"))
        return design.with_transport(window=f"{2 * size}B")

    # Twice the window is twice as fast at most.
    change = search(base, look, graded, rng.uniform(LEAST, 0.48), cure=doubled)
    _must_exceed_the_ports(change(base.design), doubled, look)
    return Plant(
        kind="window",
        causes=frozenset({"window"}),
        places=(),
        detail=f"window {change(base.design).transport['window']}",
        is_declared=False,
        change=change,
        cures=(doubled,),
    )


def _congestion_control(base: Base, rng: random.Random, look: Look) -> Plant:
    def graded(design: Design, severity: float) -> Design:
        # As a part of the port's, a faster port would have a higher one.
        rate_bps = round(design.rates_bps["host"] * (1 - 0.99 * severity))
        control = {"fixed_rate": {"rate": f"{rate_bps}bit"}}
        return design.with_transport(congestion_control=control)

    def off(design: Design) -> Design:
        return design.with_transport(congestion_control=None)

    change = search(base, look, graded, drawn_target(rng), cure=off)
    _must_exceed_the_ports(change(base.design), off, look)
    return Plant(
        kind="congestion control",
        causes=frozenset({"congestion control", "congestion control at minimum rate"}),
        places=(),
        detail=str(change(base.design).transport["congestion_control"]),
        is_declared=False,
        change=change,
        cures=(off,),
    )


def _contention(base: Base, rng: random.Random, look: Look) -> Plant:
    """Return another job that sends over the same links between switches."""
    whole = base.design
    alone = replace(whole, jobs=whole.jobs[:1])
    both, one = look(whole), look(alone)
    saving = 1 - one.of_job_ns["main"] / both.of_job_ns["main"]
    if not LEAST <= saving <= MOST:
        raise NoEffect("the other job costs too little, or too much")
    ideal = look(ideally_balanced(whole))
    if both.of_job_ns["main"] > EVEN * ideal.of_job_ns["main"]:
        raise NoEffect("the hash is uneven without a plant")
    shared = [
        way
        for way, use in both.links.items()
        if use.bytes > 1.1 * one.links[way].bytes > 100_000
    ]

    def wider(design: Design) -> Design:
        rates = dict(design.rates_bps)
        return replace(design, rates_bps={**rates, "uplink": 10 * rates["uplink"]})

    def apart(design: Design) -> Design:
        return replace(design, jobs=design.jobs[:1])

    # What contends within the job itself has to cost less.
    left_ns = one.of_job_ns["main"] - look(wider(alone)).of_job_ns["main"]
    if left_ns > both.of_job_ns["main"] - one.of_job_ns["main"]:
        raise NoEffect("the links between switches are the limit")
    _must_exceed_the_ports(whole, wider, look, job="main")
    return Plant(
        kind="contention",
        causes=frozenset({"contention"}),
        places=(*shared, "other", "main", "job other"),
        detail=f"a second job over {', '.join(shared[:4])}",
        is_declared=False,
        change=lambda design: design,
        cures=(apart, wider),
    )


def _must_exceed_the_ports(
    design: Design, cure: Change, look: Look, *, job: str | None = None
) -> None:
    """Refuse a limit that is less than that of the hosts' ports."""
    time_ns = time_of(look(design), job)
    rates = dict(design.rates_bps)
    wide = replace(design, rates_bps={**rates, "host": 10 * rates["host"]})
    saved = time_ns - time_of(look(cure(design)), job)
    if time_ns - time_of(look(wide), job) > 0.8 * saved:
        raise NoEffect("the hosts' ports are the limit")


PLANTERS = {
    "window": _window,
    "congestion control": _congestion_control,
    "contention": _contention,
}
