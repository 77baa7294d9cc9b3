"""What an agent reports about its host and its bundle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from chakram_agent.grpc_server import bundle_digest, numa_nodes

if TYPE_CHECKING:
    from pathlib import Path


def test_numa_nodes_are_those_of_the_usable_cpus(tmp_path: Path) -> None:
    for cpu, node in ((0, 0), (1, 0), (2, 1), (3, 10)):
        (tmp_path / f"cpu{cpu}/node{node}").mkdir(parents=True)
    assert numa_nodes({1, 3}, tmp_path) == (0, 10)
    assert numa_nodes({0, 1}, tmp_path) == (0,)
    assert numa_nodes({7}, tmp_path) == ()


def test_an_agent_knows_the_digest_of_its_bundle(tmp_path: Path) -> None:
    assert bundle_digest(tmp_path) == ""
    (tmp_path / "bundle.json").write_text(json.dumps({"digest": "0123456789ab"}))
    assert bundle_digest(tmp_path) == "0123456789ab"


@pytest.mark.parametrize("text", ["", "[]", "{}", "\x00"])
def test_a_damaged_description_of_a_bundle_is_ignored(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "bundle.json").write_text(text)
    assert bundle_digest(tmp_path) == ""
