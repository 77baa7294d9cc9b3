# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Lower bound on the time of a collective whose transfers share lines.

Every transfer has a head, which is its earliest start time. It also has a tail, the
minimum time from its arrival to the end of the collective. Both follow from the
dependencies between transfers.

Each line processes its transfers one after another, in any order and with preemption.
Heads and tails determine the minimum time for this work. This is the one-machine
problem with heads, tails and preemption (Jackson's rule; J. Carlier, EJOR 11, 1982).

The caller computes the time of each transfer (``chakram.predict.bound``). This module
is compiled, because a collective of a thousand ranks has a million transfers.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.predict.fabric_model import Message

__all__ = ["BoundTimes"]

_HOP_BITS = 16
_HOP_MASK = 0xFFFF


class BoundTimes:
    """Computes a lower bound on the time of transfers with dependencies.

    Args:
        needs: For each transfer, the earlier transfers that it waits for.
        lines: The distinct sequences of lines.
        path: For each transfer, the index of its sequence in *lines*.
        back_ns: For each sequence of lines, the time of an acknowledgment.
    """

    def __init__(
        self,
        *,
        needs: Sequence[Sequence[int]],
        lines: Sequence[tuple[int, ...]],
        path: array[int],
        back_ns: Sequence[float],
    ) -> None:
        self._needs = needs
        self._lines = lines
        self._path = path
        self._back_ns = back_ns
        self._waits = any(needs)

    def end_ns(
        self, messages: Sequence[Message], kinds: array[int], count_lines: int
    ) -> float:
        """Return the earliest possible arrival time of the last acknowledgment.

        No order of packets is faster.

        Args:
            messages: The distinct messages.
            kinds: For each transfer, the index of its message. -1 means that the
                transfer does not exist, which is allowed only if no transfer waits for
                another.
            count_lines: Number of lines.
        """
        if not self._waits:
            return self._unordered_ns(messages, kinds, count_lines)
        heads_ns = self._heads(messages, kinds)
        tails_ns = self._tails(messages, kinds)
        end_ns = 0.0
        # For each line, the transfers that cross it, each with the hop at which it
        # crosses.
        on_line = [array("q") for _ in range(count_lines)]
        for index in range(len(kinds)):
            message = messages[kinds[index]]
            head_ns = heads_ns[index]
            tail_ns = tails_ns[index]
            if head_ns + message.alone_ns + tail_ns > end_ns:
                end_ns = head_ns + message.alone_ns + tail_ns
            lines = self._lines[self._path[index]]
            for hop in range(len(lines)):
                on_line[lines[hop]].append(index << _HOP_BITS | hop)
        for places in on_line:
            jobs = []
            for place in places:
                index = place >> _HOP_BITS
                hop = place & _HOP_MASK
                message = messages[kinds[index]]
                work_ns = message.works_ns[hop]
                if work_ns > 0.0:
                    jobs.append(
                        (
                            heads_ns[index] + message.heads_ns[hop],
                            message.tails_ns[hop] + tails_ns[index],
                            work_ns,
                        )
                    )
            if len(jobs) > 1:
                time_ns = self._line_ns(jobs)
                if time_ns > end_ns:
                    end_ns = time_ns
        return end_ns

    def _unordered_ns(
        self, messages: Sequence[Message], kinds: array[int], count_lines: int
    ) -> float:
        """Return the bound without dependencies, which the busiest line determines."""
        end_ns = 0.0
        works_ns = array("d", bytes(8 * count_lines))
        # For each line, the minimum time to reach it and the minimum time after it.
        heads_ns = array("d", [-1.0]) * count_lines
        tails_ns = array("d", [-1.0]) * count_lines
        for index in range(len(kinds)):
            kind = kinds[index]
            if kind < 0:
                continue
            message = messages[kind]
            path = self._path[index]
            back_ns = self._back_ns[path]
            if message.alone_ns + back_ns > end_ns:
                end_ns = message.alone_ns + back_ns
            lines = self._lines[path]
            for hop in range(len(lines)):
                line = lines[hop]
                works_ns[line] += message.works_ns[hop]
                head_ns = message.heads_ns[hop]
                tail_ns = message.tails_ns[hop] + back_ns
                if heads_ns[line] < 0.0 or head_ns < heads_ns[line]:
                    heads_ns[line] = head_ns
                if tails_ns[line] < 0.0 or tail_ns < tails_ns[line]:
                    tails_ns[line] = tail_ns
        for line in range(count_lines):
            if works_ns[line] > 0.0:
                time_ns = heads_ns[line] + works_ns[line] + tails_ns[line]
                if time_ns > end_ns:
                    end_ns = time_ns
        return end_ns

    def _heads(self, messages: Sequence[Message], kinds: array[int]) -> array[float]:
        """Return the earliest start time of each transfer.

        A transfer starts after all transfers that it waits for have arrived. Transfers
        that arrive through the same line arrive one after another.
        """
        heads_ns = array("d", bytes(8 * len(kinds)))
        for index in range(len(kinds)):
            needs = self._needs[index]
            begin_ns = 0.0
            shared = -1
            work_ns = first_ns = last_ns = 0.0
            for earlier in needs:
                message = messages[kinds[earlier]]
                time_ns = heads_ns[earlier] + message.alone_ns
                if time_ns > begin_ns:
                    begin_ns = time_ns
                lines = self._lines[self._path[earlier]]
                hop = len(lines) - 1
                if hop < 0 or (shared >= 0 and lines[hop] != shared):
                    continue
                there_ns = heads_ns[earlier] + message.heads_ns[hop]
                if shared < 0:
                    shared = lines[hop]
                    first_ns = there_ns
                    last_ns = message.tails_ns[hop]
                if there_ns < first_ns:
                    first_ns = there_ns
                if message.tails_ns[hop] < last_ns:
                    last_ns = message.tails_ns[hop]
                work_ns += message.works_ns[hop]
            if first_ns + work_ns + last_ns > begin_ns:
                begin_ns = first_ns + work_ns + last_ns
            heads_ns[index] = begin_ns
        return heads_ns

    def _tails(self, messages: Sequence[Message], kinds: array[int]) -> array[float]:
        """Return the minimum time from the arrival of each transfer to the end.

        This time covers the transfer's acknowledgment and the transfers that wait for
        it. Waiting transfers that leave through the same line leave one after another.
        """
        count = len(kinds)
        tails_ns = array("d", bytes(8 * count))
        # For each transfer, a summary of the transfers that wait for it: the line of
        # the first such transfer, the work on that line, and the minimum time after it.
        shared = array("q", [-1]) * count
        works_ns = array("d", bytes(8 * count))
        rests_ns = array("d", bytes(8 * count))
        for index in range(count - 1, -1, -1):
            path = self._path[index]
            tail_ns = works_ns[index] + rests_ns[index]
            if tails_ns[index] > tail_ns:
                tail_ns = tails_ns[index]
            if self._back_ns[path] > tail_ns:
                tail_ns = self._back_ns[path]
            tails_ns[index] = tail_ns
            needs = self._needs[index]
            if not needs:
                continue
            message = messages[kinds[index]]
            lines = self._lines[path]
            line = lines[0] if lines else -1
            alone_ns = message.alone_ns + tail_ns
            rest_ns = message.tails_ns[0] + tail_ns if lines else 0.0
            work_ns = message.works_ns[0] if lines else 0.0
            for earlier in needs:
                if alone_ns > tails_ns[earlier]:
                    tails_ns[earlier] = alone_ns
                if line < 0:
                    continue
                if shared[earlier] < 0:
                    shared[earlier] = line
                    rests_ns[earlier] = rest_ns
                if shared[earlier] == line:
                    works_ns[earlier] += work_ns
                    if rest_ns < rests_ns[earlier]:
                        rests_ns[earlier] = rest_ns
        return tails_ns

    def _line_ns(self, jobs: list[tuple[float, float, float]]) -> float:
        """Return the minimum end time of the jobs (head, tail, work) of one line.

        The available job with the longest tail always goes first.
        """
        jobs.sort()
        waiting: list[tuple[float, float]] = []
        now_ns = end_ns = 0.0
        for head_ns, tail_ns, work_ns in jobs:
            while waiting and now_ns < head_ns:
                first_tail_ns, left_ns = waiting[0]
                if now_ns + left_ns > head_ns:
                    heapreplace(waiting, (first_tail_ns, left_ns - (head_ns - now_ns)))
                    break
                heappop(waiting)
                now_ns += left_ns
                # The heap contains negative tails, so that the longest tail is first.
                if now_ns - first_tail_ns > end_ns:
                    end_ns = now_ns - first_tail_ns
            if now_ns < head_ns:
                now_ns = head_ns
            heappush(waiting, (-tail_ns, work_ns))
        while waiting:
            first_tail_ns, left_ns = heappop(waiting)
            now_ns += left_ns
            if now_ns - first_tail_ns > end_ns:
                end_ns = now_ns - first_tail_ns
        return end_ns
