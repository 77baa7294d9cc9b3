"""The guide to transport settings: its patch adds one that reaches queue pairs."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.integration.test_generated_protobuf import missing_generator
from tests.patched import patch_of, patched_tree, python_of
from tests.support import REPO_ROOT, require
from tests.udp_ports import free_udp_ports

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = "add-a-transport-setting.md"

EXPERIMENT = """\
version: 1
name: ranged
jobs:
  - name: moe
    trace: {{synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}}
    compute: {{from: none}}
    size_scale: 1/64
transport: {{adaptive_retransmission: {{low: 50ms, tries: 1, ranges: {ranges}}}}}
iterations: {{warmup: 0, measured: 1}}
fabric: {{kind: loopback, rate: 100Mbit, udp_port: {udp_port}}}
runs: {runs}
"""

RUN_AND_WAIT = """\
import sys
from chakram.cli import main
from chakram.plan.transport import TransportPlan
from chakram.roce.backoff import Backoff

settings = TransportPlan(adaptive_low_ns=1000, adaptive_tries=1, adaptive_ranges=2)
waits = Backoff(settings, seed=1)
assert main(["run", sys.argv[1]]) == 0
print("waits:", [waits.timeout_ns(retries) // 1000 for retries in range(6)])
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages with the patch applied, and messages written again."""
    require("protoc", missing_generator())
    root = patched_tree(GUIDE, tmp_path_factory.mktemp("tree"))
    shutil.copytree(REPO_ROOT / "tools", root / "tools")
    python_of(root, root, "tools/generate_proto.py")
    return root


def experiment(folder: Path, ranges: int) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(
        EXPERIMENT.format(
            ranges=ranges, udp_port=free_udp_ports(), runs=folder / "runs"
        )
    )
    return path


def test_new_setting_is_a_declaration_and_its_use() -> None:
    files = re.findall(r"^\+\+\+ b/(\S+)$", patch_of(GUIDE), re.MULTILINE)
    assert files == [
        "emulator/chakram/plan/transport.py",
        "emulator/chakram/roce/backoff.pxd",
        "emulator/chakram/roce/backoff.py",
    ]


def test_new_setting_is_in_the_protobuf_message(tree: Path) -> None:
    proto = (tree / "emulator/chakram/control/chakram.proto").read_text()
    (number,) = re.findall(r'Setting\((\d+), key="adaptive', patch_of(GUIDE))
    assert f"  uint32 adaptive_ranges = {number};\n}}" in proto


def test_new_setting_reaches_agents_and_queue_pairs(tree: Path, tmp_path: Path) -> None:
    path = str(experiment(tmp_path, 3))
    said = python_of(tree, tmp_path, "-c", RUN_AND_WAIT, path)
    (run,) = (tmp_path / "runs").glob("*/plan.json")
    assert json.loads(run.read_text())["transport"]["adaptive_ranges"] == 3
    waits = json.loads(said.partition("waits:")[2])
    # From low to twice that, then twice as high, and no further.
    assert waits[0] == 1
    assert all(2 <= wait < 4 for wait in waits[1:])


@pytest.mark.soak
def test_new_setting_is_in_the_reference(tree: Path, tmp_path: Path) -> None:
    python_of(tree, tmp_path, str(tree / "tools/generate_reference.py"), "--out", ".")
    page = (tmp_path / "transport.md").read_text()
    assert (
        "| `adaptive_retransmission.ranges` | 1..16 (`4`) | How many ranges there are"
        in page
    )
