"""Committed dashboards equal those of the generator, and lint finds mistakes."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram.metrics.catalog import SERIES
from tests.support import REPO_ROOT

lint = pytest.importorskip("dashboards.lint", exc_type=ImportError)
expressions = pytest.importorskip("dashboards.expressions")
live_check = pytest.importorskip("dashboards.live_check")
query_files = pytest.importorskip("dashboards.query_files")

FILES = sorted((REPO_ROOT / "dashboards/grafana").glob("*.json"))
DASHBOARDS: dict[str, Any] = {
    file.stem: json.loads(file.read_text(encoding="utf-8")) for file in FILES
}
RULES: dict[str, Any] = yaml.safe_load(
    (REPO_ROOT / "dashboards/rules/chakram.yaml").read_text(encoding="utf-8")
)
EVERY = pytest.mark.parametrize("name", DASHBOARDS)


def test_committed_files_equal_the_output_of_the_generator() -> None:
    build = pytest.importorskip("dashboards.build", exc_type=ImportError)
    texts: dict[Path, str] = build.texts()
    assert sorted(texts) == FILES
    for file, text in texts.items():
        found = file.read_text(encoding="utf-8")
        assert found == text, "run `python -m dashboards.build`"


def test_lint_accepts_all_dashboards_and_rules() -> None:
    assert list(lint.check_all()) == []


@EVERY
def test_panels_are_numbered_and_do_not_overlap(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    numbers = [panel["id"] for panel in panels]
    assert numbers == list(range(1, len(numbers) + 1))
    covered: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells, panel["title"]
        covered |= cells


@EVERY
def test_titles_and_references_are_unique(name: str) -> None:
    panels = list(query_files.panels_of(DASHBOARDS[name]))
    titles = [panel["title"] for panel in panels]
    assert len(set(titles)) == len(titles)
    for panel in panels:
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


@EVERY
def test_windows_of_rates_are_variables_of_grafana(name: str) -> None:
    for query in query_files.queries_of(DASHBOARDS[name]):
        windows = set(re.findall(r"\[([^\]]*)\]", query.expr))
        assert windows <= {"$__rate_interval", "$__range"}


@EVERY
def test_variables_filter_the_values_of_later_variables(name: str) -> None:
    variables = {item["name"]: item for item in DASHBOARDS[name]["templating"]["list"]}
    assert next(iter(variables)) == "datasource"
    assert set(variables) - {"datasource"} <= set(query_files.VARIABLES)
    for own, variable in list(variables.items())[1:]:
        assert variable["refresh"] == 2
        is_one = own in ("run_a", "run_b")
        assert variable.get("multi", False) == (not is_one)
        assert is_one or variable["allValue"] == ".+"
        found = re.match(
            r"label_values\((\w+)(?:{.*})?, (\w+)\)", variable["definition"]
        )
        assert found is not None
        labels = {*expressions.OF_SCRAPE, *SERIES[found[1]].label_names}
        assert found[2] in labels
        used = re.findall(r"(\w+)=~", variable["definition"])
        assert set(used) <= labels, "the metric has no such label"
    # Queries use only variables of their dashboard.
    text = json.dumps(DASHBOARDS[name]["panels"])
    assert set(re.findall(r"\$(\w+)", text)) - {"__rate_interval", "__range"} <= set(
        variables
    )


@EVERY
def test_dashboards_are_found_by_uid_and_can_be_edited(name: str) -> None:
    assert DASHBOARDS[name]["uid"] == name
    assert DASHBOARDS[name]["editable"] is True
    assert DASHBOARDS[name]["tags"][0] == "chakram"


@EVERY
def test_runs_iterations_and_faults_are_annotated(name: str) -> None:
    found = {
        each["name"]: each["expr"]
        for each in DASHBOARDS[name]["annotations"]["list"]
        if "expr" in each
    }
    assert list(found) == ["Start", "End", "Iterations", "Faults"]
    assert "chakram_iteration_end_time_seconds" in found["Iterations"]
    assert "chakram_injected_drops_total" in found["Faults"]


@EVERY
def test_values_of_the_last_scrape_are_found_by_every_step(name: str) -> None:
    """The endpoint closes then, so a step that only looks at its time misses them."""
    at_the_end = re.compile(
        r"chakram_(lost_seconds|critical_path_seconds|run_end_time_seconds|run_state)"
    )
    for query in query_files.queries_of(DASHBOARDS[name], name):
        expression = expressions.promql.parse(query.substituted())
        for selector, function in expressions.selectors(expression):
            if at_the_end.fullmatch(selector.name):
                assert function == "last_over_time", query.where


def test_goodput_of_a_run_with_two_instances_is_not_added_up() -> None:
    """A run can be scraped, and loaded from its records later."""
    queries = query_files.queries_of(DASHBOARDS["chakram-compare"])
    found = [query.expr for query in queries if query.title == "Goodput"]
    assert len(found) == 2
    assert all(expr.startswith("8 * max(sum by (job, instance) (") for expr in found)


def test_dashboards_with_counters_of_the_fabric_list_only_runs_that_have_them() -> None:
    for name, metric in (
        ("chakram-links", "chakram_link_bytes_total"),
        # Switches that are read have no CPU time.
        ("chakram-switch", "chakram_switch_dropped_packets_total"),
        ("chakram-run", "chakram_run_info"),
    ):
        variables = DASHBOARDS[name]["templating"]["list"]
        (runs,) = (each for each in variables if each["name"] == "run_id")
        assert runs["definition"].startswith(f"label_values({metric}{{")


def test_titles_name_the_fabric_whose_counters_a_dashboard_needs() -> None:
    tags = {name: document["tags"][1] for name, document in DASHBOARDS.items()}
    assert tags == dict.fromkeys(DASHBOARDS, "any fabric") | {
        "chakram-links": "link counters",
        "chakram-switch": "switch counters",
    }
    assert "(namespaces)" in DASHBOARDS["chakram-links"]["title"]
    assert "(switch: model)" in DASHBOARDS["chakram-switch"]["title"]
    rows = [each["title"] for each in DASHBOARDS["chakram-switch"]["panels"]]
    assert rows[0] == "Modeled switches (fabric.switch: model)"


@EVERY
def test_panels_use_one_set_of_colors(name: str) -> None:
    panels_module = pytest.importorskip("dashboards.panels", exc_type=ImportError)
    palette = {
        *(getattr(panels_module, color) for color in ("BLUE", "ORANGE", "GREEN")),
        *(getattr(panels_module, color) for color in ("RED", "GRAY")),
    }
    neutral = {"text", "transparent"}
    for panel in query_files.panels_of(DASHBOARDS[name]):
        if panel["type"] in ("heatmap", "table"):
            continue
        defaults = panel["fieldConfig"]["defaults"]
        is_figure = panel["type"] == "stat"
        mode = "thresholds" if is_figure else "palette-classic-by-name"
        assert defaults["color"]["mode"] == mode, panel["title"]
        steps = defaults.get("thresholds", {}).get("steps", ())
        used = {each["color"] for each in steps}
        used |= set(re.findall(r'"(?:fixedC|c)olor": "([^"]*)"', json.dumps(panel)))
        assert used <= palette | neutral, panel["title"]
    for annotation in DASHBOARDS[name]["annotations"]["list"]:
        if "expr" in annotation:
            assert annotation["iconColor"] in palette


def test_thresholds_equal_the_limits_of_alerts() -> None:
    norms = pytest.importorskip("dashboards.norms")
    limits = {
        rule["alert"]: float(found[1])
        for group in RULES["groups"]
        for rule in group["rules"]
        if "alert" in rule and (found := re.search(r"> ([\d.]+)$", rule["expr"]))
    }
    assert limits["ChakramRetransmissions"] == norms.MAX_RETRANSMITTED_SHARE
    assert limits["ChakramPaused"] == norms.MAX_PAUSED_SHARE
    for name in ("ChakramSamplesDropped", "ChakramSwitchOverloaded"):
        assert limits[name] == norms.ONE_IS_TOO_MANY - 1
    assert norms.MAX_LOSS_SHARE < norms.MAX_RETRANSMITTED_SHARE


# ---- planted mistakes --------------------------------------------------------------


def planted(
    change: Callable[[dict[str, Any]], None], name: str = "chakram-run"
) -> list[str]:
    """Return the problems that lint finds in a dashboard with a mistake."""
    document = copy.deepcopy(DASHBOARDS[name])
    change(document)
    assert document != DASHBOARDS[name]
    found: list[str] = list(lint.check_dashboard(document, "f"))
    return found


def panel(document: dict[str, Any], title: str) -> dict[str, Any]:
    return next(each for each in document["panels"] if each.get("title") == title)


def replace(title: str, old: str, new: str) -> Callable[[dict[str, Any]], None]:
    """Return a function that changes the first query of a panel."""

    def change(document: dict[str, Any]) -> None:
        target = panel(document, title)["targets"][0]
        assert old in target["expr"]
        target["expr"] = target["expr"].replace(old, new)

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            replace("Delivered", "chakram_delivered_bytes_total", "chakram_payload"),
            "f: Delivered: there is no metric chakram_payload",
        ),
        (
            replace("Bus bandwidth", "run_id=~", 'rack=~"3", run_id=~'),
            "f: Bus bandwidth: chakram_collective_bus_bytes_total has no label rack",
        ),
        (
            replace("Send retries", "by (agent)", "by (way)"),
            "f: Send retries: no metric in this query has a label way",
        ),
        (
            replace("Agents", "run_id=~", 'rank="3", run_id=~'),
            "f: Agents: chakram_agent_up has no label rank",
        ),
        (
            replace(
                "Losses and retransmissions",
                "chakram_retransmitted_packets_total",
                "chakram_flows_active",
            ),
            "f: Losses and retransmissions: rate over chakram_flows_active, which is a "
            "gauge",
        ),
        (
            replace("Agents", 'job=~"$job", ', ""),
            "f: Agents: chakram_agent_up is not selected by job",
        ),
        (
            replace("Sent and received", "8 * ", ""),
            "f: Sent and received: is in bytes seconds^-1, and shown as 'bps'",
        ),
        (
            lambda document: panel(document, "Iteration time").pop("title"),
            "has no title",
        ),
        (
            lambda document: panel(document, "Timeouts")["targets"][0].update(
                datasource={"type": "prometheus", "uid": "P1809F7CD0C75ACF3"}
            ),
            "its data source is not the variable datasource",
        ),
        (
            replace("Sent and received", "rate(", "avg_over_time("),
            "chakram_tx_bytes_total is a counter, but is shown without a rate",
        ),
        (
            replace("Timeouts", "sum by", "sum(( by"),
            "f: Timeouts: ",
        ),
        (
            replace("Timeouts", "chakram_ack_timeouts", "chakram_link_bytes"),
            "f: Timeouts: needs link counters, but the dashboard has no such tag",
        ),
        (
            replace("Timeouts", "chakram_ack_timeouts", "chakram_switch_lost_frames"),
            "f: Timeouts: needs switch counters, but the dashboard has no such tag",
        ),
        (
            lambda document: panel(document, "Sent and received")["fieldConfig"][
                "defaults"
            ].update(unit="Bps"),
            "f: Sent and received: only bus bandwidths are shown in bytes per second",
        ),
        (
            lambda document: panel(document, "Timeouts")["fieldConfig"][
                "overrides"
            ].append(
                {
                    "matcher": {"id": "byName", "options": "a"},
                    "properties": [{"id": "custom.axisPlacement", "value": "right"}],
                }
            ),
            "has two axes",
        ),
    ],
    ids=[
        "unknown metric",
        "unknown label of a counter",
        "unknown label to group by",
        "unknown label of a selector",
        "rate over a gauge",
        "no job",
        "wrong unit",
        "no title",
        "data source",
        "counter without rate",
        "syntax",
        "link counters on any fabric",
        "switch counters on any fabric",
        "rate in bytes",
        "two axes",
    ],
)
def test_planted_mistakes_are_found(
    change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    problems = planted(change)
    assert any(problem in each for each in problems), problems


def test_lint_without_its_package_names_the_command_that_installs_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "promql_parser.py").write_text("raise ImportError\n")
    done = subprocess.run(
        [sys.executable, "-m", "dashboards.lint", "--live", "http://127.0.0.1:9"],
        cwd=REPO_ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "dashboards.lint needs the package promql-parser: run make dashboards"
    ]


class RecordedPrometheus:
    """The API of a Prometheus that has scraped one run.

    Args:
        world: Label ``world`` of the run.
        has_switches: Whether the run has modeled switches.
        unanswered: Queries without a result.
    """

    def __init__(
        self, world: str, *, has_switches: bool = False, unanswered: Sequence[str] = ()
    ) -> None:
        self._info = {"run_id": "r", "world": world}
        self._has_switches = has_switches
        self._unanswered = unanswered
        self.asked: list[str] = []

    def __call__(self, path: str, **parameters: str) -> list[dict[str, Any]]:
        expr = parameters["query"]
        samples = [{"metric": self._info, "values": [[100.0, "1"], [160.0, "1"]]}]
        if path == "query":
            is_switch = expr.startswith("chakram_switch")
            return samples if self._has_switches or not is_switch else []
        assert (parameters["start"], parameters["end"]) == ("100.000", "160.000")
        self.asked.append(expr)
        return [] if expr in self._unanswered else samples


def test_live_check_reports_a_query_without_an_answer() -> None:
    queries = list(query_files.queries_of(DASHBOARDS["chakram-run"], "f"))
    variables = dict.fromkeys(("run_id", "run_a", "run_b"), "r")
    unanswered = {
        query.title: query.measured(variables, window="1m")
        for query in queries
        if query.title in ("Timeouts", "Critical path")
    }
    ask = RecordedPrometheus("external", unanswered=list(unanswered.values()))

    problems = list(live_check.check_live(queries, ask))

    needs = "needs a run that has ended, with at most 200,000 messages"
    assert problems == [
        f"f: Critical path: no data for {unanswered['Critical path']} ({needs})",
        f"f: Timeouts: no data for {unanswered['Timeouts']}",
    ]


@pytest.mark.parametrize(
    ("world", "has_switches", "metrics"),
    [
        ("external", False, set()),
        ("loopback", False, set()),
        ("namespaces", False, {"chakram_link_"}),
        ("namespaces", True, {"chakram_link_", "chakram_switch_"}),
    ],
)
def test_live_check_asks_only_for_counters_that_the_fabric_has(
    world: str, has_switches: bool, metrics: set[str]
) -> None:
    ask = RecordedPrometheus(world, has_switches=has_switches)
    assert list(live_check.check_live(query_files.all_queries(), ask)) == []
    found = {
        prefix
        for prefix in ("chakram_link_", "chakram_switch_")
        if any(prefix in expr for expr in ask.asked)
    }
    assert found == metrics


def test_live_check_reports_that_there_is_no_run_with_a_fabric() -> None:
    queries = query_files.all_queries()
    (problem,) = live_check.check_live(queries, lambda path, **parameters: [])
    assert problem == "no run of the last 1d on this Prometheus"
    (problem,) = live_check.check_live(queries, RecordedPrometheus("simulate"))
    assert problem == "run r is a simulation, which has no fabric to check"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("(chakram_agent_up[5m])", "(chakram_agent_gone[5m])", "there is no metric"),
        ("run_id) (rate(chakram_del", "run) (rate(chakram_del", "has a label run"),
        ("rate(chakram_tx_packets", "rate(chakram_flows_active", "which is a gauge"),
        ("severity: critical", "severity: loud", "has no severity"),
    ],
)
def test_planted_mistakes_of_rules_are_found(old: str, new: str, problem: str) -> None:
    file = REPO_ROOT / "dashboards/rules/chakram.yaml"
    text = file.read_text(encoding="utf-8")
    if "flows_active" in new:
        text = text.replace("chakram_tx_packets_total", "chakram_tx_packets")
    assert old in text
    document = yaml.safe_load(text.replace(old, new, 1))
    problems = list(lint.check_rules(document, "f"))
    assert any(problem in each for each in problems), problems


def test_measured_part_of_a_rule_excludes_its_comparison() -> None:
    found = {
        query.title: query.measured({}, window="1m")
        for query in query_files.rules_of(RULES)
    }
    assert found["ChakramAgentDown"] == "last_over_time(chakram_agent_up[5m])"
    goodput = "run:chakram_goodput_bytes_per_second:rate10s"
    assert found["ChakramStalled"] == goodput
    assert "> 0" not in found["ChakramSwitchOverloaded"]
