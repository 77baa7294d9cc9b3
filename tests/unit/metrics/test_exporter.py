"""Metrics as OpenMetrics text, from values set by hand."""

from __future__ import annotations

import re

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ConfigError, EnvironmentProblem
from chakram.metrics.exporter import (
    BOUNDS,
    SnapshotCollector,
    exposition,
    open_listener,
)
from chakram.metrics.state import MetricsState
from chakram.records.counter_slots import TOTAL_SLOTS, fct_slot, fct_sum_slot, slot


def lines_of(state: MetricsState, name: str) -> list[str]:
    return [line for line in exposition(state).splitlines() if line.startswith(name)]


def test_every_state_is_exported_and_text_ends_correctly() -> None:
    state = MetricsState("r1")
    state.set_state("running")
    assert lines_of(state, "chakram_run_state{") == [
        f'chakram_run_state{{run_id="r1",state="{name}"}} {value}'
        for name, value in (
            ("preparing", 0.0), ("running", 1.0), ("complete", 0.0), ("partial", 0.0),
            ("failed", 0.0), ("killed", 0.0),
        )
    ]  # fmt: skip
    assert exposition(state).endswith("# EOF\n")


def test_histograms_are_cumulative_with_their_sum() -> None:
    counters = [0] * TOTAL_SLOTS
    op = CollectiveOp.ALL_REDUCE
    # Two up to 1 us, three up to 4 us, one beyond 67.1 s.
    for bucket, count in ((0, 2), (2, 3), (len(BOUNDS) - 1, 1)):
        counters[fct_slot(op, bucket)] = count
    counters[fct_sum_slot(op)] = 70_000_000_000
    counters[slot("cpu_ns")] = 1_500_000_000
    state = MetricsState("r1")
    state.set_counters("a", counters)
    lines = lines_of(state, "chakram_flow_completion_seconds_bucket{")
    own = [line for line in lines if 'collective="all_reduce"' in line]
    found = {
        re.findall(r'le="(.*?)"', line)[0]: float(line.split()[-1]) for line in own
    }
    assert len(found) == len(BOUNDS) == 28
    assert BOUNDS[:3] == ("1e-06", "2e-06", "4e-06")
    assert BOUNDS[-2:] == ("67.108864", "+Inf")
    assert [found[each] for each in BOUNDS[:4]] == [2, 2, 5, 5]
    assert (found["67.108864"], found["+Inf"]) == (5, 6)
    (total,) = [
        line
        for line in lines_of(state, "chakram_flow_completion_seconds_sum{")
        if 'collective="all_reduce"' in line
    ]
    assert float(total.split()[-1]) == 70
    (cpu,) = lines_of(state, "chakram_cpu_seconds_total{")
    assert float(cpu.split()[-1]) == 1.5


def test_properties_are_an_info_metric_without_unknown_values() -> None:
    text = exposition(MetricsState("r1"))
    assert "# TYPE chakram_run_state gauge" in text
    assert "# TYPE chakram_flow_completion_seconds" not in text
    assert "chakram_run_info" not in text


def test_scrape_returns_current_values() -> None:
    state = MetricsState("r1")
    asked: list[str] = []

    def refresh() -> None:
        asked.append("again")
        state.set_state("complete")

    collector = SnapshotCollector(state, refresh)
    assert asked == []
    families = {family.name: family for family in collector.collect()}
    assert asked == ["again"]
    (now,) = [
        sample.labels["state"]
        for sample in families["chakram_run_state"].samples
        if sample.value
    ]
    assert now == "complete"
    assert list(collector.describe()) == []


@pytest.mark.parametrize(
    "listen", ["", "127.0.0.1", "9464", "127.0.0.1:", "127.0.0.1:x", ":65536", "a:-1"]
)
def test_invalid_address_and_port_are_refused(listen: str) -> None:
    with pytest.raises(ConfigError, match="is not an address with a port"):
        open_listener(listen)


@pytest.mark.parametrize("name", ["..", "a" * 64])
def test_names_with_empty_or_long_parts_are_refused(name: str) -> None:
    with pytest.raises(EnvironmentProblem, match="no address is known for the name"):
        open_listener(f"{name}:9464")
