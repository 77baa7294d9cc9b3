"""Two hundred mutants per trace format are refused or reported quickly.

Each form is read in a separate process, so that its memory can be measured; half of
the processes may not even ask for more.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mutated_traces import (
    FILES,
    MEMORY_BYTES,
    SLOWEST_S,
    close_a_cycle,
    judge,
    lengthen_record,
    originals,
    truncate,
)
from tests.support import REPO_ROOT

MUTANTS = 200
LIMITED = ("binary", "jsonizer", "linked", "groups")


def read_mutants(form: str, traces: Path) -> dict[str, Any]:
    """Return the output of the process that reads them."""
    limit = {"CHAKRAM_LIMIT_MEMORY": "1"} if form in LIMITED else {}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.mutated_traces",
            form,
            "1",
            str(MUTANTS),
            str(traces),
        ],
        capture_output=True,
        text=True,
        cwd=REPO_ROOT,
        env={**os.environ, **limit},
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.slow
@pytest.mark.parametrize("form", FILES)
def test_every_mutant_ends_in_an_error_or_a_finding(
    chakram_data: Path, form: str
) -> None:
    told = read_mutants(form, chakram_data / "traces")
    outcomes = told["outcomes"]
    assert sum(outcomes.values()) == MUTANTS
    assert told["slowest_s"] < SLOWEST_S
    assert told["peak_bytes"] < MEMORY_BYTES
    refused = MUTANTS - outcomes.get("findings", 0) - outcomes.get("unharmed", 0)
    assert refused > MUTANTS // 4


NAMED = [
    ("binary", truncate, {"TruncatedTrace", "TraceError", "findings"}),
    ("gzip", truncate, {"TruncatedTrace"}),
    ("stage", truncate, {"TruncatedTrace"}),
    ("feeder", truncate, {"TruncatedTrace"}),
    # Its start alone looks like a host trace.
    ("linked", truncate, {"TruncatedTrace", "UnsupportedTrace"}),
    ("groups", truncate, {"TraceError"}),
    (
        "binary",
        lengthen_record,
        {"OversizedRecord", "TruncatedTrace", "GarbageTrace", "TraceError"},
    ),
    ("binary", close_a_cycle, {"TraceError", "findings"}),
]


@pytest.mark.parametrize(
    ("form", "deed", "allowed"),
    [pytest.param(*case, id=f"{case[0]}-{case[1].__name__}") for case in NAMED],
)
def test_every_mutation_has_a_name(
    chakram_data: Path,
    tmp_path: Path,
    form: str,
    deed: Callable[[random.Random, bytes], bytes],
    allowed: set[str],
) -> None:
    rng = random.Random(form)
    for data in originals(chakram_data / "traces", form):
        for _ in range(20):
            mutant = deed(rng, data)
            # Too little of JSON is not known as such.
            if len(mutant) > 100:
                assert judge(form, mutant, tmp_path) in allowed
