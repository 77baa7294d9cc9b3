# cython: language_level=3, annotation_typing=False, boundscheck=False
# cython: wraparound=False, initializedcheck=False
"""The virtual fabric: endpoints, modeled switches and the links between them.

``chakram.predict.simulator.switch_links`` models how packets cross links. Hosts and
switches add no time. Two ranks on one port have no link between them. Nothing is
random, and simultaneous events occur in order of creation, so runs are exactly
reproducible.

A packet of the model is either one packet or a whole burst. Whole bursts are used for
labs, where a kernel forwards a host's burst as one unit, and for coarser simulations.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.foundation.units import LAST_INSTANT_NS
from chakram.native.prefetch import prefetch_part, prefetch_place
from chakram.predict.simulator.endless_jobs import MOST_AT_ONCE, endless_job
from chakram.predict.simulator.switch_links import (
    FIRST_OWN_KIND,
    KIND_BITS,
    Wires,
    out_of_time,
)
from chakram.replay.integer_map import NumberTable
from chakram.roce.constants import NEVER, BurstKind
from chakram.switch.forwarding import doubled
from chakram.switch.keyed_random import packet_number
from chakram.switch.packet_outcomes import QUEUED
from chakram.switch.packet_slots import (
    CE,
    COUNT,
    DEPARTED,
    DESTINATION,
    DSCP,
    ECN,
    ECT,
    FIELDS,
    FLOW,
    HOST_PAUSED_NS,
    NOT_ECT,
    NUMBER,
    OWN_NS,
    PAUSE_PORT,
    PAUSED_NS,
    POSITION,
    QUEUE_PORT,
    QUEUED_NS,
    SENT,
    SIZE,
    SLOW_NS,
    SLOW_PORT,
    WIRE_NS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.predict.simulator.flow_routes import FlowRoutes
    from chakram.predict.simulator.samples import FabricSampler
    from chakram.replay.endpoint import Endpoint
    from chakram.roce.burst import Burst
    from chakram.roce.events import MessageParts
    from chakram.switch.fault_schedule import FaultSchedule
    from chakram.switch.model import SwitchModel

__all__ = ["VirtualFabric"]

_DATA = int(BurstKind.DATA)
_CNP = int(BurstKind.CNP)
_BIT_NS = 8_000_000_000  # bits in a byte x nanoseconds in a second
_EVENTS_PER_REPORT = 20_000
# With at least this many queue pairs, each one is used too rarely to stay in a cache.
_MANY_QUEUE_PAIRS = 16_384
_PATH_FIELDS, _FIRST_PATHS = 3, 64
_SLOT_BITS = FIELDS.bit_length() - 1
# Kinds of events in addition to those of ``Wires``.
_WAKE, _LOCAL, _SAMPLE = FIRST_OWN_KIND, FIRST_OWN_KIND + 1, FIRST_OWN_KIND + 2


class VirtualFabric(Wires):
    """Endpoints on the hosts of a switch model, driven by events.

    Args:
        endpoints: One endpoint per port.
        model: Switches, with at least one host per endpoint.
        hosts: For each endpoint, the port of its host in the model.
        delays_ns: For each port of the model, the propagation delay of its link.
        routes: Flows and receivers of bursts.
        dscps: DSCPs of data, acknowledgments and CNPs. Endpoints define the DSCPs of
            queue pairs in other classes.
        is_marked: Whether packets are ECN-capable.
        whole_bursts: Whether a burst crosses links as one packet.
        faults: See ``Wires``.
        sampler: Sampler that is called once per bin.

    Attributes:
        events: Number of events.
    """

    __slots__ = (
        "_bursts",
        "_cnp_dscp",
        "_data_classes",
        "_data_dscp",
        "_ecn",
        "_endpoint_of",
        "_endpoints",
        "_finished",
        "_has_failed",
        "_hosts",
        "_is_held",
        "_local",
        "_other_dscp",
        "_path_cells",
        "_path_end",
        "_paths",
        "_routes",
        "_sampler",
        "_unfinished",
        "_wake_ns",
        "_whole_bursts",
        "events",
    )

    def __init__(
        self,
        *,
        endpoints: list[Endpoint],
        model: SwitchModel,
        hosts: Sequence[int],
        delays_ns: Sequence[int],
        routes: FlowRoutes,
        dscps: tuple[int, int, int],
        is_marked: bool = False,
        whole_bursts: bool = False,
        faults: FaultSchedule | None = None,
        sampler: FabricSampler | None = None,
    ) -> None:
        super().__init__(model=model, delays_ns=delays_ns, faults=faults)
        self.events = 0
        self._sampler = sampler
        self._endpoints = endpoints
        self._hosts = array("q", hosts)
        # The endpoint of each port, or -1.
        self._endpoint_of = array("q", [-1] * len(self._ports))
        for index, port in enumerate(hosts):
            self._endpoint_of[port] = index
        self._routes = routes
        self._data_dscp, self._other_dscp, self._cnp_dscp = dscps
        self._ecn = ECT if is_marked else NOT_ECT
        self._whole_bursts = whole_bursts
        # For each slot number, the burst to which the slot belongs.
        self._bursts: list[Burst | None] = []
        # Flow, destination node and receiving endpoint of each path, and the place of
        # each path.
        self._path_cells = array("q", bytes(8 * _PATH_FIELDS * _FIRST_PATHS))
        self._path_end = 0
        self._paths = NumberTable()
        self._local: list[tuple[int, Burst] | None] = []
        self._wake_ns = array("q", [NEVER] * len(endpoints))
        self._is_held = array("q", bytes(8 * len(endpoints)))
        # For each endpoint, the classes of its data.
        self._data_classes = [
            sorted(
                {
                    self._ports[port].class_of(
                        endpoint.dscps.get(pair.qpn, self._data_dscp)
                    )
                    for pair in endpoint.engine.queue_pairs()
                }
            )
            for endpoint, port in zip(endpoints, hosts, strict=True)
        ]
        count = sum(len(endpoint.engine.queue_pairs()) for endpoint in endpoints)
        self.looks_ahead = count >= _MANY_QUEUE_PAIRS
        self._finished = array("q", bytes(8 * len(endpoints)))
        self._unfinished = len(endpoints)
        self._has_failed = False

    def run(
        self,
        *,
        start_ns: int,
        hang_timeout_ns: int = NEVER,
        report: Callable[[int], None] | None = None,
    ) -> bool:
        """Run until every endpoint has finished, and return whether they all did.

        The run stops early if an endpoint fails or no event is left. Timers of
        congestion control stop with their queue pairs, so the run also ends if a job is
        stuck.

        Args:
            start_ns: Time at which all ranks start.
            hang_timeout_ns: Time without progress after which the run stops, even if
                background jobs continue.
            report: Function called at intervals with the number of iterations that all
                ranks have completed.

        Raises:
            RunFailed: If the iterations of a background job take no time.
        """
        background = [
            replay
            for endpoint in self._endpoints
            for replay in endpoint.replays
            if replay.is_background
        ]
        # Iterations of the background jobs when the current time began.
        since_ns, before = start_ns, [0] * len(background)
        # Progress of the other jobs at the latest check, and the time of the next
        # check.
        progress, due_ns = -1, start_ns
        for index, endpoint in enumerate(self._endpoints):
            endpoint.arm(start_ns)
            self._wake(index)
        if self._timed:
            self._settle()
        self._sample_later(start_ns)
        report_at = _EVENTS_PER_REPORT
        while self._unfinished and not self._has_failed:
            if not self._steps(_EVENTS_PER_REPORT):
                return False
            if background and self.now_ns >= due_ns:
                found = sum(each.progress_counter() for each in self._endpoints)
                if found == progress:
                    return False
                progress, due_ns = found, self.now_ns + hang_timeout_ns
            if self.now_ns > since_ns:
                since_ns, before = self.now_ns, [each.iteration for each in background]
            for replay, count in zip(background, before, strict=True):
                if replay.iteration > count + MOST_AT_ONCE:
                    raise endless_job(replay.job, replay.rank)
            if self.events >= report_at:
                report_at = self.events + _EVENTS_PER_REPORT
                if report is not None:
                    report(min(each.iterations_done() for each in self._endpoints))
        return not self._has_failed

    def _steps(self, limit: int) -> bool:
        """Process at most *limit* events, or return False if none is left."""
        events = self._events
        while limit > 0 and self._unfinished > 0 and not self._has_failed:
            limit -= 1
            time_ns = events.first_ns()
            if events.count == 0:
                return False
            what = events.take()
            if self.looks_ahead:
                self._look_ahead()
            if time_ns > LAST_INSTANT_NS:
                raise out_of_time()
            kind = what & 7
            index = what >> KIND_BITS
            if kind == _WAKE:
                if self._wake_ns[index] != time_ns:
                    continue  # stale: an earlier event has replaced this one
                self._wake_ns[index] = NEVER
            elif kind == _SAMPLE:
                self._sample(time_ns)
                continue
            self.now_ns = time_ns
            self.events += 1
            if kind < _WAKE:
                self._happen(kind, index)
            elif kind == _WAKE:
                self._drive(index)
            else:
                self._deliver_local(index)
            if self._timed:
                self._settle()
        return True

    def _sample(self, now_ns: int) -> None:
        """Take samples, and schedule the next ones if other events remain."""
        if self._sampler is not None:
            self._sampler.turn(now_ns)
            if self._events.count > 0:
                self._sample_later(now_ns)

    def _sample_later(self, now_ns: int) -> None:
        if self._sampler is not None and self._sampler.bin_ns > 0:
            self._events.add_timer(now_ns + self._sampler.bin_ns, _SAMPLE)

    # Packets.

    def _deliver(self, number: int, slot: int) -> None:
        """Deliver a packet to its endpoint."""
        index = self._endpoint_of[number]
        packets = self._packets
        endpoint = self._endpoints[index]
        burst = self._bursts[slot >> _SLOT_BITS]
        if burst is None:
            return
        first = packets.cells[slot + POSITION]
        count = packets.cells[slot + COUNT]
        ce = 0
        # An ECN mark on an acknowledgment has no effect.
        if burst.kind == _DATA:
            if packets.cells[slot + ECN] == CE:
                ce = count
            if burst.parts_of is not None:
                for each in range(first, first + count):
                    self._tell(burst.parts_of[each], slot)
            elif (
                burst.parts is not None
                and burst.packet_index + first + count == burst.message_packets
            ):
                self._tell(burst.parts, slot)
        self._forget(slot)
        engine = endpoint.engine
        engine.receive_burst(burst, self.now_ns, first, count, ce)
        # Most packets neither end a message nor request an acknowledgment, so they
        # cause no further work.
        if engine.has_news() or self._wake_ns[index] <= self.now_ns:
            self._drive(index)

    def _foresee_delivery(self, stage: int, slot: int, number: int) -> None:
        """Prefetch the burst of a packet and the queue pair that receives it."""
        place = slot >> _SLOT_BITS
        if stage == 0:
            prefetch_place(self._bursts, place)
        elif stage == 1:
            prefetch_part(self._bursts, place, 0, 4)
            prefetch_part(self._endpoints, self._endpoint_of[number], 0, 4)
        else:
            burst = self._bursts[place]
            if burst is not None:
                endpoint = self._endpoints[self._endpoint_of[number]]
                engine = endpoint.engine
                engine.foresee_packet(
                    stage - 2, burst.destination_qpn, burst.kind == _DATA
                )

    def _foresee_own(self, stage: int, kind: int, index: int) -> None:
        """Prefetch the endpoint of a wakeup, and the queue pair that sends next."""
        if kind != _WAKE:
            return
        if stage == 0:
            prefetch_part(self._endpoints, index, 0, 4)
        elif stage > 2:
            endpoint = self._endpoints[index]
            engine = endpoint.engine
            engine.foresee_send(stage - 3)

    def _tell(self, parts: MessageParts, slot: int) -> None:
        """Record the times of a message's last packet, if the message is incomplete."""
        if parts.received_ns >= 0:
            return
        packets = self._packets
        parts.sent_ns = packets.cells[slot + SENT]
        parts.departed_ns = packets.cells[slot + DEPARTED]
        parts.host_pause_ns = packets.cells[slot + HOST_PAUSED_NS]
        parts.host_own_ns = packets.cells[slot + OWN_NS]
        parts.queue_ns = packets.cells[slot + QUEUED_NS]
        parts.switch_pause_ns = packets.cells[slot + PAUSED_NS]
        parts.serialise_ns = packets.cells[slot + WIRE_NS]
        parts.slow_ns = packets.cells[slot + SLOW_NS]
        parts.slow_port = packets.cells[slot + SLOW_PORT] if parts.slow_ns else -1
        parts.queue_port = packets.cells[slot + QUEUE_PORT] if parts.queue_ns else -1
        parts.pause_port = (
            packets.cells[slot + PAUSE_PORT] if parts.switch_pause_ns else -1
        )

    def _forget(self, slot: int) -> None:
        self._bursts[slot >> _SLOT_BITS] = None
        self._packets.release_bytes(slot)

    # Endpoints.

    def _drive(self, index: int) -> None:
        """Run an endpoint at the current time: completions, timers and sends."""
        endpoint = self._endpoints[index]
        engine = endpoint.engine
        now_ns = self.now_ns
        endpoint.advance(now_ns)
        if not self._finished[index] and endpoint.finished():
            self._finished[index] = True
            self._unfinished -= 1
        if endpoint.failed() is not None:
            self._has_failed = True
        if not self._is_held[index]:
            burst = engine.next_burst(now_ns)
            while burst is not None:
                self._put(index, burst)
                burst = engine.next_burst(now_ns)
        self._wake(index)
        if endpoint.woken:
            for other in endpoint.woken:
                self._wake(self._endpoints.index(other))
            endpoint.woken = []

    def _put(self, index: int, burst: Burst) -> None:
        """Queue a burst of an endpoint at its host's port."""
        # The 24 bits of a QPN limit the destinations of a port.
        key = (index << 24 | burst.destination) << 16 | burst.source_port
        path = self._paths.find(key)
        if path < 0:
            path = self._find_path(index, burst, key)
        flow = self._path_cells[path]
        if flow < 0:
            for each_of in burst.parts_of or (burst.parts,):
                if each_of is not None and each_of.received_ns < 0:
                    each_of.sent_ns = each_of.departed_ns = self.now_ns
                    each_of.queue_ns = each_of.switch_pause_ns = 0
                    each_of.serialise_ns = each_of.slow_ns = 0
            self._local.append((self._path_cells[path + 2], burst))
            place = len(self._local) - 1
            self._events.add(self.now_ns, place << KIND_BITS | _LOCAL)
            return
        packets = self._packets
        host = self._hosts[index]
        destination = self._path_cells[path + 1]
        dscp = self._data_dscp
        if burst.kind == _CNP:
            dscp = self._cnp_dscp
        elif burst.kind != _DATA:
            dscp = self._other_dscp
        endpoint = self._endpoints[index]
        if dscp == self._data_dscp and endpoint.dscps:
            dscp = endpoint.dscps.get(burst.source_qpn, dscp)
        flow_number = key << 2 | burst.kind
        position = burst.sequence
        attempt = burst.attempt
        count = burst.count
        each = count if self._whole_bursts else 1
        first = 0
        parts = burst.parts
        port = self._ports[host]
        rate_bps = port.rate_bps
        while first < count:
            slot = packets.take()
            packets.cells[slot + SIZE] = (
                burst.wire_bytes if each == count else burst.packet_wire_bytes(first)
            )
            packets.cells[slot + FLOW] = flow
            packets.cells[slot + DESTINATION] = destination
            packets.cells[slot + DSCP] = dscp
            packets.cells[slot + ECN] = self._ecn
            packets.cells[slot + POSITION] = first
            if burst.kind == _DATA and first >= burst.resent_packets:
                attempt = 0
            packets.cells[slot + NUMBER] = packet_number(
                flow_number, position + first, attempt
            )
            packets.cells[slot + COUNT] = each
            packets.cells[slot + SENT] = self.now_ns
            if parts is not None and rate_bps > 0:
                alone_ns = max(parts.host_alone_ns, self.now_ns)
                packets.cells[slot + OWN_NS] = alone_ns - self.now_ns
                alone_ns += packets.cells[slot + SIZE] * _BIT_NS // rate_bps
                parts.host_alone_ns = alone_ns
            while slot >> _SLOT_BITS >= len(self._bursts):
                self._bursts.append(None)
            self._bursts[slot >> _SLOT_BITS] = burst
            if self._model.send(host, slot, self.now_ns) != QUEUED:
                self._forget(slot)
            first += each
        self._kick(host)

    def _find_path(self, index: int, burst: Burst, key: int) -> int:
        """Store the path of a burst, and return the place of the path."""
        routes = self._routes
        flow = routes.find(index, burst.destination, burst.source_port)
        receiver = routes.receiver(index, burst.destination)
        place = self._path_end
        if place == len(self._path_cells):
            self._path_cells = doubled(self._path_cells)
        self._path_end += _PATH_FIELDS
        self._path_cells[place] = flow
        self._path_cells[place + 1] = routes.node(receiver)
        self._path_cells[place + 2] = receiver
        self._paths.put(key, place)
        return place

    def _deliver_local(self, place: int) -> None:
        """Deliver a burst to the port that sent it."""
        entry = self._local[place]
        if entry is None:
            return
        self._local[place] = None
        index, burst = entry
        self._endpoints[index].engine.receive_burst(burst, self.now_ns)
        self._drive(index)

    def _wake(self, index: int) -> None:
        """Schedule the next wakeup of an endpoint."""
        endpoint = self._endpoints[index]
        wake_ns = endpoint.next_wakeup_ns()
        if self._is_held[index]:
            # While the endpoint is paused, only its timers count, not pending sends.
            wake_ns = endpoint.next_timer_ns()
        if wake_ns < self.now_ns:
            wake_ns = self.now_ns
        if wake_ns < self._wake_ns[index]:
            self._wake_ns[index] = wake_ns
            self._events.add_timer(wake_ns, index << KIND_BITS | _WAKE)

    def _look_at(self, number: int) -> None:
        """Stop or resume a port after a pause begins or ends."""
        self._kick(number)
        index = self._endpoint_of[number]
        if index < 0:
            return
        # An endpoint stops only if all its classes are paused. Otherwise, data of a
        # paused class waits in the queue of the port, and does not delay the other
        # classes.
        is_held = True
        for klass in self._data_classes[index]:
            if not self._ports[number].is_paused(klass):
                is_held = False
        if is_held != self._is_held[index]:
            self._is_held[index] = is_held
            if is_held:
                self._endpoints[index].engine.rest(self.now_ns)
            if not is_held:
                # The pause prevented sends, so the host was not late.
                self._endpoints[index].engine.resume(self.now_ns)
                self._drive(index)
