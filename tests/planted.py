"""Runs in labs with one cause of lost time, planted by what an experiment may say.

Rates are low, so that machines that have other work keep up.  What a run whose
generator was late says of its network is worth nothing, so it is done again.
"""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chakram.chakra.et_messages import NodeType
from chakram.observe.why import why_of
from chakram.results.causes import LEAST_SHARE
from tests.e2e.runs import LAB, chakram, completed, write_experiment
from tests.trace_bytes import collective, metadata, node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from chakram.results.causes import Why

ATTEMPTS = 3
SLOWER = 8
"""By so much is each further attempt slower: on a machine that has other work."""

RATE = "50Mbit"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """An experiment, and what it loses its time by.

    ``places`` are all that are right: of a link that is slow in both directions either.
    ``down`` are interfaces of the lab that are put down before the run.
    """

    jobs: list[dict[str, Any]]
    fabric: dict[str, Any]
    cause: str | None
    places: tuple[str, ...] = ()
    sections: dict[str, Any] = field(default_factory=dict)
    down: tuple[tuple[str, str], ...] = ()


def star(hosts: int = 4, **changes: object) -> dict[str, Any]:
    return {
        "kind": "namespaces",
        "topology": {"single_switch": {"hosts": hosts}},
        "links": {"host": {"rate": RATE}},
        **changes,
    }


def leaf_spine(spines: int, uplink: str) -> dict[str, Any]:
    return {
        "kind": "namespaces",
        "topology": {"clos": {"leaves": 2, "spines": spines, "hosts_per_leaf": 4}},
        "links": {"host": {"rate": RATE}, "uplink": {"rate": uplink}},
    }


def job(
    ranks: int, op: str = "all_reduce", size: str = "512KiB", **other: object
) -> dict[str, Any]:
    streams = [{"op": op, "size": size, "count": 1}]
    trace = {"synth": "collectives", "ranks": ranks, "streams": streams}
    return {"name": "job", "trace": trace, **other}


def clean(place: int, seed: int) -> Planted:
    """Return an experiment that loses nothing."""
    del place
    return Planted(jobs=[job(4)], fabric=star(), cause=None, sections={"seed": seed})


def slow_compute(place: int, seed: int, folder: Path) -> Planted:
    rank = (1, 3)[place]
    for number in range(4):
        micros = 60_000 if number == rank else 20_000
        records = (
            metadata(),
            node(1, NodeType.COMP, name="forward", duration_micros=micros),
            collective(2, comm_size=256 << 10, data_deps=(1,)),
        )
        (folder / f"slow.{number}.et").write_bytes(b"".join(records))
    trace = {"path": str(folder / "slow")}
    return Planted(
        jobs=[{"name": "job", "trace": trace, "compute": {"from": "trace"}}],
        fabric=star(),
        cause="slow compute",
        places=(f"rank {rank}, forward",),
        sections={"seed": seed},
    )


def slow_link(place: int, seed: int) -> Planted:
    slow = ("b", "d")[place]
    hosts = ["a", "b", "c", "d"]
    links = [
        {"ends": [host, "s0"], "rate": "20Mbit" if host == slow else RATE}
        for host in hosts
    ]
    graph = {"hosts": hosts, "switches": ["s0"], "links": links}
    fabric = star() | {"topology": {"graph": graph}}
    return Planted(
        jobs=[job(4, size="256KiB")],
        fabric=fabric,
        cause="slow link",
        places=(f"{slow}-s0 up", f"{slow}-s0 down"),
        sections={"seed": seed},
    )


def loss(place: int, seed: int) -> Planted:
    host = (0, 2)[place]
    fault = {"action": "drop", "destination": host, "probability": 0.05}
    return Planted(
        jobs=[job(4, "all_gather")],
        fabric=star(),
        cause="loss",
        places=(f"h{host}-s0 down",),
        sections={
            "seed": seed,
            # Whoever sends to this host sends to others, too.
            "collectives": {"all_gather": "recursive_doubling"},
            "faults": {"packets": [fault]},
            "transport": {"retransmit_timeout": "20ms", "retry_limit": 50},
        },
    )


def congestion_control(place: int, seed: int) -> Planted:
    op = ("all_reduce", "all_gather")[place]
    return Planted(
        jobs=[job(4, op, "256KiB" if place == 0 else "64KiB")],
        fabric=star(),
        cause="congestion control at minimum rate",
        places=(op,),
        sections={
            "seed": seed,
            "transport": {"congestion_control": {"fixed_rate": {"rate": "40%"}}},
        },
    )


def contention(place: int, seed: int) -> Planted:
    """Return a job, and another one that sends over one of its uplinks all the time."""
    other = {"synth": "incast", "ranks": 2, "fan_in": 1, "size": "512KiB"}
    return Planted(
        jobs=[
            job(2, placement={"ports": ["h0", "h4"]}),
            {
                "name": "other",
                "trace": {**other, "receiver": (1, 0)[place], "barrier": False},
                "placement": {"ports": ["h1", "h5"]},
                "repeat": "until_others_end",
            },
        ],
        fabric=leaf_spine(1, RATE),
        cause="contention",
        places=(f"leaf{place}-spine0 up",),
        sections={"seed": seed},
    )


def dead_uplink(place: int, seed: int) -> Planted:
    spine = place
    return Planted(
        jobs=[job(8, placement={"pattern": "striped"})],
        fabric=leaf_spine(2, "100Mbit"),
        cause="dead uplink",
        places=(f"leaf0-spine{spine} up", f"leaf1-spine{spine} up"),
        sections={"seed": seed},
        down=tuple((f"leaf{leaf}", f"up{spine}") for leaf in range(2)),
    )


def pause(place: int, seed: int) -> Planted:
    to = (0, 5)[place]
    trace = {"synth": "incast", "ranks": 8, "fan_in": 7, "receiver": to}
    return Planted(
        jobs=[{"name": "job", "trace": {**trace, "size": "256KiB"}}],
        fabric=star(
            8, switch="model", switches={"profile": "sonic", "buffer": "800KB"}
        ),
        cause="pause",
        places=(f"h{to}-s0 down",),
        sections={
            "seed": seed,
            "transport": {"window": "512KiB", "local_ack_timeout": 18},
        },
    )


KINDS: dict[str, Callable[..., Planted]] = {
    made.__name__: made
    for made in (
        slow_compute,
        slow_link,
        loss,
        congestion_control,
        contention,
        dead_uplink,
        pause,
    )
}


def planted(kind: str, folder: Path, *, place: int, seed: int) -> Planted:
    """Return an experiment of a kind, at one of two places."""
    if kind == "slow_compute":
        return slow_compute(place, seed, folder)
    return KINDS[kind](place, seed)


def explained(folder: Path, what: Planted, *, first_attempt: int = 0) -> Why:
    """Return what a run of it lost its time by; several times if others were late."""
    sections = {
        "collectives": {"all_reduce": "ring", "all_gather": "ring"},
        "iterations": {"warmup": 1, "measured": 2},
        "predict": ["bound"],
        **what.sections,
    }
    why: Why | None = None
    for attempt in range(first_attempt, ATTEMPTS):
        if why is not None and not is_disturbed(why):
            break
        place = folder / f"attempt-{attempt}"
        place.mkdir()
        fabric = what.fabric | {"dilation": SLOWER**attempt}
        experiment = write_experiment(place, what.jobs, fabric, **sections)
        with _lab(experiment, what.down):
            why = why_of(completed(experiment).results)
    assert why is not None
    return why


def check(what: Planted, why: Why) -> None:
    """Hold a run to what was planted, or to nothing."""
    if what.cause is None:
        assert why.first is None, why.causes
        return
    assert why.first is not None, why.causes
    assert why.first.cause == what.cause, why.causes
    assert why.first.place in what.places, why.causes


def is_disturbed(why: Why) -> bool:
    """Tell whether a run says more of its generator than of its network."""
    late = sum(each.share for each in why.causes if each.cause == "generator slow")
    return why.unknown_share > 0.1 or late >= LEAST_SHARE


@contextlib.contextmanager
def _lab(experiment: Path, down: tuple[tuple[str, str], ...]) -> Iterator[None]:
    """Have a lab with interfaces down, if any shall be."""
    if not down:
        yield
        return
    runs = experiment.parent
    up = chakram("fabric", "up", experiment, runs=runs)
    assert up.code == 0, up.errors
    try:
        for node_name, interface in down:
            namespace = f"{LAB}-{node_name}"
            command = ["ip", "-n", namespace, "link", "set", interface, "down"]
            subprocess.run(command, check=True)
        yield
    finally:
        assert chakram("fabric", "down", LAB, runs=runs).code == 0
