# cython: annotation_typing=False, language_level=3, boundscheck=False
# cython: wraparound=False, initializedcheck=False
"""Event queue of a simulation: sorted runs of integers, and a binary heap.

Most events cause another event after a fixed delay, such as a packet's serialization
delay or a link's propagation delay. Events with the same fixed delay are created in
order of time. Each event is appended to the first *run* whose last event is earlier,
and runs are consumed from the front. The heap contains timers, and the events that fit
no run. With eight runs, about 5 % of all events enter the heap if messages have many
packets. Half of them do if every message has one packet. The earliest events of the
heap are kept in a sorted window in front of it, so that upcoming events are known.
"""

from __future__ import annotations

from array import array

__all__ = ["NO_EVENT", "Events"]

NO_EVENT = (1 << 63) - 1
"""Value that replaces the time of the next event if there is none."""

_NO_EVENT = NO_EVENT
_FIELDS = 3  # time, order and event of an entry
_RUNS = 8
# Hot code contains the literals 3 and 8 instead of these names, because literals are
# faster.
_FIRST_ROOM = 64
# Minimum number of entries in the window if there are enough events, and capacity of
# the window.
_WINDOW = 16
_WINDOW_ROOM = 64


class Events:
    """Events ordered by time, and by a number if they are simultaneous.

    Attributes:
        count: Number of events.
    """

    __slots__ = (
        "_first_ns",
        "_first_order",
        "_fronts",
        "_fronts_ns",
        "_fronts_order",
        "_heap",
        "_heap_count",
        "_lasts_ns",
        "_lasts_order",
        "_next",
        "_order",
        "_room",
        "_runs",
        "_sizes",
        "_taken_from",
        "_taken_order",
        "_window",
        "_window_at",
        "_window_end",
        "count",
    )

    def __init__(self) -> None:
        self.count = 0
        self._order = 0
        # Order of the last event that was taken, and the run that contained it.
        self._taken_order = 0
        self._taken_from = _RUNS
        # Next event, and the run that contains it. _RUNS means the window.
        self._first_ns = NO_EVENT
        self._first_order = 0
        self._next = _RUNS
        # Runs are rings of equal room in one array: index of the first entry, number of
        # entries, and the times and orders of both ends.
        self._room = _FIRST_ROOM
        self._runs = array("q", bytes(8 * _FIELDS * _RUNS * _FIRST_ROOM))
        self._fronts = [0] * 8
        self._sizes = [0] * 8
        self._fronts_ns = [NO_EVENT] * 8
        self._fronts_order = [0] * 8
        self._lasts_ns = [-NO_EVENT] * 8
        self._lasts_order = [0] * 8
        self._heap = array("q", bytes(8 * _FIELDS * _FIRST_ROOM))
        self._heap_count = 0
        # Entries _window_at to _window_end - 1 precede the whole heap.
        self._window = array("q", bytes(8 * _FIELDS * _WINDOW_ROOM))
        self._window_at = 0
        self._window_end = 0

    def first_ns(self) -> int:
        """Return the time of the next event, or ``NO_EVENT`` if there is none."""
        return self._first_ns

    def first_order(self) -> int:
        """Return the order of the next event, if there is one."""
        return self._first_order

    def taken_order(self) -> int:
        """Return the order of the event that was taken last."""
        return self._taken_order

    def add(self, time_ns: int, what: int) -> None:
        """Add an event after all events already added for the same time.

        *what* identifies the event to the caller of ``take``.
        """
        self._order += 1
        self._insert(time_ns, self._order, what, 0)

    def add_timer(self, time_ns: int, what: int) -> None:
        """Add an event like ``add``, but not to a run.

        A timer may be far in the future. A run that contained such a timer could not
        accept any earlier event.
        """
        self._order += 1
        self._insert(time_ns, self._order, what, _RUNS)

    def next_order(self) -> int:
        """Return an order for ``add_at`` that is greater than all previous orders."""
        self._order += 1
        return self._order

    def reserve_orders(self, count: int) -> None:
        """Reserve the next *count* orders for ``add_at``."""
        self._order += count

    def add_at(self, time_ns: int, order: int, what: int) -> None:
        """Add an event with an *order*, an unused number from ``next_order``."""
        self._insert(time_ns, order, what, 0)

    def _insert(self, time_ns: int, order: int, what: int, run: int) -> None:
        """Add an event to *run* or a later one, or else to the window or heap."""
        self.count += 1
        while run < 8:
            if self._lasts_ns[run] < time_ns or (
                self._lasts_ns[run] == time_ns and self._lasts_order[run] < order
            ):
                self._append(run, time_ns, order, what)
                break
            run += 1
        else:
            self._keep(time_ns, order, what)
        if time_ns < self._first_ns or (
            time_ns == self._first_ns and order < self._first_order
        ):
            self._first_ns = time_ns
            self._first_order = order
            self._next = run

    def take(self) -> int:
        """Remove the next event, which must exist, and return its *what*."""
        self.count -= 1
        self._taken_order = self._first_order
        run = self._next
        self._taken_from = run
        if run < 8:
            at = 3 * (run * self._room + self._fronts[run])
            what = self._runs[at + 2]
            self._fronts[run] = (self._fronts[run] + 1) & (self._room - 1)
            self._sizes[run] -= 1
            if self._sizes[run] > 0:
                at = 3 * (run * self._room + self._fronts[run])
                self._fronts_ns[run] = self._runs[at]
                self._fronts_order[run] = self._runs[at + 1]
            else:
                self._fronts_ns[run] = _NO_EVENT
                self._lasts_ns[run] = -_NO_EVENT
        else:
            what = self._window[3 * self._window_at + 2]
            self._window_at += 1
            if self._heap_count > 0 and self._window_end < self._window_at + _WINDOW:
                self._extend()
        first_ns, first_order, following = _NO_EVENT, 0, 8
        if self._window_at < self._window_end:
            first_ns = self._window[3 * self._window_at]
            first_order = self._window[3 * self._window_at + 1]
        for run in range(8):
            if self._fronts_ns[run] < first_ns or (
                self._fronts_ns[run] == first_ns
                and self._fronts_order[run] < first_order
                and self._sizes[run] > 0
            ):
                first_ns = self._fronts_ns[run]
                first_order = self._fronts_order[run]
                following = run
        self._first_ns = first_ns
        self._first_order = first_order
        self._next = following
        return what

    def ahead(self, distance: int) -> int:
        """Return an event that is due soon, or -1 if none is known.

        The event is *distance* places after the first event in the run or window from
        which the last event came. Most events are returned once for each distance.
        """
        run = self._taken_from
        if run == _RUNS:
            if self._window_at + distance < self._window_end:
                return self._window[3 * (self._window_at + distance) + 2]
            return -1
        if distance < self._sizes[run]:
            place = (self._fronts[run] + distance) & (self._room - 1)
            return self._runs[3 * (run * self._room + place) + 2]
        return -1

    # Runs.

    def _append(self, run: int, time_ns: int, order: int, what: int) -> None:
        """Append an event to a run."""
        if self._sizes[run] == self._room:
            self._widen()
        place = (self._fronts[run] + self._sizes[run]) & (self._room - 1)
        at = 3 * (run * self._room + place)
        self._runs[at] = time_ns
        self._runs[at + 1] = order
        self._runs[at + 2] = what
        if self._sizes[run] == 0:
            self._fronts_ns[run] = time_ns
            self._fronts_order[run] = order
        self._sizes[run] += 1
        self._lasts_ns[run] = time_ns
        self._lasts_order[run] = order

    def _widen(self) -> None:
        """Double the room of all runs."""
        old = self._runs
        room = self._room
        runs = array("q", bytes(2 * 8 * len(old)))
        for run in range(_RUNS):
            for index in range(self._sizes[run]):
                place = (self._fronts[run] + index) & (room - 1)
                for field in range(_FIELDS):
                    runs[_FIELDS * (2 * run * room + index) + field] = old[
                        _FIELDS * (run * room + place) + field
                    ]
            self._fronts[run] = 0
        self._runs = runs
        self._room = 2 * room

    # The heap, and the window before it.

    def _keep(self, time_ns: int, order: int, what: int) -> None:
        """Add an event that fits no run."""
        end = self._window_end
        last = 3 * (end - 1)
        if end == self._window_at or (
            self._window[last] < time_ns
            or (self._window[last] == time_ns and self._window[last + 1] < order)
        ):
            if self._heap_count > 0 or end - self._window_at >= _WINDOW:
                self._push(time_ns, order, what)
                return
        elif end - self._window_at == _WINDOW_ROOM - 1:
            # There is room only for the new entry.
            self._window_end -= 1
            self._push(
                self._window[last], self._window[last + 1], self._window[last + 2]
            )
        if self._window_end == _WINDOW_ROOM:
            self._move_window()
        place = self._window_end
        self._window_end += 1
        while place > self._window_at:
            before = 3 * (place - 1)
            if self._window[before] < time_ns or (
                self._window[before] == time_ns and self._window[before + 1] < order
            ):
                break
            self._window[before + 3] = self._window[before]
            self._window[before + 4] = self._window[before + 1]
            self._window[before + 5] = self._window[before + 2]
            place -= 1
        self._window[3 * place] = time_ns
        self._window[3 * place + 1] = order
        self._window[3 * place + 2] = what

    def _extend(self) -> None:
        """Move the first event of the heap to the end of the window."""
        if self._window_end == _WINDOW_ROOM:
            self._move_window()
        at = 3 * self._window_end
        self._window_end += 1
        self._window[at] = self._heap[0]
        self._window[at + 1] = self._heap[1]
        self._window[at + 2] = self._pop()

    def _move_window(self) -> None:
        """Make room at the end of the window."""
        for at in range(3 * self._window_at, 3 * self._window_end):
            self._window[at - 3 * self._window_at] = self._window[at]
        self._window_end -= self._window_at
        self._window_at = 0

    def _push(self, time_ns: int, order: int, what: int) -> None:
        if (self._heap_count + 1) * _FIELDS > len(self._heap):
            self._grow()
        place = self._heap_count
        self._heap_count += 1
        while place > 0:
            parent = (place - 1) >> 1
            if self._heap[3 * parent] < time_ns or (
                self._heap[3 * parent] == time_ns and self._heap[3 * parent + 1] < order
            ):
                break
            self._heap[3 * place] = self._heap[3 * parent]
            self._heap[3 * place + 1] = self._heap[3 * parent + 1]
            self._heap[3 * place + 2] = self._heap[3 * parent + 2]
            place = parent
        self._heap[3 * place] = time_ns
        self._heap[3 * place + 1] = order
        self._heap[3 * place + 2] = what

    def _pop(self) -> int:
        """Remove the first event of the heap and return its *what*."""
        what = self._heap[2]
        self._heap_count -= 1
        end = self._heap_count * _FIELDS
        time_ns = self._heap[end]
        order = self._heap[end + 1]
        at = 0
        child = _FIELDS
        while child < end:
            other = child + _FIELDS
            if other < end and (
                self._heap[other] < self._heap[child]
                or (
                    self._heap[other] == self._heap[child]
                    and self._heap[other + 1] < self._heap[child + 1]
                )
            ):
                child = other
            if time_ns < self._heap[child] or (
                time_ns == self._heap[child] and order < self._heap[child + 1]
            ):
                break
            self._heap[at] = self._heap[child]
            self._heap[at + 1] = self._heap[child + 1]
            self._heap[at + 2] = self._heap[child + 2]
            at = child
            child = 2 * at + _FIELDS
        self._heap[at] = time_ns
        self._heap[at + 1] = order
        self._heap[at + 2] = self._heap[end + 2]
        return what

    def _grow(self) -> None:
        old = self._heap
        count = len(old)
        heap = array("q", bytes(16 * count))
        for at in range(count):
            heap[at] = old[at]
        self._heap = heap
