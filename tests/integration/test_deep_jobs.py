"""Simulations of jobs with many layers need no deep stack."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LAYERS = 1_200
STACK_KIB = 256
EXPERIMENT = f"""\
version: 1
name: deep
jobs:
  - name: job
    trace: {{synth: dense, ranks: 2, tp: 2, layers: {LAYERS}, hidden: 16}}
    compute: {{from: trace}}
iterations: {{warmup: 0, measured: 1, sync: free}}
fabric:
  kind: namespaces
  topology: {{single_switch: {{hosts: 2}}}}
  links: {{host: {{rate: 1Gbit}}}}
"""
SIMULATE = f"""
import resource, sys
hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
resource.setrlimit(resource.RLIMIT_STACK, ({STACK_KIB << 10}, hard))
from chakram.__main__ import main
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "level", ["message", pytest.param("flow", marks=pytest.mark.soak), "packet"]
)
def test_many_layers_do_not_overflow_the_stack(level: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(EXPERIMENT)
    words = ["simulate", path, "--level", level, "--runs", tmp_path / "runs"]
    done = subprocess.run(
        [sys.executable, "-c", SIMULATE, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    # What is freed at the end of the process is part of the run.
    assert done.returncode == 0, done.stderr
    assert "# Run complete." in done.stdout
