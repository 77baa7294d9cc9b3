"""Random labs with at most one planted fault, and a judge of preflight findings.

A draw is a function of its seed: the shape of the fabric, its rate and packet size, and
which port is disturbed in which direction by what.  The judge compares findings with
the plant alone.  As a program it takes the seeds, and may load all cores beside it::

    tests/isolated-python -m tests.preflight_draws --seeds 100:120 --plant --busy 4
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chakram.config.experiment import Experiment, parse_experiment
from chakram.control.client import AgentClient
from chakram.execution.clock_watch import clock_of
from chakram.execution.interrupts import Interrupts
from chakram.execution.observer import Silent
from chakram.execution.preflight_session import Preflight
from chakram.fabric.fabric_types.base import WorldRequest
from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.fabric.labs.lab_files import STATE_ROOT_VARIABLE
from chakram.preflight.report import FAILED, Finding
from chakram.preparation.resolved_run import resolve
from tests.e2e.hosts import NAMES, Hosts, hosts
from tests.e2e.rewriting import rewriting
from tests.leaks import own_lab
from tests.private_network import private_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from chakram.fabric.labs.lab_spec import LabState
    from chakram.preflight.report import PreflightReport

UP, DOWN = "up", "down"
"""Packets that the host sends; packets that it receives."""

_DSCP, _ECN = 0xFC, 0x03
_MTU = 1500
_LIMIT_S = 600.0
"""On cores that do something else most of the time, all takes ten times as long."""
_TRACE = {"synth": "moe", "ranks": 2, "ep": 2, "dp": 1, "layers": 1}

KINDS = {
    "loss": "loss",
    "slow": "rate",
    "mtu": "mtu",
    "bleach": "dscp",
    "class-drop": "dscp",
    "ecn-clear": "ecn",
    "black-hole": "reach",
}
"""By kind of the plant, the check that has to name it."""

_FOLLOWS = {"loss": {"rate"}, "slow": {"loss"}}
"""What a plant may fail besides, at the same port."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One lab and its plant.

    Attributes:
        seed: That it was drawn by.
        topology: Of the lab, as an experiment writes it; None: their own hosts.
        hosts: How many there are.
        rate_mbit: Of all links.
        path_mtu: Of the transport.
        kind: Of the plant, one of ``KINDS``; None: the lab is sound.
        host: Whose port it is at.
        direction: ``up`` or ``down``.
        amount: Lost share, share of the rate that is left, or longest packet.
    """

    seed: int
    topology: dict[str, Any] | None
    hosts: int
    rate_mbit: int
    path_mtu: int
    kind: str | None = None
    host: str = ""
    direction: str = UP
    amount: float = 0.0

    @property
    def place(self) -> str:
        """How a finding has to name the port."""
        if self.direction == UP:
            return f"{self.host} -> all others"
        return f"all others -> {self.host}"

    def __str__(self) -> str:
        shape = json.dumps(self.topology or "hosts of their own")
        shape += f" at {self.rate_mbit}Mbit, path MTU {self.path_mtu}"
        if self.kind is None:
            return f"{self.seed}: sound: {shape}"
        return f"{self.seed}: {self.kind} {self.amount:g} of {self.place}: {shape}"

    def sections(self, found: Hosts | None = None) -> dict[str, Any]:
        """Return an experiment; preflight demands what it does by default."""
        rate = f"{self.rate_mbit}Mbit"
        links = {"host": {"rate": rate}, "uplink": {"rate": rate}}
        fabric = {"kind": "namespaces", "links": links}
        if self.topology is not None:
            fabric["topology"] = self.topology
        elif found is not None:
            fabric = found.fabric(defaults={"rate": rate, "mtu": _MTU})
        return {
            "version": 1,
            "name": "draw",
            "seed": self.seed,
            "jobs": [{"name": "j", "trace": _TRACE}],
            "fabric": fabric,
            "transport": {"path_mtu": self.path_mtu},
            "preflight": {"duration": "40ms"},
        }


def draw(seed: int, *, is_planted: bool) -> Draw:
    """Return the draw of a seed; the lab is the same with and without a plant."""
    chance = random.Random(f"preflight {seed}")
    shape = chance.choice(("star", "clos", "hosts"))
    topology: dict[str, Any] | None = None
    hosts = len(NAMES)
    if shape == "star":
        hosts = chance.randint(3, 6)
        topology = {"single_switch": {"hosts": hosts}}
    elif shape == "clos":
        leaves, per_leaf = chance.choice(((2, 2), (3, 1), (4, 1), (3, 2)))
        hosts = leaves * per_leaf
        sizes = {"leaves": leaves, "spines": chance.randint(1, 3)}
        topology = {"clos": {**sizes, "hosts_per_leaf": per_leaf}}
    rate_mbit = chance.choice((20, 50, 100))
    path_mtu = chance.choice((1024, 2048, 4096)) if topology else 1024
    kind = chance.choice(list(KINDS))
    amounts = {
        "loss": chance.uniform(0.02, 0.2),
        "slow": chance.uniform(0.1, 0.6),
        "mtu": chance.choice((400, 700, path_mtu)),
    }
    plant: dict[str, Any] = {
        "kind": kind,
        "host": f"h{chance.randrange(hosts) + (topology is None)}",
        "direction": chance.choice((UP, DOWN)),
        "amount": amounts.get(kind, 0.0),
    }
    return Draw(
        seed=seed,
        topology=topology,
        hosts=hosts,
        rate_mbit=rate_mbit,
        path_mtu=path_mtu,
        **(plant if is_planted else {}),
    )


@dataclass(frozen=True, kw_only=True)
class Port:
    """Both ends of the link of a host: paths of namespaces, names of interfaces."""

    netns: str
    interface: str
    switch_netns: str
    switch_interface: str


def port_of(lab: LabState, name: str) -> Port:
    """Return the port of a host of a lab."""
    host = lab.host(name)
    (switch,) = (
        each
        for each in lab.switches
        if any(port.interface == host.switch_interface for port in each.ports)
    )
    return Port(
        netns=host.netns,
        interface=host.interface,
        switch_netns=switch.netns,
        switch_interface=host.switch_interface,
    )


@contextmanager
def planted(port: Port, drawn: Draw) -> Iterator[None]:
    """Have the port of the draw misbehave."""
    is_down = drawn.direction == DOWN
    if drawn.kind == "slow":
        where, name = (
            (port.switch_netns, port.switch_interface)
            if is_down
            else (port.netns, port.interface)
        )
        rate = f"{round(drawn.rate_mbit * drawn.amount * 1000)}kbit"
        run_in_namespace(where, _slow_down, name, rate, drawn.topology is not None)
        try:
            yield
        finally:
            if drawn.topology is None:
                run_in_namespace(where, _tc, "qdisc", "del", "dev", name, "root")
        return
    works: dict[str, dict[str, Any]] = {
        "loss": {"loss": drawn.amount},
        "mtu": {"longest": int(drawn.amount)},
        "bleach": {"keep": _ECN},
        "class-drop": {"longest": 0, "dscp": 26},
        "ecn-clear": {"keep": _DSCP},
        "black-hole": {"longest": 0},
    }
    if drawn.kind is None:
        yield
        return
    with rewriting(
        port.switch_netns,
        port.switch_interface,
        is_egress=is_down,
        **works[drawn.kind],
    ):
        yield


def _slow_down(port: str, rate: str, has_class: bool) -> None:
    if has_class:
        place = ("dev", port, "parent", "1:", "classid", "1:1")
        bucket = ("burst", "2kb", "cburst", "2kb")
        _tc("class", "change", *place, "htb", "rate", rate, "ceil", rate, *bucket)
        return
    queue = ("burst", "16kb", "limit", "4mb")
    _tc("qdisc", "add", "dev", port, "root", "tbf", "rate", rate, *queue)


def _tc(*words: str) -> None:
    subprocess.run(["tc", *words], check=True, capture_output=True)


async def preflight_of(
    wanted: Experiment,
    folder: Path,
    disturbed: Callable[[LabState], AbstractContextManager[None]],
    *,
    lab_name: str,
) -> PreflightReport:
    """Return the preflight report of a lab while *disturbed* is active."""
    with Interrupts() as interrupts:
        async with wanted.fabric.open(
            WorldRequest(seed=wanted.seed, nports=0, lab_name=lab_name, logs=folder)
        ) as world:
            assert world.lab is not None
            (address,) = world.agents
            assert address.target is not None
            with ExitStack() as stack:
                stack.enter_context(disturbed(world.lab))
                async with await AgentClient.connect(
                    address.target, name=address.name
                ) as client:
                    return await Preflight(
                        resolve(wanted),
                        ports=world.ports,
                        clients={address.name: client},
                        clocks={address.name: await clock_of(client)},
                        progress=Silent(),
                        interrupts=interrupts,
                        run_id="r",
                    ).run()


@dataclass(frozen=True, kw_only=True)
class Judgment:
    """Preflight results of a draw.

    Attributes:
        drawn: The draw.
        verdict: ``named``, ``missed`` or ``wrong``; of sound labs ``clean``,
            ``unproven`` or ``accused``.
        findings: All of them.
        seconds: That it took.
    """

    drawn: Draw
    verdict: str
    findings: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        lines = [f"{self.verdict:8} {self.seconds:5.1f} s  {self.drawn}"]
        return "\n".join([*lines, *(f"      {each}" for each in self.findings)])


def verdict_of(drawn: Draw, findings: Sequence[Finding]) -> str:
    """Return the verdict about findings, by the planted fault alone."""
    failures = [each for each in findings if each.verdict == FAILED]
    if drawn.kind is None:
        if failures:
            return "accused"
        return "unproven" if findings else "clean"
    check = KINDS[drawn.kind]
    allowed = {check} | _FOLLOWS.get(drawn.kind, set())
    end = 0 if drawn.direction == UP else 1
    for finding in failures:
        ends = {pair[end] for pair in finding.pairs}
        if finding.check not in allowed or ends != {drawn.host}:
            return "wrong"
    is_named = any(
        (each.check, each.where) == (check, drawn.place) for each in failures
    )
    return "named" if is_named else "missed"


def _in_a_lab(drawn: Draw, folder: Path) -> tuple[Finding, ...]:
    report = asyncio.run(
        preflight_of(
            parse_experiment(json.dumps(drawn.sections())),
            folder,
            lambda lab: planted(port_of(lab, drawn.host or "h0"), drawn),
            lab_name=own_lab("pfd"),
        )
    )
    return report.findings


def _on_hosts(drawn: Draw, folder: Path) -> tuple[Finding, ...]:
    experiment = folder / f"{drawn.seed}.yaml"
    with hosts(folder, Path(sys.executable).parent / "chakram") as found:
        experiment.write_text(json.dumps(drawn.sections(found)), "utf-8")
        name = drawn.host or NAMES[0]
        port = Port(
            netns=found.namespace(name),
            interface="eth0",
            switch_netns=found.namespace("sw"),
            switch_interface=name,
        )
        with planted(port, drawn):
            ended = found.chakram(
                *("preflight", experiment, "--json"),
                experiment=experiment,
                limit_s=_LIMIT_S,
            )
    assert ended.code in (0, 5), ended.errors
    return tuple(
        Finding(**each | {"pairs": tuple(map(tuple, each["pairs"]))})
        for each in json.loads(ended.output)["findings"]
    )


def judged(drawn: Draw, folder: Path) -> Judgment:
    """Build the fabric of a draw, run preflight, and judge it."""
    began_s = time.monotonic()
    findings = (_on_hosts if drawn.topology is None else _in_a_lab)(drawn, folder)
    return Judgment(
        drawn=drawn,
        verdict=verdict_of(drawn, findings),
        findings=tuple(f"{each.verdict} {each}" for each in findings),
        seconds=time.monotonic() - began_s,
    )


@contextmanager
def busy_cores(loops_per_core: int) -> Iterator[None]:
    """Keep all cores busy with that many loops each, which end with the block."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(loops_per_core * len(os.sched_getaffinity(0)))
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


@contextmanager
def place_for_labs() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="ck-"))
    before = os.environ.get(STATE_ROOT_VARIABLE)
    os.environ[STATE_ROOT_VARIABLE] = str(root)
    try:
        with private_network():
            yield root
    finally:
        if before is None:
            del os.environ[STATE_ROOT_VARIABLE]
        else:
            os.environ[STATE_ROOT_VARIABLE] = before
        shutil.rmtree(root)


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge all draws of a range of seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:20", help="FIRST:END, or a list")
    parser.add_argument("--plant", action="store_true", help="plant a fault in each")
    parser.add_argument("--busy", type=int, default=0, help="busy loops per core")
    options = parser.parse_args(arguments)
    first, _, end = options.seeds.partition(":")
    seeds = range(int(first), int(end)) if end else map(int, options.seeds.split(","))
    verdicts: Counter[str] = Counter()
    with place_for_labs() as folder, busy_cores(options.busy):
        for seed in seeds:
            judgment = judged(draw(seed, is_planted=options.plant), folder)
            verdicts[judgment.verdict] += 1
            sys.stdout.write(f"{judgment}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{dict(verdicts)}\n")


if __name__ == "__main__":
    main()
