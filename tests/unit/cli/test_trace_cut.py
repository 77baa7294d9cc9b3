"""``chakram trace cut``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chakram.chakra.sets.trace_set import load_trace_set
from chakram.chakra.write.writer import write_trace_set
from chakram.cli.trace import app
from chakram.collectives.groups import ProcessGroup
from chakram.foundation.errors import ChakramError, ConfigError, OutputExists
from tests.made_graphs import collective, compute, job, send


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return a set of three ranks with a group of two."""
    rows = [
        collective(1, group="7"),
        compute(2, after=[1], duration_ns=5_000),
        collective(3, after=[2], group="7"),
    ]
    folder = tmp_path / "made"
    write_trace_set(
        folder,
        prefix="w",
        graphs=job(rows, rows, [send(1, 0)]).values(),
        groups=[ProcessGroup(name="7", ranks=(1, 0))],
        producer="a test",
    )
    return folder


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["cut", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: object) -> ChakramError:
    result = CliRunner().invoke(app, ["cut", *map(str, arguments)])
    assert isinstance(result.exception, ChakramError), result.output
    return result.exception


def test_a_cut_does_not_replace_its_set(made: Path) -> None:
    error = refused(made, made, "--ranks", "0-1", "--force")
    assert "contains the set that is read" in str(error)
    assert (made / "w.2.et").exists()


def test_a_part_is_written_with_its_group_file(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = run(made, out, "--ranks", "0-1", "--communication-only")
    assert "kept ranks 0, 1 of 3" in text
    assert "wrote 3 files" in text
    assert sorted(path.name for path in out.iterdir()) == [
        "comm_group.json",
        "w.0.et",
        "w.1.et",
    ]
    left = load_trace_set(out)
    assert left.producer == "chakram trace cut"
    assert left.groups["7"].ranks == (1, 0)
    assert [node.node_id for node in left.graphs[0].nodes()] == [1, 3]


def test_json_tells_what_is_left(made: Path, tmp_path: Path) -> None:
    told = json.loads(run(made, tmp_path / "out", "--ranks", "2", "--json"))
    assert told["ranks"] == [
        {
            "rank": 0,
            "from_rank": 2,
            "nodes_before": 1,
            "nodes": 0,
            "collectives": 0,
            "messages": 0,
            "joins": 0,
        }
    ]
    assert told["groups"] == {}
    assert any(note.startswith("1 sends and receives") for note in told["notes"])


def test_numbers_are_kept_on_request(made: Path, tmp_path: Path) -> None:
    text = run(made, tmp_path / "out", "--ranks", "0,2", "--keep-numbers")
    assert "have gaps" in text
    assert (tmp_path / "out/w.2.et").exists()


def test_gzipped_files_stay_so_and_names_go(made: Path, tmp_path: Path) -> None:
    from chakram.chakra.write.convert import TraceForm, convert_trace_set

    gzipped = tmp_path / "gz"
    convert_trace_set(made, gzipped, form=TraceForm.BINARY, compress=True)
    run(gzipped, tmp_path / "out", "--anonymize")
    assert (tmp_path / "out/trace.0.et.gz").exists()
    graph = load_trace_set(tmp_path / "out").graphs[0]
    assert [node.name for node in graph.nodes()] == [
        "all_reduce_1",
        "compute_1",
        "all_reduce_2",
    ]


def test_the_british_spelling_is_accepted_but_not_listed(
    made: Path, tmp_path: Path
) -> None:
    run(made, tmp_path / "out", "--anonymise")
    assert (tmp_path / "out/trace.0.et").exists()
    assert "--anonymize" in run("--help")
    assert "--anonymise" not in run("--help")


def test_nothing_is_replaced_unasked(made: Path, tmp_path: Path) -> None:
    options = (made, tmp_path / "out", "--communication-only")
    run(*options)
    assert isinstance(refused(*options), OutputExists)
    run(*options, "--force")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "no option selects the part to keep"),
        (["--ranks", "3-1"], "--ranks: '3-1' is not a rank or range"),
        (["--ranks", "0,,1"], "--ranks: '' is not a rank or range"),
        (["--ranks", "0-9999999"], "is not a rank or range"),
        (["--ranks", "5"], "the set has the ranks 0-2"),
        (["--nodes", "9..3"], "is not FIRST..LAST"),
        (["--nodes", "4-5"], "is not FIRST..LAST"),
    ],
)
def test_mistakes_are_told(
    made: Path, tmp_path: Path, options: list[str], text: str
) -> None:
    error = refused(made, tmp_path / "out", *options)
    assert isinstance(error, ConfigError)
    assert text in str(error)
    assert not (tmp_path / "out").exists()


def rows_of(text: str) -> list[str]:
    return [
        " ".join(line.split())
        for line in text.splitlines()
        if line.strip()[:1].isdigit() or line.strip().startswith(("all", "..."))
    ]


def test_people_get_a_line_for_each_rank_and_the_sums(
    made: Path, tmp_path: Path
) -> None:
    # Of three nodes of each, the two collectives are kept; the sender sends nothing.
    text = run(made, tmp_path / "out", "--ranks", "1,0", "--communication-only")

    assert rows_of(text) == ["0 0 3 2 2 0 0", "1 1 3 2 2 0 0", "all 6 4 4 0 0"]


@pytest.mark.parametrize("count", [16, 17])
def test_of_many_ranks_16_are_listed(count: int, tmp_path: Path) -> None:
    made = tmp_path / "made"
    write_trace_set(
        made,
        prefix="w",
        graphs=job(*[[collective(1)]] * (count + 1)).values(),
        groups=[],
        producer="a test",
    )

    text = run(made, tmp_path / "out", "--ranks", f"1-{count}")

    *ranks, total = rows_of(text)
    assert ranks[:2] == ["0 1 1 1 1 0 0", "1 2 1 1 1 0 0"]
    assert ranks[16:] == ["..."] * (count > 16)
    assert total == f"all {count} {count} {count} 0 0"
