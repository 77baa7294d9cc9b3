"""Executes what users' algorithms make ranks do, in an order of causes. Pure.

An algorithm is a number of *actions*, each by one rank, which come after other actions
of that rank and may receive one message and send one.  Executing them finds out whether
they come to an end, in which order they may happen, and which messages the source of a
message must have received before it sends.  What the messages carry is for subclasses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chakram.collectives.algorithms.transfer_lists import (
    ListedAlgorithm,
    ListedTransfer,
)

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp


MAX_ACTIONS = 1 << 17
"""Actions of one algorithm."""

SHOWN = 8
"""Problems that are worth telling; more say the same."""

Link = tuple[int, int, int]
"""Whom a message is from, on which channel, in which stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What goes from one rank to another over a channel.

    Those of one *stream* are sent one after another, in the order of their numbers.
    """

    src: int
    dst: int
    channel: int
    stream: int = 0


@dataclass(slots=True, kw_only=True)
class Action:
    """Something that one rank does.

    Attributes:
        rank: Who.
        where: Where it stands in the user's file, for people.
        after: Actions of the same rank that come before it.
        receives: Message whose content it takes up.
        reads: Rows of slots of its own rank; all rows are added up, slot by slot.
        writes: Rows of slots of its own rank that get the result.
        sends: Message that carries the result away.
    """

    rank: int
    where: str
    after: list[int] = field(default_factory=list)
    receives: int | None = None
    reads: list[Sequence[int]] = field(default_factory=list)
    writes: list[Sequence[int]] = field(default_factory=list)
    sends: int | None = None


class Execution:
    """One execution of *actions*.

    Args:
        nranks: Ranks of the group.
        actions: What they do.
        messages: What goes between them, by number; each is sent by one action and
            received by one.

    Attributes:
        problems: What is wrong, as far as it is known.
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
        # By action: bits of the actions that cause it, and of every link the last
        # message that its rank has received.
        self._causes: dict[int, int] = {}
        self._received: dict[int, dict[Link, int]] = {}
        self._awaited: list[tuple[int, ...]] = [()] * len(messages)

    def act(self, index: int, action: Action, causes: int) -> None:
        """Carry out one action; *causes* has a bit for everything that led to it."""

    def say(self, text: str) -> None:
        """Take note of a problem."""
        if len(self.problems) < SHOWN:
            self.problems.append(text)

    def execute(self) -> None:
        """Carry out all actions, as soon as what they wait for is done."""
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
                if left[earlier] <= 0:  # nobody asks for it any more
                    del self._causes[earlier], self._received[earlier]
            for following in releases[index]:
                waits[following] -= 1
                if not waits[following]:
                    ready.append(following)
        if len(self._order) < len(actions):
            self._tell_stuck(waits)

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

    def _tell_stuck(self, waits: Sequence[int]) -> None:
        done = set(self._order)
        for index, action in enumerate(self._actions):
            if index in done or any(earlier not in done for earlier in action.after):
                continue
            if action.receives is None:
                continue
            message = self._messages[action.receives]
            self.say(
                f"{action.where} waits for ever for a message from rank {message.src} "
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
        """Return the messages in steps, each after all that it waits for.

        Args:
            contents: By message, what it carries; steps and waiting are filled in.
            name: Of the algorithm.
            op: The collective.
            root: Its root.
            nparts: Parts of all buffers.
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
            # What one stream sends does not go back in steps, by which both ends count.
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
