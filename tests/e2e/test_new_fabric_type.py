"""The guide to fabric types: its patch adds one that can be simulated and run."""

from __future__ import annotations

import json
import re
from pathlib import Path

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


DO_ALL = """\
import sys
from chakram.cli import main
from chakram.config.schema import experiment_schema, schema_text
for verb in ("simulate", "run"):
    assert main([verb, sys.argv[1], "--runs", verb]) == 0
print("schema:", schema_text(experiment_schema()))
"""
"""In one process: to start one takes longer than what it does here."""


def test_the_patch_is_a_module_and_a_line() -> None:
    added = [line for line in patch_of(GUIDE).splitlines() if line.startswith("+++ ")]
    assert len(added) == 2
    old, new = patch_of(GUIDE).split("--- /dev/null")
    assert [line for line in old.splitlines() if re.match(r"[+-](?![+-])", line)] == [
        '+    "own_addresses": FabricTraits(rate_key="fabric.rate"),'
    ]
    assert len(new.splitlines()) < 90


def test_new_fabric_type_is_in_the_schema_and_can_be_simulated_and_run(
    tmp_path: Path,
) -> None:
    tree = patched_tree(GUIDE, tmp_path / "tree")
    path = tmp_path / "experiment.yaml"
    path.write_text(EXPERIMENT.format(udp_port=free_udp_ports()), "utf-8")
    said = python_of(tree, tmp_path, "-c", DO_ALL, str(path))
    schema = json.loads(said.partition("schema:")[2])
    told = schema["$defs"]["OwnAddressesFabric"]["properties"]["rate"]["description"]
    assert told.endswith("(used in: simulate, own_addresses)")
    for verb, world in ("simulate", "simulate"), ("run", "own_addresses"):
        (manifest,) = (tmp_path / verb).glob("*/run.json")
        told = json.loads(manifest.read_text("utf-8"))
        assert told["status"] == "complete"
        assert told["world"] == world
        assert told["fabric"] == "own_addresses, 4 ports, 100Mbit/s each"
