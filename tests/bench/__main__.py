"""Measures the hot paths: ``make bench``.

Absolute figures mean little on a machine that others use, so every figure comes with
its reference, measured alternately in the same run. The output has medians, and the
median of the ratios of adjacent rounds. It also shows the smallest accepted ratio; with
``--check``, a smaller or missing ratio fails the run.

``--against COMMIT`` builds an earlier commit in a worktree with its own virtual
environment below ``build/bench``. Runs of this tree and of that commit alternate; each
runs its own measuring programs.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from chakram.fabric.labs.lab import start_lab
from chakram.foundation.errors import ChakramError
from chakram.topology.topology_helpers import single_switch
from tests.bench.bare import Blaster, compile_blaster
from tests.bench.extent import sized
from tests.bench.live_switch import LEAST, packets_per_cpu_second
from tests.bench.pair import veth_pair
from tests.bench.results import Result, compare, table, turns
from tests.bench.simulations import compare_simulations, measure_simulations
from tests.bench.trees import OURS, Figure, Tree, build_tree, compare_trees
from tests.bench.verbs import compare_verbs, measure_verbs
from tests.leaks import own_lab

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.fabric.labs.lab_files import LabState
    from tests.bench.pair import End

HOSTS = 8
MTU = 4200
PATH_MTU = 4096
SMALL_PATH_MTU = 1024
# BTH and ICRC; of a message of one packet also RETH and immediate data.
BULK_HEADERS_BYTES = 16
MESSAGE_PACKET_BYTES = 1024 + 16 + 20
TINY_PACKET_BYTES = 64 + 16 + 20
# As many packets as one send takes.
BURST = 15
SMALL_BURST = 60
PACING_LIMIT_US = 50.0
# What ratios have to be at least, on an otherwise idle machine.
BULK_FLOOR = 0.8
SMALL_FLOOR = 0.7
PLAIN_FLOOR = 0.08
MESSAGES_FLOOR = 1.0
# Both ends on one core, with packets of 4 KiB and of 1 KiB.
TOGETHER_FLOOR = 0.55
TOGETHER_SMALL_FLOOR = 0.5
# Three times as long as a packet that goes to and fro between two spinning processes.
LATENCY_FLOOR = 1 / 3
# Looking at every packet: with a core per end, and with both ends on one.
VERIFY_FLOOR = 0.95
VERIFY_TOGETHER_FLOOR = 0.85
# Operation, bytes per rank, how many of them in each turn; and the floor of the ratio.
COLLECTIVE_CASES = sized(
    (
        ("all_reduce", 64 << 10, 100),
        ("all_to_all", 64 << 10, 100),
        ("all_reduce", 16 << 20, 5),
        ("all_to_all", 16 << 20, 5),
        ("all_reduce", 64 << 20, 4),
        ("all_to_all", 64 << 20, 4),
    ),
    (("all_reduce", 4 << 10, 1), ("all_to_all", 4 << 10, 1)),
)
COLLECTIVE_FLOORS = (15.0, 5.0, 1.5, 1.3, 1.5, 1.3)


class EngineCase(NamedTuple):
    """One measurement of the engine that two source trees are compared by."""

    figure: Figure
    kind: str
    iterations: int
    scale: float


PAIR_CASES = (
    EngineCase(Figure(f"bulk goodput, path MTU {PATH_MTU}", "Gbit/s"), "bulk", 5, 1e-9),
    EngineCase(
        Figure(f"bulk goodput, path MTU {SMALL_PATH_MTU}", "Gbit/s"),
        "bulk_small",
        5,
        1e-9,
    ),
    EngineCase(
        Figure("bulk goodput, both ends in one process", "Gbit/s"), "together", 5, 1e-9
    ),
    EngineCase(
        Figure("messages of 1 KiB, 64 queue pairs", "1000/s"), "messages", 5, 1e-3
    ),
    EngineCase(
        Figure("half a round trip of messages of 64 bytes", "us", is_time=True),
        "latency",
        5,
        1e-3,
    ),
    EngineCase(
        Figure("pacing error at 1 Gbit/s, 99 % are below", "us", is_time=True),
        "pacing",
        2,
        1,
    ),
)
ALL_REDUCE_CASE = EngineCase(
    Figure(f"all-reduce of 64 KiB, {HOSTS} namespaces, 1 process", "ms", is_time=True),
    "all_reduce",
    200,
    1e3,
)


def engine(
    netns: list[str],
    kind: str,
    iterations: int,
    *,
    form: str = "auto",
    tree: Tree = OURS,
) -> float:
    """Return one figure of the engine, from a separate process."""
    count = sized(iterations, 1)
    return float(tree.measure("engine.py", kind, count, *netns, form=form)["value"])


def compare_engines(
    cases: Sequence[EngineCase], netns: list[str], earlier: Tree, rounds: int
) -> list[Result]:
    """Measure the engine of this tree against that of an earlier one."""
    return [
        result
        for figure, kind, iterations, scale in cases
        for result in compare_trees(
            [figure],
            lambda tree, kind=kind, count=iterations, scale=scale: [
                engine(netns, kind, count, tree=tree) * scale
            ],
            earlier,
            rounds,
        )
    ]


class PairBench:
    """Measure one port sending to another over a single pair of interfaces.

    The engine and what it is compared to have the same namespaces.
    """

    def __init__(
        self, ends: tuple[End, End], blaster: Blaster | None, rounds: int
    ) -> None:
        self._netns = [end.netns for end in ends]
        self._blaster = blaster
        self._rounds = rounds

    def engine(self, kind: str, iterations: int, *, form: str = "auto") -> float:
        """Return one figure of the engine."""
        return engine(self._netns, kind, iterations, form=form)

    def against_bare(
        self,
        ours: Callable[[], float],
        *,
        burst: int,
        packet_bytes: int,
        unit: float,
        mode: str = "apart",
    ) -> tuple[list[float], list[float], list[float]]:
        """Measure alternately with packets that pass without the engine.

        Returns:
            The figures of the engine, the others, which are packets per second times
            *unit*, and which share of its packets the bare sender lost each time.
        """
        losses: list[float] = []
        if self._blaster is None:
            return [ours() for _ in range(self._rounds)], [], losses
        blaster = self._blaster

        def bare() -> float:
            blast = blaster.blast(burst=burst, packet_bytes=packet_bytes, mode=mode)
            losses.append(blast.lost)
            return blast.packets_per_s * unit

        return *turns(ours, bare, self._rounds), losses

    def bulk(self) -> Result:
        """Measure long messages against bare bursts of the same packets."""
        return self._bulk("bulk", PATH_MTU, BURST, floor=BULK_FLOOR)

    def bulk_plain(self) -> Result:
        """Measure the same without any extension."""
        return self._bulk("bulk", PATH_MTU, BURST, floor=PLAIN_FLOOR, form="off")

    def bulk_small(self) -> Result:
        """Measure the same with small packets."""
        return self._bulk("bulk_small", SMALL_PATH_MTU, SMALL_BURST, floor=SMALL_FLOOR)

    def bulk_together(self) -> list[Result]:
        """Measure long messages on one core against a program that does the same."""
        return [
            self._bulk(
                "together", PATH_MTU, BURST, floor=TOGETHER_FLOOR, mode="together"
            ),
            self._bulk(
                "together_small",
                SMALL_PATH_MTU,
                SMALL_BURST,
                floor=TOGETHER_SMALL_FLOOR,
                mode="together",
            ),
        ]

    def _bulk(
        self,
        kind: str,
        path_mtu: int,
        burst: int,
        *,
        floor: float,
        form: str = "auto",
        mode: str = "apart",
    ) -> Result:
        ours, bare, losses = self.against_bare(
            lambda: self.engine(kind, 5, form=form) / 1e9,
            burst=burst,
            packet_bytes=path_mtu + BULK_HEADERS_BYTES,
            unit=path_mtu * 8 / 1e9,
            mode=mode,
        )
        return compare(
            f"bulk goodput, one flow, path MTU {path_mtu}"
            + (", not compiled" if form == "off" else "")
            + (", both ends on one core" if mode == "together" else ""),
            ours,
            "Gbit/s",
            f"bare UDP GSO, {burst} packets of {path_mtu} bytes",
            bare,
            floor=floor,
            losses=losses,
        )

    def verified(self, kind: str, where: str, *, floor: float) -> Result:
        """Measure long messages with and without verification of every packet."""
        full, off = turns(
            lambda: self.engine(kind, 5) / 1e9,
            lambda: self.engine(f"{kind}_unverified", 5) / 1e9,
            self._rounds,
        )
        return compare(
            f"bulk goodput with verify: full, {where}",
            full,
            "Gbit/s",
            "the same with verify: off",
            off,
            floor=floor,
        )

    def messages(self) -> Result:
        """Measure messages of one packet against bare packets."""
        ours, bare, losses = self.against_bare(
            lambda: self.engine("messages", 5) / 1e3,
            burst=1,
            packet_bytes=MESSAGE_PACKET_BYTES,
            unit=1e-3,
        )
        return compare(
            "messages of 1 KiB, 64 queue pairs, all acknowledged",
            ours,
            "1000/s",
            "bare sendto, nothing acknowledged",
            bare,
            floor=MESSAGES_FLOOR,
            losses=losses,
        )

    def latency(self) -> Result:
        """Measure the way of a small message against that of a bare packet."""
        ours, bare, _ = self.against_bare(
            lambda: self.engine("latency", 5) / 1e3,
            burst=1,
            packet_bytes=TINY_PACKET_BYTES,
            unit=1e-9,
            mode="pingpong",
        )
        return compare(
            "half a round trip of messages of 64 bytes, acknowledged",
            ours,
            "us",
            "bare packets to and fro, spinning",
            [1 / (1e3 * each) for each in bare],
            is_time=True,
            floor=LATENCY_FLOOR,
        )

    def forms(self, kind: str, name: str, scale: float, unit: str) -> Result:
        """Measure the compiled form against the plain one."""
        compiled, plain = turns(
            lambda: self.engine(kind, 3) * scale,
            lambda: self.engine(kind, 1, form="off") * scale,
            self._rounds,
        )
        return compare(name, compiled, unit, "the same, not compiled", plain)

    def pacing(self) -> Result:
        """Measure the delay of bursts of a port at 1 Gbit/s against their pace."""
        late = [self.engine("pacing", 2) for _ in range(self._rounds)]
        return compare(
            "pacing error of a port at 1 Gbit/s, 99 % are below (bound of the bucket)",
            late,
            "us",
            "what an idle core is meant to keep",
            [PACING_LIMIT_US] * len(late),
            is_time=True,
            floor=1.0,
        )


class LabBench:
    """What several ranks do together, in a lab with a switch and without rates."""

    def __init__(self, lab: LabState, rounds: int) -> None:
        self._netns = [host.netns for host in lab.hosts]
        self._first_address = lab.hosts[0].address
        self._rounds = rounds

    def all_reduce(self) -> Result:
        """Measure a small all-reduce; it is all latency."""
        compiled, plain = turns(
            lambda: engine(self._netns, "all_reduce", 200) * 1e3,
            lambda: engine(self._netns, "all_reduce", 30, form="off") * 1e3,
            self._rounds,
        )
        return compare(
            f"all-reduce of 64 KiB, {HOSTS} namespaces, 1 process",
            compiled,
            "ms",
            "the same, not compiled",
            plain,
            is_time=True,
        )

    def collectives(self) -> list[Result]:
        """Measure collectives against those of torch.distributed over gloo."""
        has_gloo = importlib.util.find_spec("torch") is not None
        if has_gloo:
            ours, others = turns(
                lambda: self._collectives_ms("chakram"),
                lambda: self._collectives_ms("gloo"),
                self._rounds,
            )
        else:
            ours = [self._collectives_ms("chakram") for _ in range(self._rounds)]
            others = []
        columns = zip(*others, strict=True) if others else repeat(())
        return [
            compare(
                f"{op} of {size >> 10} KiB, {HOSTS} namespaces, a process per core",
                list(times),
                "ms",
                "torch.distributed, gloo",
                list(other),
                is_time=True,
                floor=floor,
                without="no torch (the extra `bench` has it): not compared",
            )
            for (op, size, _), floor, times, other in zip(
                COLLECTIVE_CASES,
                COLLECTIVE_FLOORS,
                zip(*ours, strict=True),
                columns,
                strict=False,
            )
        ]

    def against(self, earlier: Tree) -> list[Result]:
        """Measure collectives in this tree and in an earlier one."""
        figures = [
            Figure(
                f"{op} of {size >> 10} KiB, {HOSTS} namespaces, a process per core",
                "ms",
                is_time=True,
            )
            for op, size, _ in COLLECTIVE_CASES
        ]
        return [
            *compare_engines([ALL_REDUCE_CASE], self._netns, earlier, self._rounds),
            *compare_trees(
                figures,
                lambda tree: self._collectives_ms("chakram", tree),
                earlier,
                self._rounds,
            ),
        ]

    def _collectives_ms(self, who: str, tree: Tree = OURS) -> list[float]:
        """Return how long each case took, from a separate program."""
        processes = len(os.sched_getaffinity(0))
        words = [who, processes, self._first_address, json.dumps(COLLECTIVE_CASES)]
        found = tree.measure("collectives.py", *words, *self._netns)
        return [each / 1e6 for each in found]


def measure_pair(rounds: int, earlier: Tree | None = None) -> list[Result]:
    """Measure between two namespaces."""
    if earlier is not None:
        with veth_pair(MTU) as ends:
            netns = [end.netns for end in ends]
            return compare_engines(PAIR_CASES, netns, earlier, rounds)
    with (
        tempfile.TemporaryDirectory(prefix="chakram-bench-") as folder,
        veth_pair(MTU) as ends,
    ):
        program = compile_blaster(Path(folder))
        blaster = Blaster(program=program, ends=ends) if program else None
        bench = PairBench(ends, blaster, rounds)
        return [
            bench.bulk(),
            bench.bulk_small(),
            bench.bulk_plain(),
            bench.verified("bulk", "a core per end", floor=VERIFY_FLOOR),
            bench.verified(
                "together", "both ends in one process", floor=VERIFY_TOGETHER_FLOOR
            ),
            bench.verified(
                "together_small", "both ends, 1 KiB", floor=VERIFY_TOGETHER_FLOOR
            ),
            *bench.bulk_together(),
            bench.messages(),
            bench.latency(),
            bench.pacing(),
            bench.forms(
                "messages", "messages of 1 KiB, 64 queue pairs", 1e-3, "1000/s"
            ),
        ]


async def measure_lab(rounds: int, earlier: Tree | None = None) -> list[Result]:
    """Start a lab without rates, and measure in it."""
    topology = single_switch(HOSTS, None)
    async with await start_lab(topology, lab_name=own_lab("bench"), mtu=MTU) as handle:
        bench = LabBench(handle.state, rounds)
        if earlier is not None:
            return await asyncio.to_thread(bench.against, earlier)
        return [
            await asyncio.to_thread(bench.all_reduce),
            *await asyncio.to_thread(bench.collectives),
        ]


def measure_switch(rounds: int, earlier: Tree | None = None) -> Result:
    """Measure modeled switches in real time."""
    figure = Figure(
        "modeled switches, packets of 4 KiB: marks, pauses and counters", "1/CPU s"
    )
    if earlier is not None:
        return compare_trees(
            [figure], lambda tree: tree.measure("live_switch.py"), earlier, rounds
        )[0]
    found = asyncio.run(packets_per_cpu_second(rounds))
    demanded = [float(LEAST)] * rounds
    return compare(figure.name, found, figure.unit, "demanded", demanded, floor=1.0)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--check", action="store_true", help="fail if a ratio is not what is demanded"
    )
    how.add_argument(
        "--against", metavar="COMMIT", help="compare with an earlier commit"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns per comparison")
    parser.add_argument(
        "--simulations", action="store_true", help="measure simulations, and no lab"
    )
    options = parser.parse_args()
    try:
        earlier = build_tree(options.against) if options.against else None
        if options.simulations and earlier is not None:
            results = list(compare_simulations(earlier, options.rounds))
        elif options.simulations:
            results = list(measure_simulations(options.rounds))
        else:
            results = measure_pair(options.rounds, earlier)
            results += asyncio.run(measure_lab(options.rounds, earlier))
            results.append(measure_switch(options.rounds, earlier))
            if earlier is None:
                results += measure_verbs(options.rounds)
            else:
                results += compare_verbs(earlier, options.rounds)
    except ChakramError as error:
        sys.stderr.write(f"not measured: {error}\n")
        return 1
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error.stderr or error}\n")
        return 1
    rows = [asdict(each) for each in results]
    sys.stdout.write(json.dumps(rows, indent=1) if options.json else table(results))
    sys.stdout.write("\n")
    return int(options.check and any(each.is_short() for each in results))


if __name__ == "__main__":
    sys.exit(main())
