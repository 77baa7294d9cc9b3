"""Runs in labs with one declared cause of lost time.

Rates are low, so that machines that have other work keep up.  What a run whose
generator was late says of its network is worth nothing, so it is done again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import chakram
from chakram.analysis.lost_time_causes import LEAST_SHARE
from chakram.analysis.run_causes import why_of
from chakram.chakra.et_codec import NodeType
from tests.e2e import runs
from tests.e2e.processes import SHARD, descendants
from tests.e2e.runs import LAB, write_experiment
from tests.trace_bytes import collective, metadata, node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from chakram.analysis.lost_time_causes import Cause, Why
    from tests.e2e.processes import Member

ATTEMPTS = 3
SLOWER = 8
"""By so much is each further attempt slower: on a machine that has other work."""

RATE = "50Mbit"

STOPPED_S, GOING_S = 0.015, 0.025
"""How long a repeatedly stopped process stalls, and how long it runs in between."""

AMONG = 3
"""Of two causes at once each is among that many."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """An experiment, and the cause of its lost time.

    ``places`` are all that are right: of a link that is slow in both directions either.
    ``down`` are interfaces of the lab that are put down before the run, ``stopped`` is
    the data-plane process that does not run all the time.  ``beside`` is what else was
    planted.
    """

    jobs: list[dict[str, Any]]
    fabric: dict[str, Any]
    cause: str | None
    places: tuple[str, ...] = ()
    sections: dict[str, Any] = field(default_factory=dict)
    down: tuple[tuple[str, str], ...] = ()
    stopped: int | None = None
    beside: Planted | None = None

    def is_named(self, found: Cause) -> bool:
        """Return whether a cause is this one, with its place."""
        return found.cause == self.cause and found.place in self.places


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
            # Ranks that send to this host also send to others.
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
        cause="congestion control",
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


def generator_slow(place: int, seed: int) -> Planted:
    """Return a job with one rank whose process is repeatedly suspended."""
    return Planted(
        jobs=[job(2, size="1MiB")],
        fabric=star(2),
        cause="generator slow",
        places=(f"h{place}",),
        sections={
            "seed": seed,
            "agents": {"shards": 2},
            "iterations": {"warmup": 1, "measured": 4},
        },
        stopped=place,
    )


def hash_imbalance(place: int, seed: int, folder: Path) -> Planted:
    """Return a job whose messages all leave one leaf over the same spine."""
    what = Planted(
        jobs=[job(8, placement={"pattern": "striped"})],
        fabric=leaf_spine(2, "100Mbit"),
        cause="hash imbalance",
        places=(f"leaf{place}",),
    )
    for port in range(50_000, 50_200):
        sections = {"seed": seed, "transport": {"source_ports": [port]}}
        sections |= {"collectives": {"all_reduce": "ring"}}
        experiment = write_experiment(folder, what.jobs, what.fabric, **sections)
        table = chakram.simulate(experiment, runs=folder / "hashed").table("flows")
        # Messages of barriers have no bytes, and go to others.
        rows = table.select(["src", "path", "bytes"]).to_pylist()
        flows = {(row["src"], row["path"]) for row in rows if row["bytes"]}
        by = Counter(path.split()[0] for _, path in flows)
        if max(by[f"leaf{place}:up{spine}"] for spine in range(2)) == 4 and all(
            by[f"leaf{1 - place}:up{spine}"] for spine in range(2)
        ):
            return replace(what, sections=sections)
    raise AssertionError("no source port has the hash choose one spine for all")


def beside_loss(what: Planted, place: int, hosts: Sequence[str]) -> Planted:
    """Return the same with loss of what a rank of its ring receives."""
    lossy = loss(place, what.sections["seed"])
    to = (0, 2)[place]
    # In a ring only this sender sends to it, and nothing else; but for barriers.
    down = f"{hosts[to]}-s0 down"
    places = (down, f"{hosts[to - 1]}-s0 up or {down}")
    sections = lossy.sections | {
        "collectives": {"all_reduce": "ring"},
        # What a slow link has queued for does not time out.
        "transport": {"retransmit_timeout": "80ms", "retry_limit": 50},
    }
    return replace(what, sections=sections, beside=replace(lossy, places=places))


def slow_compute_beside_loss(place: int, seed: int, folder: Path) -> Planted:
    hosts = [f"h{number}" for number in range(4)]
    return beside_loss(slow_compute(place, seed, folder), place, hosts)


def slow_link_beside_loss(place: int, seed: int) -> Planted:
    return beside_loss(slow_link(place, seed), place, "abcd")


def slow_compute_beside_a_slow_link(place: int, seed: int, folder: Path) -> Planted:
    """Return a job whose rank with the slow link computes for longer, too."""
    link = slow_link(place, seed)
    return replace(slow_compute(place, seed, folder), fabric=link.fabric, beside=link)


def slow_compute_beside_another_slow_link(
    place: int, seed: int, folder: Path
) -> Planted:
    """Return a job with a rank that computes for longer, and a slow link of another."""
    link = slow_link(1 - place, seed)
    return replace(slow_compute(place, seed, folder), fabric=link.fabric, beside=link)


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
        generator_slow,
        hash_imbalance,
    )
}
PAIRS: dict[str, Callable[..., Planted]] = {
    made.__name__: made
    for made in (
        slow_compute_beside_loss,
        slow_link_beside_loss,
        slow_compute_beside_a_slow_link,
        slow_compute_beside_another_slow_link,
    )
}
"""Two causes at once."""


def planted(kind: str, folder: Path, *, place: int, seed: int) -> Planted:
    """Return an experiment of a kind, at one of two places."""
    made = (KINDS | PAIRS)[kind]
    if "folder" in signature(made).parameters:
        return made(place, seed, folder)
    return made(place, seed)


def explained(folder: Path, what: Planted, *, first_attempt: int = 0) -> Why:
    """Return the causes of lost time of a run; repeated if others were late."""
    sections = {
        "collectives": {"all_reduce": "ring", "all_gather": "ring"},
        "iterations": {"warmup": 1, "measured": 2},
        "predict": ["bound"],
        **what.sections,
    }
    why: Why | None = None
    for attempt in range(first_attempt, ATTEMPTS):
        if why is not None and (what.stopped is not None or not is_disturbed(why)):
            break
        place = folder / f"attempt-{attempt}"
        place.mkdir()
        fabric = what.fabric | {"dilation": SLOWER**attempt}
        experiment = write_experiment(place, what.jobs, fabric, **sections)
        with _lab(experiment, what.down), _stopping(what.stopped):
            ended = runs.run(experiment)
        if ended.code and "was not ready within" in ended.sentence:
            continue  # the machine was too busy to begin
        assert ended.code == 0, ended.errors
        why = why_of(ended.results)
    assert why is not None, "no attempt could begin"
    return why


def check(what: Planted, why: Why) -> None:
    """Compare a run with its planted cause, or with none."""
    if what.cause is None:
        assert why.first is None, why.causes
        return
    assert why.first is not None, why.causes
    if what.beside is None:
        assert what.is_named(why.first), why.causes
        return
    for each in (what, what.beside):
        assert any(map(each.is_named, why.causes[:AMONG])), why.causes


def is_disturbed(why: Why) -> bool:
    """Return whether the generator affected a run more than the network."""
    late = sum(each.share for each in why.causes if each.cause == "generator slow")
    return why.unknown_share > 0.1 or late >= LEAST_SHARE


@contextlib.contextmanager
def _lab(experiment: Path, down: tuple[tuple[str, str], ...]) -> Iterator[None]:
    """Have a lab with interfaces down, if any shall be."""
    if not down:
        yield
        return
    folder = experiment.parent
    up = runs.chakram("fabric", "up", experiment, runs=folder)
    assert up.code == 0, up.errors
    try:
        for node_name, interface in down:
            namespace = f"{LAB}-{node_name}"
            command = ["ip", "-n", namespace, "link", "set", interface, "down"]
            subprocess.run(command, check=True)
        yield
    finally:
        assert runs.chakram("fabric", "down", LAB, runs=folder).code == 0


@contextlib.contextmanager
def _stopping(number: int | None) -> Iterator[None]:
    """Stop a data-plane process of this one's runs again and again, if any."""
    if number is None:
        yield
        return
    ended = threading.Event()

    def stop() -> None:
        shards: list[Member] = []
        while not ended.wait(GOING_S):
            if len(shards) <= number or not shards[number].alive:
                family = descendants(os.getpid())
                shards = [each for each in family if SHARD in each.command]
                shards.sort(key=lambda each: (each.started, each.pid))
                continue
            shards[number].signal(signal.SIGSTOP)
            ended.wait(STOPPED_S)
            shards[number].signal(signal.SIGCONT)

    thread = threading.Thread(target=stop, name="stopping")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
