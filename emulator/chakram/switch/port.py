# cython: annotation_typing=False, language_level=3, boundscheck=False
# cython: wraparound=False, initializedcheck=False, cdivision=True
"""One port: its eight queues, whose turn it is, what is paused and what was counted.

A port is the end of a link at which packets leave for that link: of a switch, or of a
host, whose packets wait here like those of a switch and are paused like them.
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
"""The time of what has no time."""

REASONS = 16
"""Outcomes of a packet that a port counts."""

_NEVER = NEVER
_CLASSES = CLASSES
_NEXT, _SIZE = NEXT, SIZE
_NONE = -1
# What a port knows of a class, one behind the other: what every packet touches lies
# together, as a large fabric has more of it than caches hold.
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
    """One port; the model drives it.

    Args:
        number: In the whole fabric.
        node: Number of the switch or host that it is of.
        name: For reports.
        rate_bps: 0: no limit.
        peer: Number of the port at the other end of the link; -1: not known.
        is_host: Whether it is of a host.
        packets: Of the whole fabric.
        weights: Shares of its classes; 0: strict priority.
        nearest: Whether times on the wire are rounded to whole nanoseconds.
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
        # The wire: when it is free, in whole nanoseconds and rate_bps-ths of one.
        self.free_ns = 0
        self.rest = 0
        # Of a token bucket: what it saves, and when it let something pass last.
        self.is_shaper = False
        self.bucket_ns = 0
        self.jitter_ns = 0
        self.left_ns = 0
        self.is_lossy_wire = False
        self.lost_share = 0
        self.corrupted_share = 0
        # The queues.
        self.by_class = [0] * 128
        for klass in range(_CLASSES):
            self.by_class[klass << 4 | _HEAD] = _NONE
            self.by_class[klass << 4 | _TAIL] = _NONE
        self.queued_bytes = 0
        self.waiting = 0
        self.ingress: list[Account] = []
        self.egress: list[Account] = []
        self.markers: list[Marker | None] = [None] * _CLASSES
        # Whose turn it is.
        self._strict = 0
        self._turn = 0
        self._turn_is_new = True
        self._set_weights(weights)
        # Pauses: what the peer has paused here, and what this port pauses there.
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
        # The longest queues: since the last sample, and before it.
        self.storms = [0] * 8
        self.restored = [0] * 8

    def _set_weights(self, weights: Sequence[int]) -> None:
        least = min((weight for weight in weights if weight), default=1)
        for number, weight in enumerate(weights):
            if weight == 0:
                self._strict |= 1 << number
            # No turn is shorter than a packet of the usual size, and none longer than
            # the weights make it.
            self.by_class[number << 4 | _QUANTUM] = weight * _QUANTUM_BYTES // least

    # Queues.

    def push(self, klass: int, slot: int, size_bytes: int) -> None:
        """Put a packet at the end of a queue."""
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
        """Take the first packet out of a queue that has one."""
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
        """Return the classes, a bit each, that have a packet and are not paused."""
        return self.waiting & ~(self.paused & ~self.forced)

    def pick(self) -> int:
        """Return the class that sends next, and count on it; -1: none may."""
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
            # Nobody to share with: nobody saves up, and nobody owes.
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
        """Return what a packet of so many bytes occupies of memory."""
        if self.cell_bytes == 1:
            return size_bytes
        cells = (size_bytes + self.cell_bytes - 1) // self.cell_bytes
        return cells * self.cell_bytes

    # The wire.

    def occupy(self, size_bytes: int, now_ns: int) -> int:
        """Let the wire carry so much as soon as it is free; return when that is out."""
        if now_ns - self.bucket_ns > self.free_ns:
            self.free_ns = now_ns - self.bucket_ns
            self.rest = 0
        rate_bps = self.rate_bps
        if rate_bps == 0:
            return self.free_ns
        if self.nearest:
            self.free_ns += (size_bytes * _BIT_NS + rate_bps // 2) // rate_bps
            return self.free_ns
        # At 400 Gbit/s an ACK takes 1.24 ns: rounding each one would be a tenth.
        work = size_bytes * _BIT_NS + self.rest
        self.free_ns += work // rate_bps
        self.rest = work % rate_bps
        return self.free_ns + 1 if self.rest else self.free_ns

    # Pauses.

    def be_paused(self, klass: int, until_ns: int, now_ns: int) -> None:
        """Let a class rest."""
        bit = 1 << klass
        self.pause_ns[klass] = now_ns
        if not self.paused & bit:
            self.paused |= bit
            self.paused_since_ns[klass] = now_ns
        self.paused_until_ns[klass] = until_ns

    def be_resumed(self, klass: int, now_ns: int) -> None:
        """Let a class go on."""
        bit = 1 << klass
        if self.paused & bit:
            self.paused &= ~bit
            self.by_class[klass << 4 | _PAUSED_NS] += (
                now_ns - self.paused_since_ns[klass]
            )

    def paused_so_far(self, klass: int, now_ns: int) -> int:
        """Return how long a class has rested in all."""
        if self.paused >> klass & 1:
            return (
                self.by_class[klass << 4 | _PAUSED_NS]
                + now_ns
                - self.paused_since_ns[klass]
            )
        return self.by_class[klass << 4 | _PAUSED_NS]

    def pauses(self) -> bool:
        """Tell whether it pauses whoever sends to it, rather than lose packets."""
        return self.pause_classes != 0

    def class_of(self, dscp: int) -> int:
        """Return the class of packets."""
        return self.class_of_dscp[dscp]

    def is_paused(self, klass: int) -> bool:
        """Tell whether a class rests."""
        return bool(self.paused >> klass & 1)

    def sampled(self, now_ns: int) -> list[int]:
        """Return a row for each class that was ever used, one after the other.

        A row has the class, and the values of ``LINK_SAMPLE_FIELDS`` behind it; the
        longest queue is that since the last call.
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
        """Return the bytes of all classes that have come."""
        return sum(self.of_classes(_RECEIVED_BYTES))

    def of_classes(self, field: int) -> list[int]:
        """Return what is known of each class."""
        return [self.by_class[klass << 4 | field] for klass in range(_CLASSES)]

    def counted(self, now_ns: int) -> dict[str, list[int]]:
        """Return the counters, by what they count, each by class."""
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
        """Return what is wrong with it by itself."""
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
                wrong.append(f"{self.name} class {klass}: waits, or not, unknown")
            if self.paused >> klass & 1 and self.paused_until_ns[klass] < now_ns:
                wrong.append(f"{self.name} class {klass}: its pause does not end")
        if total != self.queued_bytes:
            wrong.append(f"{self.name}: {total} bytes wait, not {self.queued_bytes}")
        return wrong
