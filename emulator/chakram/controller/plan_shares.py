"""What the ranks of a plan send: messages, payload, and bytes on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.schedule import transfer_bytes
from chakram.collectives.uneven import matrix_bytes, splits_bytes, uneven_messages
from chakram.plan.wire_cost import wire_bytes
from chakram.program.operations import CollectiveOperation, SendOperation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from chakram.collectives.schedule import Algorithm
    from chakram.collectives.splits import Matrix, Splits
    from chakram.plan.plan import RankPlan

__all__ = ["Share", "Shares", "messages_of_splits", "within_host_bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one member sends in one collective."""

    messages: int
    payload_bytes: int
    wire_bytes: int


_KNOWN_SIZES = 1 << 16
"""How many sizes of chunks, and of messages on the wire, are kept."""


class Shares:
    """What members of collectives send; most collectives of a job are alike.

    Args:
        path_mtu: Payload of a full packet.
        verb: That messages are posted with.
        overhead_bytes: What each packet has beside its payload.
    """

    def __init__(self, *, path_mtu: int, verb: str, overhead_bytes: int) -> None:
        self._on_wire = partial(
            wire_bytes, path_mtu=path_mtu, verb=verb, overhead_bytes=overhead_bytes
        )
        self._known: dict[tuple[object, ...], tuple[Share, ...]] = {}
        self._wire_bytes: dict[int, int] = {}

    def of_message(self, size_bytes: int) -> Share:
        """Return the share of who sends one message of this size."""
        return Share(
            messages=1,
            payload_bytes=size_bytes,
            wire_bytes=self._on_wire(size_bytes),
        )

    def of_collective(
        self,
        how: Algorithm,
        operation: CollectiveOperation,
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
        key = (how, nranks, operation.root, operation.input_bytes)
        shares = self._known.get(key)
        if shares is None:
            sizes: dict[int, int] = {}
            shares = self._known[key] = tuple(
                self._position(how, operation, position, sizes, nranks=nranks)
                for position in range(nranks)
            )
        return shares

    def of_messages(self, sizes_bytes: Iterable[int]) -> Share:
        """Return the share of who sends messages of these sizes."""
        sizes = list(sizes_bytes)
        return Share(
            messages=len(sizes),
            payload_bytes=sum(sizes),
            wire_bytes=sum(map(self._on_wire, sizes)),
        )

    def _position(
        self,
        how: Algorithm,
        operation: CollectiveOperation,
        position: int,
        sizes: dict[int, int],
        *,
        nranks: int,
    ) -> Share:
        """Return the share of one position; *sizes* are those of chunks, if known."""
        messages = payload = wire = 0
        for transfer in how.sends(position, nranks=nranks, root=operation.root):
            # All positions of a group of a thousand send millions of messages.
            size = sizes.get(transfer.chunk) if not transfer.further else None
            if size is None:
                size = transfer_bytes(
                    how, transfer, nranks=nranks, input_bytes=operation.input_bytes
                )
                if not transfer.further and len(sizes) < _KNOWN_SIZES:
                    sizes[transfer.chunk] = size
            on_wire = self._wire_bytes.get(size)
            if on_wire is None:
                on_wire = self._on_wire(size)
                if len(self._wire_bytes) < _KNOWN_SIZES:
                    self._wire_bytes[size] = on_wire
            messages += 1
            payload += size
            wire += on_wire
        return Share(messages=messages, payload_bytes=payload, wire_bytes=wire)


def within_host_bytes(rank: RankPlan, shares: Shares) -> int:
    """Return what of a rank's messages does not go through its port."""
    local = {
        pair.peer_rank for pair in rank.queue_pairs if pair.local_rate_bps is not None
    }
    if not local:
        return 0
    groups = {group.name: group for group in rank.program.groups}
    total = 0
    for operation in rank.program.operations:
        if isinstance(operation, SendOperation) and operation.peer in local:
            total += shares.of_message(operation.size_bytes).wire_bytes
        elif isinstance(operation, CollectiveOperation):
            members = groups[operation.group].ranks
            nranks = len(members)
            position = members.index(rank.program.rank)
            how = algorithm_of(
                operation.op,
                operation.algorithm,
                nranks=nranks,
                root=operation.root,
                listed=rank.program.algorithms,
            )
            if operation.splits is not None:
                messages = messages_of_splits(
                    how, operation, operation.splits, position
                )
                total += shares.of_messages(
                    size for peer, size in messages if members[peer] in local
                ).wire_bytes
                continue
            for send in how.sends(position, nranks=nranks, root=operation.root):
                if members[send.dst] in local:
                    size = transfer_bytes(
                        how, send, nranks=nranks, input_bytes=operation.input_bytes
                    )
                    total += shares.of_message(size).wire_bytes
    return total


def messages_of_splits(
    how: Algorithm, operation: CollectiveOperation, splits: Splits, position: int
) -> Iterator[tuple[int, int]]:
    """Return (destination, size) of what a member sends in an all_to_all_v."""
    return uneven_messages(
        how,
        position=position,
        nranks=len(splits.sent_bytes),
        pair_bytes=splits_bytes(how, splits, operation.passed_bytes, position=position),
    )
