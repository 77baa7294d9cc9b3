"""Traffic that the ranks of a plan send: messages, payload, and bytes on the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from chakram.collectives.schedule import Algorithm, transfer_bytes
from chakram.collectives.uneven_messages import matrix_bytes, uneven_messages
from chakram.plan.packed_queue_pairs import peers_within_host
from chakram.plan.wire_cost import wire_bytes
from chakram.predict.simulator.burst_size import algorithm_used, messages_of_splits

if TYPE_CHECKING:
    from chakram.collectives.split_sizes import Matrix
    from chakram.plan.plan import RankPlan
    from chakram.program.columns import CollectiveUse


class Share(NamedTuple):
    """Traffic that one member sends in one collective."""

    messages: int
    payload_bytes: int
    wire_bytes: int


_KNOWN_SIZES = 1 << 16
"""Number of message sizes whose size on the wire is cached."""


class Shares:
    """Computes the shares of collectives, and caches them because most are alike.

    Args:
        path_mtu: Payload bytes of a full packet.
        verb: The verb that posts messages.
        overhead_bytes: Bytes of each packet in addition to its payload.
    """

    def __init__(self, *, path_mtu: int, verb: str, overhead_bytes: int) -> None:
        self.on_wire = lru_cache(maxsize=_KNOWN_SIZES)(
            partial(
                wire_bytes, path_mtu=path_mtu, verb=verb, overhead_bytes=overhead_bytes
            )
        )
        self._known: dict[tuple[object, ...], tuple[Share, ...]] = {}

    def of_collective(
        self,
        how: Algorithm,
        use: CollectiveUse,
        *,
        nranks: int,
        matrix: Matrix | None,
    ) -> tuple[Share, ...]:
        """Return the share of every position of the group."""
        if matrix is not None:
            pair_bytes = matrix_bytes(matrix)
            return tuple(
                self.of_messages(
                    size
                    for _, size in uneven_messages(
                        how, position=position, nranks=nranks, pair_bytes=pair_bytes
                    )
                )
                for position in range(nranks)
            )
        key = (how, nranks, use.root, use.input_bytes)
        shares = self._known.get(key)
        if shares is None:
            shares = self._known[key] = tuple(
                self._share(
                    how.sent_sizes(
                        position,
                        nranks=nranks,
                        root=use.root,
                        input_bytes=use.input_bytes,
                    )
                )
                for position in range(nranks)
            )
        return shares

    def of_messages(self, sizes_bytes: Iterable[int]) -> Share:
        """Return the share of a member that sends messages of these sizes."""
        return self._share(Counter(sizes_bytes))

    def _share(self, counts: Mapping[int, int]) -> Share:
        """Return the share of a member from its number of messages by size."""
        return Share(
            messages=sum(counts.values()),
            payload_bytes=sum(size * count for size, count in counts.items()),
            wire_bytes=sum(
                self.on_wire(size) * count for size, count in counts.items()
            ),
        )


def within_host_bytes(rank: RankPlan, shares: Shares) -> int:
    """Return how many bytes of a rank's messages do not pass through its port."""
    local = peers_within_host(rank.queue_pairs)
    if not local:
        return 0
    program = rank.program
    columns = program.columns
    total = sum(
        count * shares.on_wire(use.size_bytes)
        for use, count in columns.message_uses.items()
        if program.peers[use.peer] in local
    )
    for use, count in columns.collective_uses.items():
        members = program.groups[use.group].ranks
        how = algorithm_used(program, use)
        position = members.index(program.rank)
        if use.splits is None:
            nranks = len(members)
            messages: Iterator[tuple[int, int]] = (
                (
                    send.dst,
                    transfer_bytes(
                        how, send, nranks=nranks, input_bytes=use.input_bytes
                    ),
                )
                for send in how.sends(position, nranks=nranks, root=use.root)
                if members[send.dst] in local
            )
        else:
            messages = messages_of_splits(program, use, how, position)
        total += count * sum(
            shares.on_wire(size) for peer, size in messages if members[peer] in local
        )
    return total
