"""What the kernel can do without the engine: compiles and runs ``blaster.c``."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.extent import sized

if TYPE_CHECKING:
    from tests.bench.pair import End

BLAST_MS = sized(300, 20)
SOURCE = Path(__file__).with_name("blaster.c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blast:
    """Result of a measurement.

    Attributes:
        packets_per_s: That arrived.
        lost: Share of those sent that did not: the receiver had no room.
    """

    packets_per_s: float
    lost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Blaster:
    """The compiled program, and from where to where it sends."""

    program: Path
    ends: tuple[End, End]

    def blast(
        self,
        *,
        burst: int,
        packet_bytes: int,
        ms: int = BLAST_MS,
        mode: str = "apart",
    ) -> Blast:
        """Send for *ms*, as fast as it goes, in a *mode* of the program."""
        a, b = self.ends
        words = [mode, burst, packet_bytes, ms, a.netns, a.address, b.netns, b.address]
        done = subprocess.run(
            [self.program, *map(str, words)],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        packets, elapsed_ns, sent, lost = map(int, done.stdout.split())
        return Blast(packets_per_s=packets * 1e9 / elapsed_ns, lost=lost / sent)


def compile_blaster(folder: Path) -> Path | None:
    """Return the compiled program; None if there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    program = folder / "blaster"
    subprocess.run([compiler, "-O2", "-o", program, SOURCE], check=True, timeout=60)
    return program
