"""The catalog of metrics follows its own rules."""

from __future__ import annotations

import re

import pytest
from tools.metrics_reference import reference_page

from chakram.metrics.catalog import (
    AGENT,
    BUILD,
    BY_NAME,
    COUNTER,
    HISTOGRAM,
    INFO,
    MESSAGE_SIZES,
    METRICS,
    RUN,
    SWITCHES,
    Metric,
    max_series,
    message_size,
)
from chakram.records.counter_slots import COUNTER_NAMES, INJECTED, INVALID
from tests.prometheus import (
    MAX_SERIES_OF_SWITCHES,
    MAX_SERIES_PER_AGENT,
    MAX_SERIES_PER_RUN,
)
from tests.support import REPO_ROOT

OF_PROMETHEUS = {"job", "instance"}
"""It gives them to what it scrapes, and what has them gets others: ``exported_job``."""

FORBIDDEN = {"flow", "peer", "qpn", "psn", "src", "dst", "address", "port", "error"}


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"chakram_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == COUNTER)
    assert metric.name.endswith("_info") == (metric.kind == INFO)
    assert metric.kind != HISTOGRAM or metric.name.endswith("_seconds")
    assert not re.search("_(ns|us|ms|gbps|bits|percent)(_|$)", metric.name)
    assert metric.help.endswith(".")
    assert not (FORBIDDEN | OF_PROMETHEUS) & set(metric.label_names)
    assert ("run_id" in metric.label_names) == (metric.scope != BUILD)
    assert ("agent" in metric.label_names) == (metric.scope == AGENT)


def test_series_stay_within_their_budget() -> None:
    assert max_series(AGENT) <= MAX_SERIES_PER_AGENT
    assert max_series(RUN) + max_series(BUILD) <= MAX_SERIES_PER_RUN
    assert max_series(SWITCHES) <= MAX_SERIES_OF_SWITCHES


@pytest.mark.parametrize(
    ("size_bytes", "name"),
    [
        (0, "1KiB"),
        (1024, "1KiB"),
        (1025, "4KiB"),
        (64 << 10, "64KiB"),
        (1 << 20, "1MiB"),
        ((1 << 20) + 1, "4MiB"),
        (256 << 20, "256MiB"),
        (1 << 30, "1GiB"),
        ((1 << 30) + 1, "larger"),
    ],
)
def test_message_sizes_are_bounds(size_bytes: int, name: str) -> None:
    assert message_size(size_bytes) == name


def test_message_sizes_are_few_and_different() -> None:
    assert len(set(MESSAGE_SIZES)) == len(MESSAGE_SIZES) == 12


def test_every_counter_of_the_data_plane_has_a_metric() -> None:
    renamed = {
        "flows_completed": "flows_completed_total",
        "flows_failed": "flows_completed_total",
        "retransmitted_packets_nak": "retransmitted_packets_total",
        "retransmitted_packets_timeout": "retransmitted_packets_total",
        "retransmitted_packets_rnr": "retransmitted_packets_total",
        **{
            f"injected_{kind}": "injected_disturbances_total"
            for kind in INJECTED
            if kind != "drops"
        },
        **{f"invalid_{reason}": "invalid_packets_total" for reason in INVALID},
        "generator_wait_ns": "generator_wait_seconds_total",
        "paused_ns": "paused_seconds_total",
        "cpu_ns": "cpu_seconds_total",
    }
    for name in COUNTER_NAMES:
        assert f"chakram_{renamed.get(name, f'{name}_total')}" in BY_NAME


def test_reference_page_matches_the_catalog() -> None:
    page = REPO_ROOT / "docs/reference/metrics.md"
    assert page.read_text(encoding="utf-8") == reference_page(), (
        f"run `python tools/metrics_reference.py > {page.relative_to(REPO_ROOT)}`"
    )


def test_reference_page_has_the_values_of_a_label_by_metric() -> None:
    page = " ".join(reference_page().split())
    for metric in METRICS:
        for label in metric.own_labels:
            assert label.help in page, (metric.name, label.name)
    assert "`state` of `chakram_queue_pairs`: One of `at_line`" in page
