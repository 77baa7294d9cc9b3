"""Builds the Grafana dashboard "Chakram run" as classic dashboard JSON.

``python -m dashboards.build`` writes ``dashboards/grafana/chakram-run.json``, which is
committed: who runs Grafana needs nothing of this.  Tests build it again and compare,
check every query against the metric catalogue, and run every query against a real
Prometheus.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    VariableRefresh,
    VariableSort,
)

from dashboards.panels import SOURCE
from dashboards.queries import RUN
from dashboards.wire_rows import add_generator, add_transport
from dashboards.work_rows import add_collectives, add_flows, add_run

FOLDER = Path(__file__).parent / "grafana"
FILE = FOLDER / "chakram-run.json"
UID = "chakram-run"
TITLE = "Chakram run"


def add_variables(board: dashboard.Dashboard) -> None:
    """Add the variables, each asking only for what the ones before allow.

    Those that come after the run are labels of some metrics only: no other can ask for
    them.
    """
    board.with_variable(
        dashboard.DatasourceVariable("datasource")
        .label("Data source")
        .type("prometheus")
    )
    chosen: list[str] = []
    for name, label, metric in (
        ("instance", "Instance", "chakram_run_info"),
        ("run_id", "Run", "chakram_run_info"),
        ("collective", "Collective", "chakram_collectives_total"),
        ("chakram_job", "Job", "chakram_iterations_total"),
    ):
        selector = f"{{{', '.join(chosen)}}}" if chosen else ""
        board.with_variable(
            dashboard.QueryVariable(name)
            .label(label)
            .datasource(SOURCE)
            .query(
                {
                    "qryType": 1,
                    "query": f"label_values({metric}{selector}, {name})",
                    "refId": f"variable-{name}",
                }
            )
            .definition(f"label_values({metric}{selector}, {name})")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".+")
        )
        chosen += [f'{name}=~"${name}"'] if metric == "chakram_run_info" else []


def build() -> dict[str, Any]:
    """Return the dashboard as plain JSON values, all panels numbered."""
    board = (
        dashboard.Dashboard(TITLE)
        .uid(UID)
        .description("One run of Chakram: collectives, flows, fabric, generator.")
        .tags(["chakram"])
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-5m", "now")
        .refresh("5s")
        .timepicker(dashboard.TimePicker().refresh_intervals(["1s", "5s", "10s", "1m"]))
    )
    add_variables(board)
    for name, metric, color in (
        ("Start", "chakram_run_start_time_seconds", "green"),
        ("End", "chakram_run_end_time_seconds", "red"),
    ):
        board.annotation(
            dashboard.AnnotationQuery()
            .name(name)
            .datasource(SOURCE)
            .enable(True)
            .icon_color(color)
            .expr(f"{metric}{{{RUN}}} * 1000")
            .use_value_for_time(True)
            .title_format(f"{name} of run {{{{run_id}}}}")
        )
    for add in (add_run, add_collectives, add_flows, add_transport, add_generator):
        add(board)
    document: dict[str, Any] = json.loads(JSONEncoder().encode(board.build()))
    # The library leaves panels without numbers; links and annotations need them.
    number = 0
    for panel in document["panels"]:
        for own in (panel, *panel.get("panels", ())):
            number += 1
            own["id"] = number
    return document


def text() -> str:
    """Return the file's contents."""
    return json.dumps(build(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    FILE.write_text(text(), encoding="utf-8")
