"""The command as a whole: exit codes, and errors as one sentence."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path

import pytest

import chakram
from chakram import cli
from chakram.cli import main
from chakram.foundation.errors import AgentError, PlanError
from tests.support import REPO_ROOT

QUICKSTART = str(REPO_ROOT / "configs/quickstart.yaml")
SMALL = """\
version: 1
name: small
jobs:
  - name: moe
    trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}
iterations: {warmup: 0, measured: 1}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 4}}
  links: {host: {rate: 10Gbit}}
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return str(file)


def failing(error: BaseException) -> object:
    def load_jobs(*_: object, **__: object) -> None:
        raise error

    return load_jobs


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            MemoryError(),
            "this process: Cannot allocate memory (provide more memory",
        ),
        (OSError(errno.EMFILE, "x"), "Too many open files (raise the limit on open"),
    ],
)
def test_what_the_machine_lacks_is_told(
    error: Exception,
    told: str,
    small: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chakram.preparation.resolved_run.load_jobs", failing(error))
    assert main(["plan", small]) == 3
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["run", "simulate", "plan", "preflight"])
def test_too_small_an_address_space_is_told_before_libraries_fail(
    verb: str,
    small: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "chakram.cli.resource.getrlimit", lambda _: (300 << 20, 300 << 20)
    )
    assert main([verb, small]) == 3
    assert "is limited to 300MiB, and this needs" in capsys.readouterr().err


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    for verb in ("run", "simulate", "plan", "certs", "trace", "fabric", "doctor"):
        assert f"\n  {verb} " in told


@pytest.mark.parametrize("verb", [[], ["trace"], ["fabric"]])
def test_no_line_of_a_listing_of_verbs_is_cut(
    verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb, "--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


@pytest.mark.parametrize("arguments", [[], ["fabric"]])
def test_a_command_without_a_verb_tells_its_verbs(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert "Usage: chakram" in told
    assert "Commands:" in told


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"chakram {chakram.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nothing"], "no such command 'nothing' (see chakram --help)"),
        (["plan", "--nothing"], "no such option: --nothing"),
        (["plan"], "missing argument 'EXPERIMENT.yaml' (see chakram plan --help)"),
        (["plan", QUICKSTART, "--set", "x"], "--set x: is not KEY=VALUE"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("chakram: error: ")
    assert expected in told
    assert told.count("\n") == 1


def test_a_plan_is_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", QUICKSTART]) == 0
    told = capsys.readouterr().out
    assert "all_to_all" in told
    assert "this machine" in told
    assert main(["plan", QUICKSTART, "--json", "--set", "iterations.measured=3"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["iterations"] == 4
    assert document["jobs"][0]["ranks"] == 8


@pytest.mark.parametrize(
    ("nports", "divided"),
    [
        (1, "h0 among 2 shards"),
        (8, "h0, h1, h2, h3, h4, h5, h6, h7 among 2 shards each"),
        (9, "h0, h1, h2, h3, h4, h5, h6, h7 and 1 more among 2 shards each"),
    ],
)
def test_ports_of_several_shards_are_named_in_a_plan(
    nports: int, divided: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "divided.yaml"
    path.write_text(
        "version: 1\n"
        "name: divided\n"
        "jobs:\n"
        "  - name: a\n"
        f"    trace: {{synth: incast, ranks: {2 * nports}, size: 64KiB}}\n"
        "    placement: {ranks_per_port: 2}\n"
        f"fabric: {{kind: loopback, ports: {nports}}}\n"
        f"agents: {{shards: {2 * nports}}}\n"
    )
    assert main(["plan", str(path)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"divided ports {divided}" in lines


@pytest.mark.parametrize(
    ("size", "traffic"), [("499.8MB", "1 GB"), ("900GB", "1.8 TB")]
)
def test_the_traffic_of_a_plan_has_no_exponent(
    size: str, traffic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(
        "version: 1\n"
        "name: large\n"
        "jobs:\n"
        "  - name: a\n"
        f"    trace: {{synth: permutation, ranks: 2, size: {size}}}\n"
        "fabric: {kind: loopback}\n"
    )
    assert main(["plan", str(path)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"traffic {traffic} per iteration, 4 messages" in lines


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ([], None),
        (["jobs[0].placement={ranks_per_port: 2}"], "share port"),
        (
            ["faults={links: [{link: h0-leaf0, kind: pause_storm, classes: [3]}]}"],
            "switches do not support",
        ),
    ],
)
def test_a_plan_tells_what_a_run_would_refuse(
    changes: list[str], refusal: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for each in changes for word in ("--set", each)]
    assert main(["plan", QUICKSTART, "--json", *options]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    refused = [each for each in warnings if each.startswith("chakram run refuses")]
    assert len(refused) == (refusal is not None)
    assert refusal is None or refusal in refused[0]


def test_a_simulation_leaves_a_run_directory(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    arguments = ["simulate", small, "--runs", str(runs), "--set", "seed=7"]
    assert main([*arguments, "--json"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    document = json.loads(told.out)
    assert document["complete"]
    assert document["error"] is None
    assert document["results"]
    (directory,) = runs.iterdir()
    assert document["directory"] == str(directory)
    recorded = [
        file.read_text() for file in directory.iterdir() if file.suffix == ".yaml"
    ]
    assert recorded == ["# --set seed=7\n" + SMALL]
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert "all_reduce" in told.out
    assert "simulating: iteration 0 of 1" in told.err


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (PlanError("here", "is wrong", "do that"), 2, "here: is wrong (do that)"),
        (
            ExceptionGroup(
                "tasks", [ExceptionGroup("inner", [AgentError("a", "died")])]
            ),
            4,
            "a: died",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
        (asyncio.CancelledError(), 130, "interrupted"),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(
    error: BaseException,
    code: int,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("chakram.preparation.resolved_run.load_jobs", failing(error))
    assert main(["plan", QUICKSTART]) == code
    assert capsys.readouterr().err.splitlines()[-1] == f"chakram: error: {expected}"


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("0/0"), ExceptionGroup("tasks", [OSError("disk")])]
)
def test_a_fault_of_ours_is_one_line_and_a_log(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("chakram.preparation.resolved_run.load_jobs", failing(error))
    assert main(["plan", QUICKSTART]) == 1
    told = capsys.readouterr().err
    (log,) = tmp_path.glob("chakram-error-*.log")
    assert told == (
        f"chakram: error: unexpected {type(error).__name__}: {error} "
        f"(the traceback is in {log})\n"
    )
    assert "Traceback" in log.read_text()


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = PlanError("here", "is wrong")
    monkeypatch.setattr("chakram.preparation.resolved_run.load_jobs", failing(error))
    assert main(["--debug", "plan", QUICKSTART]) == 2
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert told.endswith("chakram: error: here: is wrong\n")


def test_without_room_for_a_log_the_option_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    monkeypatch.setattr(
        "chakram.preparation.resolved_run.load_jobs", failing(ValueError("x"))
    )
    assert main(["plan", QUICKSTART]) == 1
    assert "(--debug shows the traceback)" in capsys.readouterr().err


def test_the_public_names_are_those_that_scripts_use() -> None:
    assert cli.__all__ == ["command_line", "main"]


def sets(*values: str) -> list[str]:
    return [word for value in values for word in ("--set", value)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["plan", "FILE", "--set", "fabric.topology=3"],
            "--set fabric.topology=3: 3 is not a mapping (write key: value pairs",
        ),
        (
            ["plan", "FILE", "--set", "fabric.links={host: {rate: fast}}"],
            "--set fabric.links={host: {rate: fast}}: fabric.links.host.rate: ",
        ),
        (
            ["plan", "FILE", "--set", "jobs[0].size_scale=x", "--set", "seed=-1"],
            "FILE: 2 mistakes\n"
            "  - --set seed=-1: -1 is too small (must be at least 0)\n"
            "  - --set jobs[0].size_scale=x: ",
        ),
        (
            ["plan", "FILE", *sets("transport.path_mtu=4096", "fabric.mtu=1000")],
            "error: --set fabric.mtu=1000: transport.path_mtu: 4096 and 80 bytes of",
        ),
        (
            ["plan", "FILE", *sets("fabric.kind=external")],
            "error: --set fabric.kind=external: fabric.hosts: is missing",
        ),
        (
            [
                "plan",
                "FILE",
                *sets("fabric.topology.clos.x=1", "fabric.topology={clos: {}}"),
            ],
            "\n  - --set fabric.topology={clos: {}}: fabric.topology.clos.leaves: is",
        ),
        (
            [
                "plan",
                "FILE",
                *sets("fabric.topology=3", "fabric.topology.single_switch.hosts=0"),
            ],
            "error: --set fabric.topology.single_switch.hosts=0: 0 is too small",
        ),
        (
            [
                "plan",
                "FILE",
                *sets("seed=x", "iterations={}", "iterations.measured=y", "seed=1"),
            ],
            "error: --set iterations.measured=y: 'y' is not a whole number",
        ),
        (["plan", "FILE", "--set", "nosuch.key=3"], "error: --set nosuch.key=3: "),
        (["plan", "FILE", "--set", "name=@"], "error: --set name=@: is not YAML: "),
        (["run", "FILE", "--lab", "x y"], "--lab x y: 'x y' is not a name"),
        (["run", "FILE", "--metrics", "x"], "--metrics x: "),
        (["preflight", "FILE", "--lab", "x y"], "--lab x y: 'x y' is not a name"),
    ],
)
def test_a_mistake_in_an_option_is_not_blamed_on_the_file(
    small: str,
    arguments: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([small if each == "FILE" else each for each in arguments]) == 2
    assert expected.replace("FILE", small) in capsys.readouterr().err


def test_a_mistake_of_the_file_is_not_blamed_on_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(SMALL.replace("measured: 1", "measured: 0"))
    with file.open("a") as more:
        more.write("transport: {path_mtu: 4096}\n")
    assert main(["plan", str(file), "--set", "fabric.mtu=1000"]) == 2
    told = capsys.readouterr().err
    assert "line 6: iterations.measured: 0 is too small" in told
    assert "--set fabric.mtu=1000: transport.path_mtu" in told
