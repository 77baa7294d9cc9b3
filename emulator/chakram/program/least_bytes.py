"""Minimum bytes that every rank must send and receive, for any algorithm.

With n ranks and an input of S bytes each (``chakram.collectives.ops``), a rank must

    collective       send                     receive
    all_reduce       S                        S          (and all together 2(n - 1)S)
    all_gather       S                        (n - 1)S
    reduce_scatter   (n - 1)S/n               S/n
    all_to_all       (n - 1)S/n               (n - 1)S/n
    broadcast        S, the root              S, the others
    reduce           S, the others            S, the root
    gather           S, the others            (n - 1)S, the root
    scatter          (n - 1)S/n, the root     S/n, the others
    send_recv        S                        S

A rank must send its contribution, reduced or not, and must receive its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm
from chakram.collectives.ops import CollectiveOp
from chakram.program.operations import CollectiveOperation, RankProgram


def least_shares(
    op: CollectiveOp, *, position: int, nranks: int, root: int
) -> tuple[Fraction, Fraction]:
    """Return the minimum that a position must send and receive, as shares of S."""
    one, none = Fraction(1), Fraction(0)
    part = Fraction(1, nranks)
    is_root = position == root
    match op:
        case CollectiveOp.ALL_REDUCE | CollectiveOp.SEND_RECV:
            return one, one
        case CollectiveOp.ALL_GATHER:
            return one, one * (nranks - 1)
        case CollectiveOp.REDUCE_SCATTER:
            return 1 - part, part
        case CollectiveOp.ALL_TO_ALL | CollectiveOp.ALL_TO_ALL_V:
            return 1 - part, 1 - part
        case CollectiveOp.BROADCAST:
            return (one, none) if is_root else (none, one)
        case CollectiveOp.REDUCE:
            return (none, one) if is_root else (one, none)
        case CollectiveOp.GATHER:
            return (none, one * (nranks - 1)) if is_root else (one, none)
        case CollectiveOp.SCATTER:
            return (1 - part, none) if is_root else (none, part)
        case CollectiveOp.BARRIER:
            return none, none


def largest_input_bytes(
    op: CollectiveOp, *, root: int, sent: Sequence[int], received: Sequence[int]
) -> int | None:
    """Return the largest S for which every position moves at least the minimum bytes.

    Shares of S are rounded down, so the result is never too small.

    Returns:
        Bytes, or None if there is no upper limit.
    """
    nranks = len(sent)
    bounds: list[int] = []
    for position, moved in enumerate(zip(sent, received, strict=True)):
        shares = least_shares(op, position=position, nranks=nranks, root=root)
        for share, nbytes in zip(shares, moved, strict=True):
            if share:
                # The largest S with floor(share x S) <= nbytes.
                bounds.append(((nbytes + 1) * share.denominator - 1) // share.numerator)
    if op == CollectiveOp.ALL_REDUCE and nranks > 1:
        bounds.append(sum(sent) // (2 * (nranks - 1)))
    return min(bounds, default=None)


def moved_bytes(
    ends: Iterable[tuple[int, int]], sizes: Iterable[int], *, nranks: int
) -> tuple[list[int], list[int]]:
    """Return the total bytes that each position sends and receives in messages."""
    sent, received = [0] * nranks, [0] * nranks
    for (src, dst), nbytes in zip(ends, sizes, strict=True):
        sent[src] += nbytes
        received[dst] += nbytes
    return sent, received


def too_small_warnings(programs: Iterable[RankProgram]) -> list[str]:
    """Return warnings about collectives whose algorithm moves too few bytes.

    Only algorithms with fixed message sizes can move too few bytes.
    """
    largest: dict[tuple[CollectiveOp, str, int, int], int | None] = {}
    short: dict[tuple[CollectiveOp, str, int], int] = {}
    for program in programs:
        for how in program.algorithms:
            key = (how.op, how.name, how.nranks, how.root)
            if key not in largest:
                largest[key] = _largest(how)
        sizes = {group.name: len(group.ranks) for group in program.groups}
        for each in program.operations if program.algorithms else ():
            if not isinstance(each, CollectiveOperation):
                continue
            key = (each.op, each.algorithm, sizes[each.group], each.root)
            bound = largest.get(key)
            if bound is not None and each.input_bytes > bound:
                first = (each.op, each.algorithm, bound)
                short[first] = max(short.get(first, 0), each.input_bytes)
    return [
        f"{name} moves enough data only for an {op} of up to {bound} bytes per rank, "
        f"but one has {found} bytes"
        for (op, name, bound), found in short.items()
    ]


def _largest(how: ListedAlgorithm) -> int | None:
    sizes = [each.nbytes for each in how.transfers if each.nbytes is not None]
    if len(sizes) < len(how.transfers):
        return None  # message sizes depend on the data in the messages
    ends = ((each.src, each.dst) for each in how.transfers)
    sent, received = moved_bytes(ends, sizes, nranks=how.nranks)
    return largest_input_bytes(how.op, root=how.root, sent=sent, received=received)
