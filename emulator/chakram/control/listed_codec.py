"""Users' algorithms as messages, and back, checked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from chakram.collectives.algorithms.listed import (
    MAX_AFTER,
    MAX_LISTED,
    MAX_PARTS,
    ListedAlgorithm,
    ListedTransfer,
    check_listed,
)
from chakram.collectives.ops import CollectiveOp
from chakram.control.protocol_messages import pb
from chakram.fields import AtMost, Fault, Name, Size, Within, declared, inside

_MAX_RUNS = 1 << 20
_CHANNEL = Within(0, 1 << 10)
_SIZE = declared(Size)


def collective_op(name: str) -> CollectiveOp:
    """Return the collective of a name; Fault if there is none."""
    try:
        return CollectiveOp(name)
    except ValueError:
        raise Fault("", f"{name[:40]!r} is no collective") from None


def encode_listed(how: ListedAlgorithm) -> pb.ListedAlgorithm:
    """Return the message of an algorithm; columns that say nothing stay empty."""
    transfers = how.transfers
    fixed = any(each.nbytes is not None for each in transfers)
    return pb.ListedAlgorithm(
        name=how.name,
        op=how.op.value,
        nranks=how.nranks,
        root=how.root,
        nparts=how.nparts,
        steps=[each.step for each in transfers],
        sources=[each.src for each in transfers],
        destinations=[each.dst for each in transfers],
        channels=(
            [each.channel for each in transfers]
            if any(each.channel for each in transfers)
            else []
        ),
        reduces=[each.reduce for each in transfers],
        run_counts=[len(each.parts) for each in transfers],
        runs=[number for each in transfers for run in each.parts for number in run],
        after_counts=[len(each.after) for each in transfers],
        after=[
            place - other
            for place, each in enumerate(transfers)
            for other in each.after
        ],
        sizes=[each.nbytes or 0 for each in transfers] if fixed else [],
    )


def decode_listed(message: pb.ListedAlgorithm) -> ListedAlgorithm:
    """Return the algorithm of a message; Fault if it is wrong."""
    for name, most in (
        ("steps", MAX_LISTED),
        ("runs", 2 * _MAX_RUNS),
        ("after", _MAX_RUNS),
    ):
        inside(name, getattr(message, name), AtMost(most).take)
    op = inside("op", message.op, collective_op)
    nranks = inside("nranks", message.nranks, Within(2, 1 << 16).take)
    nparts = inside("nparts", message.nparts, Within(1, MAX_PARTS).take)
    count = len(message.steps)
    channels = message.channels or [0] * count
    sizes = message.sizes or [None] * count
    for name, column in (
        ("sources", message.sources),
        ("destinations", message.destinations),
        ("channels", channels),
        ("reduces", message.reduces),
        ("run_counts", message.run_counts),
        ("after_counts", message.after_counts),
        ("sizes", sizes),
    ):
        if len(column) != count:
            raise Fault(name, f"{len(column)} entries for {count} transfers")
    runs = _slices("runs", message.run_counts, len(message.runs) // 2)
    after = _slices("after", message.after_counts, len(message.after))
    transfers = tuple(
        ListedTransfer(
            step=message.steps[place],
            src=message.sources[place],
            dst=message.destinations[place],
            channel=inside("channels", channels[place], _CHANNEL.take),
            parts=tuple(
                (message.runs[2 * run], message.runs[2 * run + 1])
                for run in runs[place]
            ),
            nbytes=sizes[place] and inside("sizes", sizes[place], *_SIZE.takers),
            reduce=message.reduces[place],
            after=tuple(place - message.after[back] for back in after[place]),
        )
        for place in range(count)
    )
    problems = check_listed(transfers, op=op, nranks=nranks, nparts=nparts)
    if problems:
        raise Fault("steps", problems[0])
    return ListedAlgorithm(
        name=inside("name", message.name, *declared(Name).takers),
        op=op,
        nranks=nranks,
        root=inside("root", message.root, Within(0, nranks - 1).take),
        nparts=nparts,
        transfers=transfers,
    )


def _slices(name: str, counts: Sequence[int], total: int) -> list[range]:
    """Return where the entries of every transfer stand in a flat column."""
    if any(count > MAX_AFTER for count in counts):
        raise Fault(name, f"more than {MAX_AFTER} of one transfer")
    ends = list(accumulate(counts, initial=0))
    if ends[-1] != total:
        raise Fault(name, f"{total} entries, and the transfers count {ends[-1]}")
    return [range(begin, end) for begin, end in pairwise(ends)]
