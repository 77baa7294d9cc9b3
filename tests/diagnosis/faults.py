"""Planted faults of the fabric or of hosts."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from tests.diagnosis import bases
from tests.diagnosis.bases import Base
from tests.diagnosis.design import CLASSES, Design
from tests.diagnosis.plants import (
    LEAST,
    MOST,
    NEAR,
    Change,
    Look,
    NoEffect,
    Plant,
    drawn_target,
    places_of,
    search,
    used_link,
)
from tests.diagnosis.virtual import Measured


def _slow_link(base: Base, rng: random.Random, look: Look) -> Plant:
    name, direction = used_link(base, rng)
    nominal_bps = base.design.rate_bps(name)
    is_declared = rng.random() < 0.25

    def rate_bps(severity: float) -> int:
        return max(1_000_000, int(nominal_bps / math.pow(60, severity)))

    if not is_declared:
        direction = "both"

        def graded(design: Design, severity: float) -> Design:
            own = {**design.own_rates_bps, name: rate_bps(severity)}
            return replace(design, own_rates_bps=own)

    else:
        direction = rng.choice([direction, direction, "both"])

        def graded(design: Design, severity: float) -> Design:
            rate = f"{rate_bps(severity)}bit"
            return design.with_link_fault(
                kind="degrade", link=name, direction=direction, rate=rate
            )

    change = search(base, look, graded, drawn_target(rng))
    slow_bps = (
        change(base.design).own_rates_bps.get(name)
        or change(base.design).links[-1]["rate"]
    )
    return Plant(
        kind="slow link",
        causes=frozenset({"slow link"}),
        places=places_of(name, direction),
        detail=f"{name} {direction}: {slow_bps} of {nominal_bps}"
        + (", declared" if is_declared else ""),
        is_declared=is_declared,
        change=change,
    )


def _dead_uplink(base: Base, rng: random.Random, look: Look) -> Plant:
    shape = base.design.shape
    groups: dict[tuple[str, ...], list[str]] = {}
    for wire in shape.wires:
        if wire.tier == "uplink":
            groups.setdefault((wire.lower, wire.upper), []).append(wire.name)
    aside = sorted(name for names in groups.values() if names[1:] for name in names)
    spines = sorted({wire.upper for wire in shape.wires if wire.tier == "uplink"})
    if aside and (rng.random() < 0.6 or len(spines) < 2):
        dead = [rng.choice(aside)]
    elif len(spines) > 1 and shape.kind in ("clos", "rail"):
        # What comes to a spine that lacks one leaf is lost: all its links are down.
        spine = rng.choice(spines)
        dead = [wire.name for wire in shape.wires if wire.upper == spine]
    else:
        raise NoEffect("no uplink has another beside it")

    def change(design: Design) -> Design:
        for name in dead:
            design = design.with_link_fault(kind="down", link=name)
        return design

    saving = 1 - base.measured.mean_ns / look(change(base.design)).mean_ns
    if not LEAST <= saving <= MOST:
        raise NoEffect("the other uplinks are enough")
    return Plant(
        kind="dead uplink",
        causes=frozenset({"dead uplink"}),
        places=tuple(place for name in dead for place in places_of(name, "both")),
        detail=", ".join(dead),
        is_declared=True,
        change=change,
    )


def _loss(base: Base, rng: random.Random, look: Look) -> Plant:
    return _lossy(base, rng, look, "loss", "drop")


def _corruption(base: Base, rng: random.Random, look: Look) -> Plant:
    return _lossy(base, rng, look, "corruption", "corrupt")


def _lossy(base: Base, rng: random.Random, look: Look, kind: str, action: str) -> Plant:
    base = bases.with_short_timeout(base, rng, look)
    timeout = base.design.transport["retransmit_timeout"]
    at_host = rng.random() < 0.3
    job = base.design.jobs[0]
    name, direction = used_link(base, rng)
    if at_host:
        rank = rng.randrange(job.ranks)
        name = base.design.shape.host_wire(job.ports[rank]).name
        direction = "down"

    def graded(design: Design, severity: float) -> Design:
        design = design.with_transport(retransmit_timeout=timeout, retry_limit=300)
        share = round(10 ** (-4 + 3.5 * severity), 6)
        if not at_host:
            return design.with_link_fault(
                kind=kind, link=name, direction=direction, probability=share
            )
        fault = {
            "action": action,
            "job": job.name,
            "destination": rank,
            "packets": "data",
            "probability": share,
        }
        return replace(design, packets=(*design.packets, fault))

    change = search(base, look, graded, drawn_target(rng))
    changed = change(base.design)
    share = (changed.packets if at_host else changed.links)[-1]["probability"]
    host = base.design.shape.wire(name).lower

    def cure(design: Design) -> Design:
        """Leave the timeout: only what is lost is no longer lost."""
        return replace(
            design,
            links=tuple(each for each in design.links if each not in changed.links),
            packets=tuple(
                each for each in design.packets if each not in changed.packets
            ),
        )

    places = places_of(name, direction)
    return Plant(
        kind=kind,
        causes=frozenset({"loss", "corruption"}),
        places=(*places, host, f"toward {host}") if at_host else places,
        detail=f"{name} {direction}: {share}" + (", at the port" if at_host else ""),
        is_declared=True,
        change=change,
        cures=(cure,),
    )


def _pause(base: Base, rng: random.Random, look: Look) -> Plant:
    name, direction = used_link(base, rng)
    total_ns = base.measured.mean_ns * base.design.measured
    at_ns = round(rng.uniform(0.02, 0.6) * base.measured.mean_ns)

    def graded(design: Design, severity: float) -> Design:
        part = 0.02 + 0.9 * severity
        return design.with_link_fault(
            kind="pause_storm",
            link=name,
            direction=direction,
            classes=CLASSES,
            at=f"{at_ns}ns",
            **{"for": f"{round(total_ns * part / (1 - part))}ns"},
        )

    change = search(base, look, graded, drawn_target(rng))
    return Plant(
        kind="pause",
        causes=frozenset({"pause"}),
        places=places_of(name, direction),
        detail=f"{name} {direction} for {change(base.design).links[-1]['for']}",
        is_declared=True,
        change=change,
    )


def _slow_compute(base: Base, rng: random.Random, look: Look) -> Plant:
    index = rng.randrange(len(base.design.jobs))
    job = base.design.jobs[index]
    if not job.steps:
        return _slow_role(base, rng, look, index)
    rank, step = rng.randrange(job.ranks), rng.randrange(len(job.steps))

    def graded(design: Design, severity: float) -> Design:
        longer = {
            **design.jobs[index].longer_ns,
            (rank, step): _longer_ns(base, severity),
        }
        return design.with_job(index, longer_ns=longer)

    change = search(base, look, graded, drawn_target(rng))
    longer_ns = change(base.design).jobs[index].longer_ns[rank, step]
    return Plant(
        kind="slow compute",
        causes=frozenset({"slow compute"}),
        places=_rank_places(job.name, rank),
        detail=f"{job.name} rank {rank}, forward{step}: {longer_ns} ns longer",
        is_declared=False,
        change=change,
    )


def _slow_role(base: Base, rng: random.Random, look: Look, index: int) -> Plant:
    """Return a rank of a stage or an instance that computes slowly."""
    job = base.design.jobs[index]
    rank = rng.choice(job.with_peers)

    def graded(design: Design, severity: float) -> Design:
        factor = 1.02 + 0.88 * severity / (1 - 0.9 * severity) * 2
        return design.with_job(index, slower={rank: factor})

    change = search(base, look, graded, drawn_target(rng))
    factor = change(base.design).jobs[index].slower[rank]
    return Plant(
        kind="slow compute",
        causes=frozenset({"slow compute"}),
        places=_rank_places(job.name, rank),
        detail=f"{job.name} rank {rank}, {job.synth}: {factor:.2f} times as long",
        is_declared=False,
        change=change,
    )


def _late_rank(base: Base, rng: random.Random, look: Look) -> Plant:
    index = rng.randrange(len(base.design.jobs))
    job = base.design.jobs[index]
    rank = rng.randrange(job.ranks)
    key = rng.choice(["loading_ns", "loading_ns", "late_ns"])

    def late(design: Design, late_ns: int) -> Design:
        known = getattr(design.jobs[index], key)
        return design.with_job(index, **{key: {**known, rank: late_ns}})

    def graded(design: Design, severity: float) -> Design:
        return late(design, _longer_ns(base, severity))

    # Without it the recorded starts are still there, and all the same.
    cure: Change | None = None
    if key == "late_ns":

        def on_time(design: Design) -> Design:
            return late(design, 0)

        cure = on_time
    change = search(base, look, graded, drawn_target(rng), cure=cure)
    late_ns = getattr(change(base.design).jobs[index], key)[rank]
    return Plant(
        kind="late rank",
        causes=frozenset({"late rank", "slow compute"}),
        places=_rank_places(job.name, rank),
        detail=f"{job.name} rank {rank}: {late_ns} ns, "
        + ("a computation of its own" if key == "loading_ns" else "as recorded"),
        is_declared=False,
        change=change,
        cures=() if cure is None else (cure,),
    )


def _longer_ns(base: Base, severity: float) -> int:
    part = 0.02 + 0.88 * severity
    return round(base.measured.mean_ns * part / (1 - part))


def _rank_places(job: str, rank: int) -> tuple[str, ...]:
    return (f"rank {rank}", f"{job} rank {rank}", f"{job}, rank {rank}")


def _hash_imbalance(base: Base, rng: random.Random, look: Look) -> Plant:
    """Return source ports that the hash sends over few of several links."""
    ideal_ns = look(bases.ideally_balanced(base.design)).mean_ns
    target = drawn_target(rng)
    balanced: list[int] = base.design.transport["source_ports"]
    found: list[tuple[float, list[int], Measured]] = []
    for ports in (balanced, *_few_ports(rng)):
        measured = look(base.design.with_transport(source_ports=ports))
        found.append((1 - ideal_ns / measured.mean_ns, ports, measured))
        if len(found) > 3 and abs(found[-1][0] - target) < 3 * NEAR:
            break
    saving, ports, measured = min(found, key=lambda each: abs(each[0] - target))
    # The best hash is not known: it is at least as even as the evenest of some.
    _, evenest, best = min(found, key=lambda each: each[0])
    places = _unbalanced(measured)
    if saving > MOST or 1 - best.mean_ns / measured.mean_ns < LEAST or not places:
        raise NoEffect("the hash spreads what is sent well enough")

    def change(design: Design) -> Design:
        return design.with_transport(source_ports=ports)

    def cure(design: Design) -> Design:
        return design.with_transport(source_ports=evenest)

    return Plant(
        kind="hash imbalance",
        causes=frozenset({"hash imbalance"}),
        places=places,
        detail=f"source ports {ports}: {', '.join(places)}",
        is_declared=False,
        change=change,
        cures=(bases.ideally_balanced, cure),
    )


def _few_ports(rng: random.Random) -> list[list[int]]:
    """Return lists of source ports so short that a hash hardly spreads them."""
    return [rng.sample(range(20_000, 60_000), rng.choice([1, 1, 2])) for _ in range(10)]


def _unbalanced(measured: Measured) -> tuple[str, ...]:
    """Return the switches that spread almost as unevenly as the worst one."""
    groups: dict[str, list[tuple[str, int]]] = {}
    for use in measured.links.values():
        if use.equal_cost is not None:
            switch = use.port.partition(":")[0]
            groups.setdefault(use.equal_cost, []).append((switch, use.bytes))
    worst: dict[str, float] = {}
    for group in groups.values():
        total = sum(count for _, count in group)
        if len(group) > 1 and total > 100_000:
            most = max(count for _, count in group)
            switch = group[0][0]
            worst[switch] = max(worst.get(switch, 0), most * len(group) / total)
    limit = max(1.3, 0.75 * max(worst.values(), default=0))
    return tuple(sorted(switch for switch, found in worst.items() if found >= limit))


PLANTERS = {
    "slow link": _slow_link,
    "dead uplink": _dead_uplink,
    "loss": _loss,
    "corruption": _corruption,
    "pause": _pause,
    "slow compute": _slow_compute,
    "late rank": _late_rank,
    "hash imbalance": _hash_imbalance,
}
