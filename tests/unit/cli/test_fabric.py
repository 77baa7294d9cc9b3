"""What ``chakram fabric down`` ends and what it says, with labs of one file each."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chakram.cli.fabric import app
from chakram.fabric.labs import netns_mounts
from chakram.fabric.labs.lab_files import STATE_ROOT_VARIABLE, Holder, write_holder
from chakram.fabric.process_control import process_start_ticks
from chakram.foundation.errors import NoLab


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(autouse=True)
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make one lab whose holder is this process, and one whose holder is dead."""
    root = tmp_path / "labs"
    root.mkdir(mode=0o700)
    monkeypatch.setenv(STATE_ROOT_VARIABLE, str(root))
    # Others on this machine may have labs.
    monkeypatch.setattr(netns_mounts, "NETNS_DIRECTORY", tmp_path / "netns")
    ticks = process_start_ticks(os.getpid())
    assert ticks is not None
    for name, started in (("alive", ticks), ("dead", ticks + 1)):
        (root / name).mkdir()
        write_holder(root / name, Holder(pid=os.getpid(), start_ticks=started))
    return root


def test_all_leaves_labs_in_use_alone_and_says_so(labs: Path) -> None:
    text = run("down", "--all")
    assert "removed: dead\n" in text
    assert (
        "in use by runs, not removed: alive (remove one: chakram fabric down NAME"
        in text
    )
    assert [path.name for path in labs.iterdir() if path.is_dir()] == ["alive"]
    fields = json.loads(run("down", "--all", "--json"))
    assert (fields["ended"], fields["in_use"]) == ([], ["alive"])
    assert fields["schema"] == "chakram.labs-ended/1"


def test_a_lab_that_is_not_there_is_the_users_mistake(labs: Path) -> None:
    result = CliRunner().invoke(app, ["down", "nosuch"])
    assert isinstance(result.exception, NoLab)
    assert result.exception.exit_code == 2
    assert str(result.exception) == (
        "lab nosuch: there is no such lab (existing labs: alive, dead)"
    )
