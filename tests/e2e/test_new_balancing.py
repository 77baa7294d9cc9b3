"""The guide to balancings: the scheme of its patch chooses paths in a simulation."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.patched import patch_of, patched_tree, python_of

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = "add-a-balancing.md"

EXPERIMENT = """\
version: 1
name: sprayed
jobs:
  - name: moe
    trace: {synth: moe, ranks: 4, ep: 4, dp: 1, layers: 1}
    compute: {from: none}
    size_scale: 1/16
transport: {reordering: accept}
iterations: {warmup: 0, measured: 1}
fabric:
  kind: namespaces
  topology: {clos: {leaves: 2, spines: 4, hosts_per_leaf: 2}}
  links: {host: {rate: 1Gbit}, uplink: {rate: 500Mbit}}
  switches: {balancing: two_choices}
"""

SIMULATE = """\
import sys
from chakram.cli import main
assert main(["simulate", sys.argv[1], "--runs", "runs"]) == 0
"""

CHOOSE = """\
from types import SimpleNamespace
from chakram.switch.balancing import PACKET_BALANCINGS

ports = [SimpleNamespace(queued_bytes=nbytes) for nbytes in (0, 10, 20, 30)]
scheme = PACKET_BALANCINGS["two_choices"](node=0, seed=1)
chosen = [scheme.choose(ports, packet) for packet in range(16_000)]
print("chosen:", [chosen.count(port) for port in range(4)])
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages with the patch applied."""
    return patched_tree(GUIDE, tmp_path_factory.mktemp("tree"), "tools")


def test_a_balancing_is_a_class_and_a_declaration() -> None:
    files = re.findall(r"^\+\+\+ b/(\S+)$", patch_of(GUIDE), re.MULTILINE)
    assert files == [
        "emulator/chakram/switch/balancing.py",
        "emulator/chakram/switch/settings.py",
    ]


def test_a_simulation_uses_and_records_the_new_balancing(
    tree: Path, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(EXPERIMENT, "utf-8")
    python_of(tree, tmp_path, "-c", SIMULATE, str(path))
    (manifest,) = (tmp_path / "runs").glob("*/run.json")
    told = json.loads(manifest.read_text("utf-8"))
    assert told["status"] == "complete"
    assert told["experiment"]["fabric"]["switches"]["balancing"] == "two_choices"
    assert "(two_choices)" in manifest.read_text("utf-8")


def test_the_new_balancing_takes_the_shorter_of_two_queues(
    tree: Path, tmp_path: Path
) -> None:
    said = python_of(tree, tmp_path, "-c", CHOOSE)
    chosen = json.loads(said.partition("chosen:")[2])
    # Of 16 equally frequent pairs of ports, port 0 wins 7, port 1 wins 5, and so on.
    for count, wins in zip(chosen, (7, 5, 3, 1), strict=True):
        assert count == pytest.approx(1000 * wins, rel=0.1)


@pytest.mark.soak
def test_the_reference_has_the_new_balancing(tree: Path, tmp_path: Path) -> None:
    python_of(tree, tmp_path, str(tree / "tools/generate_reference.py"), "--out", ".")
    page = (tmp_path / "fabric.md").read_text("utf-8")
    assert "two_choices: the shorter queue of two random ports." in page
