"""Base experiments and trace sets for tests of planning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chakram.config.experiment import Experiment
from chakram.plan.plan import Plan
from chakram.preparation.job_loading import LoadedJob
from chakram.preparation.resolved_run import resolve
from chakram.synth.settings.training import MoeTrace
from chakram.synth.synthesize import synthesize
from chakram.synth.trace_builder import Synthesis

SYNTHETIC = "{synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}"

EXPERIMENT = f"""\
version: 1
name: small
jobs:
  - name: moe
    trace: {SYNTHETIC}
fabric:
  kind: namespaces
  topology: {{single_switch: {{hosts: 4}}}}
  links: {{host: {{rate: 1Gbit}}}}
"""


def moe(**parameters: Any) -> Synthesis:
    return synthesize(MoeTrace(synth="moe", layers=1, **parameters))


def of_files(path: Path | str, more: str = "") -> str:
    """Return the experiment with a trace of files instead of a synthetic one."""
    return EXPERIMENT.replace(SYNTHETIC, f"{{path: {path}{more}}}")


def planned_run(experiment: Experiment, jobs: Sequence[LoadedJob], run_id: str) -> Plan:
    """Return the plan of a run of *experiment* before its fabric exists."""
    resolved = resolve(experiment, jobs)
    return resolved.expected_plan(run_id)
