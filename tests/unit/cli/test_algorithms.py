"""``chakram algorithms``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from chakram.cli import main
from chakram.collectives.algorithms import ALGORITHMS, algorithm_names
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.plugin_registry import PlugIn
from tests.plug_ins import HALVED

if TYPE_CHECKING:
    from pathlib import Path

STAR = """
from chakram.collectives.schedule import Transfer

def star(op, nranks, root):
    for leaf in range(1, nranks):
        yield Transfer(step=0, src=leaf, dst=0, chunk=0, reduce=True)
    for leaf in range(1, nranks):
        yield Transfer(step=1, src=0, dst=leaf, chunk=0)

def half(op, nranks, root):
    yield Transfer(step=0, src=1, dst=0, chunk=0, reduce=True)
"""


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["algorithms", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return printed(capsys, "list", *arguments)["algorithms"]


def test_list_names_every_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    found = {(row["op"], row["algorithm"]) for row in listed(capsys)}
    assert found == {
        (op.value, name) for op in CollectiveOp for name in algorithm_names(op)
    }
    (only,) = listed(capsys, "--op", "barrier")
    assert only["parameters"] == {}


def test_list_names_unusable_packages_and_lists_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = PlugIn(name="broken", target="no_such_module:A", package="acme 1")
    monkeypatch.setattr(ALGORITHMS, "installed", (broken, HALVED))
    found = printed(capsys, "list", "--op", "all_reduce")
    assert "halved" in {row["algorithm"] for row in found["algorithms"]}
    (warning,) = found["warnings"]
    assert warning.startswith(
        "algorithm broken: acme 1: no_such_module:A cannot be imported: "
    )
    assert main(["algorithms", "list"]) == 0
    assert "warning: algorithm broken: acme 1: " in capsys.readouterr().out
    assert main(["algorithms", "show", "broken"]) == 2
    assert "no_such_module:A cannot be imported" in capsys.readouterr().err


def test_show_counts_what_a_ring_does(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(
        capsys,
        *("show", "ring(channels=2)", "--op", "all_reduce", "--ranks", "4"),
        *("--size", "1MiB", "--rate", "100Gbit", "--delay", "0s"),
    )
    assert [step["transfers"] for step in shown["steps"]] == [8] * 6
    assert shown["busiest_bytes"] == 6 * (1 << 18)
    assert shown["queue_pairs"] == 8
    assert shown["channels"] == 2
    # Bytes at line rate, and not much more: headers, and a packet stored per step.
    assert 8 * shown["busiest_bytes"] / 100 < shown["bound_ns"]
    assert shown["bound_ns"] < 1.05 * 8 * shown["busiest_bytes"] / 100
    assert shown["ceiling_ns"] <= shown["bound_ns"]


@pytest.mark.parametrize(
    ("size", "algorithm"),
    [("8KiB", "recursive_doubling"), ("1MiB", "halving_doubling"), ("2MiB", "ring")],
)
def test_show_chooses_what_auto_takes_for_the_size(
    size: str, algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ("--op", "all_reduce", "--ranks", "4", "--size", size)
    assert printed(capsys, "show", "auto", *what)["algorithm"] == algorithm


def test_tables_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algorithms", "show", "dissemination"]) == 0
    assert "specifies" in capsys.readouterr().out
    assert main(["algorithms", "list"]) == 0
    assert "halving_doubling" in capsys.readouterr().out


def test_check_tells_whether_an_algorithm_of_ones_own_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(STAR)
    what = ["--op", "all_reduce", "--ranks", "3"]
    shown = printed(capsys, "check", f"{path}:star", *what)
    assert shown["transfers"] == 4
    assert shown["algorithm"] == "python:mine.py:star"
    assert main(["algorithms", "check", f"{path}:half", *what]) == 2
    assert "position 1 ends with [1] of chunk 0" in capsys.readouterr().err


def test_check_asks_for_what_a_source_does_not_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(STAR)
    for given, missing in (("--ranks", "3"), "--op"), (("--op", "reduce"), "--ranks"):
        assert main(["algorithms", "check", f"{path}:star", *given]) == 2
        told = capsys.readouterr().err
        assert f"{missing}: is missing" in told
        assert "does not specify it" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "ring"], "--op: is missing (ring is an algorithm of all_reduce"),
        (["show", "rign"], "rign: there is no such algorithm"),
        (["show", "tree", "--op", "all_reduc"], "--op: there is no collective"),
        (
            ["show", "tree", "--op", "reduce", "--root", "8"],
            "--root: 8 is not a position among 8 ranks",
        ),
        (["check", "none.xml"], "none.xml: cannot be read"),
        (["check", "none/"], "none: contains no sets of files"),
    ],
)
def test_what_cannot_be_shown_is_told(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["algorithms", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_people_get_a_line_for_each_step_and_the_sums(
    capsys: pytest.CaptureFixture[str],
) -> None:
    what = ["show", "ring", "--op", "all_reduce", "--ranks", "4", "--size", "1MiB"]
    assert main(["algorithms", *what]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    assert lines[0] == "all_reduce: ring, 4 ranks, 1MiB per rank"
    assert [line for line in lines if line[:1].isdigit()] == [
        f"{step} 4 1MiB 256KiB 256KiB" for step in range(6)
    ]
    assert "sent 6MiB in 24 transfers; 1536KiB by the busiest rank" in lines
    assert "channels 1" in lines
    assert "queue pairs 4" in lines


@pytest.mark.parametrize(("nranks", "more"), [(33, None), (34, 2)])
def test_of_many_steps_64_are_listed(
    nranks: int, more: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ["show", "ring", "--op", "all_reduce", "--ranks", str(nranks)]
    assert main(["algorithms", *what]) == 0
    text = capsys.readouterr().out

    # Twice as many steps as there are neighbors.
    assert sum(line.strip()[:1].isdigit() for line in text.splitlines()) == 64
    assert (f"and {more} more steps (see --json)" in text) is (more is not None)
