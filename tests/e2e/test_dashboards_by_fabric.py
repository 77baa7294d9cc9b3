"""A fabric type answers the dashboard queries whose data it provides, and no others.

``test_scraped_run.py`` does the same with modeled switches, which answer all queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.metrics.exporter import open_listener
from tests.e2e.runs import completed, moe, star, write_experiment
from tests.prometheus import prometheus_missing, start_prometheus
from tests.support import REPO_ROOT, require
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.hosts import Hosts

fabric_counters = pytest.importorskip("dashboards.fabric_counters")
live_check = pytest.importorskip("dashboards.live_check")
query_files = pytest.importorskip("dashboards.query_files", exc_type=ImportError)

RULES = REPO_ROOT / "dashboards/rules/chakram.yaml"
ADDRESS = "127.0.0.1:9464"
"""Address of metrics; every test has its own network."""

LOCAL_FABRICS: dict[str, dict[str, Any]] = {
    "loopback": {"kind": "loopback", "rate": "40Mbit"},
    "namespaces": star(4, rate="40Mbit"),
}


def experiment_on(fabric: dict[str, Any], folder: Path) -> Path:
    """Write an experiment of a few seconds that uses all features of dashboards."""
    return write_experiment(
        folder,
        [moe(4) | {"name": "front", "size_scale": "1/128"}],
        fabric,
        iterations={"warmup": 1, "measured": 80},
        transport={"congestion_control": "dcqcn"},
        faults={"packets": [{"action": "drop", "probability": 0.002}]},
        predict=["bound", "simulate"],
    )


def answers(folder: Path, run: Callable[[str], object]) -> tuple[set[str], list[str]]:
    """Run an experiment while a Prometheus scrapes it.

    Args:
        folder: Folder for the data of the Prometheus.
        run: Function that runs the experiment and serves its metrics at an address.

    Returns:
        The queries with an answer during the run, and the problems that
        ``dashboards.lint --live`` prints.
    """
    # A port from the ephemeral range may be taken by a connection of Prometheus.
    with open_listener(ADDRESS):
        address = ADDRESS
    with start_prometheus(
        folder, [address], scrape_interval="250ms", rules=[RULES]
    ) as prometheus:
        # The first scrape takes seconds. Here it finds no endpoint.
        prometheus.wait_for_all(["up"], timeout_s=PATIENCE_S)
        run(address)
        ask = live_check.api_of(prometheus.url)
        observed = live_check.latest_run(ask)
        variables = dict.fromkeys(("run_a", "run_b"), observed.run_id)
        queries = query_files.all_queries()
        expressions = {
            f"{query.where}: {query.expr}": query.measured(variables, window="2s")
            for query in queries
        }
        answered = {
            name
            for name, expr in expressions.items()
            if live_check.is_answered(expr, observed, ask)
        }
        return answered, list(live_check.check_live(queries, ask))


def answerable(fabric: str) -> set[str]:
    """Return the queries whose data a fabric type provides.

    Queries with ``vector(0)`` have an answer everywhere.
    """
    provided = fabric_counters.PROVIDED[fabric]
    return {
        f"{query.where}: {query.expr}"
        for query in query_files.all_queries()
        if query.needs <= provided or "vector(0)" in query.expr
    }


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("netns")
@pytest.mark.parametrize(
    "fabric",
    [
        pytest.param("loopback", marks=pytest.mark.soak),
        # A scraped run of a lab answers all queries in each check.
        pytest.param("namespaces", marks=pytest.mark.soak),
    ],
)
def test_local_fabric_answers_exactly_the_queries_whose_data_it_provides(
    fabric: str, tmp_path: Path
) -> None:
    require("prometheus", prometheus_missing())
    experiment = experiment_on(LOCAL_FABRICS[fabric], tmp_path)

    answered, problems = answers(
        tmp_path, lambda address: completed(experiment, "--metrics", address)
    )

    assert answered == answerable(fabric)
    assert problems == []


@pytest.mark.timeout(300)
def test_real_hosts_answer_exactly_the_queries_whose_data_they_provide(
    found: Hosts, tmp_path: Path
) -> None:
    require("prometheus", prometheus_missing())
    fabric = found.fabric(
        defaults={"rate": "40Mbit"},
        topology={"single_switch": {"hosts": 4}},
        links={"host": {"rate": "40Mbit"}},
    )
    experiment = experiment_on(fabric, tmp_path)

    def run(address: str) -> None:
        ended = found.chakram(
            "run", experiment, "--metrics", address, experiment=experiment
        )
        assert ended.code == 0, ended.errors

    # The controller serves the metrics on the loopback interface of its host.
    answered, problems = run_in_namespace(found.namespace("c"), answers, tmp_path, run)

    assert answered == answerable("external")
    assert problems == []
