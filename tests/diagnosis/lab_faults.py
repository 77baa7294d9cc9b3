"""Planted faults that only labs have: routes, late hosts, others' traffic, episodes."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.diagnosis.bases import Base
from tests.diagnosis.plants import Look, NoEffect, Plant, places_of, used_link

ROUTE, STOP, LOAD = "changed route", "stopped process", "loaded core"
OTHER, EPISODE = "other traffic", "slow for a while"

EPISODES = 10
"""Iterations of a run in which some are slow."""


def _route(base: Base, rng: random.Random, look: Look) -> Plant:
    """Return a leaf whose routes all use one of its uplinks."""
    del look
    shape = base.design.shape
    used = {
        shape.host_wire(port).upper for job in base.design.jobs for port in job.ports
    }
    ups = {
        leaf: [wire.name for wire in shape.wires if wire.lower == leaf]
        for leaf in sorted(used)
    }
    leaves = [leaf for leaf, names in ups.items() if len(names) > 1]
    if not leaves or shape.kind not in ("clos", "rail"):
        raise NoEffect("no switch has a choice")
    leaf = rng.choice(leaves)
    kept = rng.choice(ups[leaf])
    others = [name for name in ups[leaf] if name != kept]
    return Plant(
        kind=ROUTE,
        causes=frozenset({"hash imbalance", "dead uplink"}),
        places=(leaf, *(f"{name} up" for name in others)),
        detail=f"all routes of {leaf} by {kept}",
        is_declared=False,
        change=lambda design: design,
        lab=(ROUTE, leaf, kept),
    )


def _late(base: Base, rng: random.Random, kind: str) -> Plant:
    host = rng.choice(base.design.jobs[0].ports)
    return Plant(
        kind=kind,
        causes=frozenset({"generator slow"}),
        places=(host,),
        detail=host,
        is_declared=False,
        change=lambda design: design,
        lab=(kind, host),
    )


def _stopped(base: Base, rng: random.Random, look: Look) -> Plant:
    """Return a host whose data-plane process is repeatedly suspended."""
    del look
    return _late(base, rng, STOP)


def _loaded(base: Base, rng: random.Random, look: Look) -> Plant:
    """Return a host whose data-plane process shares its core with busy loops."""
    del look
    return _late(base, rng, LOAD)


def _other(base: Base, rng: random.Random, look: Look) -> Plant:
    """Return a host that sends something else to another host all the time."""
    del look
    design = base.design
    sender, receiver = rng.sample(sorted(design.jobs[0].ports), 2)
    share = rng.uniform(0.4, 0.8)
    rate_bps = round(share * design.rates_bps["host"])
    between = [wire.name for wire in design.shape.wires if wire.tier != "host"]
    return Plant(
        kind=OTHER,
        causes=frozenset({"other traffic"}),
        places=(
            f"{design.shape.host_wire(sender).name} up",
            f"{design.shape.host_wire(receiver).name} down",
            *(f"{name} {way}" for name in between for way in ("up", "down")),
        ),
        detail=f"{sender} to {receiver}, {rate_bps} bit/s",
        is_declared=False,
        change=lambda design: design,
        lab=(OTHER, sender, receiver, str(rate_bps)),
    )


def _episode(base: Base, rng: random.Random, look: Look) -> Plant:
    """Return a link that is slow in some iterations only."""
    del look
    design = base.design
    name, direction = used_link(base, rng)
    rate_bps = round(design.rate_bps(name) * rng.uniform(0.15, 0.5))
    mean_ns = base.measured.mean_ns
    after_ns = round(rng.uniform(1, 4) * mean_ns)
    for_ns = round(rng.uniform(3, 8) * mean_ns)
    return Plant(
        kind=EPISODE,
        causes=frozenset({"slow link"}),
        places=places_of(name, direction),
        detail=f"{name} {direction}: {rate_bps} bit/s for {for_ns / 1e9:.1f} s",
        is_declared=False,
        change=lambda design: replace(design, measured=EPISODES),
        lab=(EPISODE, name, direction, str(rate_bps), str(after_ns), str(for_ns)),
    )


PLANTERS = {
    ROUTE: _route,
    STOP: _stopped,
    LOAD: _loaded,
    OTHER: _other,
    EPISODE: _episode,
}
