"""The verbs of ``chakram trace``."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from chakram.chakra.et_codec import NodeType, decode_metadata
from chakram.chakra.read.framing import read_records
from chakram.chakra.sets.trace_set import load_trace_set
from chakram.cli.trace import app
from chakram.foundation.errors import ConfigError, OutputExists, TraceError
from chakram.plan.wire_cost import wire_bytes
from tests.trace_bytes import collective, metadata, node


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def fails(*arguments: object) -> BaseException:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is not None
    return result.exception


def run_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(run(*arguments, "--json", code=code))
    return fields


@pytest.fixture
def made(tmp_path: Path) -> Path:
    run("synth", "moe", "--out", tmp_path / "moe", "--layers", 2)
    return tmp_path / "moe"


def test_synth_writes_what_load_reads(made: Path) -> None:
    traces = load_trace_set(made)
    assert traces.nranks == 8
    assert set(traces.groups) == {"1", "2", "3", "4", "5", "6", "7", "world"}


def test_synth_takes_sizes_and_times_with_units(tmp_path: Path) -> None:
    fields = run_json(
        *("synth", "moe", "--out", tmp_path, "--layers", 1, "--all-to-all", "4KiB"),
        *("--all-reduce", "8KiB", "--dense", "0B", "--attention", "1ms"),
        *("--expert", "2ms"),
    )
    assert len(fields["written"]) == 9
    nodes = {n.name: n for n in load_trace_set(tmp_path).graphs[0].nodes()}
    assert nodes["layer0.forward.dispatch"].comm_bytes == 4096
    assert nodes["layer0.gradients.expert"].comm_bytes == 8192
    assert "layer0.gradients.dense" not in nodes
    assert nodes["layer0.forward.attention"].duration_ns == 1_000_000
    assert nodes["layer0.forward.expert"].duration_ns == 2_000_000


def test_synth_refuses_what_does_not_fit(tmp_path: Path, made: Path) -> None:
    error = fails("synth", "moe", "--out", tmp_path, "--ranks", 7)
    assert isinstance(error, ConfigError)
    assert "7 ranks cannot be divided by ep = 4 (use e.g. 8)" in str(error)
    error = fails("synth", "moe", "--out", tmp_path, "--dense", "4")
    assert isinstance(error, ConfigError)
    assert "dense: '4' has no unit" in str(error)
    refused = fails("synth", "moe", "--out", made)
    assert isinstance(refused, OutputExists)
    assert "use --force to replace these files" in str(refused)
    run("synth", "moe", "--out", made, "--force")


def test_show_sums_up_the_traffic(made: Path) -> None:
    fields = run_json("show", made)
    assert (fields["ranks"], fields["nodes"]) == (8, 200)
    assert fields["nodes_by_kind"] == {"compute": 104, "collective": 96}
    assert fields["producer"] == "chakram synth moe"
    assert fields["groups"]["3"] == [0, 4]
    assert fields["communication"][0] == {
        "what": "all_to_all",
        "group_ranks": 4,
        "groups": 2,
        "nodes": 64,
        "min_bytes": 524_288,
        "max_bytes": 524_288,
        "total_bytes": 64 * 524_288,
        "stored": 64 * 524_288,
        "sent_bytes": 48 * 524_288,
        "wire_bytes": fields["communication"][0]["wire_bytes"],
        "algorithms": ["direct"],
        "sizes": [
            {
                "smallest_bytes": 524_288,
                "largest_bytes": 524_288,
                "nodes": 64,
                "total_bytes": 64 * 524_288,
            }
        ],
    }
    # 64 nodes send 3 messages of 128 KiB, in packets of 4 KiB.
    assert fields["communication"][0]["wire_bytes"] == 192 * wire_bytes(
        131_072, path_mtu=4096
    )
    assert [sum(row) for row in fields["matrix"]] == fields["sent_bytes"]
    text = run("show", made)
    assert "chakram synth moe" in text
    assert "all_to_all" in text


def test_show_fits_what_is_no_terminal(made: Path) -> None:
    assert max(map(len, run("show", made).splitlines())) <= 120


@pytest.mark.slow  # plots are made by a large library
def test_show_writes_a_page_and_replaces_none_unasked(
    made: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert run("show", made, "--html", page).endswith(f"wrote {page}\n")
    text = page.read_text()
    data = text.partition('<script type="application/json" id="data">')[2]
    assert json.loads(data.partition("</script>")[0]) == run_json("show", made)
    assert isinstance(fails("show", made, "--html", page), OutputExists)
    run("show", made, "--html", page, "--force")


def test_show_tells_oddities(tmp_path: Path) -> None:
    (tmp_path / "w.0.et").write_bytes(node(1) + node(2, 5, comm_dst=0))
    text = run("show", tmp_path / "w.0.et")
    assert "warning: " in text
    assert "no metadata" in text
    rows = run_json("show", tmp_path)["communication"]
    assert [(row["what"], row["group_ranks"]) for row in rows] == [("send", None)]


def test_ranks_that_are_odd_alike_share_a_line(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"w.{rank}.et").write_bytes(node(1, num_ops=1))
    assert run("lint", tmp_path).count("warning: ") == 1
    assert "[no-metadata: 3 times in 3 ranks]" in run("lint", tmp_path)
    findings = run_json("lint", tmp_path)["findings"]
    assert [(each["rule"], each["rank"]) for each in findings] == [
        ("no-metadata", rank) for rank in range(3)
    ]


def test_lint_finds_nothing_in_a_good_set(made: Path) -> None:
    assert run("lint", made).endswith("8 ranks, 200 nodes: 0 problems, 0 warnings\n")
    assert run_json("lint", made)["findings"] == []


def test_lint_exits_with_2_where_there_are_problems(tmp_path: Path) -> None:
    (tmp_path / "w.0.et").write_bytes(metadata() + collective(1, pg_name="7"))
    assert "1 problem, " in run("lint", tmp_path, code=2)
    (problem,) = run_json("lint", tmp_path, code=2)["findings"]
    assert problem["rule"] == "unknown-group"


def test_problems_that_are_alike_share_a_line_and_hide_no_other(
    tmp_path: Path,
) -> None:
    records = [collective(number, pg_name="7") for number in range(60)]
    records += [collective(100 + k, pg_name=f"g{k}") for k in range(12)]
    records += [node(200, NodeType.COMM_SEND, comm_size=4)]
    (tmp_path / "w.0.et").write_bytes(metadata() + b"".join(records))
    text = run("lint", tmp_path, code=2)
    # Ten different ones of a rule, the first of which stands for 60.
    assert text.count("problem: ") == 10 + 1 + 1
    assert "[unknown-group: 60 times]" in text
    assert "problem: and 3 more of this rule (see --json) [unknown-group]" in text
    assert "[no-peer]" in text
    assert "73 problems" in text
    assert len(run_json("lint", tmp_path, code=2)["findings"]) >= 73


def test_strict_lint_exits_with_2_for_warnings_but_not_for_corrections(
    tmp_path: Path,
) -> None:
    (tmp_path / "w.0.et").write_bytes(collective(1))
    run("lint", tmp_path)
    assert "0 problems, 1 warning" in run("lint", tmp_path, "--strict", code=2)
    (tmp_path / "w.0.et").write_bytes(metadata() + collective(1, ctrl_deps=[9]))
    assert "[missing-control-dependency]" in run("lint", tmp_path, "--strict")


def test_lint_says_what_to_do_about_a_warning(tmp_path: Path) -> None:
    for rank in range(2):
        data = metadata() + collective(1, comm_size=0)
        (tmp_path / f"w.{rank}.et").write_bytes(data)
    assert run("lint", tmp_path) == (
        f"warning: {tmp_path}/w.0.et: offset 8: rank 0 node 1 'n1': is all_reduce of 0 "
        "bytes, so it moves nothing (check whether the producer lost comm_size; "
        "otherwise, remove the collective) [empty-collective: 2 times in 2 ranks]\n"
        "2 ranks, 2 nodes: 0 problems, 2 warnings\n"
    )


def test_lint_compares_ranks(tmp_path: Path) -> None:
    (tmp_path / "w.0.et").write_bytes(metadata() + collective(1, comm_size=1))
    (tmp_path / "w.1.et").write_bytes(metadata() + collective(1, comm_size=2))
    (problem,) = run_json("lint", tmp_path, code=2)["findings"]
    assert (problem["rule"], problem["severity"]) == ("mismatch", "problem")


def test_files_that_cannot_be_read_for_one_reason_share_a_line(tmp_path: Path) -> None:
    for rank in range(3):
        trace = metadata(schema="symbolic_tensor_network") + collective(1)
        (tmp_path / f"w.{rank}.et").write_bytes(trace)
    text = run("lint", tmp_path, code=2)
    assert text.count("problem: ") == 1
    assert "[unreadable: 3 times in 3 ranks]" in text
    assert text.endswith("not read: 3 problems, 0 warnings\n")
    assert len(run_json("lint", tmp_path, code=2)["findings"]) == 3


def test_reading_options_reach_the_reader(tmp_path: Path) -> None:
    trace = metadata(schema="symbolic_tensor_network") + collective(1, data_deps=[9])
    (tmp_path / "w.0.et").write_bytes(trace)
    assert isinstance(fails("show", tmp_path), TraceError)
    options = ("--bytes-per-element", 2, "--drop-missing-dependencies")
    fields = run_json("show", tmp_path, *options)
    assert fields["communication"][0]["total_bytes"] == 2048
    error = fails("show", tmp_path, "--dependencies", "none")
    assert isinstance(error, ConfigError)
    assert "'none' is not one of auto, data, control, both" in str(error)
    error = fails("show", tmp_path, "--uncorrected", "spelling")
    assert isinstance(error, ConfigError)
    assert str(error).startswith("--uncorrected: 'spelling' is not a correction (")


def test_convert_goes_to_json_and_back(made: Path, tmp_path: Path) -> None:
    text = run("convert", "json", made, tmp_path / "json")
    assert text.endswith(f"inspect them: chakram trace show {tmp_path / 'json'}\n")
    fields = run_json("convert", "et", tmp_path / "json", tmp_path / "et")
    assert (len(fields["written"]), fields["lost"]) == (9, [])
    for path in made.iterdir():
        assert (tmp_path / "et" / path.name).read_bytes() == path.read_bytes()


def test_convert_lists_messages(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "messages.csv.gz"
    options = ("--algorithm", "all_reduce=ring", "--algorithm", "all_to_all=direct")
    fields = run_json("convert", "p2p", made, out, *options)
    lines = gzip.decompress(out.read_bytes()).decode().splitlines()
    assert len(lines) == fields["messages"] + 1
    assert {line.split(",")[7] for line in lines[1:]} == {"ring", "direct"}
    assert isinstance(fails("convert", "p2p", made, out), OutputExists)
    for option in ("all_reduce", "all_reduce=", "sum=ring"):
        error = fails("convert", "p2p", made, tmp_path / "x", "--algorithm", option)
        assert isinstance(error, ConfigError)


def test_convert_writes_collectives_for_astra_sim(tmp_path: Path) -> None:
    options = ("--op", "all_gather", "--ranks", 4, "--size", "1KiB")
    fields = run_json("convert", "collective", tmp_path / "c", *options)
    assert len(fields["written"]) == 4
    (prefix,) = fields["system"]["all-gather-implementation-custom"]
    assert Path(f"{prefix}.3.et").is_file()
    # Lint knows that these are no workload.
    assert "[collective-body: 4 times in 4 ranks]" in run("lint", tmp_path / "c")
    # The size of a collective decides about its algorithm, as in an experiment.
    run("convert", "collective", tmp_path / "d", *options[:-1], "1MiB")
    for folder, name in (("c", "bruck"), ("d", "ring")):
        data = (tmp_path / folder / "all_gather.0.et").read_bytes()
        _, body = next(read_records([data], source="w"))
        assert decode_metadata(body, "w").attributes["algorithm"] == name
    error = fails("convert", "collective", tmp_path, *options, "--prefix", "a/b")
    assert isinstance(error, ConfigError)
    error = fails("convert", "collective", tmp_path, *options, "--op", "sum")
    assert isinstance(error, ConfigError)
    assert "there is no collective 'sum'" in str(error)


def test_collectives_of_some_dimensions_want_to_know_them(tmp_path: Path) -> None:
    for rank in range(4):
        record = collective(1, involved_dim=(True, False))
        (tmp_path / f"w.{rank}.et").write_bytes(metadata() + record)
    findings = run_json("lint", tmp_path, code=2)["findings"]
    assert [each["rule"] for each in findings] == ["unknown-dimensions"] * 4
    assert "4 ranks, 4 nodes: 0 problems" in run(
        "lint", tmp_path, "--dimensions", "2,2"
    )
    groups = run_json("show", tmp_path, "--dimensions", "2,2")["groups"]
    assert {"world[0,1]", "world[2,3]"} <= groups.keys()
    run("convert", "p2p", tmp_path, tmp_path / "m.csv", "--dimensions", "2,2")
    with (tmp_path / "m.csv").open() as file:
        pairs = {(row["rank"], row["peer"]) for row in csv.DictReader(file)}
    assert pairs == {("0", "1"), ("1", "0"), ("2", "3"), ("3", "2")}
    part = tmp_path / "part"
    run("cut", tmp_path, part, "--dimensions", "2,2", "--anonymize")
    # What is cut out needs no dimensions: it has groups.
    assert run("lint", part).endswith("4 ranks, 4 nodes: 0 problems, 0 warnings\n")
    for wrong in ("2,x", "0", "2,,2", ""):
        error = fails("show", tmp_path, "--dimensions", wrong)
        assert isinstance(error, ConfigError)
