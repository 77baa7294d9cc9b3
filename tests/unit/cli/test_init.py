"""`chakram init`: an experiment to start from, out of the package or the checkout."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from chakram.cli import main
from chakram.cli.init import configs_folder, ready_experiments
from chakram.config.experiment import load_experiment
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", sorted(ready_experiments()))
def test_every_ready_experiment_can_be_started_from(name: str, tmp_path: Path) -> None:
    assert main(["init", name]) == 0
    text = (tmp_path / f"{name}.yaml").read_text()
    assert load_experiment(tmp_path / f"{name}.yaml").jobs
    # Comments name the file that was written, and editors find the schema.
    assert "configs/" not in text.replace(str(configs_folder()), "")
    assert f"$schema={REPO_ROOT}/configs/schema/experiment.schema.json\n" in text


def test_the_first_one_is_the_quickstart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--out", "mine.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == "mine.yaml"
    assert load_experiment("mine.yaml").name == "quickstart"


def test_ready_experiments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--list"]) == 0
    listed = capsys.readouterr().out
    assert set(ready_experiments()) == {
        path.stem for path in (REPO_ROOT / "configs").glob("*.yaml")
    }
    assert all(f"\n{name}" in f"\n{listed}" for name in ready_experiments())
    assert main(["init", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["experiments"] == ready_experiments()


def test_no_file_is_replaced_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "incast.yaml").write_text("mine")
    assert main(["init", "incast"]) == 2
    assert "use --force to replace it" in capsys.readouterr().err
    assert (tmp_path / "incast.yaml").read_text() == "mine"
    assert main(["init", "incast", "--force"]) == 0
    assert load_experiment(tmp_path / "incast.yaml").name == "incast"


def test_what_is_not_there_is_told_with_what_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["init", "nothing"]) == 2
    error = capsys.readouterr().err
    assert "chakram init nothing: there is no such experiment" in error
    assert "quickstart" in error
