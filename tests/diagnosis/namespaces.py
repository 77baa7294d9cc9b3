"""Draws in labs of this machine; most planted causes are undeclared.

The lab is that of the design without its plants, and is up when they are put into it:
rates and losses by ``tc``, links and routes by ``ip``, processes by signals and busy
loops.  What is left for the experiment to say is what no command does (pauses), and
some of the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from chakram.run_directory.reader import open_run
from chakram.topology.topology import BUCKET_NS, HOST_BUCKET_NS, bucket_bytes
from tests.diagnosis.design import Design
from tests.diagnosis.draws import Draw
from tests.diagnosis.judge import LEAST_SHARE
from tests.diagnosis.lab_faults import EPISODE, LOAD, OTHER, ROUTE
from tests.diagnosis.virtual import CannotSimulate, command
from tests.e2e.processes import SHARD, Member, descendants
from tests.leaks import own_lab

DECLARED = 0.25
"""How many of the faults that a command can put into a lab the experiment declares."""

LEAST_SAVING = 0.05
"""A plant that costs less in a lab is none."""

STOPPED_S, GOING_S = 0.02, 0.02
LOOPS = 3
"""Busy loops on the core of a data-plane process."""

_DRAWS = 1_000_000
_SPOIL = "@th,136,8 set 0xa5"
"""Changes a byte of the packet; its checksum stays."""

_COMMANDS = frozenset({"degrade", "loss", "corruption", "down"})


class TooLittle(Exception):
    """A plant that costs next to nothing in its lab."""


@dataclass(frozen=True, kw_only=True)
class Enacted:
    """Declared faults of an experiment, and changes made to its lab instead.

    ``commands`` come before a run, and what ``meanwhile`` says happens during it.
    """

    design: Design
    commands: tuple[tuple[str, ...], ...]
    meanwhile: tuple[str, ...] = ()
    is_model: bool = False


def enacted(found: Draw, lab: str) -> Enacted:
    """Return how the plants of a draw come into a lab; pure."""
    whole = found.design
    rng = random.Random(f"declared {found.seed}")
    kept: list[Any] = []
    hidden: list[Any] = []
    # The ports of modeled switches are no interfaces.
    is_model = whole.fabric_keys.get("switch") == "model"
    # Of links that are down all are declared, or none: what is declared makes routes.
    is_declared = {kind: rng.random() < DECLARED for kind in sorted(_COMMANDS)}
    for fault in whole.links:
        can_hide = fault["kind"] in _COMMANDS and "at" not in fault and not is_model
        declare = not can_hide or is_declared[fault["kind"]]
        (kept if declare else hidden).append(fault)
    is_graph = whole.is_graph or bool(whole.own_rates_bps)
    rates_bps = {} if is_model else whole.own_rates_bps
    bare = replace(
        whole,
        own_rates_bps=whole.own_rates_bps if is_model else {},
        is_graph=is_graph,
        links=tuple(kept),
    )
    commands = [
        _rate(bare, lab, name, direction, rate_bps)
        for name, rate_bps in rates_bps.items()
        for direction in ("up", "down")
    ]
    commands += [
        _fault(bare, lab, fault, direction)
        for fault in hidden
        for direction in _directions(fault)
    ]
    meanwhile: tuple[str, ...] = ()
    for plant in found.plants:
        match plant.lab:
            case (_, leaf, wire) if plant.kind == ROUTE:
                commands.append((ROUTE, f"{lab}-{leaf}", bare.sender(wire, "up")[1]))
            case (_, _, *_):
                meanwhile = plant.lab
    return Enacted(
        design=bare,
        commands=tuple(commands),
        meanwhile=meanwhile,
        is_model=is_model,
    )


def _directions(fault: Any) -> tuple[str, ...]:
    direction = fault.get("direction", "both")
    return ("up", "down") if direction == "both" else (direction,)


def _rate(
    design: Design, lab: str, name: str, direction: str, rate_bps: int
) -> tuple[str, ...]:
    node, port = design.sender(name, direction)
    bucket_ns = HOST_BUCKET_NS if node in design.shape.hosts else BUCKET_NS
    burst = str(bucket_bytes(rate_bps, bucket_ns=bucket_ns))
    change = f"class change dev {port} parent 1: classid 1:1 htb rate {rate_bps}bit"
    more = f"ceil {rate_bps}bit burst {burst} cburst {burst}"
    return ("tc", "-n", f"{lab}-{node}", *change.split(), *more.split())


def _fault(design: Design, lab: str, fault: Any, direction: str) -> tuple[str, ...]:
    name = fault["link"]
    node, port = design.sender(name, direction)
    if fault["kind"] == "degrade":
        rate_bps = int(str(fault["rate"]).removesuffix("bit"))
        return _rate(design, lab, name, direction, rate_bps)
    if fault["kind"] == "down":
        return ("ip", "-n", f"{lab}-{node}", "link", "set", port, "down")
    # Where it arrives: by then it has had its time on the wire.
    other, arrival = design.sender(name, "down" if direction == "up" else "up")
    drawn = f"numgen random mod {_DRAWS} < {round(_DRAWS * fault['probability'])}"
    spoiled = "drop" if fault["kind"] == "loss" else _SPOIL
    table = f"netdev bad_{arrival}"
    rules = (
        f"add table {table}; add chain {table} in "
        f"{{ type filter hook ingress device {arrival} priority 0; }}; "
        f"add rule {table} in meta l4proto udp {drawn} {spoiled}"
    )
    return ("ip", "netns", "exec", f"{lab}-{other}", "nft", rules)


def explained(
    found: Draw, folder: Path, *arguments: str
) -> tuple[dict[str, Any], Draw]:
    """Return the output of ``chakram why --json`` for a run in a lab with faults.

    The draw that is returned, too, has the times that the lab measured.

    Raises:
        CannotSimulate: If a command fails.
        TooLittle: If the run takes as long as one without plants.
    """
    run, time_ns, clean_ns = _in_lab(found, folder, "planted", with_clean=True)
    if found.plants and 1 - clean_ns / time_ns < LEAST_SAVING:
        raise TooLittle(f"{clean_ns / 1e6:.0f} of {time_ns / 1e6:.0f} ms without it")
    alone_ns = [clean_ns] * len(found.plants)
    if len(found.plants) > 1:
        for number, rest in enumerate(found.rests):
            others = tuple(each for n, each in enumerate(found.plants) if n != number)
            left = replace(found, design=rest, plants=others)
            alone_ns[number] = _in_lab(left, folder, f"without{number}")[1]
        for plant, before_ns, behind_ns in zip(
            found.plants, alone_ns, reversed(alone_ns), strict=True
        ):
            # While the other one is there, and once it is gone.
            saving = 1 - min(before_ns / time_ns, clean_ns / behind_ns)
            if saving < LEAST_SHARE:
                raise TooLittle(f"{plant.kind} saves {saving:.1%}")
    without = []
    for number, without_ns in enumerate(alone_ns):
        times = [without_ns]
        if found.plants[number].kind == "hash imbalance":
            # Which hash is even is not known: those that were drawn are right, too.
            times += [time_ns * (1 - each) for each in found.savings(number)]
        without.append((min(times), max(times)))
    document = json.loads(command("why", str(run), "--json", *arguments))
    (folder / "why.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    assert isinstance(document, dict)
    return document, replace(
        found, time_ns=time_ns, clean_ns=clean_ns, without_ns=tuple(without)
    )


def _in_lab(
    found: Draw, folder: Path, name: str, *, with_clean: bool = False
) -> tuple[Path, float, float]:
    """Return the run of a draw in its lab, its mean iteration, and that without plants.

    The latter is 0 if it was not asked for.
    """
    lab = own_lab("draw")
    how = enacted(found, lab)
    # The same fabric, of the same form.
    clean = replace(
        found.clean,
        own_rates_bps={},
        is_graph=how.design.is_graph,
        links=(),
        packets=(),
    )
    for each in ("clean", name):
        (folder / each).mkdir(exist_ok=True)
    clean_path = clean.write(folder / "clean")
    path = how.design.write(folder / name)
    clean_ns = 0.0
    command("fabric", "up", str(clean_path), "--lab", lab)
    try:
        if with_clean and found.plants:
            clean_ns = _ran(clean_path, folder / "clean", lab)[1]
        if how.is_model:
            # The rates of modeled switches are those that they began with.
            command("fabric", "down", lab)
            command("fabric", "up", str(path), "--lab", lab)
        for one in how.commands:
            _execute(one)
        with _meanwhile(how.meanwhile, clean, lab):
            run, time_ns = _ran(path, folder / name, lab)
    finally:
        command("fabric", "down", lab)
    return run, time_ns, clean_ns


def _ran(path: Path, folder: Path, lab: str) -> tuple[Path, float]:
    """Return the directory of a run, and the mean time of its iterations."""
    runs = folder / "runs"
    command("run", str(path), "--lab", lab, "--runs", str(runs))
    (run,) = runs.iterdir()
    spans: dict[tuple[str, int], list[int]] = {}
    for row in open_run(run).table("ranks").to_pylist():
        if row["measured"]:
            span = spans.setdefault((row["job"], row["iteration"]), [])
            span += [row["start_ns"], row["end_ns"]]
    return run, sum(max(each) - min(each) for each in spans.values()) / len(spans)


def _execute(arguments: tuple[str, ...]) -> None:
    if arguments[0] != ROUTE:
        _checked(arguments)
        return
    _, namespace, port = arguments
    found = json.loads(_checked(("ip", "-j", "-n", namespace, "route")))
    for route in found:
        for hop in route.get("nexthops", ()):
            if hop["dev"] == port:
                one = f"replace {route['dst']} via {hop['gateway']} dev {port}"
                words = ("ip", "-n", namespace, "route", *one.split())
                _checked((*words, "proto", "static"))


def _checked(arguments: tuple[str, ...]) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotSimulate(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def _meanwhile(what: tuple[str, ...], design: Design, lab: str) -> Iterator[None]:
    """Do something to a lab while the body runs, if anything shall be done."""
    ended = threading.Event()
    match what:
        case ():
            yield
            return
        case (kind, sender, receiver, rate_bps) if kind == OTHER:
            action = partial(_send, lab, sender, receiver, int(rate_bps), ended)
        case (kind, name, direction, rate_bps, after_ns, for_ns) if kind == EPISODE:
            slow = _rate(design, lab, name, direction, int(rate_bps))
            usual = _rate(design, lab, name, direction, design.rate_bps(name))
            action = partial(
                _slow_for, slow, usual, int(after_ns) / 1e9, int(for_ns) / 1e9, ended
            )
        case (kind, host):
            number = design.jobs[0].ports.index(host)
            action = partial(_load if kind == LOAD else _stop, number, ended)
    thread = threading.Thread(target=action, name=what[0])
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


_SENDER = """
import socket, sys, time
address, rate_bps = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
data, each_s = bytes(1358), 0.004
credit_bytes = 0.0
with socket.socket(family, socket.SOCK_DGRAM) as sending:
    due = time.monotonic()
    while True:
        due += each_s
        time.sleep(max(0, due - time.monotonic()))
        credit_bytes += rate_bps * each_s / 8
        while credit_bytes > 0:
            credit_bytes -= 1400
            try:
                sending.sendto(data, (address, 9999))
            except OSError:
                pass
"""


def _send(
    lab: str, sender: str, receiver: str, rate_bps: int, ended: threading.Event
) -> None:
    """Send datagrams from one host of a lab to another."""
    found = json.loads(_checked(("ip", "-j", "-n", f"{lab}-{receiver}", "address")))
    address = next(
        each["local"]
        for device in found
        for each in device["addr_info"]
        if each["scope"] == "global"
    )
    inside = ("ip", "netns", "exec", f"{lab}-{sender}")
    process = subprocess.Popen(
        [*inside, sys.executable, "-c", _SENDER, address, str(rate_bps)]
    )
    ended.wait()
    process.kill()
    process.wait()


def _slow_for(
    slow: tuple[str, ...],
    usual: tuple[str, ...],
    after_s: float,
    for_s: float,
    ended: threading.Event,
) -> None:
    """Slow down a link for a while, some time after processes have started."""
    while not _shards():
        if ended.wait(GOING_S):
            return
    ended.wait(1 + after_s)
    _checked(slow)
    ended.wait(for_s)
    _checked(usual)


def _shards() -> list[Member]:
    shards = [each for each in descendants(os.getpid()) if SHARD in each.command]
    return sorted(shards, key=lambda each: (each.started, each.pid))


def _stop(number: int, ended: threading.Event) -> None:
    shards: list[Member] = []
    while not ended.wait(GOING_S):
        if len(shards) <= number or not shards[number].alive:
            shards = _shards()
            continue
        shards[number].signal(signal.SIGSTOP)
        ended.wait(STOPPED_S)
        shards[number].signal(signal.SIGCONT)


def _load(number: int, ended: threading.Event) -> None:
    """Hold a process to one core, put busy loops there, and all others elsewhere."""
    cores = sorted(os.sched_getaffinity(0))
    loops: list[subprocess.Popen[bytes]] = []
    try:
        while not ended.wait(GOING_S):
            shards = _shards()
            if len(shards) <= number or loops:
                continue
            for place, shard in enumerate(shards):
                allowed = cores[:1] if place == number else cores[1:] or cores
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(shard.pid, allowed)
            for _ in range(LOOPS):
                loops.append(subprocess.Popen([sys.executable, "-c", "while 1: pass"]))
                os.sched_setaffinity(loops[-1].pid, {cores[0]})
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
