# cython: annotation_typing=False, language_level=3, boundscheck=False
# cython: wraparound=False, initializedcheck=False, cdivision=True
"""One port of the switch model: its queues, scheduler, pause state and counters.

A port is one end of a link, and sends packets over the link. Host ports queue and pause
packets in the same way as switch ports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.switch.packet_slots import NEXT, SIZE
from chakram.switch.settings import CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.switch.buffer import Account
    from chakram.switch.marking import Marker
    from chakram.switch.packet_slots import Packets
    from chakram.switch.settings import WatchdogSettings

__all__ = ["NEVER", "REASONS", "Port"]

NEVER = (1 << 63) - 1
"""Time of events that never happen."""

REASONS = 16
"""Maximum number of different packet outcomes that a port counts."""

_NEVER = NEVER
_CLASSES = CLASSES
_NEXT, _SIZE = NEXT, SIZE
_NONE = -1
# State of a class, in adjacent fields. Fields that every packet uses are close
# together, because the state of a large fabric exceeds the CPU caches.
(
    HEAD,
    TAIL,
    QUEUE_PACKETS,
    QUEUE_BYTES,
    PEAK_BYTES,
    SENT_PACKETS,
    SENT_BYTES,
    PAUSED_NS,
    RECEIVED_PACKETS,
    RECEIVED_BYTES,
    MARKED_PACKETS,
    DEFICIT,
    QUANTUM,
    TOP_BYTES,
    DROP_PACKETS,
    PFC_RECEIVED,
) = range(16)
_HEAD, _TAIL, _DEFICIT, _QUANTUM = HEAD, TAIL, DEFICIT, QUANTUM
_QUEUE_PACKETS, _QUEUE_BYTES, _PEAK_BYTES = QUEUE_PACKETS, QUEUE_BYTES, PEAK_BYTES
_RECEIVED_PACKETS, _RECEIVED_BYTES = RECEIVED_PACKETS, RECEIVED_BYTES
_SENT_PACKETS, _SENT_BYTES, _PAUSED_NS = SENT_PACKETS, SENT_BYTES, PAUSED_NS
_MARKED_PACKETS, _TOP_BYTES = MARKED_PACKETS, TOP_BYTES
_DROP_PACKETS, _PFC_RECEIVED = DROP_PACKETS, PFC_RECEIVED
_BIT_NS = 8_000_000_000  # bits in a byte x nanoseconds in a second
_QUANTUM_BYTES = 4096


class Port:
    """One port of the switch model.

    Args:
        number: Number of the port in the whole fabric.
        node: Number of the port's switch or host.
        name: Name for reports.
        rate_bps: Rate; 0 for no limit.
        peer: Number of the port at the other end of the link; -1 if unknown.
        is_host: Whether the port belongs to a host.
        packets: Packets of the whole fabric.
        weights: Shares of the port's classes; 0 for strict priority.
        nearest: Whether serialization delays are rounded to whole nanoseconds.
    """

    __slots__ = (
        "_strict",
        "_turn",
        "_turn_is_new",
        "bucket_ns",
        "by_class",
        "cell_bytes",
        "class_of_dscp",
        "corrupted_share",
        "cuts_through",
        "drop_bytes",
        "drops_by_reason",
        "egress",
        "forced",
        "frame_bytes",
        "free_ns",
        "ingress",
        "is_host",
        "is_lossy_wire",
        "is_polled",
        "is_shaper",
        "is_up",
        "jitter_ns",
        "left_ns",
        "lost_share",
        "markers",
        "name",
        "nearest",
        "node",
        "nominal_bps",
        "number",
        "packets",
        "pause_classes",
        "pause_ns",
        "paused",
        "paused_since_ns",
        "paused_until_ns",
        "peer",
        "pfc_sent",
        "polled_packets",
        "quanta_ns",
        "queued_bytes",
        "rate_bps",
        "response_ns",
        "rest",
        "restored",
        "stormed",
        "storms",
        "stuck_ns",
        "waiting",
        "watchdog",
        "wred_drops",
        "xoff",
        "xoff_epochs",
    )

    def __init__(
        self,
        *,
        number: int,
        node: int,
        name: str,
        rate_bps: int,
        peer: int,
        is_host: bool,
        packets: Packets,
        weights: Sequence[int],
        nearest: bool = False,
    ) -> None:
        self.number = number
        self.node = node
        self.name = name
        self.rate_bps = rate_bps
        self.nominal_bps = rate_bps
        self.peer = peer
        self.is_host = is_host
        self.is_up = True
        self.packets = packets
        self.nearest = nearest
        self.cuts_through = False
        self.cell_bytes = 1
        self.class_of_dscp = [0] * 64
        # The time when the wire is free, in whole nanoseconds plus rest / rate_bps.
        self.free_ns = 0
        self.rest = 0
        # The token bucket: the idle time that it accumulates, and the time when it last
        # passed a packet.
        self.is_shaper = False
        self.bucket_ns = 0
        self.jitter_ns = 0
        self.left_ns = 0
        self.is_lossy_wire = False
        self.lost_share = 0
        self.corrupted_share = 0
        # Queues.
        self.by_class = [0] * 128
        for klass in range(_CLASSES):
            self.by_class[klass << 4 | _HEAD] = _NONE
            self.by_class[klass << 4 | _TAIL] = _NONE
        self.queued_bytes = 0
        self.waiting = 0
        self.ingress: list[Account] = []
        self.egress: list[Account] = []
        self.markers: list[Marker | None] = [None] * _CLASSES
        # The scheduler.
        self._strict = 0
        self._turn = 0
        self._turn_is_new = True
        self._set_weights(weights)
        # Pauses: classes that the peer has paused here, and classes that this port has
        # paused at the peer.
        self.pause_classes = 0
        self.quanta_ns = NEVER
        self.frame_bytes = 60
        self.response_ns = 0
        self.paused = 0
        self.paused_since_ns = [0] * 8
        self.paused_until_ns = [0] * 8
        self.pause_ns = [-1] * 8
        self.xoff = 0
        self.xoff_epochs = [0] * 8
        # The watchdog.
        self.watchdog: WatchdogSettings | None = None
        self.is_polled = False
        self.polled_packets = [0] * 8
        self.stuck_ns = [0] * 8
        self.stormed = 0
        self.forced = 0
        # Counters.
        self.drop_bytes = [0] * 8
        self.drops_by_reason = [0] * 16
        self.wred_drops = [0] * 8
        self.pfc_sent = [0] * 8
        # Number of storms that the watchdog has detected, and number of storms that
        # have ended.
        self.storms = [0] * 8
        self.restored = [0] * 8

    def _set_weights(self, weights: Sequence[int]) -> None:
        least = min((weight for weight in weights if weight), default=1)
        for number, weight in enumerate(weights):
            if weight == 0:
                self._strict |= 1 << number
            # A quantum is at least one packet of the usual size, and no larger than the
            # weights require.
            self.by_class[number << 4 | _QUANTUM] = weight * _QUANTUM_BYTES // least

    # Queues.

    def push(self, klass: int, slot: int, size_bytes: int) -> None:
        """Append a packet to a queue."""
        self.packets.cells[slot + _NEXT] = _NONE
        tail = self.by_class[klass << 4 | _TAIL]
        if tail >= 0:
            self.packets.cells[tail + _NEXT] = slot
        else:
            self.by_class[klass << 4 | _HEAD] = slot
            self.waiting |= 1 << klass
        self.by_class[klass << 4 | _TAIL] = slot
        self.by_class[klass << 4 | _QUEUE_PACKETS] += 1
        self.by_class[klass << 4 | _QUEUE_BYTES] += size_bytes
        self.queued_bytes += size_bytes
        if (
            self.by_class[klass << 4 | _QUEUE_BYTES]
            > self.by_class[klass << 4 | _PEAK_BYTES]
        ):
            self.by_class[klass << 4 | _PEAK_BYTES] = self.by_class[
                klass << 4 | _QUEUE_BYTES
            ]

    def pop(self, klass: int) -> int:
        """Remove the first packet of a queue that is not empty."""
        slot = self.by_class[klass << 4 | _HEAD]
        size_bytes = self.packets.cells[slot + _SIZE]
        after = self.packets.cells[slot + _NEXT]
        self.by_class[klass << 4 | _HEAD] = after
        if after < 0:
            self.by_class[klass << 4 | _TAIL] = _NONE
            self.waiting &= ~(1 << klass)
        self.by_class[klass << 4 | _QUEUE_PACKETS] -= 1
        self.by_class[klass << 4 | _QUEUE_BYTES] -= size_bytes
        self.queued_bytes -= size_bytes
        return slot

    def ready(self) -> int:
        """Return the classes that have a packet and are not paused, as a bit mask."""
        return self.waiting & ~(self.paused & ~self.forced)

    def pick(self) -> int:
        """Select and return the class that sends next, or -1 if none may send."""
        ready = self.waiting & ~(self.paused & ~self.forced)
        if ready == 0:
            return _NONE
        strict = ready & self._strict
        if strict:
            klass = _CLASSES - 1
            while not strict >> klass & 1:
                klass -= 1
            return klass
        klass = self._turn
        if ready == 1 << klass:
            # The only ready class gains neither credit nor debt.
            self.by_class[klass << 4 | _DEFICIT] = 0
            self._turn_is_new = True
            return klass
        while True:
            if ready >> klass & 1:
                if self._turn_is_new:
                    self.by_class[klass << 4 | _DEFICIT] += self.by_class[
                        klass << 4 | _QUANTUM
                    ]
                    self._turn_is_new = False
                size_bytes = self.packets.cells[
                    self.by_class[klass << 4 | _HEAD] + _SIZE
                ]
                if self.by_class[klass << 4 | _DEFICIT] >= size_bytes:
                    self.by_class[klass << 4 | _DEFICIT] -= size_bytes
                    self._turn = klass
                    return klass
            elif not self.waiting >> klass & 1:
                self.by_class[klass << 4 | _DEFICIT] = 0
            klass = (klass + 1) % _CLASSES
            self._turn_is_new = True

    def occupied(self, size_bytes: int) -> int:
        """Return the memory that a packet of *size_bytes* occupies."""
        if self.cell_bytes == 1:
            return size_bytes
        cells = (size_bytes + self.cell_bytes - 1) // self.cell_bytes
        return cells * self.cell_bytes

    # The wire.

    def occupy(self, size_bytes: int, now_ns: int) -> int:
        """Reserve the wire, and return the time at which *size_bytes* have left."""
        if now_ns - self.bucket_ns > self.free_ns:
            self.free_ns = now_ns - self.bucket_ns
            self.rest = 0
        rate_bps = self.rate_bps
        if rate_bps == 0:
            return self.free_ns
        if self.nearest:
            self.free_ns += (size_bytes * _BIT_NS + rate_bps // 2) // rate_bps
            return self.free_ns
        # An ACK takes 1.24 ns at 400 Gbit/s, so rounding each time would cause a large
        # error.
        work = size_bytes * _BIT_NS + self.rest
        self.free_ns += work // rate_bps
        self.rest = work % rate_bps
        return self.free_ns + 1 if self.rest else self.free_ns

    def sent_ns(self) -> int:
        """Return the time at which the last bit of the current packet has left."""
        if self.is_shaper:
            return self.left_ns
        return self.free_ns + 1 if self.rest else self.free_ns

    # Pauses.

    def pause_class(self, klass: int, until_ns: int, now_ns: int) -> None:
        """Pause a class."""
        bit = 1 << klass
        self.pause_ns[klass] = now_ns
        if not self.paused & bit:
            self.paused |= bit
            self.paused_since_ns[klass] = now_ns
        self.paused_until_ns[klass] = until_ns

    def resume_class(self, klass: int, now_ns: int) -> None:
        """Resume a class."""
        bit = 1 << klass
        if self.paused & bit:
            self.paused &= ~bit
            self.by_class[klass << 4 | _PAUSED_NS] += (
                now_ns - self.paused_since_ns[klass]
            )

    def paused_so_far(self, klass: int, now_ns: int) -> int:
        """Return how long a class has been paused in total."""
        if self.paused >> klass & 1:
            return (
                self.by_class[klass << 4 | _PAUSED_NS]
                + now_ns
                - self.paused_since_ns[klass]
            )
        return self.by_class[klass << 4 | _PAUSED_NS]

    def pauses(self) -> bool:
        """Return whether the port pauses senders instead of dropping packets."""
        return self.pause_classes != 0

    def class_of(self, dscp: int) -> int:
        """Return the class of packets with this DSCP."""
        return self.class_of_dscp[dscp]

    def is_paused(self, klass: int) -> bool:
        """Return whether a class is paused."""
        return bool(self.paused >> klass & 1)

    def sampled(self, now_ns: int) -> list[int]:
        """Return one row for each class that was ever used, concatenated.

        A row consists of the ``LINK_SAMPLE_FIELDS``, starting with ``traffic_class``.
        The peak queue length is the maximum since the last call.
        """
        rows: list[int] = []
        for klass in range(_CLASSES):
            paused_ns = self.paused_so_far(klass, now_ns)
            peak_bytes = self.by_class[klass << 4 | _PEAK_BYTES]
            if peak_bytes > self.by_class[klass << 4 | _TOP_BYTES]:
                self.by_class[klass << 4 | _TOP_BYTES] = peak_bytes
            self.by_class[klass << 4 | _PEAK_BYTES] = self.by_class[
                klass << 4 | _QUEUE_BYTES
            ]
            if (
                self.by_class[klass << 4 | _TOP_BYTES]
                or paused_ns
                or self.by_class[klass << 4 | _DROP_PACKETS]
                or self.by_class[klass << 4 | _PFC_RECEIVED]
            ):
                rows += [
                    klass,
                    self.by_class[klass << 4 | _SENT_BYTES],
                    self.by_class[klass << 4 | _QUEUE_BYTES],
                    peak_bytes,
                    self.by_class[klass << 4 | _MARKED_PACKETS],
                    self.by_class[klass << 4 | _DROP_PACKETS],
                    self.by_class[klass << 4 | _PFC_RECEIVED],
                    paused_ns,
                ]
        return rows

    def received_so_far(self) -> int:
        """Return how many bytes all classes have received."""
        return sum(self.of_classes(_RECEIVED_BYTES))

    def of_classes(self, field: int) -> list[int]:
        """Return the value of *field* for every class."""
        return [self.by_class[klass << 4 | field] for klass in range(_CLASSES)]

    def counted(self, now_ns: int) -> dict[str, list[int]]:
        """Return the counters by name, each a list by class or drop reason."""
        return {
            "received_packets": self.of_classes(_RECEIVED_PACKETS),
            "received_bytes": self.of_classes(_RECEIVED_BYTES),
            "sent_packets": self.of_classes(_SENT_PACKETS),
            "sent_bytes": self.of_classes(_SENT_BYTES),
            "drop_packets": self.of_classes(_DROP_PACKETS),
            "drop_bytes": list(self.drop_bytes),
            "drops_by_reason": list(self.drops_by_reason),
            "marked_packets": self.of_classes(_MARKED_PACKETS),
            "wred_drops": list(self.wred_drops),
            "pfc_received": self.of_classes(_PFC_RECEIVED),
            "pfc_sent": list(self.pfc_sent),
            "paused_ns": [self.paused_so_far(each, now_ns) for each in range(_CLASSES)],
            "queue_bytes": self.of_classes(_QUEUE_BYTES),
            "queue_packets": self.of_classes(_QUEUE_PACKETS),
            "peak_bytes": list(
                map(max, self.of_classes(_PEAK_BYTES), self.of_classes(_TOP_BYTES))
            ),
            "storms": list(self.storms),
            "restored": list(self.restored),
        }

    def slots(self, klass: int) -> list[int]:
        """Return the packets of a queue, first to last."""
        found: list[int] = []
        slot = self.by_class[klass << 4 | _HEAD]
        while slot >= 0:
            found.append(slot)
            slot = self.packets.cells[slot + _NEXT]
        return found

    def check(self, now_ns: int) -> list[str]:
        """Return a list of the inconsistencies in the port's state."""
        wrong: list[str] = []
        total = 0
        for klass in range(_CLASSES):
            slots = self.slots(klass)
            size_bytes = sum(self.packets.get(slot, _SIZE) for slot in slots)
            total += size_bytes
            if (len(slots), size_bytes) != (
                self.by_class[klass << 4 | _QUEUE_PACKETS],
                self.by_class[klass << 4 | _QUEUE_BYTES],
            ):
                wrong.append(
                    f"{self.name} class {klass}: {len(slots)} packets of {size_bytes} "
                    f"bytes wait, but {self.by_class[klass << 4 | _QUEUE_PACKETS]} of "
                    f"{self.by_class[klass << 4 | _QUEUE_BYTES]} are counted"
                )
            if bool(slots) != bool(self.waiting >> klass & 1):
                wrong.append(f"{self.name} class {klass}: its waiting flag is wrong")
            if self.paused >> klass & 1 and self.paused_until_ns[klass] < now_ns:
                wrong.append(f"{self.name} class {klass}: its pause does not end")
        if total != self.queued_bytes:
            wrong.append(f"{self.name}: {total} bytes wait, not {self.queued_bytes}")
        return wrong
