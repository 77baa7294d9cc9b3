"""Runs without progress: the watchdog names the waiting ranks."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from chakram.run_directory.manifest import PARTIAL
from tests.e2e.endings import check_nothing_is_left
from tests.e2e.processes import SHARD, RunProcess, gone
from tests.e2e.runs import fabric, moe, run, star, write_experiment

if TYPE_CHECKING:
    from pathlib import Path

RUN_FAILED = 4

PATIENT = {"retry_limit": 1000, "retransmit_timeout": "50ms"}
"""A transport that does not give up before the watchdog does."""

WAITS = re.compile(
    r"rank \d+: \w+ \d+ of group '[\w-]+' in iteration \d+ "
    r"(waits for .* from rank \d+|has \d+ message\(s\) that rank \d+ does not ack)"
)


@pytest.mark.parametrize(
    "kind",
    ["namespaces", pytest.param("loopback", marks=pytest.mark.soak)],
    indirect=True,
)
def test_watchdog_names_the_waiting_ranks(tmp_path: Path, kind: str) -> None:
    experiment = write_experiment(
        tmp_path,
        [moe(4)],
        fabric(kind, 4),
        faults={"drop": 0.999},
        transport=PATIENT,
        hang_timeout="1500ms",
    )

    ended = run(experiment)

    assert ended.code == RUN_FAILED
    assert ended.sentence.startswith("run: no progress for 1.5 s: job moe rank ")
    assert WAITS.search(ended.sentence)
    assert ended.results.manifest.status == PARTIAL
    assert ended.results.manifest.reason == ended.sentence


@pytest.mark.usefixtures("netns")
def test_a_frozen_rank_is_named_by_its_peers(tmp_path: Path, state_root: Path) -> None:
    experiment = write_experiment(
        tmp_path,
        [moe(4) | {"size_scale": "1/16"}],
        star(4, rate="20Mbit"),
        iterations={"warmup": 0, "measured": 1_000_000},
        agents={"shards": 2},
        transport=PATIENT,
        hang_timeout="2s",
    )
    with RunProcess(experiment) as process:
        process.wait_for_records()
        family = process.family()
        frozen = process.member(SHARD)

        frozen.signal(signal.SIGSTOP)

        ended = process.wait()
        assert gone(family)
    assert ended.code == RUN_FAILED
    assert ended.sentence.startswith("run: no progress for 2 s: job moe rank ")
    assert WAITS.search(ended.sentence)
    check_nothing_is_left(state_root)
    results = ended.results
    assert results.manifest.status == PARTIAL
    assert any(record.complete for record in results.collectives())


@pytest.mark.parametrize(
    "kind",
    ["loopback", pytest.param("namespaces", marks=pytest.mark.soak)],
    indirect=True,
)
def test_a_transport_that_gives_up_names_its_peer(tmp_path: Path, kind: str) -> None:
    experiment = write_experiment(
        tmp_path,
        [moe(4)],
        fabric(kind, 4),
        faults={"drop": 0.999},
        transport={"retry_limit": 2, "retransmit_timeout": "10ms"},
    )

    ended = run(experiment)

    assert ended.code == RUN_FAILED
    assert re.match(
        r"run: agent local: job moe rank \d: the queue pair to rank \d is in error: "
        "gave up after 2 retries: ",
        ended.sentence,
    )
    assert ended.results.manifest.status == PARTIAL
    # No flow has ended, and yet packets were sent again.
    summary = ended.results.summary()
    assert summary.retransmitted >= 2
    assert summary.traffic is not None
    assert summary.traffic.for_timeout >= 2
    assert re.search(r"^# Retransmitted: .* after \d+ timeouts, ", ended.output, re.M)


def test_run_ends_at_its_time_limit(tmp_path: Path) -> None:
    experiment = write_experiment(
        tmp_path,
        [moe(4)],
        fabric("loopback", 4),
        iterations={"warmup": 0, "measured": 1_000_000},
        stop_if={"duration": "300ms"},
    )

    ended = run(experiment)

    assert ended.code == RUN_FAILED
    assert ended.sentence == "run: stop_if.duration has elapsed"
    results = ended.results
    assert results.manifest.status == PARTIAL
    assert any(record.complete for record in results.collectives())
