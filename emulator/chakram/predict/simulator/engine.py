# cython: language_level=3, annotation_typing=False, boundscheck=False
# cython: wraparound=False, initializedcheck=False
"""The virtual fabric: endpoints, modelled switches and the links between them.

Packets wait in the queues of the switch model, those of hosts included, cross a link
one after the other, and arrive one propagation delay after their last bit left.  Every
link has at most two events under way: the arrival of the first packet on it, and the
time when its wire is free and something waits.  What lies on a link is a list through
the packets themselves.

Hosts and switches take no time of their own, and no link lies between two ranks on one
port.  Nothing is random and ties are broken by the order in which events were made, so
a run repeats exactly.

A packet of the model is one packet, or a whole burst in coarser simulations.  A kernel
forwards what a host has sent at once in one piece, too, but its token buckets let it go
when its time on the wire begins, not when it ends: single packets are nearer to that.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.errors import RunFailed
from chakram.predict.simulator.events import Events
from chakram.roce.constants import NEVER, BurstKind
from chakram.switch.outcomes import DELIVERED, QUEUED
from chakram.switch.packets import (
    CE,
    COUNT,
    DESTINATION,
    DSCP,
    ECN,
    ECT,
    EGRESS,
    FATE,
    FLOW,
    NEXT,
    NOT_ECT,
    POSITION,
    SIZE,
    TIME,
)
from chakram.units import LAST_INSTANT_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.replay.endpoint import Endpoint
    from chakram.roce.burst import Burst
    from chakram.switch.model import SwitchModel
    from chakram.switch.packets import Packets
    from chakram.switch.port import Port

    Route = Callable[[int, int, int], tuple[int, int, int]]

__all__ = ["VirtualFabric"]

_NEVER = NEVER
_DATA = int(BurstKind.DATA)
_QUEUED, _DELIVERED = QUEUED, DELIVERED
_CE, _ECT, _NOT_ECT = CE, ECT, NOT_ECT
_COUNT, _DESTINATION, _DSCP, _ECN, _EGRESS = COUNT, DESTINATION, DSCP, ECN, EGRESS
_FATE, _FLOW, _NEXT, _POSITION, _SIZE, _TIME = FATE, FLOW, NEXT, POSITION, SIZE, TIME
_EVENTS_PER_REPORT = 20_000
_LAST_NS = LAST_INSTANT_NS
_YEAR_NS = 365 * 24 * 3600 * 10**9
_SLOT_FIELDS = 16
# Kinds of events, in the lowest bits of what happens.
_ARRIVE, _FREE, _WAKE, _PAUSE, _MODEL, _LOCAL = range(6)
_KIND_BITS = 3
# Of a link: first and last packet on it, and whether an event of each kind is due.
_HEAD, _TAIL, _WAITS, _LINK_FIELDS = 0, 1, 2, 4


def _out_of_time() -> RunFailed:
    return RunFailed(
        "simulation",
        f"would take more than {_LAST_NS // _YEAR_NS} years of virtual time",
        "raise the rates of links, or lower delays, gaps, starts and compute.scale",
    )


class VirtualFabric:
    """Endpoints on the hosts of a switch model, driven by events.

    Args:
        endpoints: One per port.
        model: Switches, and one host per endpoint at least.
        hosts: Of each endpoint the port of its host in the model.
        delays_ns: Of each port of the model the propagation delay of its link.
        route: For (sending endpoint, destination index of the burst, source port) the
            flow, the node that it is for, and the endpoint there.
        dscps: Of data and of answers.
        is_marked: Whether packets are capable of ECN.
        whole_bursts: Whether bursts cross links as one.

    Attributes:
        now_ns: The virtual time.
        events: How many there were.
        hops: How many packets, or bursts that cross links as one, have left a port.
    """

    __slots__ = (
        "_bursts",
        "_data_class",
        "_data_dscp",
        "_delays_ns",
        "_destinations",
        "_ecn",
        "_endpoint_of",
        "_endpoints",
        "_events",
        "_finished",
        "_flows",
        "_has_failed",
        "_hosts",
        "_is_held",
        "_links",
        "_local",
        "_model",
        "_model_ns",
        "_other_dscp",
        "_packets",
        "_paths",
        "_pauses",
        "_ports",
        "_receivers",
        "_route",
        "_timed",
        "_unfinished",
        "_wake_ns",
        "_whole_bursts",
        "events",
        "hops",
        "now_ns",
    )

    def __init__(
        self,
        *,
        endpoints: list[Endpoint],
        model: SwitchModel,
        hosts: Sequence[int],
        delays_ns: Sequence[int],
        route: Route,
        dscps: tuple[int, int],
        is_marked: bool = False,
        whole_bursts: bool = False,
    ) -> None:
        self.now_ns = 0
        self.events = 0
        self.hops = 0
        self._endpoints = endpoints
        self._model = model
        self._packets: Packets = model.packets
        self._ports: list[Port] = list(model.ports())
        self._hosts = list(hosts)
        self._endpoint_of = {port: index for index, port in enumerate(hosts)}
        self._delays_ns = array("q", delays_ns)
        self._route = route
        self._data_dscp, self._other_dscp = dscps
        self._ecn = _ECT if is_marked else _NOT_ECT
        self._whole_bursts = whole_bursts
        self._events = Events()
        self._links = array("q", [-1, -1, 0, 0] * len(delays_ns))
        # Of each slot, by its number, the burst that it is of.
        self._bursts: list[Burst | None] = []
        # What a route has said, and of which endpoint the receiver is.
        self._paths: dict[int, int] = {}
        self._flows: list[int] = []
        self._destinations: list[int] = []
        self._receivers: list[int] = []
        self._local: list[tuple[int, Burst] | None] = []
        # Pause frames under way.
        self._pauses: dict[int, tuple[int, int, int]] = {}
        # Whether anything but packets ever happens in the model.
        self._timed = any(port.pauses() for port in self._ports)
        self._model_ns = NEVER
        self._wake_ns = [NEVER] * len(endpoints)
        self._is_held = [False] * len(endpoints)
        self._data_class = [
            self._ports[port].class_of(self._data_dscp) for port in hosts
        ]
        self._finished = [False] * len(endpoints)
        self._unfinished = len(endpoints)
        self._has_failed = False

    def run(
        self, *, start_ns: int, report: Callable[[int], None] | None = None
    ) -> bool:
        """Run until every endpoint has finished; return whether that was reached.

        It is not if an endpoint failed, or if no event is left: timers of congestion
        control rest with their queue pairs, so a job that hangs comes to an end.

        Args:
            start_ns: When all ranks start.
            report: Called now and then with the iterations that all ranks have done.
        """
        for index, endpoint in enumerate(self._endpoints):
            endpoint.arm(start_ns)
            self._wake(index)
        report_at = _EVENTS_PER_REPORT
        while self._unfinished and not self._has_failed:
            if not self._steps(_EVENTS_PER_REPORT):
                return False
            if self.events >= report_at:
                report_at = self.events + _EVENTS_PER_REPORT
                if report is not None:
                    report(min(each.iterations_done() for each in self._endpoints))
        return not self._has_failed

    def _steps(self, limit: int) -> bool:
        """Let events happen, so many at most; False: there is none left."""
        events = self._events
        while limit > 0 and self._unfinished > 0 and not self._has_failed:
            limit -= 1
            time_ns = events.first_ns()
            if events.count == 0:
                return False
            what = events.take()
            if time_ns > _LAST_NS:
                raise _out_of_time()
            kind = what & 7
            index = what >> _KIND_BITS
            if kind == _WAKE:
                if self._wake_ns[index] != time_ns:
                    continue  # woken earlier meanwhile
                self._wake_ns[index] = _NEVER
            self.now_ns = time_ns
            self.events += 1
            if kind == _ARRIVE:
                self._arrive(index)
            elif kind == _FREE:
                self._links[index * _LINK_FIELDS + _WAITS] = 0
                self._send(index)
            elif kind == _WAKE:
                self._drive(index)
            elif kind == _PAUSE:
                self._pause(index)
            elif kind == _LOCAL:
                self._deliver_local(index)
            else:
                self._advance_model()
            if self._timed:
                self._settle()
        return True

    # Packets.

    def _arrive(self, number: int) -> None:
        """Let the first packet on the link of a port arrive at its other end."""
        packets = self._packets
        at = number * _LINK_FIELDS
        slot = self._links[at + _HEAD]
        if slot < 0 or packets.cells[slot + _TIME] != self.now_ns:
            return  # lost with the link
        after = packets.cells[slot + _NEXT]
        self._links[at + _HEAD] = after
        if after >= 0:
            self._events.add(packets.cells[after + _TIME], number << _KIND_BITS)
        port = self._ports[number]
        peer = port.peer
        outcome = self._model.receive(peer, slot, self.now_ns)
        if outcome == _QUEUED:
            self._kick(packets.cells[slot + _EGRESS])
        elif outcome == _DELIVERED:
            self._deliver(self._endpoint_of[peer], slot)
        else:
            self._forget(slot)

    def _deliver(self, index: int, slot: int) -> None:
        """Give a packet to the endpoint that it is for."""
        packets = self._packets
        endpoint = self._endpoints[index]
        burst = self._bursts[slot // _SLOT_FIELDS]
        if burst is None:
            return
        first = packets.cells[slot + _POSITION]
        count = packets.cells[slot + _COUNT]
        ce = 0
        # A mark on an answer means nothing to anybody.
        if packets.cells[slot + _ECN] == _CE and burst.kind == _DATA:
            ce = count
        self._forget(slot)
        endpoint.engine.receive_burst(burst, self.now_ns, first, count, ce)
        self._drive(index)

    def _forget(self, slot: int) -> None:
        self._bursts[slot // _SLOT_FIELDS] = None
        self._packets.give_back(slot)

    def _kick(self, number: int) -> None:
        """Let a port send that has got something to send."""
        if self._links[number * _LINK_FIELDS + _WAITS]:
            return
        port = self._ports[number]
        if port.free_ns > self.now_ns:
            self._links[number * _LINK_FIELDS + _WAITS] = 1
            self._events.add(port.free_ns, number << _KIND_BITS | _FREE)
            return
        self._send(number)

    def _send(self, number: int) -> None:
        """Let a port send what it may now."""
        packets = self._packets
        port = self._ports[number]
        at = number * _LINK_FIELDS
        while port.free_ns <= self.now_ns:
            slot = self._model.transmit(number, self.now_ns)
            if slot < 0:
                return
            self.hops += 1
            arrival_ns = self._model.sent_ns(number) + self._delays_ns[number]
            if arrival_ns > _LAST_NS:
                raise _out_of_time()
            packets.cells[slot + _TIME] = arrival_ns
            packets.cells[slot + _NEXT] = -1
            if self._links[at + _HEAD] < 0:
                self._links[at + _HEAD] = slot
                self._events.add(arrival_ns, number << _KIND_BITS)
            else:
                packets.cells[self._links[at + _TAIL] + _NEXT] = slot
            self._links[at + _TAIL] = slot
        if port.waiting and not self._links[at + _WAITS]:
            self._links[at + _WAITS] = 1
            self._events.add(port.free_ns, number << _KIND_BITS | _FREE)

    # Endpoints.

    def _drive(self, index: int) -> None:
        """Let an endpoint act now: completions, timers, whatever may leave."""
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
        """Put what an endpoint sends into the queue of its host."""
        # 24 bits of QPN bound the destinations of a port.
        key = (index << 24 | burst.destination) << 16 | burst.source_port
        path = self._paths.get(key, -1)
        if path < 0:
            path = self._find_path(index, burst, key)
        flow = self._flows[path]
        if flow < 0:
            self._local.append((self._receivers[path], burst))
            place = len(self._local) - 1
            self._events.add(self.now_ns, place << _KIND_BITS | _LOCAL)
            return
        packets = self._packets
        host = self._hosts[index]
        destination = self._destinations[path]
        dscp = self._data_dscp
        if burst.kind != _DATA:
            dscp = self._other_dscp
        count = burst.count
        each = count if self._whole_bursts else 1
        first = 0
        while first < count:
            slot = packets.take()
            packets.cells[slot + _SIZE] = (
                burst.wire_bytes if each == count else burst.packet_wire_bytes(first)
            )
            packets.cells[slot + _FLOW] = flow
            packets.cells[slot + _DESTINATION] = destination
            packets.cells[slot + _DSCP] = dscp
            packets.cells[slot + _ECN] = self._ecn
            packets.cells[slot + _POSITION] = first
            packets.cells[slot + _COUNT] = each
            while slot // _SLOT_FIELDS >= len(self._bursts):
                self._bursts.append(None)
            self._bursts[slot // _SLOT_FIELDS] = burst
            if self._model.send(host, slot, self.now_ns) != _QUEUED:
                self._forget(slot)
            first += each
        self._kick(host)

    def _find_path(self, index: int, burst: Burst, key: int) -> int:
        flow, destination, receiver = self._route(
            index, burst.destination, burst.source_port
        )
        self._flows.append(flow)
        self._destinations.append(destination)
        self._receivers.append(receiver)
        self._paths[key] = len(self._flows) - 1
        return len(self._flows) - 1

    def _deliver_local(self, place: int) -> None:
        """Give a burst to the port that has sent it."""
        entry = self._local[place]
        if entry is None:
            return
        self._local[place] = None
        index, burst = entry
        self._endpoints[index].engine.receive_burst(burst, self.now_ns)
        self._drive(index)

    def _wake(self, index: int) -> None:
        """See that an endpoint is woken when it has something to do."""
        endpoint = self._endpoints[index]
        wake_ns = endpoint.next_wakeup_ns()
        if self._is_held[index]:
            # What waits to be sent is not sent now, however due it is.
            wake_ns = endpoint.next_timer_ns()
        if wake_ns < self.now_ns:
            wake_ns = self.now_ns
        if wake_ns < self._wake_ns[index]:
            self._wake_ns[index] = wake_ns
            self._events.add(wake_ns, index << _KIND_BITS | _WAKE)

    # Pauses and faults.

    def _settle(self) -> None:
        """Carry what the model has to say, and come back when its time is."""
        model = self._model
        signal = model.next_signal()
        while signal is not None:
            peer = self._ports[signal.port].peer
            number = len(self._pauses)
            while number in self._pauses:
                number += 1
            self._pauses[number] = (peer, signal.klass, signal.duration_ns)
            time_ns = signal.time_ns + self._delays_ns[signal.port]
            self._events.add(time_ns, number << _KIND_BITS | _PAUSE)
            signal = model.next_signal()
        for slot in model.take_dropped():
            self._forget(slot)
        for number in model.take_link_changes():
            self._lose_link(number)
            self._kick(number)
        next_ns = model.next_ns()
        if next_ns < self._model_ns:
            self._model_ns = next_ns
            self._events.add(next_ns, _MODEL)

    def _pause(self, number: int) -> None:
        """Let a port obey a pause frame."""
        peer, klass, duration_ns = self._pauses.pop(number)
        self._model.pause(peer, klass, duration_ns, self.now_ns)
        self._look_at(peer)

    def _advance_model(self) -> None:
        self._model_ns = _NEVER
        for number in self._model.advance(self.now_ns):
            self._look_at(number)

    def _look_at(self, number: int) -> None:
        """Let a port go on, or stop, after a pause has begun or ended."""
        self._kick(number)
        index = self._endpoint_of.get(number)
        if index is None:
            return
        is_held = self._ports[number].is_paused(self._data_class[index])
        if is_held != self._is_held[index]:
            self._is_held[index] = is_held
            if not is_held:
                # That nothing left meanwhile was not for lack of time.
                self._endpoints[index].engine.resume(self.now_ns)
                self._drive(index)

    def _lose_link(self, number: int) -> None:
        """Drop what is on the link of a port that went down."""
        packets = self._packets
        at = number * _LINK_FIELDS
        slot = self._links[at + _HEAD]
        self._links[at + _HEAD] = -1
        while slot >= 0:
            after = packets.cells[slot + _NEXT]
            if packets.cells[slot + _FATE] == 0:
                self._model.lose(slot)
            else:
                self._model.receive(self._ports[number].peer, slot, self.now_ns)
            self._forget(slot)
            slot = after
