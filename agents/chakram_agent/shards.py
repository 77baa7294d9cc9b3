"""Management of an agent's shards: their processes and reports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING

from chakram.control.error_details import rebuild
from chakram.control.event_codec import decode_nic, decode_progress, decode_rows
from chakram.control.events import AgentEvent, CountersSnapshot, Progress, RecordBatch
from chakram.control.plan_codec import encode_plan
from chakram.control.protobuf_messages import pb
from chakram.control.queue_pair_codec import decode_ready, encode_command
from chakram.fabric.core_assignment import shard_core
from chakram.foundation.errors import ChakramError
from chakram_agent import events_and_instructions as events
from chakram_agent.agent_clock import monotonic_ns
from chakram_agent.divided_ports import DividedPorts
from chakram_agent.hang_watchdog import LAPSED, Lease
from chakram_agent.shard_handle import ForkServers, ShardProcess

if TYPE_CHECKING:
    from chakram.plan.nic_queue_pairs import BoundQueuePair, Peers
    from chakram.plan.plan import AgentPlan
    from chakram_agent.send_limits import Policy
    from chakram_agent.shared_counters import Metering


@dataclass(slots=True)
class Shards:
    """The data-plane processes of one plan at a time.

    Attributes:
        policy: Limits of the agent.
        tasks: Task group for the tasks that read the shards' reports.
        metering: Sums of the shards' counters.
        servers: Fork servers, which start the shards.
        pin: Whether to pin each shard to one core.
        dispatch: Function that passes shard events to the agent's state machine.
        tell: Function that sends an event to the controller. It returns False if too
            many records wait for the controller.
        failure: First error of this run that a shard reported, or that prevented the
            start of a shard.
        waiting_for: Sentences about what each rank waited for when a run failed.
        bound: Ends of queue pairs on RDMA NICs.
    """

    policy: Policy
    tasks: asyncio.TaskGroup
    metering: Metering
    servers: ForkServers
    _: KW_ONLY
    pin: bool
    dispatch: Callable[[events.Event], None]
    tell: Callable[[AgentEvent], bool]
    failure: ChakramError | None = None
    waiting_for: list[str] = field(default_factory=list)
    bound: list[BoundQueuePair] = field(default_factory=list)
    _processes: dict[int, ShardProcess] = field(default_factory=dict)
    _divided: DividedPorts = field(default_factory=DividedPorts)
    _called_off: bool = False
    _lease: Lease = field(default_factory=Lease)
    _progress: dict[int, Progress] = field(default_factory=dict)

    # ---- requests from the agent -----------------------------------------------------

    def open(self, plan: AgentPlan) -> None:
        """Open the ports of *plan* that are divided among several shards.

        Raises:
            ChakramError: If a port cannot be opened.
        """
        self._divided.open(plan)

    def close(self) -> None:
        """Close the divided ports. Call this only if the shards will not start."""
        self._divided.close()

    def start(self, plan: AgentPlan) -> None:
        """Start the shards of *plan*. ``dispatch`` gets their events."""
        self.forget()
        self._called_off = False
        numbers = plan.shard_numbers()
        usable = os.sched_getaffinity(0) if self.pin else ()
        for index, number in enumerate(numbers):
            core = shard_core(usable, number=index, shards=len(numbers))
            self.tasks.create_task(
                self._run(
                    index,
                    shard_part(plan, number),
                    core,
                    self._divided.parts(number),
                ),
                name=f"shard-{index}",
            )

    def arm(self, start_ns: int) -> None:
        """Start all shards at *start_ns*. From now on, they need the agent's lease."""
        self._stamp(monotonic_ns())
        self._lease.arm()
        for shard in self._processes.values():
            shard.tell(pb.ShardCommand(arm=pb.ShardArm(start_ns=start_ns)))

    def choose(self, jobs: Sequence[str]) -> None:
        """Have all shards begin iterations of *jobs* only.

        If *jobs* is empty, the shards may begin iterations of all jobs.
        """
        for shard in self._processes.values():
            shard.tell(pb.ShardCommand(choose=pb.ShardChoose(jobs=jobs)))

    def connect(self, peers: Peers) -> None:
        """Have all shards connect the queue pairs that have an end on an RDMA NIC."""
        command = pb.ShardCommand(connect=encode_command(peers))
        for shard in self._processes.values():
            shard.tell(command)

    def renew_lease(self, now_ns: int) -> bool:
        """Renew the lease of the shards unless it has lapsed.

        Returns:
            False if the lease has lapsed.
        """
        stamps_ns = [shard.counters.stamp_ns for shard in self._processes.values()]
        if stamps_ns:
            self._lease.holds(stamp_ns=min(stamps_ns), now_ns=now_ns)
        self._stamp(LAPSED if self._lease.lapsed else now_ns)
        return not self._lease.lapsed

    def _stamp(self, stamp_ns: int) -> None:
        for shard in self._processes.values():
            shard.counters.stamp_ns = stamp_ns

    def stop(self) -> None:
        """Stop all shards, including those whose process is still starting."""
        self._called_off = True
        for shard in self._processes.values():
            shard.stop()

    def forget(self) -> None:
        """Discard the lease, failure and progress of the last run."""
        self._lease = Lease()
        self.failure = None
        self.waiting_for = []
        self.bound = []
        self._progress = {}

    def are_running(self) -> bool:
        """Return whether any shard process is running."""
        return bool(self._processes)

    def counters(self) -> CountersSnapshot:
        """Return the current counters of the run."""
        return CountersSnapshot(
            time_ns=monotonic_ns(),
            values=self.metering.of_run(),
            loads=tuple(
                counters.load(number) for number, counters in self.metering.shards()
            ),
        )

    # ---- events from the shards ------------------------------------------------------

    async def _run(
        self,
        number: int,
        plan: AgentPlan,
        core: int | None,
        parts: list[pb.PortPart],
    ) -> None:
        """Start a shard and handle its reports until it ends."""
        reason = "its process ended"
        try:
            shard = await ShardProcess.start(
                number,
                core,
                servers=self.servers,
                queue_pairs=sum(len(rank.queue_pairs) for rank in plan.ranks),
                ports=len(plan.ports),
                inherited=[
                    each for part in parts for each in (part.receiver, part.line)
                ],
            )
        except ChakramError as error:
            self.failure = self.failure or error
            self._divided.leave(number)
            self.dispatch(events.ShardStopped(shard=number, reason=str(error)))
            return
        except asyncio.CancelledError:
            self._divided.leave(number)
            raise
        self._processes[number] = shard
        self.metering.add_shard(number, shard.counters)
        try:
            if self._called_off:
                shard.stop()  # stop was called while the process started
            setup = pb.ShardSetup(
                shard=number,
                plan=encode_plan(plan),
                allow=[str(prefix) for prefix in self.policy.allow],
                parts=parts,
            )
            shard.tell(pb.ShardCommand(setup=setup))
            async for report in shard.reports():
                self._take_report(number, report)
        except ChakramError as error:
            self.dispatch(events.ShardFailed(shard=number, reason=str(error)))
        except asyncio.CancelledError:
            shard.kill()
            raise
        finally:
            try:
                reason = await shard.close()
            finally:
                del self._processes[number]
                self.metering.remove_shard(number)
                self._divided.leave(number)
        if not self._processes:
            self.tell(self.counters())  # includes the last counts
        self.dispatch(events.ShardStopped(shard=number, reason=reason))

    def _take_report(self, number: int, report: pb.ShardReport) -> None:
        now_ns = monotonic_ns()
        match report.WhichOneof("report"):
            case "ready":
                ready = decode_ready(report.ready, where=f"shard {number}")
                self.bound.extend(ready.bound)
                self.dispatch(events.ShardReady(shard=number))
            case "connected":
                self.dispatch(events.ShardConnected(shard=number))
            case "nic":
                self.tell(decode_nic(report.nic, time_ns=now_ns))
            case "progress":
                self._note_progress(
                    number, decode_progress(report.progress, time_ns=now_ns)
                )
            case "records":
                rows = decode_rows(report.records, where=f"shard {number}")
                self.metering.note(rows)
                if not self.tell(RecordBatch(time_ns=now_ns, rows=rows)):
                    self.dispatch(
                        events.Abort(
                            reason="the controller does not accept the records"
                        )
                    )
            case "finished":
                self.dispatch(events.ShardFinished(shard=number))
            case "failed":
                error = rebuild(report.failed.error)
                self.failure = self.failure or error
                self.waiting_for.extend(report.failed.waiting_for)
                self.dispatch(events.ShardFailed(shard=number, reason=_reason(error)))
            case "stopped":
                self.waiting_for.extend(
                    sentence
                    for sentence in report.stopped.waiting_for
                    if sentence not in self.waiting_for
                )

    def _note_progress(self, number: int, progress: Progress) -> None:
        """Report the progress of all shards to the controller as one event."""
        self._progress[number] = progress
        parts = self._progress.values()
        self.tell(
            Progress(
                time_ns=progress.time_ns,
                counter=sum(part.counter for part in parts),
                iterations=tuple(row for part in parts for row in part.iterations),
                waiting_for=tuple(
                    sentence for part in parts for sentence in part.waiting_for
                ),
                foreign=tuple(sentence for part in parts for sentence in part.foreign),
                resting=tuple(rank for part in parts for rank in part.resting),
            )
        )


def shard_part(plan: AgentPlan, number: int) -> AgentPlan:
    """Return the part of a plan that shard *number* needs."""
    if plan.probes is not None:
        return plan
    ranks = tuple(rank for rank in plan.ranks if rank.shard == number)
    ports = {rank.port for rank in ranks}
    return replace(
        plan,
        ranks=ranks,
        ports=tuple(port for port in plan.ports if port.number in ports),
    )


def _reason(error: ChakramError) -> str:
    """Return the text of an error, without the location if it is only "shard"."""
    return error.found if error.where == "shard" else str(error)
