"""Experiments and trace sets that tests of planning start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chakram.synth.settings import MoeTrace
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
