"""Sampling of ports and queue pairs: content, times and limits."""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest

from chakram._compiled import status
from chakram.plan.plan import AgentPlan, RunSettings
from chakram.records.counter_definitions import QueuePairStatistics, counters_of
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS
from chakram.replay import samples
from chakram_agent import counter_updates
from chakram_agent.counter_updates import Sampler
from tests.made_plans import collective, world_plan
from tests.port_plans import endpoints_of

BIN_NS = 10_000_000


def made(nranks: int = 2) -> tuple[Any, AgentPlan]:
    """Return a data plane without wires, and its endpoints."""
    plan, _ = world_plan(
        [collective("all_gather", 8)],
        nranks=nranks,
        rate_bps=None,
        settings=RunSettings(warmup=0, measured=2),
    )
    (agent,) = plan.agents
    lines = [
        SimpleNamespace(
            endpoint=endpoint,
            port=SimpleNamespace(socket_drops=3, send_retries=4),
            received_bytes=50,
        )
        for endpoint in endpoints_of(plan)
    ]
    return SimpleNamespace(lines=lines), agent


def rows(values: Any, fields: tuple[str, ...]) -> list[dict[str, int]]:
    width = len(fields)
    return [
        dict(zip(fields, values[start : start + width], strict=True))
        for start in range(0, len(values), width)
    ]


def send(plane: Any, now_ns: int) -> None:
    """Let all endpoints send their data without a receiver."""
    for line in plane.lines:
        line.endpoint.arm(now_ns)
        line.endpoint.advance(now_ns)
        while line.endpoint.engine.next_burst(now_ns) is not None:
            pass


def test_changed_values_are_sampled_once_per_bin() -> None:
    plane, plan = made()
    sampler = Sampler(plane, plan, bin_ns=BIN_NS)
    sampler.turn(0)
    sampler.turn(1)
    assert rows(sampler.rows.take().queue_pairs, QUEUE_PAIR_FIELDS) == []
    send(plane, 1)
    sampler.turn(BIN_NS - 1)
    assert len(sampler.rows) == 0
    sampler.turn(BIN_NS)
    sampler.turn(BIN_NS + 1)
    taken = sampler.rows.take()

    pairs = rows(taken.queue_pairs, QUEUE_PAIR_FIELDS)
    # One in each turn, so that packets need not wait for all of them.
    assert [(row["rank"], row["peer"]) for row in pairs] == [(0, 1), (1, 0)]
    assert [row["time_ns"] for row in pairs] == [BIN_NS, BIN_NS + 1]
    for row in pairs:
        assert (row["data_frames_tx"], row["message_tx"], row["tx_bytes"]) == (1, 1, 8)
        assert (row["rate_bps"], row["alpha"]) == (0, -1)
    ports = rows(taken.ports, PORT_FIELDS)
    assert [row["port"] for row in ports] == [0, 1]
    assert {row["tx_packets"] for row in ports} == {1}
    assert {row["rx_bytes"] for row in ports} == {50}
    assert {(row["socket_drops"], row["send_retries"]) for row in ports} == {(3, 4)}
    sampler.turn(2 * BIN_NS)
    sampler.turn(2 * BIN_NS + 1)
    assert len(sampler.rows) == 0


def test_samples_that_did_not_fit_into_a_bin_follow_in_the_next() -> None:
    plane, plan = made()
    sampler = Sampler(plane, plan, bin_ns=BIN_NS)
    send(plane, 1)
    sampler.turn(0)
    sampler.turn(BIN_NS)

    pairs = rows(sampler.rows.queue_pairs, QUEUE_PAIR_FIELDS)
    assert [(row["time_ns"], row["rank"]) for row in pairs] == [(0, 0), (BIN_NS, 1)]
    assert len(rows(sampler.rows.ports, PORT_FIELDS)) == 2


def test_final_sample_includes_everything() -> None:
    plane, plan = made()
    sampler = Sampler(plane, plan, bin_ns=BIN_NS)
    sampler.turn(0)
    send(plane, 1)
    sampler.finish(2)

    assert len(rows(sampler.rows.queue_pairs, QUEUE_PAIR_FIELDS)) == 2


def test_everything_is_sampled_once_at_the_end_without_bins() -> None:
    plane, plan = made()
    sampler = Sampler(plane, plan, bin_ns=0)
    send(plane, 1)
    sampler.turn(BIN_NS)
    assert len(sampler.rows) == 0
    sampler.finish(2 * BIN_NS)

    taken = rows(sampler.rows.queue_pairs, QUEUE_PAIR_FIELDS)
    assert [row["time_ns"] for row in taken] == [2 * BIN_NS] * 2
    assert len(rows(sampler.rows.ports, PORT_FIELDS)) == 2


def test_queue_pairs_are_sampled_round_robin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_updates, "ROWS_PER_BIN", 1)
    plane, plan = made()
    sampler = Sampler(plane, plan, bin_ns=BIN_NS)
    send(plane, 1)
    seen = []
    for turn in range(1, 4):
        sampler.turn(turn * BIN_NS)
        taken = rows(sampler.rows.take().queue_pairs, QUEUE_PAIR_FIELDS)
        seen += [row["rank"] for row in taken]

    assert sorted(seen) == [0, 1]


def test_skipped_queue_pairs_are_sampled_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counter_updates, "ROWS_PER_BIN", 1)
    plane, plan = made(4)
    sampler = Sampler(plane, plan, bin_ns=BIN_NS)
    send(plane, 1)
    seen = []
    for turn in range(1, 5):
        sampler.turn(turn * BIN_NS)
        taken = rows(sampler.rows.take().queue_pairs, QUEUE_PAIR_FIELDS)
        seen += [row["rank"] for row in taken]

    assert seen == sorted(seen)


def test_row_of_a_queue_pair_equals_its_snapshot() -> None:
    plane, plan = made()
    sampler = Sampler(plane, plan, bin_ns=BIN_NS)
    send(plane, 1)
    pairs = [
        pair for line in plane.lines for pair in line.endpoint.engine.queue_pairs()
    ]
    if not status().is_compiled():  # compiled counters are read-only
        for number, each in enumerate(counters_of(QueuePairStatistics), 100):
            *inner, name = f"{each.part}.{each.reads}".split(".")
            setattr(attrgetter(".".join(inner))(pairs[0]), name, number)
    sampler.finish(BIN_NS)
    expected = [
        samples.queue_pair_row(BIN_NS, rank, 1 - rank, pair.qpn, pair.statistics())
        for rank, pair in enumerate(pairs)
    ]
    assert sampler.rows.queue_pairs.tolist() == [n for row in expected for n in row]


def test_bins_get_longer_when_rows_get_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "ROWS_PER_BIN_LENGTH", 4)
    plane, plan = made()
    sampler = Sampler(plane, plan, bin_ns=BIN_NS)
    times = []
    for turn in range(60):
        plane.lines[0].received_bytes += 1
        sampler.turn(turn * BIN_NS)
        times += [
            row["time_ns"] for row in rows(sampler.rows.take().ports, PORT_FIELDS)
        ]

    gaps = sorted({(b - a) // BIN_NS for a, b in pairwise(times)})
    assert gaps[:4] == [0, 1, 2, 4]
    assert max(gaps) >= 8
