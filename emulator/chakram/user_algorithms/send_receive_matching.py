"""Matching of sends and receives in users' algorithm files, and file errors.

On a link, the k-th receive matches the k-th send.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from chakram.collectives.algorithms.symbolic_execution import Message
from chakram.foundation.bounded_reading import read_bounded
from chakram.foundation.errors import ScheduleError

_SHOWN = 3


def refuse_problems(where: str, problems: Sequence[str]) -> None:
    """Raise an error if there are *problems* with an algorithm.

    Raises:
        ScheduleError: If there are problems. The error states the first few.
    """
    if not problems:
        return
    found = "; ".join(problems[:_SHOWN])
    if len(problems) > _SHOWN:
        found += f"; and {len(problems) - _SHOWN} more problems"
    raise ScheduleError(where, found)


read_algorithm_file = partial(
    read_bounded,
    limit_bytes=64 << 20,
    error=ScheduleError,
    path_hint="give a path relative to the folder of the experiment file",
)


class Links:
    """The messages of an algorithm, in the order in which they are sent.

    Add all sends before the first receive.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._sent: dict[Message, list[int]] = {}
        self._taken: dict[Message, int] = {}

    def send(self, link: Message) -> int:
        """Add a message over *link* and return its number."""
        self._sent.setdefault(link, []).append(len(self.messages))
        self.messages.append(link)
        return len(self.messages) - 1

    def receive(self, link: Message) -> int | None:
        """Return the next message on *link*, or None if no further message is sent."""
        number = self._taken.get(link, 0)
        self._taken[link] = number + 1
        sent = self._sent.get(link, ())
        return sent[number] if number < len(sent) else None

    def counts(self) -> list[tuple[Message, int, int]]:
        """Return the numbers of messages sent and received over each link."""
        links = dict.fromkeys([*self._sent, *self._taken])
        return [
            (link, len(self._sent.get(link, ())), self._taken.get(link, 0))
            for link in links
        ]


def refuse_unmatched(source: str, counts: Sequence[tuple[Message, int, int]]) -> None:
    """Raise an error if a link has different numbers of sends and receives.

    Raises:
        ScheduleError: If there is such a link. The error names the first one.
    """
    for link, sent, received in counts:
        if sent != received:
            raise ScheduleError(
                source,
                f"rank {link.src} sends {sent} messages to rank {link.dst} on channel "
                f"{link.channel}, but rank {link.dst} receives {received}",
                "give every message a send and a receive",
            )
