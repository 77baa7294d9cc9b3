"""Millions of small broken inputs for every decoder of trace files.

Inputs start from the first nodes of real files; what is not refused at once is broken
further.  All follows from a seed.  ``python -m tests.fuzzing SEED SECONDS FOLDER``
fuzzes for a while and says how fast.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from chakram.chakra.read.groups import process_groups_of_init
from chakram.foundation.errors import ChakramError
from tests.mutated_traces import (
    FILES,
    SLOWEST_S,
    contents,
    judge,
    mutant_of,
    shortened,
)

SHORT = 700
"""Length to which inputs are cut; a node or two remain of the longest."""
_LONGEST = 20_000
_POOL = 64
_INIT = "init"
_INIT_VALUES = repr(
    [json.dumps([{"pg_name": str(n), "ranks": list(range(n))} for n in range(5)])]
)
# An archive is written to the disk and opened: a thousandth of the speed.
_RARE = {"tar": 0.001, "gzip": 0.02}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzed:
    """Number of inputs, number per outcome, and longest processor time."""

    inputs: int
    outcomes: Counter[str]
    slowest_s: float


class Fault(AssertionError):
    """A decoder ended in an unexpected way; the input is kept in a file."""


def starts(traces: Path) -> dict[str, list[bytes]]:
    """Return short inputs by form, from the starts of real files."""
    short = {
        form: [
            shortened(form, contents(traces, name), SHORT)
            for name in names
            if form not in ("gzip", "tar")
        ]
        for form, names in FILES.items()
    }
    short["tar"] = [contents(traces, name) for name in FILES["tar"]]
    short["gzip"] = _gzipped(short["binary"])
    short[_INIT] = [_INIT_VALUES.encode()]
    return short


def _gzipped(files: list[bytes]) -> list[bytes]:
    return [gzip.compress(data, mtime=0) for data in files]


def fuzz(
    traces: Path,
    *,
    seed: int,
    inputs: int | None = None,
    seconds: float | None = None,
) -> Fuzzed:
    """Give the decoders broken inputs until there were enough of them.

    Raises:
        Fault: If one does anything but read, find or refuse within the time.
    """
    rng = random.Random(seed)
    pools = starts(traces)
    weights = [_RARE.get(form, 1.0) for form in pools]
    forms = list(pools)
    whole = {form: list(pool) for form, pool in pools.items()}
    outcomes: Counter[str] = Counter()
    slowest_s = 0.0
    number = 0
    end_s = time.monotonic() + (seconds if seconds is not None else 1e9)
    with tempfile.TemporaryDirectory() as folder:
        while number != inputs and (number % 256 or time.monotonic() < end_s):
            number += 1
            (form,) = rng.choices(forms, weights)
            origin = rng.choice(pools[form])
            try:
                mutant = mutant_of(rng, form, origin)
            except (ValueError, IndexError, ChakramError):
                # A deed that wants sound records or JSON, and got a mutant.
                mutant = mutant_of(rng, form, rng.choice(whole[form]))
            if not mutant or (len(mutant) > _LONGEST and form != "tar"):
                continue
            begun_s = time.process_time()
            outcome = _judge(form, mutant, Path(folder), seed, number)
            taken_s = time.process_time() - begun_s
            if taken_s > SLOWEST_S:
                raise _fault(form, mutant, seed, number, f"took {taken_s:.1f} s")
            slowest_s = max(slowest_s, taken_s)
            outcomes[outcome] += 1
            # What was not refused may be broken further.
            if outcome in ("findings", "unharmed"):
                pool = pools[form]
                if len(pool) < _POOL:
                    pool.append(mutant)
                else:
                    place = rng.randrange(_POOL)
                    pool[place] = mutant if rng.random() < 0.9 else whole[form][0]
    return Fuzzed(inputs=number, outcomes=outcomes, slowest_s=slowest_s)


def _judge(form: str, mutant: bytes, folder: Path, seed: int, number: int) -> str:
    try:
        if form != _INIT:
            return judge(form, mutant, folder)
        process_groups_of_init(mutant.decode("utf-8", "replace"), "w")
    except ChakramError as error:
        return type(error).__name__
    except Exception as fault:
        raise _fault(form, mutant, seed, number, repr(fault)) from fault
    return "unharmed"


def _fault(form: str, mutant: bytes, seed: int, number: int, what: str) -> Fault:
    kept = Path(tempfile.gettempdir()) / f"fuzzed-{form}-{seed}-{number}"
    kept.write_bytes(mutant)
    return Fault(f"{kept}: {what}")


def main(seed: str, seconds: str, folder: str) -> None:
    """Fuzz for so many seconds and print what happened."""
    begun_s = time.monotonic()
    fuzzed = fuzz(Path(folder), seed=int(seed), seconds=float(seconds))
    rate = fuzzed.inputs / (time.monotonic() - begun_s)
    slowest = f"slowest {fuzzed.slowest_s:.3f} s"
    sys.stdout.write(
        f"{fuzzed.inputs} inputs, {rate:.0f}/s, {slowest}\n{dict(fuzzed.outcomes)}\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
