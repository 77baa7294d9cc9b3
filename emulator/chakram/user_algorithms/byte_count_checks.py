"""Checks of algorithms whose messages have sizes but no known content.

The buffer size for which such an algorithm was written is unknown. The bytes that it
moves give an upper bound on that size (``chakram.program.least_bytes``). An algorithm
that fails these checks at the bound is wrong for every size:

* Data must be able to reach every rank that must get it.
* Every rank that must send or receive data does so.
* No message has more bytes than its source can have when it sends. A source has its own
  input and the bytes that it received before. In a reduction, it has at most one
  buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from chakram.collectives.algorithms.symbolic_execution import Action, Execution, Message
from chakram.collectives.ops import CollectiveOp
from chakram.program.least_bytes import (
    largest_input_bytes,
    least_shares,
    moved_bytes,
)

_SUMS = (CollectiveOp.ALL_REDUCE, CollectiveOp.REDUCE, CollectiveOp.REDUCE_SCATTER)
_FROM_ROOT = (CollectiveOp.BROADCAST, CollectiveOp.SCATTER)
_TO_ROOT = (CollectiveOp.REDUCE, CollectiveOp.GATHER)


class ByteFlow(Execution):
    """Execution of actions whose messages may carry any data that their source has.

    Args:
        nranks: Number of ranks of the group.
        actions: Actions of the ranks.
        messages: Messages between the ranks.
        sizes: Bytes of every message.
    """

    def __init__(
        self,
        *,
        nranks: int,
        actions: Sequence[Action],
        messages: Sequence[Message],
        sizes: Sequence[int],
    ) -> None:
        super().__init__(nranks=nranks, actions=actions, messages=messages)
        self._sizes = sizes
        self._known: dict[int, int] = {}
        self._loads = [0] * len(messages)
        self._heard = [1 << rank for rank in range(nranks)]
        # By action: the messages that its rank has received before, as a bit set of
        # their numbers at the rank, and their total bytes.
        self._got: dict[int, tuple[int, int]] = {}
        self._numbers: dict[int, int] = {}
        self._sizes_at: list[list[int]] = [[] for _ in range(nranks)]
        self._had_bytes = [0] * len(messages)

    def act(self, index: int, action: Action, causes: int) -> None:
        """Record whose data, and how many bytes, the rank may have after the action."""
        known = 1 << action.rank
        for earlier in action.after:
            known |= self._known[earlier]
        got, nbytes = self._got_before(action)
        if action.receives is not None:
            known |= self._loads[action.receives]
            at_rank = self._sizes_at[action.rank]
            got |= 1 << len(at_rank)
            at_rank.append(self._sizes[action.receives])
            nbytes += at_rank[-1]
        if action.sends is not None:
            self._loads[action.sends] = known
            self._had_bytes[action.sends] = nbytes
        self._known[index] = known
        self._got[index] = (got, nbytes)
        self._heard[action.rank] |= known

    def _got_before(self, action: Action) -> tuple[int, int]:
        """Return the messages received before this action, and their bytes."""
        before = sorted(
            (self._got[earlier] for earlier in action.after),
            key=lambda each: each[1],
            reverse=True,
        )
        got, nbytes = before[0] if before else (0, 0)
        for other, _ in before[1:]:
            new = other & ~got
            got |= other
            while new:
                last = new & -new
                nbytes += self._sizes_at[action.rank][last.bit_length() - 1]
                new ^= last
        return got, nbytes

    def compare(self, op: CollectiveOp, root: int) -> None:
        """Compare possible data flow and bytes with the requirements of *op*."""
        for rank, heard in enumerate(self._heard):
            if op in _FROM_ROOT:
                wanted = [root]
            elif op in _TO_ROOT and rank != root:
                wanted = []
            elif op == CollectiveOp.SEND_RECV:
                wanted = [(rank - 1) % self._nranks]
            else:
                wanted = list(range(self._nranks))
            missing = [other for other in wanted if not heard >> other & 1]
            if missing:
                self.say(f"no data of rank {missing[0]} can reach rank {rank}")
        if not self.problems:
            self._compare_bytes(op, root)

    def _compare_bytes(self, op: CollectiveOp, root: int) -> None:
        ends = ((message.src, message.dst) for message in self._messages)
        sent, received = moved_bytes(ends, self._sizes, nranks=self._nranks)
        for rank in range(self._nranks):
            shares = least_shares(op, position=rank, nranks=self._nranks, root=root)
            moved = (("sends", sent[rank]), ("receives", received[rank]))
            for share, (does, nbytes) in zip(shares, moved, strict=True):
                if share and not nbytes:
                    self.say(
                        f"rank {rank} {does} no bytes, but must "
                        f"{'send' if does == 'sends' else 'receive'} some"
                    )
        if self.problems:
            return
        largest = largest_input_bytes(op, root=root, sent=sent, received=received)
        if largest is not None:
            self._compare_messages(op, root, largest)

    def _compare_messages(self, op: CollectiveOp, root: int, largest: int) -> None:
        """Find messages with more bytes than their source can have."""
        for number, message in enumerate(self._messages):
            own = 0 if op in _FROM_ROOT and message.src != root else largest
            had = 0 if op in _SUMS else self._had_bytes[number]
            if self._sizes[number] <= own + had:
                continue
            sender = self._sender[number]
            where = "" if sender is None else f"{self._actions[sender].where}: "
            can = (
                f"its messages allow a buffer of at most {largest} bytes"
                if own
                else "it starts without data"
            )
            self.say(
                f"{where}rank {message.src} sends {self._sizes[number]} bytes, but can "
                f"have only {own + had} at that point: {can}"
                + (f"; it has received {had} bytes" if op not in _SUMS else "")
            )
