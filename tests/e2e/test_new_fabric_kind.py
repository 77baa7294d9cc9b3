"""The guide to kinds of fabric: its patch makes one that is simulated and run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.patched import patch_of, patched_tree, python_of
from tests.udp_ports import free_udp_ports

GUIDE = "fabric-kind.md"

EXPERIMENT = """\
version: 1
name: own-addresses
jobs:
  - name: moe
    trace: {{synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}}
    size_scale: 1/64
iterations: {{warmup: 0, measured: 1}}
preflight: require
fabric:
  kind: own_addresses
  ports: [127.0.0.2/8, 127.0.0.3/8, 127.0.0.4/8, 127.0.0.5/8]
  rate: 100Mbit
  udp_port: {udp_port}
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages with the patch applied."""
    return patched_tree(GUIDE, tmp_path_factory.mktemp("tree"))


def test_the_patch_is_a_module_and_a_line() -> None:
    added = [line for line in patch_of(GUIDE).splitlines() if line.startswith("+++ ")]
    assert len(added) == 2
    old, new = patch_of(GUIDE).split("--- /dev/null")
    assert [line for line in old.splitlines() if re.match(r"[+-](?![+-])", line)] == [
        '+    "own_addresses",'
    ]
    assert len(new.splitlines()) < 90


def test_the_kind_stands_in_the_schema(tree: Path, tmp_path: Path) -> None:
    schema = json.loads(python_of(tree, tmp_path, "-m", "chakram.config.schema"))
    told = schema["$defs"]["OwnAddressesFabric"]["properties"]["rate"]["description"]
    assert told.endswith("(used in: simulate, own_addresses)")


@pytest.mark.parametrize("verb", ["simulate", "run"])
def test_the_kind_is_simulated_and_run(tree: Path, tmp_path: Path, verb: str) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(EXPERIMENT.format(udp_port=free_udp_ports()), "utf-8")
    python_of(tree, tmp_path, "-m", "chakram", verb, str(path))
    (manifest,) = (tmp_path / "runs").glob("*/run.json")
    told = json.loads(manifest.read_text("utf-8"))
    assert told["status"] == "complete"
    assert told["world"] == {"run": "own_addresses"}.get(verb, verb)
    assert told["fabric"] == "own_addresses, 4 ports, 100Mbit/s each"
