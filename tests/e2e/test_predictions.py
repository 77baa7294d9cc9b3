"""A run compared with the simulation of the same experiment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.runs import completed, moe, star, write_experiment
from tests.e2e.traffic_totals import check_complete

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.run_directory.reader import RunResults
    from tests.e2e.runs import Ended

pytestmark = pytest.mark.usefixtures("netns")


def identities(results: RunResults) -> dict[object, object]:
    """Return all properties of every collective except its times."""
    return {
        (record.iteration, record.identity.key): (
            record.identity,
            record.measured,
            record.shares,
            record.sent_bytes,
            record.packets,
        )
        for record in results.collectives()
    }


def flows(results: RunResults) -> set[tuple[object, ...]]:
    """Return all properties of every message except its times."""
    names = ("iteration", "job", "group", "k", "collective", "step", "channel")
    more = ("src", "dst", "qpn", "bytes", "packets")
    rows = results.table("flows", *names, *more).to_pylist()
    return {tuple(row[name] for name in (*names, *more)) for row in rows}


def host_bytes(results: RunResults) -> dict[tuple[str, str], int]:
    """Return the bytes on host links, by link and direction."""
    return {
        (link.link, link.direction): link.bytes
        for link in results.links()
        if link.kind == "host"
    }


def test_simulation_matches_the_run(tmp_path: Path) -> None:
    experiment = write_experiment(
        tmp_path,
        [moe(4)],
        star(4, rate="1Gbit"),
        iterations={"warmup": 1, "measured": 1},
        predict=["bound", "simulate"],
        agents={"shards": 1},
    )

    ended = completed(experiment)
    check_table(ended)
    ran = ended.results
    (tmp_path / "simulated").mkdir()
    copy = tmp_path / "simulated" / experiment.name
    copy.write_bytes(experiment.read_bytes())
    simulated = completed(copy, "--runs", copy.parent / "runs", verb="simulate").results

    for results, world in ((ran, "namespaces"), (simulated, "simulate")):
        assert results.manifest.world == world
        check_complete(results, ranks=4, iterations=2)
    assert identities(ran) == identities(simulated)
    assert flows(ran) == flows(simulated)
    assert ran.bounds() == simulated.bounds()
    assert ran.ceilings() == simulated.ceilings()
    predictions = ran.predictions()
    # Hosts with long delays have a range, whose ends have names with a number.
    is_range = any(
        "simulated times are ranges" in each for each in ran.manifest.banners
    )
    assert set(predictions) == (
        {"simulate.0", "simulate.1"} if is_range else {"simulate"}
    )
    # The first one is without delays. The other one has no barriers.
    assert set(predictions[min(predictions)]) == set(ran.bounds())
    # Nothing is faster than its links, but for the little that leaves at once.
    ceilings = ran.ceilings()
    for record in ran.collectives():
        assert record.duration_ns > 0.9 * ceilings.get(record.identity.key, 0)
    # Counted by the kernel, once for each burst, and by the simulator.
    assert host_bytes(ran) == pytest.approx(host_bytes(simulated), rel=0.05)


def test_results_are_printed_as_json(tmp_path: Path) -> None:
    experiment = write_experiment(
        tmp_path,
        [moe(4)],
        star(4, rate="1Gbit"),
        predict=["bound", "simulate"],
    )

    ended = completed(experiment, "--json")

    assert ended.errors == ""
    document = json.loads(ended.output)
    assert document["directory"] == str(ended.directory)
    assert document["complete"] is True
    assert document["error"] is None
    assert document["run"]["status"] == "complete"
    summary = ended.results.summary()
    found = {(row["collective"], row["size"]): row for row in document["results"]}
    assert {op for op, _ in found} >= {"all_reduce", "all_to_all"}
    assert len(found) == len(summary.rows)
    for row in summary.rows:
        shown = found[str(row.op), row.size_bytes]
        assert shown["time_ns"] == row.time_ns > 0
        assert shown["bound_ns"] == row.bound_ns
        # A burst of a lab is ahead of its rate: a barrier of empty messages needs none.
        assert row.bound_ns or row.op == "barrier"
        assert shown["predictions"].keys() == {"simulate"}


def check_table(ended: Ended) -> None:
    """Assert that results are printed as a table."""
    rows = [line.split() for line in ended.output.splitlines()]
    sizes = {row[0] for row in rows if row and row[0].isdigit()}
    summary = ended.results.summary()
    assert sizes == {str(row.size_bytes) for row in summary.rows}
    for op in {row.op for row in summary.rows}:
        assert f"# {op}: " in ended.output
    table, _, answer = ended.output.partition(
        f"# Run directory: {ended.directory}\n# Run complete.\n"
    )
    assert table
    assert answer.startswith("#\n# An iteration ")
