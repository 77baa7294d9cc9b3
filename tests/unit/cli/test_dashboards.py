"""``chakram dashboards export`` and ``init --examples`` write the packaged files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from chakram.cli import main
from tests.support import REPO_ROOT


def test_dashboards_rules_and_configuration_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "monitoring"
    assert main(["dashboards", "export", str(out)]) == 0
    written = {path.relative_to(out) for path in out.rglob("*") if path.is_file()}
    dashboards = {path.name for path in (REPO_ROOT / "dashboards/grafana").iterdir()}
    assert {path.name for path in written if path.parent.name == "grafana"} == (
        dashboards
    )
    assert written - {Path("grafana") / name for name in dashboards} == {
        Path("prometheus.yml"),
        Path("rules/chakram.yaml"),
    }
    shown = capsys.readouterr().out
    assert all(f"wrote {out / path}\n" in shown for path in written)
    assert f"prometheus --config.file={out}/prometheus.yml" in shown
    assert "Grafana: Dashboards, New, Import" in shown


def test_the_configuration_reads_the_rules(tmp_path: Path) -> None:
    assert main(["dashboards", "export", str(tmp_path)]) == 0
    (pattern,) = yaml.safe_load((tmp_path / "prometheus.yml").read_text())["rule_files"]
    assert [path.name for path in tmp_path.glob(pattern)] == ["chakram.yaml"]


def test_nothing_is_written_if_one_file_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "prometheus.yml"
    kept.write_text("mine")
    assert main(["dashboards", "export", str(tmp_path)]) == 2
    assert f"{kept}: exists already" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [kept]
    assert main(["dashboards", "export", str(tmp_path), "--force", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert str(kept) in written
    assert kept.read_text() != "mine"


def test_examples_keep_their_paths(tmp_path: Path) -> None:
    assert main(["init", "--examples", str(tmp_path)]) == 0
    for path in ("configs/moe-mix/suite.yaml", "docs/examples/gate/rules.yaml"):
        assert (tmp_path / path).read_bytes() == (REPO_ROOT / path).read_bytes()
    assert main(["init", "--examples", str(tmp_path)]) == 2
