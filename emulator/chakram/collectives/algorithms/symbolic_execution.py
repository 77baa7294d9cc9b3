"""Symbolic execution of users' algorithms in causal order. Pure functions.

An algorithm is a set of *actions*. Each action belongs to one rank and may have to
follow other actions of that rank. An action may receive one message and send one.

The execution determines:

- whether all actions complete
- a valid order of the actions
- the messages that a source must receive before it sends each message

Subclasses define the content of messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from chakram.collectives.algorithms.transfer_lists import (
    ListedAlgorithm,
    ListedTransfer,
)
from chakram.collectives.ops import CollectiveOp

MAX_ACTIONS = 1 << 17
"""Maximum actions of one algorithm."""

SHOWN = 8
"""Maximum number of problems to report; further ones tend to repeat these."""

Link = tuple[int, int, int]
"""Source rank, channel and stream of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message from one rank to another on a channel.

    Messages of one *stream* are sent one after another, in ascending order of index.
    """

    src: int
    dst: int
    channel: int
    stream: int = 0


@dataclass(slots=True, kw_only=True)
class Action:
    """One action of one rank.

    Attributes:
        rank: The rank that performs it.
        where: Position in the user's file, for error messages.
        after: Actions of the same rank that precede it.
        receives: Message that it receives.
        reads: Rows of slots of the rank. All rows are added, slot by slot.
        writes: Rows of slots of the rank that store the result.
        sends: Message that carries the result.
    """

    rank: int
    where: str
    after: list[int] = field(default_factory=list)
    receives: int | None = None
    reads: list[Sequence[int]] = field(default_factory=list)
    writes: list[Sequence[int]] = field(default_factory=list)
    sends: int | None = None


class Execution:
    """Symbolic execution of actions in causal order.

    Args:
        nranks: Number of ranks in the group.
        actions: The actions of all ranks.
        messages: Messages by index. One action sends each message, and one action
            receives it.

    Attributes:
        problems: Problems found so far, at most ``SHOWN``.
    """

    def __init__(
        self, *, nranks: int, actions: Sequence[Action], messages: Sequence[Message]
    ) -> None:
        self.problems: list[str] = []
        self._nranks = nranks
        self._actions = actions
        self._messages = messages
        self._sender: list[int | None] = [None] * len(messages)
        self._receiver: list[int | None] = [None] * len(messages)
        for index, action in enumerate(actions):
            if action.sends is not None:
                self._sender[action.sends] = index
            if action.receives is not None:
                self._receiver[action.receives] = index
        self._order: list[int] = []
        # By action: the bit set of its causes, and for every link the last message that
        # its rank has received.
        self._causes: dict[int, int] = {}
        self._received: dict[int, dict[Link, int]] = {}
        self._awaited: list[tuple[int, ...]] = [()] * len(messages)

    def act(self, index: int, action: Action, causes: int) -> None:
        """Perform one action. *causes* has a bit for every action that precedes it."""

    def say(self, text: str) -> None:
        """Record a problem."""
        if len(self.problems) < SHOWN:
            self.problems.append(text)

    def execute(self) -> None:
        """Perform every action as soon as all its predecessors are done."""
        actions = self._actions
        before = [self._before(action) for action in actions]
        waits = [len(each) for each in before]
        releases: list[list[int]] = [[] for _ in actions]
        for index, each in enumerate(before):
            for earlier in each:
                releases[earlier].append(index)
            action = actions[index]
            if action.receives is not None and self._sender[action.receives] is None:
                waits[index] += 1
        left = [len(each) for each in releases]
        ready = deque(index for index, count in enumerate(waits) if not count)
        while ready:
            index = ready.popleft()
            self._order.append(index)
            self._do(index)
            for earlier in (*before[index], *([] if left[index] else [index])):
                left[earlier] -= 1
                if left[earlier] <= 0:  # no longer needed
                    del self._causes[earlier], self._received[earlier]
            for following in releases[index]:
                waits[following] -= 1
                if not waits[following]:
                    ready.append(following)
        if len(self._order) < len(actions):
            self._report_stuck(waits)

    def _before(self, action: Action) -> list[int]:
        sender = None if action.receives is None else self._sender[action.receives]
        return [*action.after, *([] if sender is None else [sender])]

    def _do(self, index: int) -> None:
        action = self._actions[index]
        causes = 0
        received: dict[Link, int] = {}
        for earlier in action.after:
            causes |= self._causes[earlier]
            for link, message in self._received[earlier].items():
                received[link] = max(message, received.get(link, -1))
        if action.receives is not None:
            sender = self._sender[action.receives]
            if sender is not None:
                causes |= self._causes[sender]
            of = self._messages[action.receives]
            received[of.src, of.channel, of.stream] = action.receives
        self.act(index, action, causes)
        if action.sends is not None:
            self._awaited[action.sends] = tuple(sorted(received.values()))
        self._causes[index] = causes | 1 << index
        self._received[index] = received

    def _report_stuck(self, waits: Sequence[int]) -> None:
        done = set(self._order)
        for index, action in enumerate(self._actions):
            if index in done or any(earlier not in done for earlier in action.after):
                continue
            if action.receives is None:
                continue
            message = self._messages[action.receives]
            self.say(
                f"{action.where} waits forever for a message from rank {message.src} "
                f"on channel {message.channel}"
            )
        if not self.problems:
            stuck = next(each for at, each in enumerate(self._actions) if waits[at])
            self.say(f"{stuck.where} waits for itself")

    def listed(
        self,
        contents: Sequence[ListedTransfer],
        *,
        name: str,
        op: CollectiveOp,
        root: int,
        nparts: int,
    ) -> ListedAlgorithm:
        """Return the messages as a list, each in a later step than its dependencies.

        Args:
            contents: Content of each message. This method sets step and dependencies.
            name: Name of the algorithm.
            op: The collective.
            root: Position of the root.
            nparts: Number of parts of all buffers.
        """
        steps = [0] * len(self._messages)
        last: dict[Message, int] = {}
        turns: dict[tuple[int, int], int] = {}
        order: list[tuple[int, int, int, int]] = []
        for index in self._order:
            message = self._actions[index].sends
            if message is None:
                continue
            link = self._messages[message]
            # Both ends number messages by step, so steps never decrease within a
            # stream.
            step = max(
                (steps[other] + 1 for other in self._awaited[message]),
                default=0,
            )
            step = last[link] = max(step, last.get(link, 0))
            steps[message] = step
            turn = turns[step, link.src] = turns.get((step, link.src), 0) + 1
            order.append((step, turn, link.src, message))
        order.sort()
        places = {message: place for place, (*_, message) in enumerate(order)}
        return ListedAlgorithm(
            name=name,
            op=op,
            nranks=self._nranks,
            root=root,
            nparts=nparts,
            transfers=tuple(
                ListedTransfer(
                    step=step,
                    src=self._messages[message].src,
                    dst=self._messages[message].dst,
                    channel=self._messages[message].channel,
                    parts=contents[message].parts,
                    nbytes=contents[message].nbytes,
                    reduce=contents[message].reduce,
                    after=tuple(
                        sorted(places[other] for other in self._awaited[message])
                    ),
                )
                for step, _, _, message in order
            ),
        )
