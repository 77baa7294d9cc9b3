"""Values of a run in a real Prometheus, and the queries of dashboards and rules.

Live, when the run has ended, and filled in later from the run directory.
"""

from __future__ import annotations

import re
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from chakram.collectives.ops import CollectiveOp
from chakram.metrics.catalog import ACTIVITIES, RUN_STATES, SERIES, message_size
from chakram.metrics.exporter import open_listener
from chakram.summary.bandwidth import bus_factor
from tests.e2e.runs import chakram, completed, moe, star, write_experiment
from tests.prometheus import prometheus_missing, start_prometheus
from tests.support import REPO_ROOT, require
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from chakram.run_directory.manifest import RunManifest
    from chakram.run_directory.reader import RunResults
    from tests.e2e.runs import Ended
    from tests.prometheus import Prometheus

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by the name of a series and its labels."""

RULES = REPO_ROOT / "dashboards/rules/chakram.yaml"
OF_SCRAPE = {"__name__", "job", "instance"}
LOOK_BACK = "10m"
WINDOW = "2s"
WHOLE_RUN = "10m"
PORTS = {"ports": [0, 1, 2, 3]}
AT_THE_END = re.compile(
    r"chakram_(lost_seconds|critical_path_seconds|run_end_time_seconds)"
    r'|state=~"failed|partial"'
)
"""Series that exist only after the run."""


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("netns")
def test_prometheus_has_the_values_of_a_run_live_at_its_end_and_backfilled(
    tmp_path: Path,
) -> None:
    require("prometheus", prometheus_missing())
    query_files = pytest.importorskip("dashboards.query_files", exc_type=ImportError)
    jobs = [
        moe(4) | {"name": "front", "size_scale": "1/128", "placement": PORTS},
        moe(4)
        | {
            "name": "back",
            "size_scale": "1/512",
            "repeat": "until_others_end",
            "placement": PORTS,
        },
    ]
    experiment = write_experiment(
        tmp_path,
        jobs,
        star(4, rate="40Mbit") | {"switch": "model"},
        iterations={"warmup": 1, "measured": 80},
        transport={"congestion_control": "dcqcn"},
        faults={"packets": [{"action": "drop", "probability": 0.002}]},
        predict=["bound", "simulate"],
    )
    with open_listener("127.0.0.1:0") as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with start_prometheus(
        tmp_path, [address], scrape_interval="250ms", rules=[RULES]
    ) as prometheus:
        # The first scrape takes seconds. Here it finds no endpoint.
        prometheus.wait_for_all(["up"], timeout_s=PATIENCE_S)
        ended = completed(experiment, "--metrics", address)
        series, end_s = last_series(prometheus)
        done, planned = iterations_shown(query_files, prometheus, end_s)
        run_id = ended.results.manifest.run_id
        runs = {"run_a": run_id, "run_b": run_id}
        queries = [
            (query.where, query.measured(runs, window=WINDOW))
            for query in query_files.all_queries()
        ]
        silent = unanswered(prometheus, queries, end_s)
    assert "\n".join(silent) == ""
    results = ended.results
    expected = {
        **of_the_run(results.manifest),
        **of_iterations(results),
        **of_collectives(results),
        **of_flows(results),
        **of_links_and_agents(results),
    }
    assert len(expected) > 60
    found = {each: series.get(each) for each in expected}
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    # The background job has no planned number of iterations.
    assert done == planned == 81
    assert value(series, "chakram_iterations_total", chakram_job="back") > 0

    with filled(tmp_path, ended) as prometheus:
        later, end_s = last_series(prometheus)
        asked = [
            (query.where, with_recorded(query.measured(runs, window=WHOLE_RUN)))
            for query in query_files.all_queries()
        ]
        silent = [
            f"{where}: {expr}"
            for where, expr in asked
            if not prometheus.query(expr, time_s=end_s)
        ]
    assert "\n".join(silent) == ""
    found = {each: later.get(each) for each in expected}
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    # All other series have their last values, except for current rates and times.
    moments = ("_per_second", "chakram_run_start_time", "chakram_run_end_time")
    lacking = {name for name, _ in series} - {name for name, _ in later}
    assert lacking == set()
    for each, number in series.items():
        if not any(text in each[0] for text in moments):
            assert later[each] == pytest.approx(number, rel=1e-6, abs=1e-6), each


def unanswered(
    prometheus: Prometheus, queries: Sequence[tuple[str, str]], end_s: float
) -> list[str]:
    """Return which queries had no answer while the run went, or none at its end."""
    start_s = end_s - 600
    state = 'chakram_run_state{state="running"} == 1'
    found = prometheus.times_answered(state, start_s=start_s, end_s=end_s, step_s=0.25)
    going = {"start_s": min(found), "end_s": max(found), "step_s": 0.25}
    assert max(found) < end_s
    return [
        f"{where}: {expr}"
        for where, expr in queries
        if not (
            (AT_THE_END.search(expr) or prometheus.times_answered(expr, **going))
            and prometheus.query(expr, time_s=end_s)
        )
    ]


def with_recorded(expr: str) -> str:
    """Return a query with the expressions of rules instead of recorded series."""
    document = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for group in document["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                expr = expr.replace(rule["record"], f"({rule['expr']})")
    return expr


@contextmanager
def filled(folder: Path, ended: Ended) -> Iterator[Prometheus]:
    """Run a Prometheus whose data were exported from the run directory."""
    text, data = folder / "exported/run.om", folder / "blocks"
    exported = chakram(
        "export", "openmetrics", ended.directory, "--out", text.parent, runs=ended.runs
    )
    assert exported.code == 0, exported.errors
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", text, data],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with start_prometheus(folder, [], data=data) as prometheus:
        yield prometheus


def last_series(prometheus: Prometheus) -> tuple[Series, float]:
    """Return the last value of every series of Chakram, and when that was.

    A query for now would find nothing, because the endpoint is closed.
    """
    found: Series = {}
    last_s = 0.0
    for item in prometheus.query(f'{{__name__=~"chakram_.+"}}[{LOOK_BACK}]'):
        labels = item["metric"]
        assert labels["job"] == "chakram"
        assert "exported_job" not in labels
        name = labels["__name__"]
        assert set(labels) - OF_SCRAPE - {"le"} == {
            label for label in SERIES[name].label_names if labels.get(label)
        }
        own = {key: text for key, text in labels.items() if key not in OF_SCRAPE}
        time_s, text = item["values"][-1]
        found[name, frozenset(own.items())] = float(text)
        last_s = max(last_s, time_s)
    return found, last_s


def iterations_shown(
    query_files: Any, prometheus: Prometheus, time_s: float
) -> list[float]:
    """Return the iterations that the dashboard showed: done, and planned."""
    shown = []
    for query in query_files.all_queries():
        if query.where == "chakram-run.json: Iterations":
            (item,) = prometheus.query(query.substituted(), time_s=time_s)
            shown.append(float(item["value"][1]))
    return shown


def value(series: Series, name: str, /, **labels: str) -> float:
    """Return the value of the one series that has these labels among others."""
    (found,) = (
        each
        for (known, own), each in series.items()
        if known == name and labels.items() <= dict(own).items()
    )
    return found


def key(
    manifest: RunManifest, name: str, /, **labels: str
) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset({"run_id": manifest.run_id, **labels}.items())


def of_the_run(manifest: RunManifest) -> Series:
    control = manifest.experiment["transport"]["congestion_control"]
    info = {
        "name": "e2e",
        "world": "namespaces",
        "congestion_control": "dcqcn",
        "size_scale": manifest.size_scale,
        "dilation": str(manifest.dilation),
    }
    assert (manifest.name, manifest.world) == (info["name"], info["world"])
    assert info["congestion_control"] in control
    assert manifest.ended_at is not None
    build = {
        "version": manifest.versions["chakram"],
        "python": manifest.versions["python"],
        "compiled": str(manifest.compiled["all_compiled"]).lower(),
    }
    states = {name: int(name == "complete") for name in RUN_STATES}
    assert states[manifest.status] == 1
    return {
        key(manifest, "chakram_run_info", **info): 1,
        ("chakram_build_info", frozenset(build.items())): 1,
        **{
            key(manifest, "chakram_run_state", state=state): number
            for state, number in states.items()
        },
    }


def of_iterations(results: RunResults) -> Series:
    manifest = results.manifest
    expected: Series = {}
    for job, about in manifest.jobs.items():
        records = [record for record in results.ranks() if record.job == job]
        by_number: dict[int, list[Any]] = {}
        for record in records:
            by_number.setdefault(record.iteration, []).append(record)
        whole = [each for each in by_number.values() if len(each) == about["ranks"]]
        durations_ns = [
            max(each.end_ns for each in some) - min(each.start_ns for each in some)
            for some in whole
        ]
        labels = {"chakram_job": job}
        duration = "chakram_iteration_duration_seconds"
        if about["iterations"] is not None:
            name = "chakram_iterations_planned"
            expected[key(manifest, name, **labels)] = about["iterations"]
        expected |= {
            key(manifest, "chakram_iterations_total", **labels): len(whole),
            key(manifest, f"{duration}_count", **labels): len(whole),
            key(manifest, f"{duration}_sum", **labels): sum(durations_ns) * 1e-9,
            **{
                key(
                    manifest, "chakram_rank_seconds_total", activity=activity, **labels
                ): sum(getattr(each, f"{activity}_ns") for each in records) * 1e-9
                for activity in ACTIVITIES
            },
        }
    return expected


def of_collectives(results: RunResults) -> Series:
    manifest = results.manifest
    expected: Series = {}

    def add(name: str, number: float, **labels: str) -> None:
        place = key(manifest, f"chakram_{name}", **labels)
        expected[place] = expected.get(place, 0) + number

    records = results.collectives()
    for record in records:
        if not record.complete:
            continue
        identity = record.identity
        op = {"collective": str(identity.op)}
        kind = {**op, "message_size": message_size(identity.size_bytes)}
        seconds = record.duration_ns * 1e-9
        factor = float(bus_factor(CollectiveOp(identity.op), nranks=identity.nranks))
        add("collectives_total", 1, **kind)
        add("collective_busy_seconds_total", seconds, **kind)
        add("collective_bus_bytes_total", identity.size_bytes * factor, **kind)
        add("collective_duration_seconds_count", 1, **op)
        add("collective_duration_seconds_sum", seconds, **op)
    least = results.bounds()
    by_size: dict[tuple[str, str], dict[object, int]] = {}
    for record in records:
        identity = record.identity
        place = str(identity.op), message_size(identity.size_bytes)
        by_size.setdefault(place, {})[identity.key] = least[identity.key]
    for (op_name, size), times_ns in by_size.items():
        add(
            "predicted_collective_duration_seconds",
            sum(times_ns.values()) / len(times_ns) * 1e-9,
            collective=op_name,
            message_size=size,
            source="bound",
        )
    return expected


def of_flows(results: RunResults) -> Series:
    manifest = results.manifest
    flows = results.table("flows", "collective", "bytes", "fct_ns", "retransmitted")
    rows = flows.to_pylist()
    expected: Series = {
        key(
            manifest,
            "chakram_flows_completed_total",
            agent="local",
            outcome="acknowledged",
        ): len(rows),
        key(
            manifest, "chakram_flows_completed_total", agent="local", outcome="failed"
        ): 0,
    }
    name = "chakram_flow_completion_seconds"
    for op in {row["collective"] for row in rows}:
        times_ns = [row["fct_ns"] for row in rows if row["collective"] == op]
        expected |= {
            key(manifest, f"{name}_count", collective=op): len(times_ns),
            key(manifest, f"{name}_sum", collective=op): sum(times_ns) * 1e-9,
        }
    return expected


def of_links_and_agents(results: RunResults) -> Series:
    manifest = results.manifest
    agent = {"agent": "local"}
    (clock,) = manifest.clocks.values()
    health = manifest.generator["local"]
    links = results.links()
    assert len(links) == 8
    return {
        **{
            key(
                manifest,
                "chakram_link_bytes_total",
                link=each.link,
                direction=each.direction,
            ): each.bytes
            for each in links
        },
        key(manifest, "chakram_samples_dropped_total", **agent): 0,
        key(manifest, "chakram_socket_drops_total", **agent): health.socket_drops,
        key(manifest, "chakram_send_retries_total", **agent): health.send_retries,
        key(
            manifest, "chakram_generator_wait_seconds_total", **agent
        ): health.generator_wait_ns * 1e-9,
        key(
            manifest, "chakram_agent_clock_uncertainty_seconds", **agent
        ): clock.uncertainty_ns * 1e-9,
    }
