"""``python -m tests.diagnosis``: draws experiments and judges ``chakram why``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from tests.diagnosis.bases import NAMESPACES, VIRTUAL
from tests.diagnosis.cases import Outcome, judged, table

ISOLATED = "DIAGNOSIS_ISOLATED"
"""Set where the process has its own namespaces."""


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Print one line a miss, and a table by kind."""
    parser = argparse.ArgumentParser(prog="python -m tests.diagnosis")
    parser.add_argument("--world", choices=[VIRTUAL, NAMESPACES], default=VIRTUAL)
    parser.add_argument("--seeds", default="1000:1020", help="FROM:TO, or one seed")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="processes")
    parser.add_argument("--clean", action="store_true", help="plant nothing")
    parser.add_argument("--kind", help="plant only this cause")
    parser.add_argument("--keep", type=Path, help="folder that draws are kept in")
    parser.add_argument("-v", "--verbose", action="store_true", help="print hits, too")
    given = parser.parse_args()
    first, _, end = given.seeds.partition(":")
    seeds = range(int(first), int(end) if end else int(first) + 1)
    if given.world == NAMESPACES and os.environ.get(ISOLATED) is None:
        # Labs of others cannot be met there.
        script = str(Path(__file__).parents[1] / "isolated-python")
        venv = str(Path(sys.executable).parents[1])
        environment = {**os.environ, ISOLATED: "1", "VENV": venv}
        arguments = ["sh", script, "-m", "tests.diagnosis", *sys.argv[1:]]
        os.execvpe("sh", arguments, environment)
    outcomes: list[Outcome] = []
    started = time.monotonic()
    scratch = nullcontext(given.keep) if given.keep else tempfile.TemporaryDirectory()
    with scratch as folder, ProcessPoolExecutor(given.jobs) as pool:
        asked = [
            pool.submit(
                judged,
                seed,
                Path(folder) / f"{given.world}-{seed}",
                world=given.world,
                clean=True if given.clean else None,
                kind=given.kind,
                keep=given.keep is not None,
            )
            for seed in seeds
        ]
        for each in asked:
            outcome = each.result()
            outcomes.append(outcome)
            if given.verbose or not outcome.is_hit or outcome.is_saving_right is False:
                say(outcome.line())
    say(table(outcomes))
    taken_s = time.monotonic() - started
    causes = Counter(outcome.where for outcome in outcomes)
    say("fabrics: " + ", ".join(f"{name} {n}" for name, n in causes.most_common()))
    say(f"{len(outcomes)} draws in {taken_s:.0f} s")
    return 0 if all(outcome.is_hit for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
