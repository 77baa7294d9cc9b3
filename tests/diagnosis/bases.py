"""Intact designs, in which causes are planted.

They lose no packet, send none again, and lose next to nothing to an uneven hash: that
is simulated, and what does not hold is mended or drawn again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chakram.chakra.et_codec import CollectiveType
from tests.diagnosis.design import (
    Design,
    Job,
    Shape,
    Step,
    clos,
    listed,
    rail,
    star,
    tree,
)
from tests.diagnosis.role_jobs import role_job
from tests.diagnosis.virtual import CannotSimulate, Measured

PACKETS = 3500
"""Data packets of an iteration, roughly."""

MOST_PACKETS = 20_000
MOST_HOSTS = 32
PACKET_BYTES = 4096

EVEN = 1.02
"""So much slower than with ideal balancing a base may be."""

GBIT = 10**9

_RATES_GBIT = (1, 10, 25, 50, 100, 200, 400)
_MULTIPATH = frozenset({"dead uplink", "hash imbalance", "changed route"})
_LATE = frozenset({"stopped process", "loaded core"})
_WITH_STEPS = frozenset({"slow compute", "late rank"})
_WITH_ROLES = frozenset({"slow link", "loss", "corruption", "slow compute"})
"""Causes that are also planted in jobs whose ranks have roles."""

_ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all_reduce": (
        *("ring", "ring", "ring(channels=2)", "tree", "bidirectional_ring"),
        *("double_binary_tree", "direct", "halving_doubling", "recursive_doubling"),
    ),
    "all_gather": (
        *("ring", "direct", "bidirectional_ring", "recursive_doubling", "bruck"),
    ),
    "reduce_scatter": ("ring", "direct", "recursive_halving", "halving_doubling"),
    "all_to_all": ("direct", "pairwise", "bruck"),
    "broadcast": ("tree", "ring"),
}


@dataclass(frozen=True, kw_only=True)
class Base:
    """A design that lost nothing when it was simulated."""

    design: Design
    measured: Measured


VIRTUAL, NAMESPACES = "virtual", "namespaces"
"""Worlds: simulations, and labs of this machine."""

MOST_LAB_HOSTS = 16
LAB_LOAD_BPS = 300_000_000
"""What all hosts of a lab send at most."""

LAB_TIMEOUT = "400ms"
LEAST_LAB_TIMEOUT_NS = 80_000_000


def drawn(rng: random.Random, kinds: tuple[str, ...], world: str = VIRTUAL) -> Design:
    """Return a design that causes of these kinds can be planted in."""
    if world == NAMESPACES:
        return _of_a_lab(rng, set(kinds))
    need = set(kinds)
    shape = _shape(rng, need)
    host_bps = rng.choice(_RATES_GBIT) * GBIT
    contends = "contention" in need
    over = rng.uniform(1, 4)
    if need & _MULTIPATH:
        over = rng.uniform(1.5, 5)
    elif contends:
        over = rng.uniform(4, 10)
    rates = _rates(shape, host_bps, over)
    delay_ns = rng.choice([0, 100, 500, 1000])
    switch_delay_ns = rng.choice([0, 200, 1000, 3000])
    if "window" in need:
        host_bps = rng.choice([25, 50, 100, 200]) * GBIT
        rates = _rates(shape, host_bps, rng.uniform(0.3, 1))
        delay_ns, switch_delay_ns = rng.randrange(2000, 20_000), 5000
    delays = dict.fromkeys(rates, switch_delay_ns) | {"host": delay_ns}
    return Design(
        shape=shape,
        rates_bps=rates,
        delays_ns=delays,
        jobs=_jobs(rng, shape, host_bps, need),
        collectives={op: rng.choice(names) for op, names in _ALGORITHMS.items()},
        is_graph="slow link" in need,
        measured=rng.choice([1, 2, 2, 3]),
        seed=rng.randrange(1, 1_000_000),
        **_network(rng, need),
    )


def _of_a_lab(rng: random.Random, need: set[str]) -> Design:
    """Return a design that hosts of this machine keep up with."""
    is_late = bool(need & _LATE)
    shape = star(rng.randrange(4, 7)) if is_late else None
    shape = shape or _shape(rng, need, most_hosts=MOST_LAB_HOSTS)
    host_bps = LAB_LOAD_BPS // len(shape.hosts) // 10**6 * 10**6
    over = rng.uniform(1.5, 4) if need & _MULTIPATH else rng.uniform(0.7, 2)
    rates = _rates(shape, host_bps, over)
    is_modeled = "pause" in need
    transport: dict[str, Any] = {
        "source_ports": _source_ports(rng),
        "retransmit_timeout": LAB_TIMEOUT,
        "retry_limit": 50,
    }
    if "dead uplink" in need:
        transport["queue_pairs"] = {"count": 4, "split": "even"}
    return Design(
        shape=shape,
        rates_bps=rates,
        delays_ns=dict.fromkeys(rates, 0),
        jobs=(_job(rng, "main", list(shape.hosts), host_bps, need),)
        if is_late
        else _jobs(rng, shape, host_bps, need),
        collectives={op: rng.choice(names) for op, names in _ALGORITHMS.items()},
        transport=transport,
        queue_bytes=2 << 20,
        switches={"profile": "sonic"} if is_modeled else {},
        fabric_keys={"switch": "model"} if is_modeled else {},
        more={
            "predict": ["bound"],
            # A process each, so that it is known whose is late.
            **({"agents": {"shards": len(shape.hosts)}} if is_late else {}),
        },
        measured=rng.choice([2, 3]),
        seed=rng.randrange(1, 1_000_000),
    )


def _shape(
    rng: random.Random, need: set[str], *, most_hosts: int = MOST_HOSTS
) -> Shape:
    if "changed route" in need:
        kinds = ["clos", "clos", "rail"]
    elif "dead uplink" in need:
        kinds = ["clos", "clos", "rail", "list"]
    elif "hash imbalance" in need:
        kinds = ["clos", "tree", "rail", "list"]
    elif "contention" in need:
        kinds = ["clos", "rail", "list"]
    else:
        kinds = ["star", "clos", "tree", "rail", "list"]
    few = 2 if need & _MULTIPATH else 1
    while True:
        shape = _SHAPES[rng.choice(kinds)](rng, few)
        if 4 <= len(shape.hosts) <= most_hosts:
            return shape


def _star(rng: random.Random, few: int) -> Shape:
    del few
    return star(rng.choice([4, 5, 6, 8, 8, 12, 16, 24, 32]))


def _clos(rng: random.Random, few: int) -> Shape:
    spines = rng.randrange(few, 5)
    uplinks = spines * rng.choice([1, 1, 2])
    return clos(rng.randrange(2, 5), spines, rng.randrange(2, 9), uplinks)


def _tree(rng: random.Random, few: int) -> Shape:
    return tree(
        rng.randrange(2, 4),
        rng.randrange(1, 3),
        rng.randrange(few, 3),
        rng.randrange(1, 3),
        rng.randrange(2, 5),
    )


def _rail(rng: random.Random, few: int) -> Shape:
    return rail(rng.randrange(2, 9), rng.randrange(2, 5), rng.randrange(few, 4))


def _list(rng: random.Random, few: int) -> Shape:
    """Return a dumbbell, a chain, a triangle or a small tree of switches."""
    aside = rng.randrange(few, 4)
    names = rng.choice([("s0", "s1", "s2"), ("east", "mid", "west")])
    hosts = {name: rng.randrange(1, 7) for name in names}
    a, b, c = names
    match rng.choice(["dumbbell", "chain", "triangle", "tree"]):
        case "dumbbell":
            return listed({a: hosts[a] + 1, b: hosts[b] + 1}, [(a, b, aside)])
        case "chain":
            return listed(hosts, [(a, b, aside), (b, c, aside)])
        case "triangle":
            return listed(hosts, [(a, b, aside), (b, c, aside), (a, c, aside)])
        case _:
            return listed({**hosts, "top": 0}, [(name, "top", aside) for name in names])


_SHAPES: dict[str, Callable[[random.Random, int], Shape]] = {
    "star": _star,
    "clos": _clos,
    "tree": _tree,
    "rail": _rail,
    "list": _list,
}


def _rates(shape: Shape, host_bps: int, over: float) -> dict[str, int]:
    """Return rates by tier, of which upper ones are oversubscribed."""
    hosts = [wire for wire in shape.wires if wire.tier == "host"]
    ups = [wire for wire in shape.wires if wire.tier == "uplink"]
    rates = {"host": host_bps}
    if ups:
        leaves = {wire.upper for wire in hosts}
        each = len(hosts) / len(leaves) / max(1, len(ups) / len(leaves))
        rates["uplink"] = max(1_000_000, round(host_bps * each / over / 1e6) * 10**6)
    cores = [wire for wire in shape.wires if wire.tier == "core"]
    if cores:
        factor = len(ups) / len(cores)
        rates["core"] = max(1_000_000, round(rates["uplink"] * factor / 1e6) * 10**6)
    return rates


def _network(rng: random.Random, need: set[str]) -> dict[str, Any]:
    """Return transport, ECN and switches."""
    transport: dict[str, Any] = {}
    ecn: dict[str, Any] | None = None
    switches: dict[str, Any] = {}
    profile = rng.choice(["fifo", "fifo", "sonic", "sonic", "ns3"])
    if "pause" in need:
        profile = "sonic"
    if profile != "fifo":
        switches["profile"] = profile
    if profile != "ns3" and rng.random() < 0.15:
        switches["latency"] = "cut_through"
    control = (
        "none"
        if need & {"congestion control", "window"}
        else rng.choice(["none", "none", "none", "dcqcn", "fixed_rate"])
    )
    if control == "dcqcn":
        profiles = ["dcqcn-nvidia", "dcqcn-paper", "dcqcn-intel"]
        transport["congestion_control"] = {"dcqcn": {"profile": rng.choice(profiles)}}
        ecn = {"kmin": "400KiB", "kmax": "1600KiB", "pmax": 0.2}
    elif control == "fixed_rate":
        transport["congestion_control"] = {"fixed_rate": {"rate": "100%"}}
    if rng.random() < 0.2:
        transport["path_mtu"] = 2048
    if rng.random() < 0.25:
        transport["verb"] = "send"
    if rng.random() < 0.3 and "window" not in need:
        transport["window"] = rng.choice(["128KiB", "256KiB", "1MiB"])
    transport["source_ports"] = _source_ports(rng)
    if "dead uplink" in need:
        transport["queue_pairs"] = {"count": 4, "split": "even"}
    return {"transport": transport, "ecn": ecn, "switches": switches}


def _source_ports(rng: random.Random) -> list[int]:
    return rng.sample(range(10_000, 65_000), rng.choice([5, 17, 64]))


def _jobs(
    rng: random.Random, shape: Shape, host_bps: int, need: set[str]
) -> tuple[Job, ...]:
    hosts = list(shape.hosts)
    if rng.random() < 0.5 or need & (_MULTIPATH | {"contention"}):
        rng.shuffle(hosts)
    if rng.random() < 0.35 and len(hosts) > 5:
        hosts = hosts[: rng.randrange(4, len(hosts))]
    two = "contention" in need or (len(hosts) >= 8 and rng.random() < 0.2)
    if not two or len(hosts) < 4:
        return (_job(rng, "main", hosts, host_bps, need),)
    cut = rng.randrange(2, len(hosts) - 1)
    return (
        _job(rng, "main", hosts[:cut], host_bps, need),
        _job(rng, "other", hosts[cut:], host_bps, need),
    )


def _job(
    rng: random.Random, name: str, hosts: list[str], host_bps: int, need: set[str]
) -> Job:
    ports = tuple(hosts)
    if need <= _WITH_ROLES and rng.random() < 0.25:
        sent_ns = 8 * PACKETS * PACKET_BYTES / len(hosts) / host_bps * 1e9
        found = role_job(
            rng,
            len(hosts),
            total_bytes=PACKETS * PACKET_BYTES // 2,
            compute_ns=round(rng.uniform(0.1, 1.0) * sent_ns),
        )
        if found is not None and (found.with_peers or not need & _WITH_STEPS):
            return Job(
                name=name,
                ranks=len(hosts),
                ports=ports,
                synth=found.synth,
                scales=found.scales,
                with_peers=found.with_peers,
            )
    if need & _WITH_STEPS or rng.random() < 0.6:
        steps = _steps(rng, len(hosts), host_bps)
        return Job(name=name, ranks=len(hosts), ports=ports, steps=steps)
    synth = _synth(rng, len(hosts))
    return Job(name=name, ranks=len(hosts), ports=ports, synth=synth)


def _size_bytes(op: str, ranks: int, budget: float) -> int:
    """Return what a rank contributes if all of it takes so many packets."""
    total = budget * PACKET_BYTES
    per_byte = {
        "all_reduce": 2 * ranks,
        "all_gather": ranks * (ranks - 1),
        "broadcast": ranks,
        "reduce_scatter": ranks,
        "all_to_all": ranks,
    }[op]
    size = max(64, int(total / per_byte))
    # Parts are whole elements.
    return -(-size // (16 * ranks)) * 16 * ranks


def _steps(rng: random.Random, ranks: int, host_bps: int) -> tuple[Step, ...]:
    count = rng.randrange(1, 5)
    share = PACKETS / count
    ops = [
        CollectiveType[name.upper()]
        for name in rng.choices(tuple(_ALGORITHMS), (3, 1, 1, 2, 1), k=count)
    ]
    sent_ns = 8 * PACKETS * PACKET_BYTES / ranks / host_bps * 1e9
    return tuple(
        Step(
            op=op,
            size_bytes=_size_bytes(
                op.name.lower(), ranks, share * rng.uniform(0.5, 1.5)
            ),
            compute_ns=round(rng.uniform(0.02, 0.5) * sent_ns / count) + 100,
            overlaps=rng.random() < 0.2,
        )
        for op in ops
    )


def _synth(rng: random.Random, ranks: int) -> dict[str, Any]:
    size = f"{PACKETS * PACKET_BYTES // max(1, ranks * (ranks - 1))}B"
    match rng.choice(["collectives", "collectives", "all_to_all", "shift", "incast"]):
        case "all_to_all":
            return {"synth": "all_to_all", "ranks": ranks, "size": size}
        case "shift":
            message = f"{PACKETS * PACKET_BYTES // ranks // 2}B"
            return {
                "synth": "permutation",
                "ranks": ranks,
                "size": message,
                "order": "shift",
                "shift": rng.randrange(1, ranks),
                "repeats": 2,
            }
        case "incast":
            message = f"{PACKETS * PACKET_BYTES // ranks // 2}B"
            return {
                "synth": "incast",
                "ranks": ranks,
                "size": message,
                "rotate": True,
                "repeats": 2,
            }
        case _:
            return {
                "synth": "collectives",
                "ranks": ranks,
                "streams": _streams(rng, ranks),
            }


def _streams(rng: random.Random, ranks: int) -> list[dict[str, Any]]:
    """Return one stream of collectives of all, or two in groups."""
    count = rng.choice([1, 1, 2])
    streams = []
    for _ in range(count):
        op = rng.choice(tuple(_ALGORITHMS))
        members, stride = ranks, 1
        even = [each for each in range(2, ranks) if ranks % each == 0]
        if even and rng.random() < 0.4:
            members = rng.choice(even)
            stride = rng.choice([1, ranks // members])
        repeats = rng.randrange(1, 4)
        budget = PACKETS / count / repeats * members / ranks
        size = f"{_size_bytes(op, members, budget)}B"
        stream = {"op": op, "size": size, "count": repeats}
        if members < ranks:
            stream |= {"members": members, "stride": stride}
        streams.append(stream)
    return streams


def settled(
    design: Design,
    rng: random.Random,
    look: Callable[[Design], Measured],
    *,
    is_hash_uneven: bool = False,
) -> Base:
    """Return the design as a base, mended where something is wrong with it.

    Args:
        design: The design.
        rng: Draws how it is mended.
        look: Simulates.
        is_hash_uneven: Whether the hash may be uneven, as what is planted makes it so.

    Raises:
        CannotSimulate: If it cannot be.
    """
    measured = look(design)
    if measured.sent_again or any(use.drops for use in measured.links.values()):
        # A queue that is too short, or a timeout: neither is to be found here.
        design = replace(
            design, switches={**design.switches, "profile": "fifo"}, queue_bytes=1 << 30
        ).with_transport(retransmit_timeout="2s")
        measured = look(design)
        if measured.sent_again:
            raise CannotSimulate("packets are sent again without a cause")
    if measured.packets > MOST_PACKETS * design.measured:
        raise CannotSimulate("too many packets")
    if not design.shape.has_paths or is_hash_uneven:
        return Base(design=design, measured=measured)
    for mend in (_with_more_pairs, _with_other_ports, _with_faster_uplinks) * 2:
        ideal = look(ideally_balanced(design))
        if measured.mean_ns <= EVEN * ideal.mean_ns and not measured.sent_again:
            return Base(design=design, measured=measured)
        design = mend(design, rng)
        measured = look(design)
    raise CannotSimulate("the hash is uneven without a plant")


def _with_more_pairs(design: Design, rng: random.Random) -> Design:
    """Return it with each message divided among queue pairs, which spreads it."""
    ranks = sum(job.ranks for job in design.jobs)
    count = rng.choice([4, 8]) if ranks <= 8 else 4 if ranks <= 16 else 2
    return design.with_transport(queue_pairs={"count": count, "split": "even"})


def _with_other_ports(design: Design, rng: random.Random) -> Design:
    return design.with_transport(source_ports=_source_ports(rng))


def _with_faster_uplinks(design: Design, rng: random.Random) -> Design:
    """Return it with uplinks so fast that an uneven hash costs little."""
    factor = rng.choice([2, 4])
    rates = {
        tier: rate if tier == "host" else factor * rate
        for tier, rate in design.rates_bps.items()
    }
    return replace(design, rates_bps=rates)


def ideally_balanced(design: Design) -> Design:
    """Return it with switches that send each packet over the shortest queue."""
    accept = {"accept": {"window": 65_536}}
    return replace(
        design, switches={**design.switches, "balancing": "adaptive"}
    ).with_transport(reordering=accept)


def with_short_timeout(
    base: Base, rng: random.Random, look: Callable[[Design], Measured]
) -> Base:
    """Return it with a timeout that is a part of an iteration, and expires never.

    Raises:
        CannotSimulate: If each that is short expires.
    """
    timeout_ns = round(base.measured.mean_ns * rng.uniform(0.02, 0.2)) + 20_000
    if base.design.transport.get("retransmit_timeout") == LAB_TIMEOUT:
        timeout_ns = max(timeout_ns, LEAST_LAB_TIMEOUT_NS)
    for _ in range(4):
        design = base.design.with_transport(retransmit_timeout=f"{timeout_ns}ns")
        measured = look(design)
        if not measured.sent_again:
            return Base(design=design, measured=measured)
        timeout_ns *= 2
    raise CannotSimulate("every timeout that is short expires")
