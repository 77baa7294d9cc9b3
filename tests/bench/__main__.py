"""Measures the hot paths: ``make bench``.

Absolute figures mean little on a machine that others use, so every figure comes with
what it is compared to, measured in turns in the same run; printed are medians, and the
median of the ratios of neighbouring turns. What a ratio has to be at least stands
beside it; with ``--check`` one that is less fails the run.
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
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from chakram.errors import ChakramError
from chakram.fabric.lab import start_lab
from chakram.fabric.topology import single_switch

sys.path.insert(0, str(Path(__file__).parent))
from bare import Blaster, compile_blaster
from pair import veth_pair

if TYPE_CHECKING:
    from pair import End

    from chakram.fabric.state import LabState

ENGINE = Path(__file__).with_name("engine.py")
COLLECTIVES = Path(__file__).with_name("collectives.py")
LAB = "bench"
HOSTS = 8
MTU = 4200
PATH_MTU = 4096
SMALL_PATH_MTU = 1024
# BTH and ICRC; of a message of one packet also RETH and immediate data.
BULK_HEADERS_BYTES = 16
MESSAGE_PACKET_BYTES = 1024 + 16 + 20
# As many packets as one send takes.
BURST = 15
SMALL_BURST = 60
PACING_LIMIT_US = 50.0
# What ratios have to be at least, on an otherwise idle machine.
BULK_FLOOR = 0.8
SMALL_FLOOR = 0.7
PLAIN_FLOOR = 0.08
MESSAGES_FLOOR = 0.4
# Operation, bytes per rank, how many of them in each turn; and the floor of the ratio.
COLLECTIVE_CASES = (
    ("all_reduce", 64 << 10, 100),
    ("all_to_all", 64 << 10, 100),
    ("all_reduce", 16 << 20, 5),
    ("all_to_all", 16 << 20, 5),
    ("all_reduce", 64 << 20, 4),
    ("all_to_all", 64 << 20, 4),
)
COLLECTIVE_FLOORS = (15.0, 5.0, 1.5, 1.3, 1.5, 1.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of the table.

    Attributes:
        name: What was measured.
        value: The median.
        unit: Of the value.
        compared_to: What else was measured, in turns.
        other: Its median, in the same unit; None if it could not be measured.
        ratio: Value by other; of times the other way round, so that more is better.
        ratios: The least and the most of a single turn.
        floor: What the ratio has to be at least; None: nothing is demanded.
        note: What there is to say.
    """

    name: str
    value: float
    unit: str
    compared_to: str
    other: float | None
    ratio: float | None
    ratios: tuple[float, float] | None
    floor: float | None
    note: str = ""

    def is_short(self) -> bool:
        """Tell whether what is demanded was measured and not reached."""
        return (
            self.ratio is not None
            and self.floor is not None
            and self.ratio < self.floor
        )


def engine(
    netns: list[str], kind: str, iterations: int, *, form: str = "auto"
) -> float:
    """Return one figure of the engine, from a process of its own."""
    done = subprocess.run(
        [sys.executable, ENGINE, kind, str(iterations), *netns],
        env={**os.environ, "CHAKRAM_COMPILED": form},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return float(answer["value"])


class PairBench:
    """What one port carries to another, with nothing but a pair of interfaces between.

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

    def bare(self, burst: int, packet_bytes: int) -> float | None:
        """Return how many packets per second pass without the engine."""
        if self._blaster is None:
            return None
        return self._blaster.packets_per_s(burst=burst, packet_bytes=packet_bytes)

    def bulk(self) -> Result:
        """Measure long messages against bare bursts of the same packets."""
        return self._bulk("bulk", PATH_MTU, BURST, floor=BULK_FLOOR)

    def bulk_plain(self) -> Result:
        """Measure the same without any extension."""
        return self._bulk("bulk", PATH_MTU, BURST, floor=PLAIN_FLOOR, form="off")

    def bulk_small(self) -> Result:
        """Measure the same with small packets."""
        return self._bulk("bulk_small", SMALL_PATH_MTU, SMALL_BURST, floor=SMALL_FLOOR)

    def _bulk(
        self, kind: str, path_mtu: int, burst: int, *, floor: float, form: str = "auto"
    ) -> Result:
        ours, bare = [], []
        for _ in range(self._rounds):
            ours.append(self.engine(kind, 5, form=form) / 1e9)
            packets = self.bare(burst, path_mtu + BULK_HEADERS_BYTES)
            if packets is not None:
                bare.append(packets * path_mtu * 8 / 1e9)
        return compare(
            f"bulk goodput, one flow, path MTU {path_mtu}"
            + (", not compiled" if form == "off" else ""),
            ours,
            "Gbit/s",
            f"bare UDP GSO, {burst} packets of {path_mtu} bytes",
            bare,
            floor=floor,
        )

    def messages(self) -> Result:
        """Measure messages of one packet against bare packets."""
        ours, bare = [], []
        for _ in range(self._rounds):
            ours.append(self.engine("messages", 5) / 1e3)
            packets = self.bare(1, MESSAGE_PACKET_BYTES)
            if packets is not None:
                bare.append(packets / 1e3)
        return compare(
            "messages of 1 KiB, 64 queue pairs, all acknowledged",
            ours,
            "1000/s",
            "bare sendto, nothing acknowledged",
            bare,
            floor=MESSAGES_FLOOR,
        )

    def forms(self, kind: str, name: str, scale: float, unit: str) -> Result:
        """Measure the compiled form against the plain one."""
        compiled, plain = [], []
        for _ in range(self._rounds):
            compiled.append(self.engine(kind, 3) * scale)
            plain.append(self.engine(kind, 1, form="off") * scale)
        return compare(name, compiled, unit, "the same, not compiled", plain)

    def pacing(self) -> Result:
        """Measure how late bursts of a port at 1 Gbit/s are, against what is meant."""
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
        compiled, plain = [], []
        for _ in range(self._rounds):
            compiled.append(engine(self._netns, "all_reduce", 200) * 1e3)
            plain.append(engine(self._netns, "all_reduce", 30, form="off") * 1e3)
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
        ours, others = [], []
        for _ in range(self._rounds):
            ours.append(self._collectives_ms("chakram"))
            if has_gloo:
                others.append(self._collectives_ms("gloo"))
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

    def _collectives_ms(self, who: str) -> list[float]:
        """Return how long each case took, from a program of its own."""
        processes = len(os.sched_getaffinity(0))
        words = [who, str(processes), self._first_address, json.dumps(COLLECTIVE_CASES)]
        done = subprocess.run(
            [sys.executable, COLLECTIVES, *words, *self._netns],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return [each / 1e6 for each in json.loads(done.stdout)]


def compare(
    name: str,
    ours: list[float],
    unit: str,
    compared_to: str,
    others: list[float],
    *,
    is_time: bool = False,
    floor: float | None = None,
    without: str = "no C compiler: not compared",
) -> Result:
    """Return medians: of both, and of the ratios of neighbouring turns."""
    ratios = [
        other / value if is_time else value / other
        for value, other in zip(ours, others, strict=bool(others))
    ]
    return Result(
        name=name,
        value=median(ours),
        unit=unit,
        compared_to=compared_to,
        other=median(others) if others else None,
        ratio=median(ratios) if ratios else None,
        ratios=(min(ratios), max(ratios)) if ratios else None,
        floor=floor,
        note="" if others else without,
    )


def table(results: list[Result]) -> str:
    """Return the results as lines of text."""
    lines = []
    for each in results:
        lines.append(each.name)
        lines.append(f"    {each.value:10.2f} {each.unit}")
        if each.other is not None and each.ratio is not None and each.ratios:
            least, most = each.ratios
            lines.append(f"    {each.other:10.2f} {each.unit:8} {each.compared_to}")
            demanded = "" if each.floor is None else f", at least {each.floor:g}"
            lines.append(
                f"    {each.ratio:10.2f} ratio    ({least:.2f} to {most:.2f}{demanded}"
                f"{': too little' if each.is_short() else ''})"
            )
        if each.note:
            lines.append(f"    {each.note}")
    return "\n".join(lines)


def measure_pair(rounds: int) -> list[Result]:
    """Measure between two namespaces."""
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
            bench.messages(),
            bench.pacing(),
            bench.forms(
                "messages", "messages of 1 KiB, 64 queue pairs", 1e-3, "1000/s"
            ),
        ]


async def measure_lab(rounds: int) -> list[Result]:
    """Start a lab without rates, and measure in it."""
    topology = single_switch(HOSTS, None)
    async with await start_lab(topology, lab_name=LAB, mtu=MTU) as handle:
        bench = LabBench(handle.state, rounds)
        return [
            await asyncio.to_thread(bench.all_reduce),
            *await asyncio.to_thread(bench.collectives),
        ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    parser.add_argument(
        "--check", action="store_true", help="fail if a ratio is less than demanded"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns per comparison")
    options = parser.parse_args()
    try:
        results = measure_pair(options.rounds)
        results += asyncio.run(measure_lab(options.rounds))
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
