"""Measures simulations: ``make bench BENCH_ARGS=--simulations``.

Everything is measured in a separate process, which this file is, too: what is
simulated in it says ``python tests/bench/simulations.py KIND NAME``.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.extent import sized
from tests.bench.results import Result, compare
from tests.bench.trees import OURS, Figure, Tree, compare_trees
from tests.big_traces import usage_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chakram.topology.topology import Topology

CONFIGS = Path(__file__).parents[2] / "configs"
QUICKSTART = sized("quickstart.yaml", "quickstart-small.yaml")
GBIT = 10**9
MIB = 1 << 20
EXPERIMENT = """\
version: 1
name: {name}
jobs:
  - name: job
    trace: {{synth: collectives, ranks: {ranks}, streams: [{stream}]}}
    compute: {{from: none}}
collectives: {{all_reduce: ring, all_to_all: direct}}
iterations: {{warmup: 0, measured: 1, sync: free}}
fabric:
  kind: namespaces
  topology: {topology}
  links: {links}
simulation: {simulation}
"""
STAR = "{{single_switch: {{hosts: {ranks}}}}}"
CLOS = "{clos: {leaves: 32, spines: 32, hosts_per_leaf: 32}}"
HOST_LINKS = "{host: {rate: 400Gbit, delay: 500ns}}"
LINKS = "{host: {rate: 400Gbit, delay: 500ns}, uplink: {rate: 400Gbit, delay: 500ns}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command ``chakram simulate``, with its limits.

    Attributes:
        about: What it simulates.
        ranks: How many.
        stream: The collective, as in the experiment.
        simulation: The section of the experiment.
        topology: Topology section of the experiment; empty: a switch.
        cpu_s: Processor time; None: nothing is demanded.
        elapsed_s: Time; None: no limit.
        peak_mib: Memory; None: no limit.
    """

    about: str
    ranks: int
    stream: str
    simulation: str
    topology: str = ""
    cpu_s: float | None = None
    elapsed_s: float | None = None
    peak_mib: float | None = None

    def experiment(self) -> str:
        """Return the experiment file."""
        return EXPERIMENT.format(
            name="measured",
            ranks=sized(self.ranks, 16),
            stream=self.stream,
            # One host has no rank, so that the others are simulated one by one.
            topology=self.topology or STAR.format(ranks=sized(self.ranks, 16) + 1),
            links=LINKS if self.topology else HOST_LINKS,
            simulation=self.simulation,
        )


RING_64MIB = "{op: all_reduce, size: 64MiB, count: 1}"
DIRECT_64MIB = "{op: all_to_all, size: 64MiB, count: 1}"
COMMANDS = (
    Command(
        about="message level, ring of 1,024 ranks, 64 MiB",
        ranks=1024,
        stream=RING_64MIB,
        simulation="{level: message}",
        cpu_s=3,
        peak_mib=350,
    ),
    Command(
        about="message level, direct all-to-all of 1,024 ranks, 64 MiB",
        ranks=1024,
        stream=DIRECT_64MIB,
        simulation="{level: message}",
        cpu_s=4,
        peak_mib=350,
    ),
    Command(
        about="flow level, all-to-all of 1,024 ranks on a Clos, 64 MiB",
        ranks=1024,
        stream=DIRECT_64MIB,
        simulation="{level: flow}",
        topology=CLOS,
        elapsed_s=60,
    ),
    Command(
        about="packet level, ring of 1,024 ranks on a Clos, 1 MiB",
        ranks=1024,
        stream="{op: all_reduce, size: 1MiB, count: 1}",
        simulation="{level: packet}",
        topology=CLOS,
        elapsed_s=60,
    ),
    Command(
        about="message level, ring of 8,192 ranks, 64 MiB",
        ranks=8192,
        stream=RING_64MIB,
        simulation="{level: message}",
        elapsed_s=60,
    ),
)
HOPS = {"8": 1.0, "64": 0.8, "256": 0.4, "256-ring": 0.4}
"""Millions of packet hops per second of the simulated fabrics below."""

ABOUT_HOPS = {
    "8": "8 hosts on a Clos, all-to-all and ring of 8 MiB",
    "64": "64 hosts on a Clos, all-to-all of 4 MiB",
    "256": "256 hosts on a Clos, all-to-all of messages of one packet",
    "256-ring": "256 hosts on a Clos, ring of messages of one packet",
}
LOOP_S = 1.0
SAMPLING_FLOOR = 1 / 1.05


FIGURES = (
    *(
        (
            "hops",
            name,
            Figure(f"packet level, {about}: DCQCN, marks and samples", "M hops/s"),
        )
        for name, about in ABOUT_HOPS.items()
    ),
    *(
        (
            "loop",
            name,
            Figure(
                f"message level, {name} of 1,024 ranks, 64 MiB: events alone",
                "CPU s",
                is_time=True,
            ),
        )
        for name in ("ring", "direct")
    ),
)
TAKEN = ("s", "CPU s", "MiB")
"""Units of what a whole simulation takes."""


def measure_simulations(rounds: int) -> Iterator[Result]:
    """Yield the costs of simulations, each with its limit.

    Of *rounds* the least is taken, except of what takes half a minute each time.
    """
    for kind, name, figure in sized(FIGURES, FIGURES[len(HOPS) - 1 :][:2]):
        found = [_figure(OURS, kind, name) for _ in range(rounds)]
        if figure.is_time:
            yield _demanded(figure, min(found), LOOP_S)
        else:
            yield _demanded(figure, max(found), HOPS[name])
    yield _sampling(rounds)
    for command in sized(COMMANDS, COMMANDS[:1]):
        yield from _command(command, 1 if command.elapsed_s else rounds)


def compare_simulations(earlier: Tree, rounds: int) -> Iterator[Result]:
    """Yield the costs of simulations in this tree and in an earlier one."""
    for kind, name, figure in FIGURES:

        def measure(tree: Tree, kind: str = kind, name: str = name) -> list[float]:
            return [_figure(tree, kind, name)]

        yield from compare_trees([figure], measure, earlier, rounds)
    with tempfile.TemporaryDirectory(prefix="chakram-bench-") as folder:
        path = Path(folder, "measured.yaml")
        for about, text in (
            ("packet level, quickstart", (CONFIGS / "quickstart.yaml").read_text()),
            *((command.about, command.experiment()) for command in COMMANDS),
        ):
            path.write_text(text)
            yield from compare_trees(
                [Figure(about, unit, is_time=True) for unit in TAKEN],
                lambda tree: _taken([path, "--runs", folder], tree),
                earlier,
                rounds,
            )


def _demanded(figure: Figure, value: float, limit: float) -> Result:
    return compare(
        figure.name,
        [value],
        figure.unit,
        "demanded",
        [limit],
        is_time=figure.is_time,
        floor=1.0,
    )


def _figure(tree: Tree, kind: str, name: str) -> float:
    """Return a figure from a separate process."""
    return float(tree.measure("simulations.py", kind, name, timeout_s=600))


def _command(command: Command, rounds: int) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="chakram-bench-") as folder:
        path = Path(folder, "measured.yaml")
        path.write_text(command.experiment())
        taken = [_taken([path, "--runs", folder]) for _ in range(rounds)]
    limits = (command.elapsed_s, command.cpu_s, command.peak_mib)
    for at, (unit, limit) in enumerate(zip(TAKEN, limits, strict=True)):
        if limit is not None:
            figure = Figure(command.about, unit, is_time=True)
            yield _demanded(figure, min(each[at] for each in taken), limit)


def _sampling(rounds: int) -> Result:
    """Measure a simulated quickstart with samples against one without."""
    words: list[str | Path] = [CONFIGS / QUICKSTART, "--runs"]
    found: dict[str, list[float]] = {"10ms": [], "0s": []}
    with tempfile.TemporaryDirectory(prefix="chakram-bench-") as folder:
        for _ in range(rounds):
            for sample_bin, times in found.items():
                setting = f"records.sample_bin={sample_bin}"
                times.append(_taken([*words, folder, "--set", setting])[1])
    return compare(
        "packet level, quickstart with samples",
        [min(found["10ms"])],
        "CPU s",
        "the same without",
        [min(found["0s"])],
        is_time=True,
        floor=SAMPLING_FLOOR,
    )


def _taken(
    arguments: list[str | Path], tree: Tree = OURS
) -> tuple[float, float, float]:
    """Return the time, the processor time and the MiB that a simulation took."""
    command = ["simulate", *arguments]
    begin = time.monotonic()
    used = usage_of(command, python=tree.python)
    if used.exit_code:
        raise subprocess.CalledProcessError(used.exit_code, [tree.python, *command])
    return time.monotonic() - begin, used.processor_s, used.peak_mib


# In its own process.


def hops(name: str) -> float:
    """Return how many million hops a second of simulated packets has."""
    from chakram.collectives.groups import world_group
    from chakram.plan.plan import RunSettings
    from chakram.plan.transport import TransportPlan
    from chakram.predict.simulator import run_plan
    from chakram.predict.simulator.virtual_fabric import VirtualFabric
    from chakram.switch.ecmp import DrawnPaths
    from chakram.switch.profiles import Profile, Switching
    from tests.made_plans import collective, make_plan, program
    from tests.plans import dcqcn_arguments

    took_s = 0.0

    class Timed(VirtualFabric):
        def run(self, **options: object) -> bool:
            nonlocal took_s
            begin = time.process_time()
            is_complete = super().run(**options)
            took_s += time.process_time() - begin
            return is_complete

    run_plan.VirtualFabric = Timed
    nranks = sized(int(name.partition("-")[0]), 8)
    operations = {
        "8": [("all_to_all", 8 * MIB), ("all_reduce", 8 * MIB)],
        "64": [("all_to_all", 4 * MIB)],
        "256": [("all_to_all", MIB // 4)],
        "256-ring": [("all_reduce", MIB // 4)],
    }[name]
    topology = _clos(nranks)
    rows = [
        collective(op, sized(size, 1024 * nranks), number=number, after=range(number))
        for number, (op, size) in enumerate(operations)
    ]
    world = world_group(nranks)
    plan = make_plan(
        [program(rank, world, rows) for rank in range(nranks)],
        topology,
        transport=TransportPlan(
            window_bytes=MIB // 4,
            max_burst_packets=4,
            congestion_control="dcqcn",
            congestion_parameters=dcqcn_arguments(line_bps=100 * GBIT),
        ),
        settings=RunSettings(warmup=0, measured=8 if name == "8" else 1),
    )
    result = run_plan.simulate_plan(
        plan,
        topology,
        seed=1,
        switching=Switching(ecmp=DrawnPaths(seed=1), profile=Profile()),
        sample_bin_ns=100_000,
    )
    assert result.burst_packets == 1
    assert result.link_samples
    return result.hops / took_s / 1e6


def _clos(nranks: int) -> Topology:
    from chakram.topology.topology import EcnThresholds
    from tests.leaf_spines import clos

    width = {8: 2, 64: 8, 256: 16}[nranks]
    marks = EcnThresholds(kmin_bytes=400_000, kmax_bytes=1_600_000, probability=0.2)
    return clos(
        width,
        width,
        nranks // width,
        100 * GBIT,
        100 * GBIT,
        host_delay_ns=500,
        uplink_delay_ns=500,
        host_ecn=marks,
        uplink_ecn=marks,
    )


def loop(name: str) -> float:
    """Return the processor time of the events of a collective at the message level."""
    from chakram.collectives.algorithms import algorithm
    from chakram.collectives.ops import CollectiveOp
    from chakram.predict.levels.level_network import network_of
    from chakram.predict.levels.message_level import MessageLevel
    from chakram.predict.levels.message_times import WireTimes
    from chakram.topology.topology_helpers import single_switch
    from tests.level_runs import run_collective

    took_s = 0.0

    class Timed(MessageLevel):
        def run(self, until_ns: int, most_flows: int = 1 << 30) -> bool:
            nonlocal took_s
            begin = time.process_time()
            has_ended = super().run(until_ns, most_flows)
            took_s += time.process_time() - begin
            return has_ended

    nranks = sized(1024, 16)
    network, _ = network_of(single_switch(nranks, 400 * GBIT, host_delay_ns=500))
    op = CollectiveOp.ALL_REDUCE if name == "ring" else CollectiveOp.ALL_TO_ALL
    run_collective(
        Timed(network, WireTimes(path_mtu=4096), seed=1),
        algorithm(op, name),
        nranks=nranks,
        input_bytes=64 * MIB,
    )
    return took_s


if __name__ == "__main__":
    from chakram.__main__ import GARBAGE_THRESHOLD

    gc.set_threshold(GARBAGE_THRESHOLD)
    kind, which = sys.argv[1:]
    print(json.dumps({"hops": hops, "loop": loop}[kind](which)))  # noqa: T201
