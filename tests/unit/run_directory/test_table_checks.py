"""Every reader refuses invalid tables in one sentence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chakram.cli import main
from chakram.foundation.errors import RunDirectoryError
from chakram.plan.port_plan import PortPlan
from chakram.run_directory.plan_document import PlanDocument, PlannedTransport
from chakram.run_directory.reader import open_run
from chakram.run_directory.schemas import SCHEMAS
from chakram.run_directory.table_checks import bounds, check_references, check_table
from tests.made_runs import ODD_LINKS, made_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made_run(tmp_path / "runs", links=ODD_LINKS).path


def damage(run: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    path = run / f"{name}.parquet"
    pq.write_table(change(pq.ParquetFile(path).read()), path)


def with_values(column: str, *values: Any) -> Callable[[pa.Table], pa.Table]:
    """Return a function that replaces the first values of a column."""

    def change(table: pa.Table) -> pa.Table:
        at = table.column_names.index(column)
        kind = table.schema.field(at).type
        rest = table[column].to_pylist()[len(values) :]
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        made = pa.array([*values, *rest], plain)
        return table.set_column(at, column, made.cast(kind))

    return change


def of_type(column: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at = table.column_names.index(column)
        return table.set_column(at, column, pa.nulls(table.num_rows, kind))

    return change


CASES = [
    ("ranks", with_values("start_ns", None), "column start_ns has 1 rows without a"),
    ("ranks", with_values("end_ns", 2**63 - 1), "has 9223372036854775807, which is"),
    ("ranks", with_values("compute_ns", -1), "column compute_ns has -1, which is not"),
    ("ranks", with_values("rank", 9), "names rank 9 of job 'moe', which is not in"),
    ("ranks", with_values("job", "gone"), "names rank 0 of job 'gone', which is not"),
    ("ranks", with_values("number", 2**31 - 1), "column number has 2147483647, which"),
    ("ranks", of_type("start_ns", pa.string()), "column start_ns is of type string,"),
    ("ranks", lambda table: table.drop_columns(["job"]), "column job is missing"),
    ("flows", with_values("job", None), "column job has 1 rows without a value"),
    (
        "flows",
        with_values("collective", "dance"),
        "has 'dance', which is not an allowed value",
    ),
    ("flows", with_values("bytes", 2**60), "column bytes has 1152921504606846976"),
    ("flows", with_values("dst", 4), "names rank 4 of job 'moe', which is not in"),
    ("queue_pairs", of_type("job", pa.list_(pa.int64())), "job is of type list<"),
    (
        "collectives",
        with_values("collective", "x"),
        "has 'x', which is not an allowed value",
    ),
    ("collectives", with_values("nranks", None), "column nranks has 1 rows without"),
    ("collectives", with_values("nranks", 0), "column nranks has 0, which is not from"),
    ("collectives", of_type("bound_ns", pa.string()), "is of type string, not int64"),
    (
        "links",
        with_values("direction", "left"),
        "has 'left', which is not an allowed value",
    ),
    ("links", with_values("bytes_after", None), "bytes_after has 1 rows without a"),
]


@pytest.mark.parametrize(("name", "change", "found"), CASES)
def test_a_damaged_table_is_refused_where_it_is_read(
    run: Path, name: str, change: Any, found: str
) -> None:
    damage(run, name, change)
    more = ["bound_ns"] if name == "collectives" else []
    with pytest.raises(RunDirectoryError) as caught:
        open_run(run).table(name, *SCHEMAS[name].names, *more)
    assert found in str(caught.value)


VERBS = (["show"], ["why"], ["report"], ["timeline"], ["validate"], ["runs"])


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_no_command_ends_in_a_traceback(
    run: Path, tmp_path: Path, verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run, "ranks", with_values("start_ns", None))
    damage(run, "flows", with_values("posted_ns", None))
    out = [] if verb[0] not in ("report", "timeline") else ["--out", f"{tmp_path}/out"]
    path = run.parent if verb == ["runs"] else run
    code = main([*verb, str(path), *out])
    told = capsys.readouterr()
    assert code in (0, 2, 3)
    assert "has 1 rows without a value" in told.out + told.err
    assert "unexpected" not in told.err


@pytest.mark.parametrize("column", ["measured", "iteration", "group"])
def test_a_timeline_needs_every_column_of_flows_that_it_draws(
    run: Path, tmp_path: Path, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run, "flows", lambda table: table.drop_columns([column]))
    assert main(["timeline", str(run), "--out", str(tmp_path / "out.json")]) == 2
    assert f"column {column} is missing" in capsys.readouterr().err


def test_all_problems_are_listed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(run, "ranks", with_values("start_ns", None))
    damage(run, "operations", with_values("kind", "sleep"))
    damage(run, "queue_pairs", lambda table: table.append_column("job", table["job"]))
    assert main(["validate", str(run)]) == 2
    told = capsys.readouterr().out
    assert "ranks.parquet: column start_ns has 1 rows without a value" in told
    assert (
        "operations.parquet: column kind has 'sleep', which is not an allowed value"
        in told
    )


def test_parts_of_a_dictionary_are_checked() -> None:
    places = pa.array([0, 5], pa.int32())
    column = pa.DictionaryArray.from_arrays(places, ["a", None], safe=False)
    (found,) = check_table(pa.table({"job": column}), "ranks")
    assert "column job is damaged" in found
    places = pa.array([0, 1], pa.int32())
    column = pa.DictionaryArray.from_arrays(places, ["a", None])
    (found,) = check_table(pa.table({"job": column}), "ranks")
    assert found == "column job has 1 rows without a value"
    alpha = pa.table({"alpha": pa.array([0.5, float("nan"), None], pa.float64())})
    (found,) = check_table(alpha, "queue_pairs")
    assert found == "column alpha has a number that is not finite"
    twice = pa.table([alpha["alpha"], alpha["alpha"]], ["x", "x"])
    assert list(check_table(twice, "queue_pairs")) == []
    twice = pa.table([alpha["alpha"], alpha["alpha"]], ["alpha", "alpha"])
    assert "more than once" in next(check_table(twice, "queue_pairs"))


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_integer_column_has_bounds(name: str) -> None:
    for field in SCHEMAS[name]:
        if pa.types.is_integer(field.type):
            least, most = bounds(field.name, field.type)
            assert least <= 1 < most
            pa.array([least, most], field.type)


def test_udp_ports_and_classes_are_numbers_that_packets_have() -> None:
    port = pa.table([pa.array([65_536], pa.int32())], ["udp_source_port"])
    assert "has 65536, which is not" in next(check_table(port, "queue_pair_ends"))
    assert bounds("udp_source_port", pa.int32()) == (0, 65_535)
    assert bounds("traffic_class", pa.int32()) == (0, 7)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda plan: plan["ranks"][0].update(port=7), "port 7 is not defined"),
        (lambda plan: plan["ranks"][0].update(agent="x"), "agent x is not defined"),
        (
            lambda plan: plan["ranks"].append(plan["ranks"][0]),
            "it contains a rank twice",
        ),
        (
            lambda plan: plan["ports"].append(plan["ports"][0]),
            "it contains a port twice",
        ),
        (lambda plan: plan["ranks"][0].update(rank="0"), "'ranks.0.rank': Input"),
        (lambda plan: plan["transport"].update(path_mtu=0), "'transport.path_mtu'"),
        (lambda plan: plan["ports"][0].update(address="h0"), "address"),
        (lambda plan: plan.pop("transport"), "it lacks 'transport'"),
        (lambda plan: plan["ports"][0].update(host="\ud800"), "Invalid JSON"),
    ],
)
def test_a_damaged_plan_is_refused(run: Path, change: Any, found: str) -> None:
    path = run / "plan.json"
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))
    with pytest.raises(RunDirectoryError, match=r"plan\.json: is damaged") as caught:
        open_run(run).table("ranks")
    assert found in caught.value.found


def test_ports_equal_those_of_the_plan() -> None:
    port = PortPlan(
        number=0, agent="a", host="h0", open="memory:", netns=None,
        address="198.18.0.1", udp_port=4791, rate_bps=None, mtu=1500,
    )  # fmt: skip
    transport = PlannedTransport(path_mtu=1024, verb="write")
    plan = PlanDocument(ports=(port,), ranks=(), transport=transport)
    table = pa.table({"port": pa.array([0, 3], pa.int32())})
    (found,) = check_references(table, "ports", plan)
    assert found == "names port 3, which is not in plan.json"


def test_newer_columns_may_be_missing_and_others_are_required(run: Path) -> None:
    damage(run, "links", lambda table: table.drop_columns(["paused_ns"]))
    assert open_run(run).table("links")["paused_ns"].null_count == len(ODD_LINKS)
    damage(run, "links", lambda table: table.drop_columns(["bytes_after"]))
    with pytest.raises(RunDirectoryError, match="column bytes_after is missing"):
        open_run(run).table("links")


def test_counters_of_switches_that_have_run_for_months_are_allowed() -> None:
    """A port at 400 Gbit/s sends more than 2**56 bytes in 17 days."""
    year_bytes = 365 * 86_400 * 50 * 10**9
    counted = pa.array([year_bytes], pa.int64())
    table = pa.table({"bytes_before": counted, "bytes_after": counted})
    assert list(check_table(table, "links")) == []
    assert bounds("bytes", pa.int64())[1] < year_bytes
