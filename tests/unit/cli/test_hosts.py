"""``chakram hosts`` in a job of Slurm, and bundles that it saves."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING

import pytest

from chakram.cli import main
from chakram.launch import agent_bundle
from chakram.launch.agent_bundle import AgentBundle
from chakram.launch.launched_agents import LaunchOptions

if TYPE_CHECKING:
    from pathlib import Path

INVENTORY = """\
version: 1
hosts:
  - {name: n1, ports: [{open: "udp:eth1", address: 198.18.0.1/24}]}
"""


def test_only_slurm_limits_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, ssh = LaunchOptions(kind="slurm"), LaunchOptions(kind="ssh")
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    assert slurm.allocated_hosts() is None
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[2-3],m1")
    assert slurm.allocated_hosts() == {"n2", "n3", "m1"}
    assert ssh.allocated_hosts() is None


def test_an_inventory_without_allocated_hosts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hosts.yaml").write_text(INVENTORY)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[2-3]")
    check = ["hosts", "check", str(tmp_path / "hosts.yaml"), "--launch", "slurm"]
    assert main(check) == 2
    assert "has no host of this allocation" in capsys.readouterr().err


def test_an_agent_command_with_an_open_quote_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["launch", "show", "ssh", "h1", "--agent", "a'b"]) == 2
    assert "--agent a'b: is not a command: no closing" in capsys.readouterr().err


def test_a_bundle_that_cannot_be_written_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = AgentBundle(data=b"", folder="small", unpacked_bytes=0)
    monkeypatch.setattr(agent_bundle, "make_bundle", lambda _: small)
    saved = str(tmp_path / "absent/bundle.tar.gz")
    assert main(["hosts", "push", "--save", saved]) == 2
    assert f"--save {saved}: cannot be written" in capsys.readouterr().err


def test_a_bundle_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "bundle.tar.gz"
    assert main(["hosts", "push", "--save", str(saved), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    with tarfile.open(saved) as archive:
        assert f"{told['bundle']}/chakram-agent" in archive.getnames()
    assert told["hosts"] == []
