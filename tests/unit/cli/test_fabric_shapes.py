"""``chakram fabric show`` and ``convert``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from chakram.cli import main
from chakram.fabric.fabric_types.topology_settings import (
    LinksSettings,
    TopologySettings,
)
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    import pytest

FAT_TREE = str(REPO_ROOT / "configs/fat-tree.yaml")


def test_a_fabric_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fabric", "show", FAT_TREE]) == 0
    assert "fat tree of 2 pods" in capsys.readouterr().out
    assert main(["fabric", "show", FAT_TREE, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema"] == "chakram.fabric/1"
    assert (len(shown["hosts"]), len(shown["switches"])) == (8, 12)
    assert {link["rate_bps"] for link in shown["links"]} == {50_000_000, 100_000_000}


def test_a_fabric_goes_through_infragraph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fabric", "show", FAT_TREE, "--infragraph"]) == 0
    file = tmp_path / "f.yaml"
    file.write_text(capsys.readouterr().out)
    assert main(["fabric", "convert", str(file)]) == 0
    section = yaml.safe_load(capsys.readouterr().out)["fabric"]
    shape = TopologySettings.model_validate(section["topology"])
    topology = shape.to_topology(LinksSettings())
    assert len(topology.paths("h0", "h7")) == 4
    assert topology.host_link("h0").rate_bps == 100_000_000


def test_what_is_no_infragraph_document_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fabric", "convert", FAT_TREE]) == 2
    assert "fat-tree.yaml: 10 mistakes\n  - devices: is missing" in (
        capsys.readouterr().err
    )


def test_every_link_is_listed_with_its_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(
        """\
version: 1
name: two
jobs:
  - {name: a, trace: {synth: incast, ranks: 2, size: 64KiB}}
fabric:
  kind: namespaces
  topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 1}}
  links: {host: {rate: 1Gbit, delay: 2us}}
"""
    )
    assert main(["fabric", "show", str(path)]) == 0

    rows = [
        [cell.strip() for cell in line.strip("\u2502").split("\u2502")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("\u2502")
    ]
    assert len(rows) == 4
    by_ends = {frozenset(row[1:3]): row[3:] for row in rows}
    assert by_ends[frozenset({"h0:eth0", "leaf0:h0"})] == ["1Gbit/s", "2us"]
    assert by_ends[frozenset({"leaf1:up0", "spine0:down1"})] == ["", "0ns"]


def test_declared_faults_are_shown_at_their_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(Path(FAT_TREE).read_text())
    link = {"kind": "loss", "link": "h1-pod0-leaf0", "probability": 0.5}
    document["faults"] = {"links": [link]}
    file = tmp_path / "e.yaml"
    file.write_text(yaml.safe_dump(document))
    assert main(["fabric", "show", str(file)]) == 0
    assert " fault " in capsys.readouterr().out
    assert main(["fabric", "show", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    faults = {link["name"]: link["faults"] for link in shown["links"]}
    assert faults.pop("h1-pod0-leaf0") == ["loses 50.00% at 0ns"]
    assert not any(faults.values())
