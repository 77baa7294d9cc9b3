"""Sender and receiver of probes for the ports of one process.

A shard drives a ``Prober`` like the data plane of a run, with ``turn`` and ``wait``.
The ``Prober`` counts the outcomes of packets and writes the counts as rows of records.
"""

from __future__ import annotations

import errno
import select
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import product
from typing import TYPE_CHECKING

from chakram.control.event_codec import encode_progress, encode_rows
from chakram.control.events import Progress
from chakram.control.protobuf_messages import pb
from chakram.foundation.errors import ConfigError, PeerError
from chakram.plan.probes import ProbeEvent, ProbePlan, ProbeTarget
from chakram.records.row_layout import RecordRows
from chakram_agent.agent_clock import monotonic_ns
from chakram_agent.dataplane.open_port import place_of
from chakram_agent.dataplane.port_options import PortOptions
from chakram_agent.dataplane.probe_packets import (
    ProbeName,
    name_of,
    probe_datagram,
    token_of,
)
from chakram_agent.dataplane.probe_port import ProbePort

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan
    from chakram.plan.port_plan import PortPlan
    from chakram_agent.pipe import ShardPipe
    from chakram_agent.send_limits import Policy


_RECEIVES_PER_TURN = 64
_NAP_NS = 100_000
_POLL_NS = 2_000_000
_TRAIN_LIMIT_NS = 100_000_000
"""Time after which a sender abandons a train, if there is no room to send."""


@dataclass(slots=True)
class _Lane:
    """The packets that one port sends, in order and within its rate.

    Attributes:
        due_ns: When the next packet is due, or None if there are no more packets.
    """

    port: PortPlan
    sockets: ProbePort
    probes: ProbePlan
    token: bytes
    start_ns: int
    due_ns: int | None = field(init=False)
    _todo: Iterator[tuple[ProbeTarget, int, int]] = field(init=False)
    _next: tuple[ProbeTarget, int, int] | None = field(init=False)

    def __post_init__(self) -> None:
        self._todo = self._packets()
        self._advance(self.start_ns)

    def _packets(self) -> Iterator[tuple[ProbeTarget, int, int]]:
        probes = self.probes
        for target in probes.targets:
            if target.source != self.port.number:
                continue
            for _, path, packet in product(
                range(1 if probes.is_train else probes.copies),
                range(len(probes.source_ports)),
                range(len(probes.packets)),
            ):
                yield target, packet, path

    def _advance(self, earliest_ns: int) -> None:
        """Select the next packet, to be sent at *earliest_ns* or later."""
        self._next = next(self._todo, None)
        self.due_ns = (
            None
            if self._next is None
            else max(earliest_ns, self.start_ns + self._next[0].offset_ns)
        )

    def send(self, now_ns: int) -> list[tuple[int, ProbeName, int, int]]:
        """Send the next packet or train.

        Returns:
            For each outcome, the event, the probe, a count and a value.
        """
        if self._next is None:
            return []
        target, packet, path = self._next
        probes = self.probes
        kind = probes.packets[packet]
        source_port = probes.source_ports[path]
        name = ProbeName(self.port.number, target.destination, packet, path)
        remote = (target.address, target.udp_port)
        datagram = probe_datagram(
            name,
            token=self.token,
            size_bytes=kind.size_bytes,
            local=(self.port.address, source_port),
            remote=remote,
        )
        wire_ns = kind.wire_ns(self.port.rate_bps)

        def leave() -> int | None:
            return self.sockets.send(datagram, source_port, remote, kind.tos)

        if probes.is_train:
            sent, late_ns = _train(leave, probes.copies, wire_ns)
            happened: list[tuple[int, ProbeName, int, int]] = [
                (ProbeEvent.SENT, name, sent, 0),
                (ProbeEvent.OFFERED, name, 1, late_ns),
            ]
            now_ns, gap_ns = monotonic_ns(), probes.gap_ns
        else:
            refused = leave()
            if refused is None:
                self.due_ns = now_ns + probes.gap_ns
                return []
            event = ProbeEvent.REFUSED if refused else ProbeEvent.SENT
            happened, gap_ns = [(event, name, 1, refused)], max(probes.gap_ns, wire_ns)
        self._advance(now_ns + gap_ns)
        return happened


def _train(
    leave: Callable[[], int | None], packets: int, wire_ns: int
) -> tuple[int, int]:
    """Send packets back to back, and return how many were sent and the largest lag.

    The lag of a packet is its delay relative to an ideal link, which sends one packet
    every *wire_ns*.
    """
    began_ns = monotonic_ns()
    late_ns = sent = 0
    while sent < packets:
        refused = leave()
        now_ns = monotonic_ns()
        if refused is None:
            if now_ns - began_ns > _TRAIN_LIMIT_NS:
                break
            continue
        if refused:
            break
        late_ns = max(late_ns, now_ns - began_ns - sent * wire_ns)
        sent += 1
    return sent, late_ns


class Prober:
    """Sender and receiver of the probes of all ports of one process.

    Args:
        plan: A plan with probes.
        ports: Sockets by port number. ``close`` closes them.

    Attributes:
        packets: Number of events so far, e.g. packets sent, received or refused.
    """

    def __init__(self, plan: AgentPlan, ports: Mapping[int, ProbePort]) -> None:
        if plan.probes is None:
            raise ValueError("the plan has no probes")
        self.packets = 0
        self._plan = plan
        self._probes = plan.probes
        self._ports = ports
        self._token = token_of(plan.run_id)
        self._counts: Counter[tuple[int, ...]] = Counter()
        # For each train, the number of packets that arrived, and the arrival times of
        # the first and the last packet of the later half.
        self._trains: dict[ProbeName, tuple[int, int, int]] = {}
        self._drops = dict.fromkeys(ports, 0)
        # Heap of (due time, port number).
        self._due: list[tuple[int, int]] = []
        self._lanes: dict[int, _Lane] = {}
        self._end_ns: int | None = None
        self._late_ns = 0
        self._epoll = select.epoll()
        self._receivers = {port.receiver.fileno(): port for port in ports.values()}
        self._senders = {
            sender.fileno(): (port, number)
            for port in ports.values()
            for number, sender in port.senders.items()
        }
        for descriptor in self._receivers:
            self._epoll.register(descriptor, select.EPOLLIN)
        for descriptor in self._senders:
            self._epoll.register(descriptor, 0)  # epoll reports errors in any case

    def watch(self, descriptor: int) -> None:
        """Also wake up from ``wait`` when *descriptor* is readable."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def arm(self, start_ns: int) -> None:
        """Schedule the start at *start_ns* (CLOCK_MONOTONIC)."""
        self._end_ns = start_ns + self._probes.end_ns
        for port in self._plan.ports:
            lane = _Lane(
                port, self._ports[port.number], self._probes, self._token, start_ns
            )
            self._lanes[port.number] = lane
            self._schedule(lane)

    def turn(self, now_ns: int) -> None:
        """Receive arrived packets, then send due packets."""
        self._receive(0)
        while self._due and self._due[0][0] <= now_ns:
            due_ns, number = heappop(self._due)
            lane = self._lanes[number]
            self._late_ns = max(self._late_ns, now_ns - due_ns)
            for event, name, count, value in lane.send(now_ns):
                self._count(event, name, value, 0, count)
            self._schedule(lane)

    def wait(self, limit_ns: int) -> None:
        """Wait for work, for at most *limit_ns*."""
        sleep_ns = limit_ns
        if self._due:
            sleep_ns = min(sleep_ns, self._due[0][0] - monotonic_ns())
        if sleep_ns >= _POLL_NS:
            self._receive(sleep_ns)  # with a resolution of 1 ms
        elif sleep_ns > 0:
            time.sleep(min(sleep_ns, _NAP_NS) / 1e9)

    def receive_all(self) -> None:
        """Count all packets that have arrived, even if this process is late."""
        before = -1
        while self.packets != before:
            before = self.packets
            self._receive(0)

    def finished(self, now_ns: int) -> bool:
        """Return whether all probes were sent and had enough time to arrive."""
        # If packets left late, extend the time that they have to arrive.
        return (
            self._end_ns is not None
            and not self._due
            and now_ns >= self._end_ns + self._late_ns
        )

    def take_rows(self) -> RecordRows:
        """Return the counts since the last call. Spans of trains are cumulative."""
        rows = RecordRows()
        for (event, source, destination, packet, path, value, address), count in sorted(
            self._counts.items()
        ):
            rows.probes.extend(
                (event, source, destination, packet, path, count, value, address)
            )
        self._counts.clear()
        for name, (arrived, first_ns, last_ns) in self._trains.items():
            late = arrived - self._probes.copies // 2 - 1
            if late > 0:
                rows.probes.extend(
                    (ProbeEvent.SPAN, *name, late, max(0, last_ns - first_ns), 0)
                )
        for number, port in self._ports.items():
            dropped = port.socket_drops - self._drops[number]
            if dropped:
                self._drops[number] += dropped
                rows.probes.extend(
                    (ProbeEvent.DROPPED, number, number, 0, 0, dropped, 0, 0)
                )
        return rows

    def close(self) -> None:
        """Close all ports."""
        self._epoll.close()
        for port in self._ports.values():
            port.close()

    def _schedule(self, lane: _Lane) -> None:
        if lane.due_ns is not None:
            heappush(self._due, (lane.due_ns, lane.port.number))

    def _receive(self, timeout_ns: int) -> None:
        for descriptor, _ in self._epoll.poll(max(0, timeout_ns // 1_000_000) / 1000):
            port = self._receivers.get(descriptor)
            if port is not None:
                for datagram, tos, stamp_ns in port.arrivals(_RECEIVES_PER_TURN):
                    name = name_of(datagram, token=self._token)
                    if name is not None:
                        self._count(ProbeEvent.ARRIVED, name, tos, 0)
                        if self._probes.is_train:
                            self._note_arrival(name, stamp_ns)
            elif descriptor in self._senders:
                self._listen(*self._senders[descriptor])

    def _listen(self, port: ProbePort, source_port: int) -> None:
        for answer in port.answers(source_port):
            name = name_of(answer.datagram, token=self._token)
            if name is None:
                continue  # the ICMP message contains too little of the datagram
            event, value = ProbeEvent.UNREACHABLE, answer.number
            if answer.number == errno.EMSGSIZE:
                event, value = ProbeEvent.TOO_BIG, answer.mtu
            self._count(event, name, value, answer.address)

    def _note_arrival(self, name: ProbeName, stamp_ns: int) -> None:
        """Record the kernel's arrival time of a packet of a train.

        Only the times of the later half count. A shaper with accumulated credit passes
        the packets of the earlier half at once.
        """
        arrived, first_ns, _ = self._trains.get(name, (0, 0, 0))
        if arrived <= self._probes.copies // 2:
            first_ns = stamp_ns
        self._trains[name] = (arrived + 1, first_ns, stamp_ns)

    def _count(
        self, event: int, name: ProbeName, value: int, address: int, count: int = 1
    ) -> None:
        if count:
            self._counts[(event, *name, value, address)] += count
            self.packets += count


_REPORT_NS = 100_000_000
_LONGEST_WAIT_NS = 20_000_000
_BUFFER_BYTES = 1 << 20


def open_prober(plan: AgentPlan, policy: Policy) -> Prober:
    """Open the ports of a probe plan, each in its network namespace.

    Raises:
        ChakramError: If a port cannot be opened, or a destination is not allowed or has
            a route through ``lo``.
    """
    ports: dict[int, ProbePort] = {}
    try:
        for port in plan.ports:
            ports[port.number] = _open(port, plan, policy)
    except BaseException:
        for opened in ports.values():
            opened.close()
        raise
    return Prober(plan, ports)


def _open(port: PortPlan, plan: AgentPlan, policy: Policy) -> ProbePort:
    probes = plan.probes
    where = f"port {port.number} ({port.host})"
    if not port.open.startswith("udp:") or probes is None:
        raise ConfigError(
            where, f"{port.open!r} cannot send probes", "use a port of kind udp:"
        )
    targets = [each.address for each in probes.targets if each.source == port.number]
    with place_of(port, targets, policy=policy, members=plan.peers):
        return ProbePort(
            port.interface,
            PortOptions(
                address=port.address,
                udp_port=port.udp_port,
                destinations=(),
                source_ports=probes.source_ports,
                data_tos=0,
                control_tos=0,
                cnp_tos=0,
                buffer_bytes=_BUFFER_BYTES,
            ),
        )


def probe(
    prober: Prober,
    pipe: ShardPipe,
    next_command: Callable[[], pb.ShardCommand | None],
    *,
    arm_lease: Callable[[], None],
    check_lease: Callable[[int], None],
) -> bool:
    """Send and receive probes until the agent sends stop.

    Returns:
        True if the agent sent stop, False if it closed the connection.

    Raises:
        PeerError: If the agent sends an unexpected command.
        RunFailed: If the agent's lease has lapsed.
    """
    prober.watch(pipe.fileno())
    armed = finished = False
    next_report_ns = 0
    while not pipe.closed:
        now_ns = monotonic_ns()
        check_lease(now_ns)
        prober.turn(now_ns)
        while (command := next_command()) is not None:
            match command.WhichOneof("command"):
                case "arm":
                    prober.arm(command.arm.start_ns)
                    arm_lease()
                    armed = True
                case "stop":
                    prober.receive_all()
                    _report(prober, pipe, now_ns, finished=False, is_over=True)
                    return True
                case kind:
                    raise PeerError("agent", f"sent {kind} to a shard that probes")
        pipe.flush()
        if armed and now_ns >= next_report_ns:
            next_report_ns = now_ns + _REPORT_NS
            # Keep reporting after the end, because packets that other agents send later
            # also count.
            has_ended = not finished and prober.finished(now_ns)
            _report(prober, pipe, now_ns, finished=has_ended, is_over=finished)
            finished = finished or has_ended
        prober.wait(_LONGEST_WAIT_NS)
    return False


def _report(
    prober: Prober, pipe: ShardPipe, now_ns: int, *, finished: bool, is_over: bool
) -> None:
    rows = prober.take_rows()
    if len(rows):
        pipe.send(pb.ShardReport(records=encode_rows(rows)).SerializeToString())
    if is_over:
        return
    progress = Progress(
        time_ns=now_ns, counter=prober.packets, iterations=(), waiting_for=()
    )
    pipe.send(pb.ShardReport(progress=encode_progress(progress)).SerializeToString())
    if finished:
        pipe.send(pb.ShardReport(finished=pb.ShardFinished()).SerializeToString())
