# cython: annotation_typing=False, language_level=3, boundscheck=False
# cython: wraparound=False, initializedcheck=False, cdivision=True
"""Model of all switches of a fabric: queues, marking, pauses, ECMP and link faults.

The model does no I/O and reads no clock. The owner of the model drives it:

- ``send`` puts a packet into a host's queue, and ``receive`` passes a packet to the
  port at the end of a link.
- ``transmit`` returns the next packet of a port when the port's wire is free.
- ``next_signal`` returns pause frames, which the owner delivers with ``pause``.
- ``advance`` processes timers at the time that ``next_ns`` returns.
- ``take_dropped`` returns packets that the model has dropped from queues.

The owner must free the slots of all packets. The model frees the buffer memory of a
packet when the packet begins to leave.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from chakram.switch.buffer import FITS, REFUSED, Account, Pool
from chakram.switch.forwarding import Forwarding
from chakram.switch.keyed_random import draw, share_of_draws
from chakram.switch.marking import Marker
from chakram.switch.packet_outcomes import (
    CORRUPTED,
    DELIVERED,
    EGRESS_LIMIT,
    HEADROOM_FULL,
    INGRESS_LIMIT,
    LINK_DOWN,
    LINK_LOSS,
    NO_ROUTE,
    QUEUED,
    WATCHDOG,
    WRED,
)
from chakram.switch.packet_slots import (
    CE,
    CHOSEN,
    CLASS,
    DEPARTED,
    DESTINATION,
    DSCP,
    ECN,
    EGRESS,
    ENTERED,
    FATE,
    FLOW,
    HOP,
    HOST_PAUSED_NS,
    INGRESS,
    MOST_PAUSED_NS,
    MOST_QUEUED_NS,
    NOT_ECT,
    NUMBER,
    PAUSE_PORT,
    PAUSED_BEFORE,
    PAUSED_NS,
    QUEUE_PORT,
    QUEUED_NS,
    SIZE,
    SLOW_NS,
    SLOW_PORT,
    WIRE_NS,
    Packets,
)
from chakram.switch.port import (
    DROP_PACKETS,
    HEAD,
    MARKED_PACKETS,
    NEVER,
    PFC_RECEIVED,
    QUEUE_BYTES,
    QUEUE_PACKETS,
    RECEIVED_BYTES,
    RECEIVED_PACKETS,
    SENT_BYTES,
    SENT_PACKETS,
    Port,
)
from chakram.switch.settings import CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.switch.settings import (
        HostSpec,
        PortSettings,
        PortSpec,
        SwitchSettings,
        SwitchSpec,
        WatchdogAction,
        WatchdogSettings,
    )

__all__ = ["Signal", "SwitchModel"]

_QUEUED, _DELIVERED = QUEUED, DELIVERED
_INGRESS_LIMIT, _HEADROOM_FULL, _EGRESS_LIMIT = (
    INGRESS_LIMIT,
    HEADROOM_FULL,
    EGRESS_LIMIT,
)
_WRED, _NO_ROUTE, _LINK_DOWN, _WATCHDOG = WRED, NO_ROUTE, LINK_DOWN, WATCHDOG
_LINK_LOSS, _CORRUPTED = LINK_LOSS, CORRUPTED
_CE, _NOT_ECT = CE, NOT_ECT
_SIZE, _DSCP, _FLOW, _DESTINATION, _HOP = SIZE, DSCP, FLOW, DESTINATION, HOP
_ECN, _INGRESS, _CLASS, _EGRESS = ECN, INGRESS, CLASS, EGRESS
_FATE, _CHOSEN, _NUMBER = FATE, CHOSEN, NUMBER
_ENTERED, _DEPARTED, _WIRE_NS = ENTERED, DEPARTED, WIRE_NS
_PAUSED_BEFORE, _PAUSED_NS, _HOST_PAUSED_NS = PAUSED_BEFORE, PAUSED_NS, HOST_PAUSED_NS
_QUEUED_NS, _MOST_QUEUED_NS, _QUEUE_PORT = QUEUED_NS, MOST_QUEUED_NS, QUEUE_PORT
_MOST_PAUSED_NS, _PAUSE_PORT = MOST_PAUSED_NS, PAUSE_PORT
_SLOW_NS, _SLOW_PORT = SLOW_NS, SLOW_PORT
_HEAD, _QUEUE_PACKETS, _QUEUE_BYTES = HEAD, QUEUE_PACKETS, QUEUE_BYTES
_RECEIVED_PACKETS, _RECEIVED_BYTES = RECEIVED_PACKETS, RECEIVED_BYTES
_SENT_PACKETS, _SENT_BYTES, _MARKED_PACKETS = SENT_PACKETS, SENT_BYTES, MARKED_PACKETS
_DROP_PACKETS, _PFC_RECEIVED = DROP_PACKETS, PFC_RECEIVED
_BIT_NS = 8_000_000_000  # bits in a byte x nanoseconds in a second
_CLASSES = CLASSES
_NEVER = NEVER
_FITS, _REFUSED = FITS, REFUSED

_BITS_PER_QUANTUM = 512
_S_NS = 10**9
# Streams of draws. The lowest streams are for marks, one for each class of a port.
_WIRE_STREAM = 1 << 40
_JITTER_STREAM = 1 << 41
_HASHED_SEED = (1 << 64) - 1
# Types of timers.
_EXPIRE, _REFRESH, _POLL = range(3)


class Signal(NamedTuple):
    """A pause frame in flight.

    Attributes:
        port: Port that sends the frame.
        klass: Class that the frame applies to.
        duration_ns: Duration of the pause; 0 ends a pause.
        time_ns: Time at which the frame's last bit has left and its receiver has
            reacted, without the link delay.
    """

    port: int
    klass: int
    duration_ns: int
    time_ns: int


class SwitchModel:
    """The switches of a fabric, and the ports of its hosts.

    Nodes are numbered: first the switches, then the hosts. Ports are numbered in the
    same order: first the ports of each switch, then the ports of the hosts.

    Args:
        switches: Switches of the fabric.
        hosts: Hosts of the fabric. Empty if they are modeled elsewhere.
        next_hops: See ``Forwarding``.
        seed: Seed of marks and random choices.

    Attributes:
        packets: Slots of all packets.
        pools: Memory of all nodes.
        forwarding: Forwarding tables of all switches.
        entered: Number of packets that entered the model, at hosts or from outside
            links.
        left: Number of packets that reached a host, or a link outside the model.
        dropped: Number of packets that were dropped.

    Raises:
        ValueError: If the peer numbers of ports do not match.
    """

    __slots__ = (
        "_changes",
        "_dropped",
        "_hosts",
        "_names",
        "_number",
        "_ports",
        "_seed",
        "_signals",
        "_timers",
        "dropped",
        "entered",
        "forwarding",
        "left",
        "packets",
        "pools",
    )

    def __init__(
        self,
        *,
        switches: Sequence[SwitchSpec],
        hosts: Sequence[HostSpec] = (),
        next_hops: Callable[[int, int], Sequence[int]],
        seed: int,
    ) -> None:
        self.packets = Packets()
        self._seed = seed & _HASHED_SEED
        self._ports: list[Port] = []
        self.pools: list[Pool] = []
        self._names = [each.name for each in switches]
        for node, switch in enumerate(switches):
            pools = {each.name: Pool(each) for each in switch.settings.pools}
            self.pools += pools.values()
            for spec, settings in zip(switch.ports, switch.settings.ports, strict=True):
                port = self._add_port(node, spec, switch.settings, settings, False)
                port.ingress = [
                    Account(each, pools[each.pool]) for each in settings.ingress
                ]
                port.egress = [
                    Account(each, pools[each.pool]) for each in settings.egress
                ]
        self._hosts = len(self._ports)
        for number, host in enumerate(hosts):
            pools = {each.name: Pool(each) for each in host.settings.pools}
            self.pools += pools.values()
            settings = host.settings.ports[0]
            port = self._add_port(
                len(switches) + number, host.port, host.settings, settings, True
            )
            port.egress = [Account(each, pools[each.pool]) for each in settings.egress]
        for port in self._ports:
            if port.peer >= 0 and (
                port.peer >= len(self._ports)
                or self._ports[port.peer].peer != port.number
            ):
                raise ValueError(f"{port.name}: port {port.peer} is not its peer")
        self.forwarding = Forwarding(
            ports=self._ports,
            next_hops=next_hops,
            balancing=[each.settings.balancing for each in switches],
            seed=seed,
        )
        self._signals: deque[Signal] = deque()
        self._dropped: list[int] = []
        self._changes: list[int] = []
        self._timers: list[tuple[int, int, int, int, int, int]] = []
        self._number = 0
        self.entered = 0
        self.left = 0
        self.dropped = 0

    def _add_port(
        self,
        node: int,
        spec: PortSpec,
        switch: SwitchSettings,
        settings: PortSettings,
        is_host: bool,
    ) -> Port:
        number = len(self._ports)
        port = Port(
            number=number,
            node=node,
            name=spec.name,
            rate_bps=spec.rate_bps or 0,
            peer=-1 if spec.peer is None else spec.peer,
            is_host=is_host,
            packets=self.packets,
            weights=settings.weights,
            nearest=switch.time_per_packet == "nearest",
        )
        if spec.bucket_bytes is not None and spec.rate_bps:
            port.is_shaper = True
            port.bucket_ns = spec.bucket_bytes * 8 * _S_NS // spec.rate_bps
            port.jitter_ns = spec.jitter_ns
        port.cuts_through = switch.cut_through
        port.cell_bytes = switch.cell_bytes
        port.class_of_dscp = list(switch.class_of_dscp)
        port.markers = [
            None
            if each is None
            else Marker(each, seed=self._seed, stream=number * _CLASSES + klass)
            for klass, each in enumerate(settings.wred)
        ]
        pause = settings.pause
        port.pause_classes = sum(1 << each for each in pause.classes)
        if pause.quanta is not None and spec.rate_bps:
            port.quanta_ns = pause.quanta * _BITS_PER_QUANTUM * _S_NS // spec.rate_bps
        port.frame_bytes = pause.frame_bytes
        port.response_ns = pause.response_ns
        port.watchdog = settings.watchdog
        self._ports.append(port)
        return port

    # Inspection.

    def port(self, number: int) -> Port:
        """Return a port, for inspection."""
        return self._ports[number]

    def ports(self) -> tuple[Port, ...]:
        """Return all ports."""
        return tuple(self._ports)

    def host_port(self, host: int) -> int:
        """Return the port number of a host."""
        return self._hosts + host

    # Packets.

    def send(self, number: int, slot: int, now_ns: int) -> int:
        """Put a packet into a host's queue. Return ``QUEUED`` or the drop reason."""
        port = self._ports[number]
        self.entered += 1
        packets = self.packets
        packets.cells[slot + _INGRESS] = -1
        klass = port.class_of_dscp[packets.cells[slot + _DSCP]]
        return self._enqueue(None, port, slot, klass, now_ns)

    def receive(self, number: int, slot: int, now_ns: int) -> int:
        """Receive a packet at port *number*.

        Returns:
            ``QUEUED`` with the egress port in field ``EGRESS``, ``DELIVERED`` at a
            host, or the drop reason.
        """
        port = self._ports[number]
        packets = self.packets
        fate = packets.cells[slot + _FATE]
        if fate != 0:
            return self._lose_on_wire(port, slot, fate)
        klass = port.class_of_dscp[packets.cells[slot + _DSCP]]
        port.by_class[klass << 4 | _RECEIVED_PACKETS] += 1
        port.by_class[klass << 4 | _RECEIVED_BYTES] += packets.cells[slot + _SIZE]
        if port.is_host:
            self.left += 1
            return _DELIVERED
        if port.peer < 0:
            self.entered += 1
        if port.stormed >> klass & 1 and port.forced >> klass & 1 == 0:
            return self._drop(port, slot, klass, _WATCHDOG)
        egress = packets.cells[slot + _CHOSEN] - 1
        if egress >= 0:
            out = self._ports[egress]
            if not out.is_up:
                egress = -1  # the port went down while the packet arrived
        if egress < 0:
            egress = self.forwarding.egress(
                packets.cells[slot + _FLOW],
                packets.cells[slot + _HOP],
                port.node,
                packets.cells[slot + _DESTINATION],
                packets.cells[slot + _NUMBER],
            )
            if egress < 0:
                return self._drop(port, slot, klass, _NO_ROUTE)
        packets.cells[slot + _CHOSEN] = 0
        packets.cells[slot + _INGRESS] = number
        packets.cells[slot + _HOP] += 1
        return self._enqueue(port, self._ports[egress], slot, klass, now_ns)

    def cuts_through(self, number: int, slot: int, now_ns: int) -> bool:
        """Return whether a packet may leave before all of it has arrived.

        The owner calls this method when the head of the packet arrives, after setting
        ``ENTERED`` to the arrival time of the last bit. If the result is true, the
        owner calls ``receive`` immediately, otherwise after the last bit.
        """
        port = self._ports[number]
        if port.is_host or not port.cuts_through:
            return False
        packets = self.packets
        if packets.cells[slot + _FATE] != 0:
            return False
        egress = self.forwarding.egress(
            packets.cells[slot + _FLOW],
            packets.cells[slot + _HOP],
            port.node,
            packets.cells[slot + _DESTINATION],
            packets.cells[slot + _NUMBER],
        )
        if egress < 0:
            return False
        packets.cells[slot + _CHOSEN] = egress + 1
        out = self._ports[egress]
        klass = port.class_of_dscp[packets.cells[slot + _DSCP]]
        if not out.is_up or out.waiting != 0 or out.free_ns > now_ns:
            return False
        if (out.paused & ~out.forced) >> klass & 1:
            return False
        if out.nominal_bps == 0 or 0 < port.nominal_bps < out.nominal_bps:
            return False
        if out.rate_bps <= 0:
            return False
        # The last bit must not leave before it arrives, even if faults have changed the
        # rates. The margin is for rounded serialization delays.
        wire_ns = packets.cells[slot + _SIZE] * _BIT_NS // out.rate_bps
        return wire_ns + 2 >= packets.cells[slot + _ENTERED] - now_ns

    def transmit(self, number: int, now_ns: int) -> int:
        """Start to send a port's next packet. Return its slot, or -1 if none may leave.

        ``Port.sent_ns`` returns the time when the last bit of the packet has left.
        """
        port = self._ports[number]
        if not port.is_up or port.free_ns > now_ns:
            return -1
        klass = port.pick()
        if klass < 0:
            return -1
        slot = port.pop(klass)
        packets = self.packets
        size_bytes = packets.cells[slot + _SIZE]
        self._release(port, slot, klass, size_bytes, now_ns)
        marker = port.markers[klass]
        if (
            marker is not None
            and marker.at_dequeue
            and packets.cells[slot + _ECN] != _NOT_ECT
            and marker.chooses(
                port.by_class[klass << 4 | _QUEUE_BYTES], packets.cells[slot + _NUMBER]
            )
        ):
            packets.cells[slot + _ECN] = _CE
            port.by_class[klass << 4 | _MARKED_PACKETS] += 1
        port.by_class[klass << 4 | _SENT_PACKETS] += 1
        port.by_class[klass << 4 | _SENT_BYTES] += size_bytes
        port.occupy(size_bytes, now_ns)
        if port.is_shaper:
            self._pass(port, slot, now_ns)
        self._account(port, slot, klass, now_ns)
        if port.is_lossy_wire:
            self._draw_wire_fault(port, slot)
        if port.peer < 0:
            self.left += 1
        return slot

    def _account(self, port: Port, slot: int, klass: int, now_ns: int) -> None:
        """Add a departing packet's times at a port to the fields of the packet."""
        packets = self.packets
        wire_ns = port.sent_ns() - now_ns
        packets.cells[slot + _WIRE_NS] += wire_ns
        if port.rate_bps != port.nominal_bps and port.nominal_bps:
            size_bytes = packets.cells[slot + _SIZE]
            nominal_ns = size_bytes * _BIT_NS // port.nominal_bps
            if wire_ns > nominal_ns:
                packets.cells[slot + _SLOW_NS] += wire_ns - nominal_ns
                packets.cells[slot + _SLOW_PORT] = port.number
        paused_ns = (
            port.paused_so_far(klass, now_ns) - packets.cells[slot + _PAUSED_BEFORE]
        )
        if port.is_host:
            packets.cells[slot + _DEPARTED] = now_ns
            packets.cells[slot + _HOST_PAUSED_NS] = paused_ns
            return
        queued_ns = now_ns - packets.cells[slot + _ENTERED] - paused_ns
        packets.cells[slot + _QUEUED_NS] += queued_ns
        packets.cells[slot + _PAUSED_NS] += paused_ns
        if queued_ns > packets.cells[slot + _MOST_QUEUED_NS]:
            packets.cells[slot + _MOST_QUEUED_NS] = queued_ns
            packets.cells[slot + _QUEUE_PORT] = port.number
        if paused_ns > packets.cells[slot + _MOST_PAUSED_NS]:
            packets.cells[slot + _MOST_PAUSED_NS] = paused_ns
            packets.cells[slot + _PAUSE_PORT] = port.number

    def lose(self, slot: int) -> None:
        """Count a packet in flight as dropped because its link went down."""
        packets = self.packets
        port = self._ports[packets.cells[slot + _EGRESS]]
        self._drop(port, slot, packets.cells[slot + _CLASS], _LINK_DOWN)

    def take_dropped(self) -> list[int]:
        """Return the packets that were dropped from queues since the last call."""
        dropped = self._dropped
        self._dropped = []
        return dropped

    def _enqueue(
        self, port: Port | None, out: Port, slot: int, klass: int, now_ns: int
    ) -> int:
        """Put a packet into a queue. *port* is the ingress port, or None at a host."""
        packets = self.packets
        packets.cells[slot + _CLASS] = klass
        packets.cells[slot + _EGRESS] = out.number
        if not out.is_up:
            return self._drop(out, slot, klass, _LINK_DOWN)
        if out.stormed >> klass & 1 and out.forced >> klass & 1 == 0:
            return self._drop(out, slot, klass, _WATCHDOG)
        size_bytes = packets.cells[slot + _SIZE]
        marker = out.markers[klass]
        is_chosen = False
        if marker is not None:
            number = packets.cells[slot + _NUMBER]
            if packets.cells[slot + _ECN] == _NOT_ECT:
                if marker.chooses(out.by_class[klass << 4 | _QUEUE_BYTES], number):
                    out.wred_drops[klass] += 1
                    return self._drop(out, slot, klass, _WRED)
            elif not marker.at_dequeue:
                is_chosen = marker.chooses(
                    out.by_class[klass << 4 | _QUEUE_BYTES], number
                )
        occupied = out.occupied(size_bytes)
        into = _FITS
        if port is not None:
            incoming = port.ingress[klass]
            into = incoming.room_for(occupied)
            if into == _REFUSED:
                has_headroom = port.pause_classes >> klass & 1
                return self._drop(
                    port,
                    slot,
                    klass,
                    _HEADROOM_FULL if has_headroom else _INGRESS_LIMIT,
                )
        outgoing = out.egress[klass]
        place = outgoing.room_for(occupied)
        if place == _REFUSED:
            return self._drop(out, slot, klass, _EGRESS_LIMIT)
        outgoing.charge(occupied, place)
        if is_chosen:
            packets.cells[slot + _ECN] = _CE
            out.by_class[klass << 4 | _MARKED_PACKETS] += 1
        packets.cells[slot + _ENTERED] = now_ns
        packets.cells[slot + _PAUSED_BEFORE] = out.paused_so_far(klass, now_ns)
        out.push(klass, slot, size_bytes)
        if port is not None:
            incoming = port.ingress[klass]
            incoming.charge(occupied, into)
            bit = 1 << klass
            if (
                port.pause_classes & bit
                and not port.xoff & bit
                and incoming.wants_pause()
            ):
                self._pause_peer(port, klass, now_ns)
        return _QUEUED

    def _release(
        self, out: Port, slot: int, klass: int, size_bytes: int, now_ns: int
    ) -> None:
        """Free the memory of a packet that leaves a queue."""
        occupied = out.occupied(size_bytes)
        account = out.egress[klass]
        account.release(occupied)
        number = self.packets.cells[slot + _INGRESS]
        if number < 0:
            return
        port = self._ports[number]
        account = port.ingress[klass]
        account.release(occupied)
        if port.xoff >> klass & 1 and account.allows_resume():
            self._resume_peer(port, klass, now_ns)

    def _drop(self, port: Port, slot: int, klass: int, reason: int) -> int:
        """Count a packet as dropped at a port, and return the reason."""
        port.by_class[klass << 4 | _DROP_PACKETS] += 1
        port.drop_bytes[klass] += self.packets.cells[slot + _SIZE]
        port.drops_by_reason[reason] += 1
        self.dropped += 1
        return reason

    def _flush(self, port: Port, klass: int, reason: int, now_ns: int) -> None:
        """Drop all packets in a queue."""
        packets = self.packets
        while port.by_class[klass << 4 | _HEAD] >= 0:
            slot = port.pop(klass)
            self._release(port, slot, klass, packets.cells[slot + _SIZE], now_ns)
            self._drop(port, slot, klass, reason)
            self._dropped.append(slot)

    # Wires.

    def _pass(self, port: Port, slot: int, now_ns: int) -> None:
        """Set the time when a token bucket passes a packet: now or after jitter.

        Packets keep their order.
        """
        if port.jitter_ns:
            number = self.packets.cells[slot + _NUMBER]
            drawn = draw(self._seed, _JITTER_STREAM + port.number, number)
            now_ns += drawn * port.jitter_ns >> 32
        if now_ns > port.left_ns:
            port.left_ns = now_ns

    def _draw_wire_fault(self, port: Port, slot: int) -> None:
        """Decide at random whether a faulty wire loses or corrupts a packet."""
        number = self.packets.cells[slot + _NUMBER]
        drawn = draw(self._seed, _WIRE_STREAM + port.number, number)
        if drawn < port.lost_share:
            self.packets.cells[slot + _FATE] = _LINK_LOSS
        elif drawn < port.lost_share + port.corrupted_share:
            self.packets.cells[slot + _FATE] = _CORRUPTED

    def _lose_on_wire(self, port: Port, slot: int, fate: int) -> int:
        """Count a lost packet at the sender, or a corrupted one at the receiver."""
        packets = self.packets
        if fate == _LINK_LOSS:
            port = self._ports[packets.cells[slot + _EGRESS]]
        return self._drop(port, slot, packets.cells[slot + _CLASS], fate)

    # Pauses.

    def pause(self, number: int, klass: int, duration_ns: int, now_ns: int) -> None:
        """Process a pause frame that a port has received.

        Args:
            number: Number of the port.
            klass: Class that the frame applies to.
            duration_ns: Duration of the pause. 0 ends a pause, and ``NEVER`` starts a
                pause without a limit.
            now_ns: Time at which the pause frame takes effect.
        """
        port = self._ports[number]
        if not port.is_up:
            return
        port.by_class[klass << 4 | _PFC_RECEIVED] += 1
        if duration_ns == 0:
            port.resume_class(klass, now_ns)
            return
        until_ns = _NEVER
        if duration_ns < _NEVER - now_ns:
            until_ns = now_ns + duration_ns
            self._set_timer(until_ns, _EXPIRE, number, klass, 0)
        port.pause_class(klass, until_ns, now_ns)
        watchdog = port.watchdog
        if watchdog is not None and not port.is_polled:
            port.is_polled = True
            port.polled_packets = port.of_classes(_SENT_PACKETS)
            self._set_timer(now_ns + watchdog.poll_ns, _POLL, number, 0, 0)

    def next_signal(self) -> Signal | None:
        """Return the next pause frame that a port sends, or None."""
        return self._signals.popleft() if self._signals else None

    def _pause_peer(self, port: Port, klass: int, now_ns: int) -> None:
        port.xoff |= 1 << klass
        port.xoff_epochs[klass] += 1
        self._send_pause(port, klass, now_ns)

    def _resume_peer(self, port: Port, klass: int, now_ns: int) -> None:
        port.xoff &= ~(1 << klass)
        port.xoff_epochs[klass] += 1
        self._send_signal(port, klass, 0, now_ns)

    def _send_pause(self, port: Port, klass: int, now_ns: int) -> None:
        """Send a pause frame, and schedule its refresh."""
        self._send_signal(port, klass, port.quanta_ns, now_ns)
        if port.quanta_ns != _NEVER:
            # Refresh the pause after half its duration. The other half leaves time for
            # the frame to wait for a packet and to arrive.
            self._set_timer(
                now_ns + port.quanta_ns // 2,
                _REFRESH,
                port.number,
                klass,
                port.xoff_epochs[klass],
            )

    def _send_signal(
        self, port: Port, klass: int, duration_ns: int, now_ns: int
    ) -> None:
        if port.is_up:
            port.pfc_sent[klass] += 1
            sent_ns = port.occupy(port.frame_bytes, now_ns)
            self._signals.append(
                Signal(port.number, klass, duration_ns, sent_ns + port.response_ns)
            )

    # Timers.

    def next_ns(self) -> int:
        """Return the time at which ``advance`` must be called, or ``NEVER``."""
        return self._timers[0][0] if self._timers else _NEVER

    def advance(self, now_ns: int) -> list[int]:
        """Process due timers. Return the ports that may now have a packet to send."""
        ports: list[int] = []
        while self._timers and self._timers[0][0] <= now_ns:
            time_ns, _, kind, number, klass, epoch = heappop(self._timers)
            port = self._ports[number]
            if kind == _EXPIRE:
                if port.paused >> klass & 1 and port.paused_until_ns[klass] <= time_ns:
                    port.resume_class(klass, time_ns)
            elif kind == _POLL:
                if port.watchdog is not None:
                    self._poll(port, port.watchdog, now_ns)
            elif port.xoff >> klass & 1 and port.xoff_epochs[klass] == epoch:
                self._send_pause(port, klass, now_ns)
            ports.append(number)
        return ports

    def _set_timer(
        self, time_ns: int, kind: int, number: int, klass: int, epoch: int
    ) -> None:
        self._number += 1
        heappush(self._timers, (time_ns, self._number, kind, number, klass, epoch))

    def _poll(self, port: Port, watchdog: WatchdogSettings, now_ns: int) -> None:
        """Detect stuck queues of a port, and queues whose pause storm has ended."""
        for klass in range(_CLASSES):
            bit = 1 << klass
            if port.stormed & bit:
                if now_ns - port.pause_ns[klass] >= watchdog.restoration_ns:
                    port.stormed &= ~bit
                    port.forced &= ~bit
                    port.restored[klass] += 1
                    port.resume_class(klass, now_ns)
                continue
            is_stuck = (
                port.paused & bit
                and port.by_class[klass << 4 | _QUEUE_PACKETS] > 0
                and port.by_class[klass << 4 | _SENT_PACKETS]
                == port.polled_packets[klass]
            )
            port.stuck_ns[klass] = (
                port.stuck_ns[klass] + watchdog.poll_ns if is_stuck else 0
            )
            if port.stuck_ns[klass] >= watchdog.detection_ns:
                self._begin_storm(port, klass, watchdog.action, now_ns)
        port.polled_packets = port.of_classes(_SENT_PACKETS)
        if port.paused or port.stormed:
            self._set_timer(now_ns + watchdog.poll_ns, _POLL, port.number, 0, 0)
        else:
            port.is_polled = False

    def _begin_storm(
        self, port: Port, klass: int, action: WatchdogAction, now_ns: int
    ) -> None:
        port.stuck_ns[klass] = 0
        port.storms[klass] += 1
        if action == "alert":
            return
        port.stormed |= 1 << klass
        if action == "forward":
            port.forced |= 1 << klass
        else:
            self._flush(port, klass, _WATCHDOG, now_ns)

    # Faults.

    def set_link(self, number: int, is_up: bool, now_ns: int) -> None:
        """Set the link of a port up or down, at both ends.

        If the link goes down, packets that are queued at either end are dropped.
        ``take_link_changes`` returns the ports, and the owner must call ``lose`` for
        their packets in flight.
        """
        port = self._ports[number]
        ends = [port] if port.peer < 0 else [port, self._ports[port.peer]]
        if port.is_up == is_up:
            return
        for end in ends:
            if not is_up:
                for klass in range(_CLASSES):
                    self._flush(end, klass, _LINK_DOWN, now_ns)
                    end.resume_class(klass, now_ns)
                    end.xoff_epochs[klass] += 1
                end.xoff = 0
                end.stormed = 0
                end.forced = 0
            end.is_up = is_up
            end.free_ns = now_ns
            end.rest = 0
            self._changes.append(end.number)
        self.forwarding.links_changed()

    def set_rate(self, number: int, rate_bps: int, now_ns: int) -> None:
        """Set the rate of a port for later packets. 0 means no limit."""
        port = self._ports[number]
        if rate_bps < 0:
            raise ValueError(f"a rate of {rate_bps} bit/s is negative")
        if now_ns > port.free_ns:
            port.free_ns = now_ns
        elif port.rest:
            port.free_ns += 1
        port.rest = 0
        port.rate_bps = rate_bps

    def set_errors(self, number: int, *, loss: float, corruption: float) -> None:
        """Set the fractions of a port's packets that are lost or arrive corrupted."""
        self._set_shares(number, share_of_draws(loss), share_of_draws(corruption))

    def _set_shares(self, number: int, lost: int, corrupted: int) -> None:
        port = self._ports[number]
        port.lost_share = lost
        port.corrupted_share = corrupted
        port.is_lossy_wire = lost > 0 or corrupted > 0

    def take_link_changes(self) -> list[int]:
        """Return the ports whose link went down or came up since the last call."""
        changes = self._changes
        self._changes = []
        return changes

    def waiting(self) -> int:
        """Return how many packets are in queues."""
        total = 0
        for number in range(len(self._ports)):
            port = self._ports[number]
            for klass in range(_CLASSES):
                total += port.by_class[klass << 4 | _QUEUE_PACKETS]
        return total
