"""``chakram trace synth``: a verb per kind, an option per key."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chakram.chakra.sets.trace_set import load_trace_set
from chakram.cli.trace import app
from chakram.foundation.errors import ConfigError
from chakram.synth.settings import KINDS

NEEDED = {
    "collectives": ["--ranks", "4", "--stream", "{op: all_reduce, members: 2}"],
    **{
        kind: ["--ranks", "4"]
        for kind in KINDS
        if kind not in ("moe", "dense", "inference", "kv_cache", "collectives")
    },
}


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(
        app, ["synth", *map(str, arguments)], env={"COLUMNS": "200"}
    )
    assert result.exit_code == code, result.output
    return result.output


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["synth", *map(str, arguments)])
    assert isinstance(result.exception, ConfigError)
    return str(result.exception)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_written_with_its_defaults(kind: str, tmp_path: Path) -> None:
    verb = kind.replace("_", "-")
    told = json.loads(run(verb, "--out", tmp_path, *NEEDED.get(kind, ()), "--json"))
    traces = load_trace_set(tmp_path)
    assert traces.nranks == told["ranks"]
    assert traces.producer == f"chakram synth {kind}"
    assert told["groups"].keys() == traces.groups.keys() - {"world"}
    assert len(told["written"]) == told["ranks"] + bool(told["groups"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_an_option_with_its_help(kind: str) -> None:
    text = run(kind.replace("_", "-"), "--help")
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", text))
    for name, field in KINDS[kind].model_fields.items():
        key = field.alias or name
        if key == "synth":
            continue
        option = f"--{key.replace('_', '-')}"
        if key == "routing":
            assert {"--routing-law", "--routing-share", "--routing-splits"} <= options
        elif key == "streams":
            assert "--stream" in options
        else:
            assert option in options
            words = " ".join((field.description or "").split()).split(" ")[:3]
            assert " ".join(words) in " ".join(text.split())


def test_kinds_may_be_spelled_as_in_files(tmp_path: Path) -> None:
    run("one_to_all", "--ranks", 3, "--out", tmp_path)
    assert load_trace_set(tmp_path).nranks == 3


def test_all_kinds_are_listed() -> None:
    text = run("--help")
    assert all(kind.replace("_", "-") in text for kind in KINDS)
    assert "Usage" in run("nonsense", "--help", code=2)


def test_options_take_what_a_file_takes(tmp_path: Path) -> None:
    run(
        *("dense", "--out", tmp_path, "--tp", 2, "--dp", 2, "--layers", 1),
        *("--bucket", "128KiB", "--no-overlap", "--distributed-optimizer"),
        *("--rank-order", "[dp, tp, cp, ep, fsdp, pp]", "--peak", "1 TFLOPS"),
    )
    traces = load_trace_set(tmp_path)
    assert traces.groups["1"].ranks == (0, 2)
    names = [node.name for node in traces.graphs[0].nodes()]
    assert any(name.startswith("weights") for name in names)


def test_streams_may_be_several(tmp_path: Path) -> None:
    text = run(
        *("collectives", "--out", tmp_path, "--ranks", 8),
        *("--stream", "{op: all_reduce, size: 4MiB, members: 4}"),
        *("--stream", "{op: all_to_all, count: 2}"),
    )
    assert re.search(r"stream 0 +2 +4 +0, 1, 2, 3", text)
    assert re.search(r"stream 1 +1 +8", text)
    ops = {n.op for n in load_trace_set(tmp_path).graphs[0].nodes() if n.op}
    assert {op.value for op in ops} == {"all_reduce", "all_to_all"}


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    splits = tmp_path / "a: #b.json"
    splits.write_text('{"dispatches": [[[1, 1], [2, 0]]]}')
    run(
        *("moe", "--out", tmp_path / "out", "--ep", 2, "--dp", 1, "--layers", 1),
        *("--routing-law", "recorded", "--routing-splits", splits),
    )
    traces = load_trace_set(tmp_path / "out")
    assert any(node.splits for node in traces.graphs[0].nodes())


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = refused(
        *("moe", "--out", tmp_path / "x", "--layers", 0, "--routing-law", "hot"),
        *("--peak", "fast"),
    )
    assert "3 mistakes" in text
    assert "layers: 0 is too small" in text
    assert "routing.law: 'hot' is not known" in text
    assert "peak: 'fast' is not a compute rate" in text
    text = refused(*("moe", "--out", tmp_path / "x", "--ep", 3, "--experts", 8))
    assert "ep: 3 ranks do not divide 8 experts" in text
    assert not (tmp_path / "x").exists()


def test_values_that_are_not_yaml_are_reported_with_their_option(
    tmp_path: Path,
) -> None:
    out = ("--out", tmp_path / "x", "--ranks", 4)
    text = refused("collectives", *out, "--stream", "{op: all_reduce")
    assert text.startswith("--stream [{op: all_reduce]: is not YAML")
    assert refused("incast", *out, "--size", "[").startswith("--size [: is not YAML")


def test_groups_are_listed_by_purpose_and_size(tmp_path: Path) -> None:
    text = run("moe", "--out", tmp_path, "--ranks", 16, "--ep", 4, "--layers", 1)

    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert rows[1:4] == [
        "expert 4 4 0, 1, 2, 3",
        "expert data 4 4 0, 4, 8, 12",
        "data 1 16 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...",
    ]


def test_twelve_ranks_of_a_group_are_all_of_them(tmp_path: Path) -> None:
    text = run(
        *("collectives", "--out", tmp_path, "--ranks", 12),
        *("--stream", "{op: all_reduce, members: 12}"),
    )
    assert "10, 11" in text
    assert "..." not in text
