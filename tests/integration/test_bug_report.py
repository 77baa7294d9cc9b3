"""``chakram bug-report`` holds what helps, and no planted name or address."""

from __future__ import annotations

import io
import json
import os
import socket
from pathlib import Path

import pytest

from chakram.cli import main

PLANTED = (
    *("gpu-node17", "corp.example", "gpu-node18", "leaf-admin", "topsecret"),
    *("compute-b9", "admin-gw4", "rack9-blade2"),
    *("192.0.2.77", "198.18.7.1", "2001:db8:77::1", "0c:42:a1:03:00:77", "jdoe"),
)
EXPERIMENT = """\
# --set fabric.hosts[1].name=compute-b9
# --set fabric.hosts[0].agent=admin-gw4.lan:7411
version: 1
name: burn-in
fabric:
  kind: external
  hosts:
    - name: gpu-node17
      agent: "gpu-node17.corp.example:7411"
      ports: [{open: "udp:ens1f0", address: 198.18.7.1/24}]
    - name: gpu-node18
      agent: "192.0.2.77:7411"
      ports: [{open: "udp:ens1f0", address: "2001:db8:77::1/64"}]
tls: {ca: /home/jdoe/certs/ca.pem, key: /home/topsecret/key}
"""
LOG = """\
12:00:01 agent gpu-node17 (192.0.2.77:7411) lladdr 0c:42:a1:03:00:77
12:00:02 [2001:db8:77::1]:4791 -> 198.18.7.1: gave up, as leaf-admin and jdoe know
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run directory with planted names."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    (folder / "agent-gpu-node17.log").write_text(LOG)
    (folder / "agents").mkdir()
    (folder / "agents" / "rack9-blade2.log").write_text("the launched agent ends")
    manifest = {
        "status": "failed",
        "agents": {"gpu-node18": {"host": "gpu-node18.corp.example"}},
        "lock": {"hostname": "leaf-admin"},
    }
    (folder / "run.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("USER", "jdoe")
    monkeypatch.setenv("HOME", "/home/jdoe")
    monkeypatch.chdir(tmp_path)
    return folder


def test_no_planted_name_is_in_the_report(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bug-report", str(run), "--out", "report.txt", "--yes"]) == 0
    shown = capsys.readouterr()
    report = Path("report.txt").read_text()
    assert shown.out == report + "\n"
    assert "wrote report.txt" in shown.err
    lowered = report.lower()
    assert [name for name in PLANTED if name in lowered] == []
    machine = socket.gethostname().lower()
    assert f'"hostname": "{machine}"' not in lowered
    # What helps is there: versions, checks, the experiment, the log.
    for kept in ('"protobuf": "', "namespaces: ", "name: burn-in", ": gave up, as"):
        assert kept in report
    assert "~/certs/ca.pem" in report
    assert "the launched agent ends" in report


def test_a_host_has_one_name_everywhere(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bug-report", str(run), "--out", "-"]) == 0
    report = capsys.readouterr().out
    (name,) = {
        line.split(": ")[1]
        for line in report.splitlines()
        if line.strip().startswith("- name: h")
    } & {
        line.split()[1].removeprefix("agent-").removesuffix(".log")
        for line in report.splitlines()
        if line.startswith("==== agent-")
    }
    assert f'agent: "{name}:7411"' in report
    assert f"agent {name} (addr" in report
    assert not (run.parent / "chakram-bug-report.txt").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "written"), [("y\n", True), ("\n", False)])
def test_the_report_is_written_if_the_user_agrees(
    answer: str, *, written: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert main(["bug-report", str(run)]) == 0
    assert (run.parent / "chakram-bug-report.txt").exists() is written


def test_without_a_terminal_the_option_is_named(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["bug-report", str(run)]) == 2
    assert "use --yes" in capsys.readouterr().err
    assert not (run.parent / "chakram-bug-report.txt").exists()


def test_an_existing_report_stays(run: Path) -> None:
    Path("mine.txt").write_text("mine")
    assert main(["bug-report", "--out", "mine.txt", "--yes"]) == 2
    assert Path("mine.txt").read_text() == "mine"


def test_json_has_the_text_and_the_counts(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bug-report", str(run), "--out", "-", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["written"] is None
    assert document["replaced"]["addr"] == 3
    assert document["replaced"]["mac"] == 1
    assert "==== run.json" in document["text"]


def test_a_folder_without_a_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bug-report", str(tmp_path), "--out", "-"]) == 2
    assert "contains no run" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
