# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""The events of one collective alone on the fabric, in virtual time.

What takes how long is known beforehand (``chakram.predict.ideal``); here is only who
waits for whom.  A collective of a thousand ranks has a million transfers.
"""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NO_LINE", "Timeline"]

_NO_LINE = -1

NO_LINE = _NO_LINE
"""Stands for a line where a transfer needs none."""


class Timeline:
    """Carries transfers through lines, which serve one after the other.

    All columns are ``array("q")`` with one entry per transfer, times in ns.

    Args:
        lines: How many lines there are.
        missing: How many transfers each one waits for.
        dependents: The transfers that wait for each.
        out_lines: The line that a transfer leaves through: its port's, or its rank's
            within a host; ``NO_LINE``: it arrives at once.
        in_lines: The line of the receiver's port; ``NO_LINE``: it has none to pass.
        up_lines: The line of all uplinks of the sender's switch, or ``NO_LINE``.
        down_lines: That of the receiver's switch.
        back_ns: How long an acknowledgement takes.
        links: Who sends to whom, on which channel: numbers from 0.  What credits are
            counted by.
        grant_ns: How long a grant takes.
    """

    def __init__(
        self,
        *,
        lines: int,
        missing: Sequence[int],
        dependents: Sequence[Sequence[int]],
        out_lines: array[int],
        in_lines: array[int],
        up_lines: array[int],
        down_lines: array[int],
        back_ns: array[int],
        links: array[int],
        grant_ns: array[int],
    ) -> None:
        self._lines = lines
        self._missing = array("q", missing)
        self._dependents = list(dependents)
        self._out_lines = out_lines
        self._in_lines = in_lines
        self._up_lines = up_lines
        self._down_lines = down_lines
        self._back_ns = back_ns
        self._links = links
        self._grant_ns = grant_ns
        self._link_count = 1 + max(links, default=-1)
        self._one_each = self._link_count == len(links)

    def end_ns(
        self,
        *,
        out_ns: array[int],
        path_ns: array[int],
        latency_ns: array[int],
        up_ns: array[int],
        down_ns: array[int],
        in_ns: array[int],
        present: Sequence[int] | None = None,
        credits: int = 0,
    ) -> int:
        """Return when the last acknowledgement is back.

        Args:
            out_ns: How long a transfer keeps the line that it leaves through.
            path_ns: How long its bytes take on the slowest link.
            latency_ns: How long after its start its first bits are there.
            up_ns: How long it keeps the uplinks of the sender's switch.
            down_ns: Those of the receiver's switch.
            in_ns: How long it keeps the line of the receiver's port.
            present: Whether there is such a transfer, only where none waits for
                another; None: all are there.
            credits: Transfers that each link may have under way before one is granted;
                0: any number.
        """
        places = [
            index
            for index in range(len(self._missing))
            if present is None or present[index]
        ]
        if not any(self._missing) and (not credits or self._one_each):
            return self._shared_ns(
                array("q", places), out_ns, path_ns, latency_ns, up_ns, down_ns, in_ns
            )
        events = [index for index in places if not self._missing[index]]
        return self._run(
            events, out_ns, path_ns, latency_ns, up_ns, down_ns, in_ns, credits
        )

    def _shared_ns(
        self,
        places: array[int],
        out_ns: array[int],
        path_ns: array[int],
        latency_ns: array[int],
        up_ns: array[int],
        down_ns: array[int],
        in_ns: array[int],
    ) -> int:
        """Return the end where nothing waits: lines are shared, the busiest decides.

        Messages that may be cut into packets need no longer than the line with most to
        do (preemptive open shop, Gonzalez and Sahni 1976), and the way of one of them.
        """
        longest_ns = 0
        loads_ns = array("q", bytes(8 * self._lines))
        # By line: the shortest rest of a way behind it, or with what is before it.
        rests_ns = array("q", [-1]) * self._lines
        for at in range(len(places)):
            index = places[at]
            back_ns = self._back_ns[index]
            alone_ns = out_ns[index]
            for number in range(4):
                if number == 0:
                    line, time_ns = self._out_lines[index], out_ns[index]
                elif number == 1:
                    line, time_ns = self._in_lines[index], in_ns[index]
                elif number == 2:
                    line, time_ns = self._up_lines[index], up_ns[index]
                else:
                    line, time_ns = self._down_lines[index], down_ns[index]
                if line == _NO_LINE:
                    continue
                if time_ns > alone_ns:
                    alone_ns = time_ns
                loads_ns[line] += time_ns
                rest_ns = latency_ns[index] + back_ns
                if rests_ns[line] < 0 or rest_ns < rests_ns[line]:
                    rests_ns[line] = rest_ns
            if path_ns[index] > alone_ns:
                alone_ns = path_ns[index]
            if alone_ns + latency_ns[index] + back_ns > longest_ns:
                longest_ns = alone_ns + latency_ns[index] + back_ns
        for line in range(self._lines):
            if rests_ns[line] >= 0 and loads_ns[line] + rests_ns[line] > longest_ns:
                longest_ns = loads_ns[line] + rests_ns[line]
        return longest_ns

    def _run(
        self,
        events: list[int],
        out_ns: array[int],
        path_ns: array[int],
        latency_ns: array[int],
        up_ns: array[int],
        down_ns: array[int],
        in_ns: array[int],
        credits: int,
    ) -> int:
        """Handle events in the order of time, then of the schedule.

        An event is a time and, in its low bits, a transfer: it may leave or, once it is
        under way, reaches the receiver's port.  Numbers behind those of the transfers
        are links: a grant is there.
        """
        count = len(self._missing)
        # An object, so that products are: they need more than 64 bits.
        unit = 1 << (count + self._link_count + 1).bit_length()
        missing = array("q", self._missing)
        ready_ns = array("q", bytes(8 * count))
        tail_ns = array("q", bytes(8 * count))
        under_way = bytearray(count)
        free_ns = array("q", bytes(8 * self._lines))
        left = array("q", [credits]) * self._link_count
        held: dict[int, deque[int]] = {}
        end_ns = 0
        while events:
            event = heappop(events)
            now_ns, index = divmod(event, unit)
            if index >= count:
                link = index - count
                waiting = held.get(link)
                if not waiting:
                    left[link] += 1
                    continue
                index = waiting.popleft()
            elif under_way[index]:
                arrived_ns = tail_ns[index]
                line = self._in_lines[index]
                if line != _NO_LINE:
                    if free_ns[line] > now_ns:
                        served_ns = free_ns[line] + in_ns[index]
                    else:
                        served_ns = now_ns + in_ns[index]
                    free_ns[line] = served_ns
                    if served_ns > arrived_ns:
                        arrived_ns = served_ns
                if arrived_ns + self._back_ns[index] > end_ns:
                    end_ns = arrived_ns + self._back_ns[index]
                if credits:
                    granted_ns = arrived_ns + self._grant_ns[index]
                    heappush(events, granted_ns * unit + count + self._links[index])
                for dependent in self._dependents[index]:
                    missing[dependent] -= 1
                    if arrived_ns > ready_ns[dependent]:
                        ready_ns[dependent] = arrived_ns
                    if not missing[dependent]:
                        heappush(events, ready_ns[dependent] * unit + dependent)
                continue
            elif credits:
                link = self._links[index]
                if not left[link]:
                    held.setdefault(link, deque()).append(index)
                    continue
                left[link] -= 1
            under_way[index] = 1
            line = self._out_lines[index]
            start_ns = through_ns = now_ns
            if line != _NO_LINE:
                if free_ns[line] > start_ns:
                    start_ns = free_ns[line]
                through_ns = free_ns[line] = start_ns + out_ns[index]
                if start_ns + path_ns[index] > through_ns:
                    through_ns = start_ns + path_ns[index]
                for up in (1, 0):
                    line = self._up_lines[index] if up else self._down_lines[index]
                    if line == _NO_LINE:
                        continue
                    passed_ns = up_ns[index] if up else down_ns[index]
                    if free_ns[line] > start_ns:
                        passed_ns += free_ns[line]
                    else:
                        passed_ns += start_ns
                    free_ns[line] = passed_ns
                    if passed_ns > through_ns:
                        through_ns = passed_ns
            tail_ns[index] = through_ns + latency_ns[index]
            head_ns = start_ns + latency_ns[index]
            if self._in_lines[index] == _NO_LINE:
                head_ns = tail_ns[index]
            heappush(events, head_ns * unit + index)
        return end_ns
