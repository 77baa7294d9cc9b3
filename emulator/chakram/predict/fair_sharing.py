"""Fair completion times of overlapping messages that share the fabric equally.

The bound of one message ignores all other messages. Compared with it, even a perfect
incast of n senders would appear n times too slow. The fair time accounts for the other
messages and their posting times.

The path of a message consists of lines. The link of each of the two ports is a line.
Between switches, all equal-cost links form one line in perfect balance. Every line
divides its rate equally among the pairs of ranks that have messages on it (processor
sharing). The messages of one pair are sent one after another, as on a queue pair. The
fair time of a message is the sum of two times:

- its time on its slowest line, including the time before and after the line, or its
  time alone if that is longer
- the time of the acknowledgment on the return path

If a message overlaps with no other, its fair time equals its bound. If messages are
posted together, the last one completes when all bytes have crossed the busiest line,
plus latency. This is the bound of that line, and no order of packets is faster. Two
messages share a line only while both are in flight. Dependencies in the program do not
matter. A message does not delay others that crossed the line before it was posted.

The fair time is not a bound for a single message. A message that takes more than its
share is faster, at the expense of other messages. If two lines are busy, a message gets
an equal share on both. Unlike in max-min fair sharing, a message that one line limits
does not leave its unused share on another line to other messages.

Source: L. Kleinrock, Time-shared systems: a theoretical treatment, J. ACM 14 (1967).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from chakram.predict.fabric_model import FabricModel, Paths


class FairTimes:
    """Computes the fair times of the messages of one job.

    Args:
        fabric: The fabric and the placement of the ranks.
        path_mtu: Payload bytes of a full packet.
        verb: ``write`` or ``send``.
    """

    def __init__(
        self, fabric: FabricModel, *, path_mtu: int, verb: str = "write"
    ) -> None:
        self._paths = Paths(fabric, path_mtu=path_mtu, verb=verb)
        self._kinds: dict[tuple[int, int, int], _Kind] = {}

    def times_ns(self, messages: Iterable[tuple[int, int, int, int]]) -> list[int]:
        """Return the fair time of each message, from posting to acknowledgment.

        Args:
            messages: Sender, receiver, size in bytes, and posting time of each message.
                Times are in ns of one common clock.
        """
        kinds: list[_Kind] = []
        posted: list[int] = []
        on_line: dict[int, list[tuple[int, float, float, tuple[int, int]]]] = {}
        for index, (src, dst, size_bytes, posted_ns) in enumerate(messages):
            kind = self._kind(src, dst, size_bytes)
            kinds.append(kind)
            posted.append(posted_ns)
            for line, work_ns, way_ns in kind.works_ns:
                on_line.setdefault(line, []).append(
                    (index, work_ns, way_ns, (src, dst))
                )
        through_ns = [kind.alone_ns for kind in kinds]
        for present in on_line.values():
            indices, works_ns, ways_ns, pairs = zip(*present, strict=True)
            ends_ns = shared_ends_ns(
                [posted[index] for index in indices], works_ns, pairs
            )
            for index, end_ns, way_ns in zip(indices, ends_ns, ways_ns, strict=True):
                taken_ns = end_ns - posted[index] + way_ns
                through_ns[index] = max(through_ns[index], taken_ns)
        return [
            int(taken_ns + kind.back_ns)
            for taken_ns, kind in zip(through_ns, kinds, strict=True)
        ]

    def _kind(self, src: int, dst: int, size_bytes: int) -> _Kind:
        kind = self._kinds.get((src, dst, size_bytes))
        if kind is None:
            taken = self._paths.path(src, dst)
            message = self._paths.message(taken.route, size_bytes)
            ways_ns = [
                head_ns + tail_ns
                for head_ns, tail_ns in zip(
                    message.heads_ns, message.tails_ns, strict=True
                )
            ]
            works_ns = zip(taken.lines, message.works_ns, ways_ns, strict=True)
            kind = self._kinds[src, dst, size_bytes] = _Kind(
                tuple(each for each in works_ns if each[1]),
                message.alone_ns,
                taken.back_ns,
            )
        return kind


class _Kind(NamedTuple):
    """Times common to all messages that have the same path and size.

    ``works_ns`` has one entry for each line. An entry contains the line, the time for
    which one message alone occupies it, and the total time before and after it.
    """

    works_ns: tuple[tuple[int, float, float], ...]
    alone_ns: float
    back_ns: float


def shared_ends_ns(
    begins_ns: Sequence[int], works_ns: Sequence[float], queues: Sequence[Hashable]
) -> list[int]:
    """Return the end times of jobs in queues that share one server equally.

    Args:
        begins_ns: Arrival time of each job, in any order.
        works_ns: Service time of each job alone.
        queues: Queue of each job. Jobs in one queue are served one after another.
    """
    ends_ns = [0] * len(begins_ns)
    # ``first`` contains the head job of each queue and the service per queue at which
    # the job completes. ``behind`` contains the jobs that wait in each queue.
    # ``share_ns`` is the service per queue since ``base_ns``.
    first: list[tuple[float, int]] = []
    behind: dict[Hashable, deque[int]] = {}
    base_ns = 0
    now_ns = share_ns = 0.0

    def finish_first() -> None:
        nonlocal now_ns, share_ns
        count = len(first)
        due_ns, index = heappop(first)
        now_ns += (due_ns - share_ns) * count
        share_ns = due_ns
        ends_ns[index] = base_ns + round(now_ns)
        waiting = behind[queues[index]]
        if waiting:
            following = waiting.popleft()
            heappush(first, (share_ns + works_ns[following], following))
        else:
            del behind[queues[index]]

    for index in sorted(range(len(begins_ns)), key=begins_ns.__getitem__):
        begin_ns = begins_ns[index]
        while first and (
            now_ns + (first[0][0] - share_ns) * len(first) <= begin_ns - base_ns
        ):
            finish_first()
        if first:
            share_ns += (begin_ns - base_ns - now_ns) / len(first)
            now_ns = begin_ns - base_ns
        else:
            base_ns, now_ns, share_ns = begin_ns, 0.0, 0.0
        if queues[index] in behind:
            behind[queues[index]].append(index)
        else:
            behind[queues[index]] = deque()
            heappush(first, (share_ns + works_ns[index], index))
    while first:
        finish_first()
    return ends_ns
