"""Build the Grafana dashboards as classic dashboard JSON.

``python -m dashboards.build`` writes ``dashboards/grafana/*.json``. These files are
committed, so that Grafana users do not need this module. Tests build the files again
and compare them, check every query (``dashboards.lint``), and run every query on a real
Prometheus.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableRefresh,
    VariableSort,
)

from dashboards.collective_rows import (
    collective_panels,
    flow_panels,
    lost_time_panels,
    run_panels,
)
from dashboards.comparison_rows import BOTH, course_panels, result_panels
from dashboards.fabric_counters import ANY_FABRIC, LINK_COUNTERS, SWITCH_COUNTERS
from dashboards.fabric_rows import link_panels, switch_panels
from dashboards.job_rows import job_panels
from dashboards.panels import BAD, BLUE, GOOD, SOURCE, WARNING
from dashboards.queries import JOB, RUN, final, rate
from dashboards.queue_pair_rows import (
    congestion_panels,
    port_panels,
    queue_pair_panels,
)
from dashboards.transport_rows import generator_panels, transport_panels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dashboards.panels import Panel

FOLDER = Path(__file__).parent / "grafana"

RUN_METRICS = {
    ANY_FABRIC: "chakram_run_info",
    LINK_COUNTERS: "chakram_link_bytes_total",
    # Modeled switches and switches that are read have this metric.
    SWITCH_COUNTERS: "chakram_switch_dropped_packets_total",
}
"""Metric that a run must have to be in a dashboard's list, by the dashboard's needs."""

VARIABLES = {
    "job": ("Scrape job", "job", ""),
    "instance": ("Instance", "instance", ""),
    "run_id": ("Run", "run_id", ""),
    "run_a": ("Run A", "run_id", ""),
    "run_b": ("Run B", "run_id", ""),
    "collective": ("Collective", "collective", "chakram_collectives_total"),
    "chakram_job": ("Job", "chakram_job", "chakram_iterations_total"),
}
"""Variables by name: title, label that has the values, and metric with that label. If
the metric is empty, ``RUN_METRICS`` defines it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Definition of a dashboard.

    Attributes:
        uid: Identifier in Grafana, and name of the file.
        title: Title.
        about: Description.
        variables: Names of variables (see ``VARIABLES``).
        rows: Functions that yield the panels of a row, by the title of the row.
        selector: Selector of the runs that the dashboard shows.
        needs: What a fabric must provide for all panels to show values. This is also a
            tag of the dashboard.
    """

    uid: str
    title: str
    about: str
    variables: tuple[str, ...]
    rows: Mapping[str, Callable[[], Iterator[Panel]]]
    selector: str = RUN
    needs: str = ANY_FABRIC


BOARDS = (
    Board(
        uid="chakram-run",
        title="Chakram run",
        about="One run of Chakram: collectives, lost time, flows, fabric, generator.",
        variables=("job", "instance", "run_id", "collective", "chakram_job"),
        rows={
            "Run": run_panels,
            "Collectives": collective_panels,
            "Lost time": lost_time_panels,
            "Flows": flow_panels,
            "Transport": transport_panels,
            "Generator health": generator_panels,
        },
    ),
    Board(
        uid="chakram-compare",
        title="Chakram: two runs compared",
        about="Two runs of Chakram side by side. The time range must include both.",
        variables=("job", "run_a", "run_b"),
        rows={"Whole runs": result_panels, "Over time": course_panels},
        selector=BOTH,
    ),
    Board(
        uid="chakram-queue-pairs",
        title="Chakram: queue pairs and ports",
        about=(
            "Rates, retransmissions and round trips of queue pairs, congestion as seen "
            "by the endpoints, and counters of ports."
        ),
        variables=("job", "instance", "run_id"),
        rows={
            "Queue pairs": queue_pair_panels,
            "Congestion at the endpoints": congestion_panels,
            "Ports, by host": port_panels,
        },
    ),
    Board(
        uid="chakram-jobs",
        title="Chakram: jobs",
        about="The jobs of a run side by side.",
        variables=("job", "instance", "run_id", "chakram_job"),
        rows={"Jobs": job_panels},
    ),
    Board(
        uid="chakram-links",
        title="Chakram: links (namespaces)",
        about=(
            "Links of a lab, or at switches that are read. Lists only runs with "
            "fabric.kind: namespaces or fabric.telemetry."
        ),
        variables=("job", "instance", "run_id"),
        rows={"Links (fabric.kind: namespaces)": link_panels},
        needs=LINK_COUNTERS,
    ),
    Board(
        uid="chakram-switch",
        title="Chakram: modeled switches (switch: model)",
        about=(
            "Queues, marks, pauses and drops of modeled switches, and of switches that "
            "are read. Lists only runs with fabric.switch: model or fabric.telemetry."
        ),
        variables=("job", "instance", "run_id"),
        rows={"Modeled switches (fabric.switch: model)": switch_panels},
        needs=SWITCH_COUNTERS,
    ),
)


def add_variables(board: dashboard.Dashboard, of: Board) -> None:
    """Add the variables. Earlier variables filter the values of later ones.

    Variables after the run do not filter others, because only some metrics have their
    labels.
    """
    board.with_variable(
        dashboard.DatasourceVariable("datasource")
        .label("Data source")
        .type("prometheus")
    )
    chosen: list[str] = []
    for name in of.variables:
        title, label, own_metric = VARIABLES[name]
        metric = own_metric or RUN_METRICS[of.needs]
        selector = f"{{{', '.join(chosen)}}}" if chosen else ""
        is_one = name.startswith("run_") and name != "run_id"
        variable = (
            dashboard.QueryVariable(name)
            .label(title)
            .datasource(SOURCE)
            .query(
                {
                    "qryType": 1,
                    "query": f"label_values({metric}{selector}, {label})",
                    "refId": f"variable-{name}",
                }
            )
            .definition(f"label_values({metric}{selector}, {label})")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
        )
        if not is_one:
            variable = variable.multi(True).include_all(True).all_value(".+")
            if not own_metric:
                chosen.append(f'{label}=~"${name}"')
        board.with_variable(variable)


def add_annotations(board: dashboard.Dashboard, of: Board) -> None:
    """Add annotations: start and end of runs, ends of iterations, and injected faults.

    If the value of a gauge is a time, the annotation is at that time. A run serves its
    end for one scrape only, so each step looks back to the step before.
    """
    iterations = JOB if "chakram_job" in of.variables else of.selector
    times = (
        ("Start", GOOD, "chakram_run_start_time_seconds", of.selector),
        ("End", BAD, "chakram_run_end_time_seconds", of.selector),
        ("Iterations", BLUE, "chakram_iteration_end_time_seconds", iterations),
    )
    for name, color, metric, selector in times:
        what = "Iteration of {{chakram_job}}" if name == "Iterations" else name
        board.annotation(
            _annotation(name, color, f"{final(metric, selector)} * 1000")
            .enable(name != "Iterations")
            .use_value_for_time(True)
            .title_format(f"{what} of run {{{{run_id}}}}")
        )
    disturbed = " + ".join(
        f"sum by (run_id) ({rate(f'chakram_injected_{what}_total', of.selector)})"
        for what in ("drops", "disturbances")
    )
    board.annotation(
        _annotation("Faults", WARNING, f"({disturbed}) > 0")
        .enable(True)
        .title_format("Packets disturbed by injected faults in run {{run_id}}")
    )


def _annotation(name: str, color: str, expr: str) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .icon_color(color)
        .expr(expr)
    )


def build(of: Board) -> dict[str, Any]:
    """Return a dashboard as plain JSON values, with all panels numbered."""
    board = (
        dashboard.Dashboard(of.title)
        .uid(of.uid)
        .description(of.about)
        .tags(["chakram", of.needs])
        .editable()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-5m", "now")
        .refresh("5s")
        .timepicker(dashboard.TimePicker().refresh_intervals(["1s", "5s", "10s", "1m"]))
        .link(
            dashboard.DashboardLink("Chakram")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["chakram"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    add_variables(board, of)
    add_annotations(board, of)
    for title, panels in of.rows.items():
        board.with_row(dashboard.Row(title))
        for panel in panels():
            board.with_panel(panel)
    document: dict[str, Any] = json.loads(JSONEncoder().encode(board.build()))
    # The library does not number panels, but links and annotations need numbers.
    number = 0
    for panel in document["panels"]:
        for own in (panel, *panel.get("panels", ())):
            number += 1
            own["id"] = number
    return document


def texts() -> dict[Path, str]:
    """Return the contents of the dashboard files by path."""
    return {
        FOLDER / f"{each.uid}.json": json.dumps(build(each), indent=2, sort_keys=True)
        + "\n"
        for each in BOARDS
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in texts().items():
        file.write_text(text, encoding="utf-8")
