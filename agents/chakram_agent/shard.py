"""A data-plane process: endpoints, ports and the loop that drives them.

Each shard is a process, which ``chakram_agent.fork_server`` forks. Control traffic and
metrics scrapes therefore do not share its interpreter. A shard never imports gRPC,
asyncio or a netlink library.

The shard receives its part of the plan over a socket pair and opens its ports in the
ports' network namespaces. It waits for the start, replays its ranks and sends records
to the agent. It ends when the agent sends stop or ends.
"""

from __future__ import annotations

import gc
import mmap
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_network
from types import MappingProxyType

from chakram.control.error_details import error_message
from chakram.control.event_codec import encode_nic, encode_progress, encode_rows
from chakram.control.events import NicCounters, Progress
from chakram.control.plan_codec import decode_plan
from chakram.control.protobuf_messages import decode_message, pb
from chakram.control.queue_pair_codec import decode_command, encode_ready
from chakram.foundation.errors import ChakramError, PeerError, RunFailed
from chakram.plan.nic_queue_pairs import Bindings, Peers, is_verbs
from chakram.plan.plan import AgentPlan
from chakram.plan.port_plan import PortPlan
from chakram.plan.transport import TransportPlan
from chakram.records.row_layout import RecordRows
from chakram.replay.endpoint import Endpoint, connect_local
from chakram.roce.cross_process_pacing import SharedLine
from chakram_agent.agent_clock import monotonic_ns
from chakram_agent.counter_updates import (
    LONGEST_WAIT_NS,
    TURNS_PER_PORT,
    Sampler,
    Tally,
)
from chakram_agent.dataplane.loop import DataPlane, Line
from chakram_agent.dataplane.memory_port import MemoryNetwork
from chakram_agent.dataplane.open_port import open_line
from chakram_agent.dataplane.verbs_engine import VerbsEngine
from chakram_agent.hang_watchdog import LEASE_SENTENCE, Lease
from chakram_agent.pipe import ShardPipe
from chakram_agent.probe_sender import Prober, open_prober, probe
from chakram_agent.send_limits import Policy
from chakram_agent.shared_counters import SharedCounters


def build_plane(
    plan: AgentPlan, policy: Policy, parts: Iterable[pb.PortPart] = ()
) -> DataPlane:
    """Open all ports of *plan*, each in its network namespace, with their endpoints.

    Args:
        plan: The shard's part of the plan.
        policy: Limits on destinations of this agent.
        parts: Sockets and memory that the agent opened for divided ports.

    Raises:
        ChakramError: If a port cannot be opened, or a program does not fit its queue
            pairs. Also if a destination is not allowed or has a route through ``lo``.
    """
    network = MemoryNetwork()
    part_of = {part.port: part for part in parts}
    lines: list[Line] = []
    try:
        for port in plan.ports:
            part = part_of.get(port.number)
            lines.append(_open_line(port, plan, policy, network, part))
        connect_local([line.endpoint for line in lines])
    except BaseException:
        for line in lines:
            line.port.close()
        raise
    return DataPlane(lines)


def _open_line(
    port: PortPlan,
    plan: AgentPlan,
    policy: Policy,
    network: MemoryNetwork,
    part: pb.PortPart | None,
) -> Line:
    ranks = [rank for rank in plan.ranks if rank.port == port.number]
    transport = plan.transport
    endpoint = Endpoint(
        port=port,
        ranks=ranks,
        transport=transport,
        settings=plan.settings,
        rank_numbers=plan.numbers(),
        line=None if part is None else _shared_line(port, transport, part),
        engine=(
            VerbsEngine(port, ranks, transport, plan.settings, monotonic_ns)
            if is_verbs(port)
            else None
        ),
        has_arrivals=True,
    )
    return open_line(
        endpoint,
        transport,
        policy=policy,
        members=plan.peers,
        network=network,
        receiver=None if part is None else socket.socket(fileno=part.receiver),
    )


def connect(plane: DataPlane, peers: Peers) -> None:
    """Connect the queue pairs of all lines that have an end on an RDMA NIC.

    Raises:
        ChakramError: If a queue pair cannot be connected.
    """
    for line in plane.lines:
        number = line.endpoint.port.number
        own = {each.qpn: each for each in peers.peers if each.port == number}
        engine = line.endpoint.engine
        if isinstance(engine, VerbsEngine):
            engine.connect(own)
            continue
        for pair in engine.queue_pairs():
            if pair.qpn in own:
                line.endpoint.connect_to_device(pair.qpn, own[pair.qpn].remote)


def _shared_line(
    port: PortPlan, transport: TransportPlan, part: pb.PortPart
) -> SharedLine | None:
    try:
        if port.rate_bps is None:
            return None  # no rate to share
        words = mmap.mmap(part.line, os.fstat(part.line).st_size)
    finally:
        os.close(part.line)
    return SharedLine(
        rate_bps=port.rate_bps,
        burst_bound_ns=transport.burst_bound_ns,
        saves_up=transport.saves_up,
        words=memoryview(words).cast("q"),
        index=part.index,
    )


CHORES_NS = 1_000_000
"""Interval between chores. Chores are all work of the loop except packet handling."""
TALLY_NS = 1_000_000
"""Interval between turns of ``Tally``, each of which updates a few counters."""
REPORT_NS = 50_000_000
REPORT_ROWS = 4096
NICS_NS = 1_000_000_000
"""Interval between reports of the hardware counters of RDMA NICs."""
STALLED_NS = 1_000_000_000
"""Time without progress after which reports include what each rank waits for."""
GARBAGE_THRESHOLD = 100_000
"""Number of net new objects after which the garbage collector searches for cycles."""
GOODBYE_S = 1.0
"""Longest time to send the last messages."""


class Shard:
    """Driver of a data plane, which exchanges messages with the agent.

    Args:
        pipe: Connection to the agent.
        counters: Counters in memory shared with the agent.
        inherited: Descriptors of divided ports, by descriptor number in the agent.
    """

    def __init__(
        self,
        pipe: ShardPipe,
        counters: SharedCounters,
        inherited: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._pipe = pipe
        self._counters = counters
        self._inherited = inherited
        self._said: deque[bytes] = deque()
        self._plan: AgentPlan | None = None
        self._plane: DataPlane | None = None
        self._tally: Tally | None = None
        self._sampler: Sampler | None = None
        self._prober: Prober | None = None
        self._armed = False
        self._lease = Lease()
        self._stopping = False
        self._finished = False
        self._goes_on = False
        self._start_ns = 0
        self._resting: tuple[int, ...] = ()
        self._progress = -1
        self._progress_ns = 0
        self._next_tally_ns = 0
        self._next_report_ns = 0
        self._next_nics_ns = 0

    def run(self) -> None:
        """Work until the agent sends stop or ends."""
        try:
            self._set_up()
            self._work()
        except ChakramError as error:
            self._fail(error)
        finally:
            if self._plane is not None:
                self._plane.close()
            if self._prober is not None:
                self._prober.close()
        self._wait_for_stop()
        self._send_final_report()

    def _set_up(self) -> None:
        setup = self._wait_for_setup()
        if setup is None:
            return
        policy = Policy(allow=tuple(ip_network(prefix) for prefix in setup.allow))
        self._plan = decode_plan(setup.plan, is_checked=True)  # the agent checked it
        if self._plan.probes is not None:
            self._prober = open_prober(self._plan, policy)
            self._tell(pb.ShardReport(ready=pb.ShardReady()))
            return
        for part in setup.parts:
            part.receiver = self._inherited[part.receiver]
            part.line = self._inherited[part.line]
        self._plane = build_plane(self._plan, policy, setup.parts)
        self._plane.watch(self._pipe.fileno())
        self._goes_on = any(
            replay.is_background
            for line in self._plane.lines
            for replay in line.endpoint.replays
        )
        bound = tuple(
            each
            for line in self._plane.lines
            if isinstance(line.endpoint.engine, VerbsEngine)
            for each in line.endpoint.engine.bound
        )
        self._tally = Tally(self._plane, self._plan, self._counters, shard=setup.shard)
        self._sampler = Sampler(
            self._plane, self._plan, bin_ns=self._plan.settings.sample_bin_ns
        )
        # All objects that exist now remain until the end, so exclude them from garbage
        # collection. Searching for cycles took 7 % of the time, but later objects form
        # no cycles.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD)
        self._tell(pb.ShardReport(ready=encode_ready(Bindings(bound=bound))))

    def _wait_for_setup(self) -> pb.ShardSetup | None:
        while not self._pipe.closed:
            command = self._next_command()
            if command is None:
                self._pipe.wait(GOODBYE_S)
            elif command.HasField("setup"):
                return command.setup
            elif command.HasField("stop"):
                self._stopping = True
                return None
        return None

    def _next_command(self) -> pb.ShardCommand | None:
        """Return the agent's next command, or None if none has arrived."""
        if not self._said:
            self._said.extend(self._pipe.receive())
        if not self._said:
            return None
        return decode_message(pb.ShardCommand, self._said.popleft(), where="agent")

    # ---- the loop --------------------------------------------------------------------

    def _work(self) -> None:
        if self._prober is not None:
            self._stopping = probe(
                self._prober,
                self._pipe,
                self._next_command,
                arm_lease=self._lease.arm,
                check_lease=self._check_lease,
            )
        plane = self._plane
        if plane is None:
            return
        while not self._stopping and not self._pipe.closed:
            # Do chores first. After a suspension, the process must check its lease
            # before it sends.
            self._do_chores(plane, monotonic_ns())
            plane.work(monotonic_ns() + CHORES_NS, LONGEST_WAIT_NS)

    def _check_lease(self, now_ns: int) -> None:
        """Check that the agent has renewed the lease.

        Raises:
            RunFailed: If the lease has lapsed.
        """
        if not self._lease.holds(stamp_ns=self._counters.stamp_ns, now_ns=now_ns):
            raise RunFailed("shard", LEASE_SENTENCE)

    def _do_chores(self, plane: DataPlane, now_ns: int) -> None:
        self._check_lease(now_ns)
        while (command := self._next_command()) is not None:
            self._obey(command, plane)
        self._pipe.flush()
        if not self._armed:
            return
        if self._tally is not None:
            self._tally.look(now_ns)
            if now_ns >= self._next_tally_ns:
                # After a sleep, make up for missed turns.
                turns = 1 + (now_ns - self._next_tally_ns) // TALLY_NS
                self._next_tally_ns = now_ns + TALLY_NS
                for _ in range(min(turns, TURNS_PER_PORT)):
                    self._tally.turn()
        if self._sampler is not None:
            self._sampler.turn(now_ns)
        if now_ns >= self._next_nics_ns:
            self._next_nics_ns = now_ns + NICS_NS
            self._report_nics(plane)
        if self._finished and not self._goes_on:
            # Peers that lack acknowledgments may still retransmit. Report the resulting
            # rows.
            if now_ns >= self._next_report_ns:
                self._next_report_ns = now_ns + REPORT_NS
                self._report_rows(plane)
            return
        failure = plane.failure()
        if failure is not None:
            raise RunFailed("shard", failure)
        if not self._finished and now_ns >= self._start_ns and plane.finished():
            # Background ranks continue as long as other jobs need them.
            self._finished = True
            self._finish(plane, now_ns)
            self._tell(pb.ShardReport(finished=pb.ShardFinished()))
        elif now_ns >= self._next_report_ns or _rows(plane) >= REPORT_ROWS:
            self._next_report_ns = now_ns + REPORT_NS
            self._report(plane, now_ns)

    def _obey(self, command: pb.ShardCommand, plane: DataPlane) -> None:
        match command.WhichOneof("command"):
            case "connect":
                connect(plane, decode_command(command.connect))
                self._tell(pb.ShardReport(connected=pb.ShardConnected()))
            case "arm":
                plane.arm(command.arm.start_ns)
                self._armed = True
                self._lease.arm()
                self._start_ns = command.arm.start_ns
                self._progress_ns = command.arm.start_ns
            case "choose":
                for line in plane.lines:
                    line.endpoint.choose(command.choose.jobs, monotonic_ns())
                    line.wake_ns = 0
                self._report(plane, monotonic_ns())
            case "stop":
                self._stopping = True
            case kind:
                raise PeerError(
                    "agent", f"sent {kind} to a shard that is already set up"
                )

    # ---- reports to the agent --------------------------------------------------------

    def _tell(self, report: pb.ShardReport, *, last: bool = False) -> None:
        self._pipe.send(report.SerializeToString(), last=last)

    def _report(self, plane: DataPlane, now_ns: int) -> None:
        """Send new rows and the progress of the ranks."""
        resting = tuple(
            replay.number
            for line in plane.lines
            for replay in line.endpoint.replays
            if replay.rests()
        )
        if resting != self._resting and self._sampler is not None:
            self._sampler.finish(now_ns)  # the counters of ranks that have just ended
        self._resting = resting
        self._report_rows(plane)
        counter = sum(line.endpoint.progress_counter() for line in plane.lines)
        if counter != self._progress:
            self._progress = counter
            self._progress_ns = max(now_ns, self._progress_ns)
        stalled = now_ns - self._progress_ns >= STALLED_NS
        progress = Progress(
            time_ns=now_ns,
            counter=counter,
            iterations=tuple(
                (replay.number, replay.iteration)
                for line in plane.lines
                for replay in line.endpoint.replays
            ),
            waiting_for=self._waiting_for() if stalled else (),
            foreign=tuple(
                sentence for line in plane.lines for sentence in line.endpoint.foreign()
            ),
            resting=resting,
        )
        self._tell(pb.ShardReport(progress=encode_progress(progress)))

    def _report_nics(self, plane: DataPlane) -> None:
        """Send the hardware counters of RDMA NICs."""
        for line in plane.lines:
            engine = line.endpoint.engine
            if isinstance(engine, VerbsEngine):
                counts = tuple(sorted(engine.hardware_counters().items()))
                number = line.endpoint.port.number
                settings = tuple(sorted(engine.settings.items()))
                event = NicCounters(
                    time_ns=0, port=number, counts=counts, settings=settings
                )
                self._tell(pb.ShardReport(nic=encode_nic(event)))

    def _report_rows(self, plane: DataPlane) -> None:
        """Send new rows."""
        rows = RecordRows()
        if self._sampler is not None:
            rows.extend(self._sampler.rows.take())
        for line in plane.lines:
            if len(line.endpoint.records):
                rows.extend(line.endpoint.records.take())
        if len(rows):
            self._tell(pb.ShardReport(records=encode_rows(rows)))

    def _waiting_for(self) -> tuple[str, ...]:
        if self._plane is None:
            return ()
        return tuple(
            sentence
            for line in self._plane.lines
            for sentence in line.endpoint.waiting_for()
        )

    def _finish(self, plane: DataPlane, now_ns: int) -> None:
        """Report for the last time, with complete samples and counters."""
        if self._sampler is not None:
            self._sampler.finish(now_ns)
        try:
            self._report(plane, now_ns)
        finally:
            if self._tally is not None:
                self._tally.finish()

    def _fail(self, error: ChakramError) -> None:
        """Report the error. The shard sends no packets afterward."""
        failed = pb.ShardFailed(
            error=error_message(error), waiting_for=self._waiting_for()[:64]
        )
        self._tell(pb.ShardReport(failed=failed), last=True)

    def _wait_for_stop(self) -> None:
        while not self._stopping and not self._pipe.closed:
            while (command := self._next_command()) is not None:
                self._stopping = self._stopping or command.HasField("stop")
            self._pipe.flush()
            if not self._stopping:
                self._pipe.wait(GOODBYE_S)

    def _send_final_report(self) -> None:
        """Send the last rows, and sentences about what the ranks waited for."""
        if self._pipe.closed:
            return
        plane = self._plane
        if plane is not None and self._armed:
            # If the pipe is full, rows are lost, but the shard has reported the cause.
            with suppress(RunFailed):
                self._finish(plane, monotonic_ns())
        stopped = pb.ShardStopped(
            waiting_for=self._waiting_for()[:64] if self._armed else ()
        )
        self._tell(pb.ShardReport(stopped=stopped), last=True)
        deadline_s = time.monotonic() + GOODBYE_S
        while not self._pipe.flush() and time.monotonic() < deadline_s:
            self._pipe.wait(0.05)


def _rows(plane: DataPlane) -> int:
    return sum(len(line.endpoint.records) for line in plane.lines)


def run_shard(
    control: int, counters: int, *, core: int | None, inherited: Mapping[int, int]
) -> None:
    """Run one shard in this process.

    Args:
        control: Descriptor of the socket to the agent.
        counters: Descriptor of the counters.
        core: Core to which the process is pinned. None for any core.
        inherited: Inherited descriptors, by descriptor number in the agent.
    """
    if core is not None:
        with suppress(OSError):  # the process may not use this core anymore
            os.sched_setaffinity(0, {core})
    pipe = ShardPipe(socket.socket(fileno=control))
    shared = SharedCounters(counters)
    try:
        Shard(pipe, shared, inherited).run()
    finally:
        pipe.close()
        shared.close()
