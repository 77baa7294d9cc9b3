"""Planted faults that only labs have: changed routes and late hosts."""

from __future__ import annotations

import random

from tests.diagnosis.bases import Base
from tests.diagnosis.plants import Look, NoEffect, Plant

ROUTE, STOP, LOAD = "changed route", "stopped process", "loaded core"


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


PLANTERS = {ROUTE: _route, STOP: _stopped, LOAD: _loaded}
