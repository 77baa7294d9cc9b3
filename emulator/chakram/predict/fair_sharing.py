"""What messages take that share the fabric fairly: when those are due that overlap.

The bound of one message alone knows nothing of n senders that share the port of their
receiver: it would call a perfect incast n times too slow.  The fair time of a message
takes the others as they were posted.  Along its way are lines: the links of the two
ports, and between switches all that equal-cost paths may choose among (as one, in
perfect balance).  Every line gives all pairs of ranks that have messages there equal
shares of its rate (processor sharing), and the messages of a pair go one after the
other, as on a queue pair.  The fair time of a message is

    the longest that one of its lines takes until its bytes are through, with the way
    there and the way on, or its path alone, from when it was posted
    + the way back of the acknowledgement.

So a message that meets no other has its bound.  Of messages that are posted together
the last is done when the bytes of all of them have crossed the line that has most to
carry, plus latency: the bound of that port, which no order of packets beats.  Messages
that were not under way together do not share anything, whatever the program says: one
that is posted when the other would have been through costs it nothing.

It is no bound for a single message: whoever takes more than his share is faster, at
others' cost.  And where two lines are busy, a message has the equal share of both,
although one that another line holds up would leave its share to others.

Source: L. Kleinrock, Time-shared systems: a theoretical treatment, J. ACM 14 (1967).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from chakram.predict.paths import Paths

if TYPE_CHECKING:
    from chakram.predict.paths import FabricModel


class FairTimes:
    """Finds the fair times of the messages of one job.

    Args:
        fabric: Where its ranks are.
        path_mtu: Payload of a full packet.
        verb: ``write`` or ``send``.
    """

    def __init__(
        self, fabric: FabricModel, *, path_mtu: int, verb: str = "write"
    ) -> None:
        self._paths = Paths(fabric, path_mtu=path_mtu, verb=verb)
        self._kinds: dict[tuple[int, int, int], _Kind] = {}

    def times_ns(self, messages: Iterable[tuple[int, int, int, int]]) -> list[int]:
        """Return the fair time of each message: posted to acknowledged.

        Args:
            messages: Sender, receiver, size in bytes, and when it was posted, in ns of
                one clock for all of them.
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
    """What messages of one way and size have in common.

    ``works_ns``: how long each line is busy with one alone, and the way there and on.
    """

    works_ns: tuple[tuple[int, float, float], ...]
    alone_ns: float
    back_ns: float


def shared_ends_ns(
    begins_ns: Sequence[int], works_ns: Sequence[float], queues: Sequence[Hashable]
) -> list[int]:
    """Return when pieces of work end if queues have equal shares of one server.

    Args:
        begins_ns: When each is there, in any order.
        works_ns: How long each takes alone.
        queues: Which queue each is in; those of one are served one after the other.
    """
    ends_ns = [0] * len(begins_ns)
    # First of every queue: what each queue must have got in all when it is through, and
    # behind it those that wait.  ``share_ns`` is what they have got since ``base_ns``.
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
