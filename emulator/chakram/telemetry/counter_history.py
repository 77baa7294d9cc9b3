"""Counters of one switch over a run: totals, samples, resets and gaps.

All times are times of the device's clock, in ns.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from chakram.telemetry.mapping import ALL_CLASSES, GAUGES, Reading

UNKNOWN = -1
"""Value in place of a counter that the switch does not report."""

SAMPLED = (
    "sent_bytes",
    "sent_packets",
    "received_bytes",
    "received_packets",
    "queue_bytes",
    "queue_max_bytes",
    "marked",
    "drops",
    "pauses_received",
    "pauses_sent",
    "paused_ns",
)
"""Counters in a sample. They follow the sample's time, port and class."""

ROW = 3 + len(SAMPLED)
"""Number of values per sample."""

_HALF_OF_32_BITS = 1 << 31
_WIDTH_32 = 1 << 32
_MOST_TOTAL = 1 << 62
_MOST_ROWS = 400_000
_MOST_EVENTS = 1_000
_LONG_AGO_NS = 60 * 10**9

Key = tuple[str, int, str]
"""Key of a counter: port, class (or ``ALL_CLASSES``) and name of the counter."""


@dataclass(slots=True)
class _Counter:
    """A counter: its value, its time, and the last time at which it was current."""

    raw: int
    total: int
    time_ns: int
    current_ns: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Counters at one moment.

    Attributes:
        totals: Value of each counter that is known at that moment.
        resets: Number of resets by port, without ports that were never reset.
    """

    totals: Mapping[Key, int] = field(default_factory=dict)
    resets: Mapping[str, int] = field(default_factory=dict)

    def value(self, port: str, traffic_class: int, counter: str) -> int | None:
        """Return the value of a counter, or None if unknown."""
        return self.totals.get((port, traffic_class, counter))


@dataclass(frozen=True, slots=True)
class Gap:
    """A period without samples of a port.

    Attributes:
        port: Port without samples, by the device's name.
        start_ns: Time of the last sample before the gap.
        end_ns: Time of the first sample after the gap.
    """

    port: str
    start_ns: int
    end_ns: int


class CounterHistory:
    """The counters of one switch.

    Args:
        ports: Ports to record, by the device's names. Other ports are ignored.
        bits: Width of the counters.
        spacing_ns: Shortest time between two samples that are kept.
        gap_ns: Shortest time without a sample of a port that counts as a gap.
        are_cleared: Whether a watermark covers only the time since its last value.

    Attributes:
        updates: Number of values that were recorded.
        gaps: Gaps so far.
        resets: Ports and times of counters that decreased.
        down: Ports that are down, with the time at which each went down.
        outages: Periods in which a port was down.
        are_changes: Whether timestamps are times of the last change of a value. Some
            switches, such as those with Arista EOS, repeat a timestamp until the value
            changes.
    """

    def __init__(
        self,
        ports: Iterable[str],
        *,
        bits: int,
        spacing_ns: int,
        gap_ns: int,
        are_cleared: bool = False,
    ) -> None:
        self.updates = 0
        self.gaps: list[Gap] = []
        self.resets: list[tuple[str, int]] = []
        self.down: dict[str, int] = {}
        self.outages: list[Gap] = []
        self.are_changes = False
        self._bits = bits
        self._are_cleared = are_cleared
        self._spacing_ns = spacing_ns
        self._gap_ns = gap_ns
        # Samples may have waited on this machine for about an interval.
        self._longest_wait_ns = 2 * spacing_ns
        self._numbers = {port: number for number, port in enumerate(ports)}
        self._names = list(self._numbers)
        self._counters: dict[Key, _Counter] = {}
        self._resets: Counter[str] = Counter()
        self._seen_ns: dict[str, int] = {}
        self._pending: dict[tuple[str, int], tuple[int, int, tuple[int, ...]]] = {}
        self._kept: dict[tuple[str, int], tuple[int, ...]] = {}
        self._skipped_ns: dict[tuple[str, int], int] = {}
        self._rows = array("q")

    def add(
        self,
        time_ns: int,
        readings: Iterable[Reading],
        *,
        arrived_ns: int | None = None,
    ) -> None:
        """Record readings that were taken at one time.

        Args:
            time_ns: Time at which the readings were taken.
            readings: Values of counters.
            arrived_ns: Time of arrival, if the switch sends every value in every
                interval.
        """
        touched: dict[tuple[str, int], None] = {}
        current_ns: dict[str, int] = {}
        were_changes = self.are_changes
        for reading in readings:
            if reading.port not in self._numbers:
                continue
            found = self._count(time_ns, reading, arrived_ns)
            if found is None:
                continue
            counter, is_new = found
            current_ns[reading.port] = counter.current_ns
            if is_new:
                touched[reading.port, reading.traffic_class] = None
        if self.are_changes and not were_changes and arrived_ns is not None:
            # Earlier timestamps do not show when the switch sent data.
            self._seen_ns = dict.fromkeys(self._seen_ns, arrived_ns)
        for port, now_ns in current_ns.items():
            seen_ns = self._seen_ns.get(port, now_ns)
            if now_ns - seen_ns > self._gap_ns and len(self.gaps) < _MOST_EVENTS:
                self.gaps.append(Gap(port, seen_ns, now_ns))
            self._seen_ns[port] = max(seen_ns, now_ns)
        for port, traffic_class in touched:
            self._sample(time_ns, port, traffic_class)

    def set_state(self, time_ns: int, port: str, *, is_down: bool) -> None:
        """Record that a port is up or down."""
        if port not in self._numbers:
            return
        if is_down:
            self.down.setdefault(port, time_ns)
        elif port in self.down:
            since_ns = self.down.pop(port)
            if len(self.outages) < _MOST_EVENTS:
                self.outages.append(Gap(port, since_ns, time_ns))

    def down_ns(self, port: str, start_ns: int, end_ns: int) -> int:
        """Return for how long a port was down between two times."""
        spans = [
            (each.start_ns, each.end_ns) for each in self.outages if each.port == port
        ]
        if port in self.down:
            spans.append((self.down[port], end_ns))
        return sum(
            max(0, min(last_ns, end_ns) - max(first_ns, start_ns))
            for first_ns, last_ns in spans
        )

    def unseen(self) -> list[str]:
        """Return the ports without any reading."""
        return [port for port in self._names if port not in self._seen_ns]

    def is_complete(self, after_ns: int, of_classes_ns: int = 0) -> bool:
        """Return whether all ports, and all known counters, are newer than a time.

        Args:
            after_ns: Time that the counters must have reached.
            of_classes_ns: Time to add to *after_ns* for the counters of classes.
        """
        return len(self._seen_ns) == len(self._names) and all(
            each.current_ns >= after_ns + of_classes_ns * (key[1] != ALL_CLASSES)
            for key, each in self._counters.items()
        )

    def mark(self, after_ns: int, of_classes_ns: int = 0) -> Mark:
        """Return the counters that were reported at or after a time.

        The arguments are those of ``is_complete``.
        """
        return Mark(
            {
                key: each.total
                for key, each in self._counters.items()
                if each.current_ns >= after_ns + of_classes_ns * (key[1] != ALL_CLASSES)
            },
            Counter(self._resets),
        )

    def samples(self) -> Iterator[tuple[int, str, int, dict[str, int]]]:
        """Yield the time, port, class and known counters of each sample.

        A watermark of a switch is the longest queue since a user cleared the watermark.
        The watermark in a sample is the longest queue since the previous sample, if the
        switch's watermark rose since then. Otherwise, it is the current queue length,
        although the queue may have been longer since the previous sample.
        """
        for key, (_, time_ns, values) in self._pending.items():
            self._keep(key, time_ns, values)
        self._pending.clear()
        rows = self._rows
        marks: dict[tuple[int, int], int] = {}
        for at in range(0, len(rows), ROW):
            counted = rows[at + 3 : at + ROW]
            known = {
                name: value
                for name, value in zip(SAMPLED, counted, strict=True)
                if value != UNKNOWN
            }
            mark, place = known.get("queue_max_bytes"), (rows[at + 1], rows[at + 2])
            if mark is not None and not self._are_cleared:
                if mark <= marks.get(place, mark):
                    del known["queue_max_bytes"]
                    if "queue_bytes" in known:
                        known["queue_max_bytes"] = known["queue_bytes"]
                marks[place] = mark
            yield rows[at], self._names[rows[at + 1]], rows[at + 2], known

    def _count(
        self, time_ns: int, reading: Reading, arrived_ns: int | None
    ) -> tuple[_Counter, bool] | None:
        """Update a counter, unless the reading is older than the counter.

        Returns:
            The counter, and whether the reading is new.
        """
        key = reading.port, reading.traffic_class, reading.counter
        value = reading.value
        known = self._counters.get(key)
        self.updates += 1
        if known is None:
            known = _Counter(value, value, time_ns, time_ns)
            self._counters[key] = known
            return known, True
        if time_ns < known.time_ns:
            return None
        is_new = (time_ns, value) != (known.time_ns, known.raw)
        if reading.counter in GAUGES:
            known.total = value
        elif value >= known.raw:
            known.total += value - known.raw
        elif self._wraps(known.raw, value):
            known.total += value - known.raw + _WIDTH_32
        else:
            self._resets[reading.port] += 1
            known.total = min(_MOST_TOTAL, known.total + value)
            if len(self.resets) < _MOST_EVENTS:
                self.resets.append((reading.port, time_ns))
        known.raw = value
        known.time_ns = time_ns
        known.current_ns = max(known.current_ns, time_ns)
        if arrived_ns is not None:
            # A switch that reads its counters periodically does so more often than
            # this.
            if not is_new and arrived_ns - time_ns > _LONG_AGO_NS:
                self.are_changes = True
            if self.are_changes:
                sent_ns = arrived_ns - self._longest_wait_ns
                known.current_ns = max(known.current_ns, sent_ns)
        return known, is_new

    def _wraps(self, before: int, after: int) -> bool:
        return (
            self._bits == 32
            and _HALF_OF_32_BITS <= before < _WIDTH_32
            and after < _HALF_OF_32_BITS
        )

    def _sample(self, time_ns: int, port: str, traffic_class: int) -> None:
        """Store the values of a port or class in the current or a new sample.

        Values of one interval may arrive in several messages. They form one sample with
        the latest time.
        """
        key = port, traffic_class
        values = tuple(
            UNKNOWN if found is None else found.total
            for name in SAMPLED
            for found in (self._counters.get((port, traffic_class, name)),)
        )
        pending = self._pending.get(key)
        first_ns = time_ns
        if pending is not None and time_ns - pending[0] < self._spacing_ns:
            first_ns = pending[0]
            time_ns = max(time_ns, pending[1])
        elif pending is not None:
            self._keep(key, *pending[1:])
        self._pending[key] = first_ns, time_ns, values
        if len(self._rows) >= _MOST_ROWS * ROW:
            self._thin()

    def _keep(
        self, key: tuple[str, int], time_ns: int, values: tuple[int, ...]
    ) -> None:
        """Keep a sample, unless it is equal to the previous sample.

        Several equal samples may precede a change. The last of them is kept as well, so
        that the change falls into the last interval.
        """
        kept = self._kept.get(key)
        skipped_ns = self._skipped_ns.pop(key, None)
        if kept == values:
            self._skipped_ns[key] = time_ns
            return
        number = self._numbers[key[0]]
        if kept is not None and skipped_ns is not None:
            self._rows.extend((skipped_ns, number, key[1], *kept))
        self._kept[key] = values
        self._rows.extend((time_ns, number, key[1], *values))

    def _thin(self) -> None:
        """Drop every second sample of each class, and keep fewer new samples."""
        self._spacing_ns = max(1, self._spacing_ns) * 2
        kept = array("q")
        turn: dict[tuple[int, int], bool] = {}
        for at in range(0, len(self._rows), ROW):
            key = self._rows[at + 1], self._rows[at + 2]
            turn[key] = not turn.get(key, False)
            if turn[key]:
                kept.extend(self._rows[at : at + ROW])
        self._rows = kept


def both(before: Mark, after: Mark, port: str, counter: str) -> tuple[int, int] | None:
    """Return the values of a port's counter at two moments, or None if unknown.

    If there is no counter of the whole port, the result is the sum over its classes.
    The values are unknown if any counter of the port was reset between the moments.
    They are also unknown if a value is missing at either moment.
    """
    if before.resets.get(port) != after.resets.get(port):
        return None
    sums: list[tuple[int, int]] = []
    for traffic_class in (ALL_CLASSES, *range(8)):
        first = before.value(port, traffic_class, counter)
        last = after.value(port, traffic_class, counter)
        if first is None and last is None:
            continue
        if first is None or last is None:
            return None
        sums.append((first, last))
        if traffic_class == ALL_CLASSES:
            break
    if not sums:
        return None
    return sum(first for first, _ in sums), sum(last for _, last in sums)


def grown(before: Mark, after: Mark, port: str, counter: str) -> int | None:
    """Return by how much a counter of a port increased, or None if unknown."""
    found = both(before, after, port, counter)
    return None if found is None else found[1] - found[0]
