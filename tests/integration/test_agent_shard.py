"""A single shard, driven over its pipe, with ports in memory."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from chakram.control.event_codec import decode_progress, decode_rows
from chakram.control.plan_codec import encode_plan
from chakram.control.protobuf_messages import pb
from chakram.foundation.errors import RunFailed
from chakram.plan.plan import AgentPlan, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.records.counter_slots import slot
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS, RecordRows
from chakram_agent import pipe as pipe_module
from chakram_agent import shard as shard_module
from chakram_agent.hang_watchdog import LAPSED, LEASE_NS, LEASE_SENTENCE
from chakram_agent.pipe import ShardPipe
from chakram_agent.shard import Shard
from chakram_agent.shared_counters import SharedCounters
from tests.integration.test_agent_probes import probes as probe_plan
from tests.plans import ring_plan
from tests.waiting import PATIENCE_S, Stopwatch

pytestmark = pytest.mark.usefixtures("frozen_again")

ALLOW = ("127.0.0.0/8",)
HOUR_NS = 3600 * 10**9


class Talk:
    """The agent's end of a shard.

    Args:
        pipe: To the shard.
        counters: Shared with it.
        far_end: The shard's own end, if it runs in this process.
    """

    def __init__(
        self,
        pipe: ShardPipe,
        counters: SharedCounters,
        far_end: ShardPipe | None = None,
    ) -> None:
        self.pipe = pipe
        self.far_end = far_end
        self.counters = counters
        self.reports: list[pb.ShardReport] = []

    def say(self, command: pb.ShardCommand) -> None:
        self.pipe.send(command.SerializeToString())

    def set_up(self, plan: AgentPlan, allow: tuple[str, ...] = ALLOW) -> None:
        setup = pb.ShardSetup(shard=0, plan=encode_plan(plan), allow=allow)
        self.say(pb.ShardCommand(setup=setup))

    def arm(self) -> None:
        self.counters.stamp_ns = time.monotonic_ns() + HOUR_NS  # we live
        start_ns = time.monotonic_ns() + 5_000_000
        self.say(pb.ShardCommand(arm=pb.ShardArm(start_ns=start_ns)))

    def stop(self) -> None:
        self.say(pb.ShardCommand(stop=pb.ShardStop()))

    def wait_for(
        self, kind: str, condition: Callable[[pb.ShardReport], bool] = bool
    ) -> pb.ShardReport:
        """Wait for a report of a kind that meets a condition."""
        watch = Stopwatch()
        while watch.look() < PATIENCE_S:
            self.pipe.wait(0.1)
            for data in self.pipe.receive():
                report = pb.ShardReport.FromString(data)
                self.reports.append(report)
            for report in self.reports:
                if report.HasField(kind) and condition(report):
                    return report
            assert not self.pipe.closed, f"ended without {kind}: {self.reports}"
        pytest.fail(f"no {kind}: {self.reports}")

    def rows(self) -> RecordRows:
        rows = RecordRows()
        for report in self.reports:
            if report.HasField("records"):
                rows.extend(decode_rows(report.records, where="shard"))
        return rows


@contextmanager
def running() -> Iterator[Talk]:
    """Run a shard in a thread."""
    threshold = gc.get_threshold()
    ours, theirs = socket.socketpair()
    counters = SharedCounters.create("test", queue_pairs=2, ports=2)
    pipe = ShardPipe(theirs)
    thread = threading.Thread(target=Shard(pipe, counters).run, name="shard")
    thread.start()
    talk = Talk(ShardPipe(ours), counters, pipe)
    try:
        yield talk
    finally:
        talk.pipe.close()
        thread.join(PATIENCE_S)
        pipe.close()
        counters.close()
        # In a separate process, this would be the end.
        gc.unfreeze()
        gc.set_threshold(*threshold)
    assert not thread.is_alive()


def memory_plan(**changes: Any) -> AgentPlan:
    return ring_plan(open_spec="memory:", **changes)


def test_shard_finishes_and_waits_for_the_stop_command() -> None:
    with running() as talk:
        talk.set_up(memory_plan(iterations=3))
        talk.wait_for("ready")
        talk.arm()
        talk.wait_for("finished")
        rows = talk.rows()
        pairs = len(rows.queue_pairs) // len(QUEUE_PAIR_FIELDS)
        ports = len(rows.ports) // len(PORT_FIELDS)
        # The last samples at least; the rest is flows, shares and iterations.
        assert pairs >= 2
        assert ports >= 2
        # Of three iterations each rank's messages that left and came, share and time.
        assert len(rows) - pairs - ports == 2 * 3 * (2 + 2 + 1 + 1)
        assert talk.counters.snapshot()[slot("flows_completed")] == 12
        load = talk.counters.load(0)
        assert load.rounds > 0
        assert 0 < load.measured_busy_ns <= load.measured_ns < load.wall_ns
        talk.stop()
        talk.wait_for("stopped")


def test_traffic_ends_without_heartbeats_and_never_resumes() -> None:
    plan = memory_plan(settings=RunSettings(warmup=0, measured=10**6))
    sent = PORT_FIELDS.index("tx_bytes")
    with running() as talk:
        talk.set_up(plan)
        talk.wait_for("ready")
        # Nothing can be sent yet, so the agent may take any time.
        talk.counters.stamp_ns = 0
        talk.arm()
        talk.wait_for("progress", lambda report: report.progress.counter > 100)

        talk.counters.stamp_ns = time.monotonic_ns() - LEASE_NS

        failed = talk.wait_for("failed").failed
        assert failed.error.found == LEASE_SENTENCE
        talk.counters.stamp_ns = time.monotonic_ns() + HOUR_NS
        before = talk.counters.port_rows()[sent]
        talk.pipe.wait(0.2)  # it has no further message
        assert talk.counters.port_rows()[sent] == before
        talk.stop()
        talk.wait_for("stopped")


def test_ranks_of_other_jobs_rest_with_their_last_samples() -> None:
    settings = RunSettings(warmup=0, measured=10**6, sample_bin_ns=HOUR_NS)
    plan = memory_plan(settings=settings)
    width, posted = len(QUEUE_PAIR_FIELDS), QUEUE_PAIR_FIELDS.index("message_tx")

    def choose(*jobs: str) -> None:
        talk.reports.clear()
        talk.say(pb.ShardCommand(choose=pb.ShardChoose(jobs=jobs)))

    def resting(count: int) -> Callable[[pb.ShardReport], bool]:
        return lambda report: len(report.progress.resting) == count

    def counts() -> tuple[int, int]:
        counters = talk.counters.snapshot()
        return counters[slot("flows_started")], counters[slot("flows_completed")]

    with running() as talk:
        talk.set_up(plan)
        talk.wait_for("ready")
        choose("other")
        talk.arm()
        talk.wait_for("progress", resting(2))
        choose("job")
        talk.wait_for("progress", lambda report: report.progress.counter > 100)
        choose("other")
        talk.wait_for("progress", resting(2))
        rows = talk.rows().queue_pairs
        sampled = sum(rows[at + posted] for at in range(0, len(rows), width))
        # The shared counters are updated in turns.
        watch = Stopwatch()
        while watch.look() < PATIENCE_S and counts() != (sampled, sampled):
            talk.pipe.wait(0.05)
        assert counts() == (sampled, sampled)
        choose()
        talk.wait_for("progress", resting(0))
        talk.stop()
        talk.wait_for("stopped")
        assert counts()[0] > sampled


def test_probes_end_without_heartbeats() -> None:
    with running() as talk:
        talk.set_up(probe_plan())
        talk.wait_for("ready")
        talk.arm()
        talk.wait_for("progress")

        talk.counters.stamp_ns = LAPSED

        assert talk.wait_for("failed").failed.error.found == LEASE_SENTENCE


def test_packets_after_the_work_is_done_are_counted_until_the_end() -> None:
    plan = ring_plan()
    column = PORT_FIELDS.index("invalid_packets")

    def invalid(rows: RecordRows) -> list[int]:
        """Return the counts of the first port, sample by sample."""
        width = len(PORT_FIELDS)
        ports = [rows.ports[at : at + width] for at in range(0, len(rows.ports), width)]
        return [row[column] for row in ports if row[1] == 0]

    with running() as talk, socket.socket(type=socket.SOCK_DGRAM) as other:
        talk.set_up(plan)
        talk.arm()
        talk.wait_for("finished")
        assert invalid(talk.rows())[-1] == 0
        to = plan.ports[0].address, plan.ports[0].udp_port
        other.sendto(b"no packet of ours", to)
        talk.wait_for(
            "records",
            lambda report: 1 in invalid(decode_rows(report.records, where="shard")),
        )
        other.sendto(b"another", to)
        talk.stop()
        talk.wait_for("stopped")
        assert invalid(talk.rows())[-1] == 2
        assert talk.counters.snapshot()[slot("invalid_header")] == 2


def test_the_counters_of_queue_pairs_are_read_while_they_work() -> None:
    plan = memory_plan(settings=RunSettings(warmup=0, measured=10**6))
    with running() as talk:
        talk.set_up(plan)
        talk.wait_for("ready")
        talk.arm()
        talk.wait_for("progress", lambda report: report.progress.counter > 100)
        seen: list[list[dict[str, int]]] = []
        while len(seen) < 2 or not seen[-1][0]["tx_bytes"] > seen[0][0]["tx_bytes"]:
            rows = talk.counters.queue_pair_rows()
            width = len(QUEUE_PAIR_FIELDS)
            seen.append(
                [
                    dict(zip(QUEUE_PAIR_FIELDS, rows[at : at + width], strict=True))
                    for at in range(0, len(rows), width)
                ]
            )
            talk.pipe.wait(0.05)
            talk.pipe.receive()
        first, second = seen[-1]
        assert (first["rank"], first["peer"]) == (0, 1)
        assert (second["rank"], second["peer"]) == (1, 0)
        assert first["message_tx"] > 0
        ports = talk.counters.port_rows()
        assert len(ports) == 2 * len(PORT_FIELDS)
        assert ports[PORT_FIELDS.index("tx_bytes")] > 0
        load = talk.counters.load(0)
        assert (load.queue_pairs, load.queue_pairs_limited) == (2, 0)
        assert 0 < load.busy_ns < load.wall_ns
        talk.stop()
        talk.wait_for("stopped")


def test_last_progress_is_sent_before_the_end() -> None:
    with running() as talk:
        talk.set_up(memory_plan(iterations=3))
        talk.arm()
        talk.wait_for("finished")
        *_, last, finished = talk.reports
        assert finished.HasField("finished")
        progress = decode_progress(last.progress, time_ns=0)
        assert progress.iterations == ((0, 3), (1, 3))


def test_stopped_shard_hands_over_its_records() -> None:
    plan = memory_plan(settings=RunSettings(warmup=0, measured=10**6))
    with running() as talk:
        talk.set_up(plan)
        talk.arm()
        talk.wait_for("progress", lambda report: report.progress.counter > 10)
        talk.stop()
        stopped = talk.wait_for("stopped")
        assert stopped.stopped.waiting_for
        completed = talk.counters.snapshot()[slot("flows_completed")]
        rows = talk.rows()
        assert completed > 0
        assert len(rows.flows) > 0


def test_shard_can_be_stopped_before_setup() -> None:
    with running() as talk:
        talk.stop()
        talk.wait_for("stopped")


def test_a_shard_ends_with_its_agent() -> None:
    with running() as talk:
        talk.set_up(memory_plan())
        talk.wait_for("ready")


def test_shard_refuses_an_address_that_is_not_allowed() -> None:
    with running() as talk:
        talk.set_up(memory_plan(), allow=("198.18.0.0/15",))
        failed = talk.wait_for("failed").failed
        assert failed.error.kind == "PlanError"
        assert "does not send to 127.18.0.2" in failed.error.found
        talk.stop()
        talk.wait_for("stopped")


def test_shard_refuses_an_invalid_plan() -> None:
    with running() as talk:
        plan = encode_plan(memory_plan())
        plan.peers.pop()
        talk.say(pb.ShardCommand(setup=pb.ShardSetup(plan=plan, allow=ALLOW)))
        failed = talk.wait_for("failed").failed
        assert "is not among the peers of the plan" in failed.error.found


def test_failure_to_open_a_port_closes_the_others() -> None:
    plan = memory_plan()
    ports = (plan.ports[0], replace(plan.ports[1], open="verbs:mlx5_0"))
    with running() as talk:
        talk.set_up(replace(plan, ports=ports))
        assert talk.wait_for("failed").failed.error.kind == "ConfigError"


def test_queue_pair_that_gives_up_is_reported_as_a_failure() -> None:
    plan = memory_plan(
        transport=TransportPlan(retransmit_timeout_ns=1_000_000, retry_limit=1)
    )
    settings = replace(plan.settings, drop_ratio=0.999999)
    with running() as talk:
        talk.set_up(replace(plan, settings=settings))
        talk.arm()
        failed = talk.wait_for("failed").failed
        assert "gave up" in failed.error.found
        assert failed.waiting_for
        talk.stop()
        talk.wait_for("stopped")


def test_stalled_ranks_report_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "STALLED_NS", 100_000_000)
    plan = memory_plan(transport=TransportPlan(retransmit_timeout_ns=10**12))
    settings = replace(plan.settings, drop_ratio=0.999999)
    with running() as talk:
        talk.set_up(replace(plan, settings=settings))
        talk.arm()
        stalled = talk.wait_for("progress", lambda r: bool(r.progress.waiting_for))
        assert all("rank" in text for text in stalled.progress.waiting_for)
        talk.stop()
        talk.wait_for("stopped")


def test_unknown_command_is_a_failure() -> None:
    with running() as talk:
        talk.set_up(memory_plan())
        talk.wait_for("ready")
        talk.set_up(memory_plan())
        failed = talk.wait_for("failed").failed
        assert failed.error.found == "sent setup to a shard that is already set up"


def test_agent_that_reads_nothing_stops_the_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # More than any single report has.
    monkeypatch.setattr(pipe_module, "MAX_QUEUED_BYTES", 1_000_000)
    refused = threading.Event()

    class Refusal(RunFailed):
        def __init__(self, *args: str) -> None:
            super().__init__(*args)
            refused.set()

    monkeypatch.setattr(pipe_module, "RunFailed", Refusal)
    plan = memory_plan(settings=RunSettings(warmup=0, measured=10**6), input_bytes=4096)
    with running() as talk:
        talk.set_up(plan)
        talk.wait_for("ready")
        talk.arm()
        # Reading earlier would make room, and the shard would go on.
        assert refused.wait(PATIENCE_S)
        failed = talk.wait_for("failed").failed
        assert "the agent did not accept " in failed.error.found
