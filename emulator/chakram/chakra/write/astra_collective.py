"""Collectives for ASTRA-sim: the schedule of an algorithm as one trace per position.

ASTRA-sim takes the body of a collective from a second set of traces, a file
``<prefix>.<p>.et`` for every position p of the group (keys such as
``all-reduce-implementation-custom`` of its system file).  Peers are positions; sizes
are fixed in the files, whatever the workload's collective has.

Every transfer is a send node and a receive node.  A send depends on the receives whose
data it passes on; what is added up is a receive with a compute node behind it, on which
the sends depend.  Each message has a tag of its own, so that nothing hangs on the order
in which a simulator matches messages of one tag.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chakram.chakra.et_codec import (
    SCHEMA_VERSION,
    AttributeValue,
    Metadata,
    NodeType,
    encode_metadata,
    encode_node,
)
from chakram.chakra.read.framing import frame
from chakram.collectives.algorithms import algorithm
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import (
    Algorithm,
    LocalTransfer,
    rank_schedule,
    transfer_bytes,
)
from chakram.foundation.errors import ScheduleError

ASTRA_KEYS: Final = {
    CollectiveOp.ALL_REDUCE: "all-reduce-implementation-custom",
    CollectiveOp.ALL_GATHER: "all-gather-implementation-custom",
    CollectiveOp.REDUCE_SCATTER: "reduce-scatter-implementation-custom",
    CollectiveOp.ALL_TO_ALL: "all-to-all-implementation-custom",
}
"""The collectives that ASTRA-sim simulates, and the keys of its system file."""

TAG_LIMIT: Final = 2**31


def astra_collective(
    op: CollectiveOp, name: str, *, nranks: int, input_bytes: int
) -> Iterator[Iterator[bytes]]:
    """Yield the records of every position's file, position by position.

    Args:
        op: The collective.
        name: The algorithm, e.g. ``ring`` or ``ring(channels=2)``.
        nranks: Ranks of the group.
        input_bytes: What one rank contributes: ``comm_size`` of the workload's node.

    Raises:
        ScheduleError: If ASTRA-sim has no such collective, there is no such algorithm,
            or it does not fit.
    """
    if op not in ASTRA_KEYS:
        raise ScheduleError(
            f"collective {op}",
            "ASTRA-sim does not simulate it",
            f"choose from {', '.join(ASTRA_KEYS)}",
        )
    how = algorithm(op, name)
    unfit = "a group has two ranks or more" if nranks < 2 else how.unfit(nranks)
    if unfit is not None:
        raise ScheduleError(f"{op} of {nranks} ranks", f"{name} does not fit: {unfit}")
    tags = _Tags(how, nranks)
    return (
        _position(how, tags, position, nranks, input_bytes)
        for position in range(nranks)
    )


class _Tags:
    """Tags of messages: both ends count the messages of a pair alike."""

    def __init__(self, how: Algorithm, nranks: int) -> None:
        channels = messages = 0
        for position in range(nranks):
            for each in rank_schedule(how, position=position, nranks=nranks).sends:
                channels = max(channels, each.channel + 1)
                messages = max(messages, each.message + 1)
        if channels * messages >= TAG_LIMIT:
            raise ScheduleError(how.name, "has more messages of a pair than tags")
        self._messages = messages

    def of(self, transfer: LocalTransfer) -> int:
        """Return the tag of one message between two positions."""
        return transfer.channel * self._messages + transfer.message


def _position(
    how: Algorithm, tags: _Tags, position: int, nranks: int, input_bytes: int
) -> Iterator[bytes]:
    share = rank_schedule(how, position=position, nranks=nranks)
    added_up = [each.reduce for each in how.receives(position, nranks=nranks, root=0)]
    attributes: dict[str, AttributeValue] = {
        "producer": "chakram trace convert",
        "collective": str(how.op).replace("_", ""),
        "algorithm": how.name,
        "input_bytes": input_bytes,
    }
    yield frame(
        encode_metadata(Metadata(version=SCHEMA_VERSION, attributes=attributes))
    )
    # Steps ascending, a step's sends first: then ids ascend along dependencies.
    order = sorted(
        [(each.step, 0, index) for index, each in enumerate(share.sends)]
        + [(each.step, 1, index) for index, each in enumerate(share.receives)]
    )
    done: dict[int, int] = {}
    node_id = 0
    for step, receives, index in order:
        transfer = (share.receives if receives else share.sends)[index]
        size = transfer_bytes(how, transfer, nranks=nranks, input_bytes=input_bytes)
        if not size:
            # Fewer bytes than parts: of such messages nobody waits for either end.
            continue
        kind = NodeType.COMM_RECV if receives else NodeType.COMM_SEND
        yield frame(
            encode_node(
                node_id=node_id,
                name=f"step{step}_{'from' if receives else 'to'}{transfer.peer}",
                node_type=kind,
                data_deps=[]
                if receives
                else sorted(done[i] for i in transfer.needs if i in done),
                attributes={
                    "comm_type": int(kind),
                    "comm_size": size,
                    "comm_src" if receives else "comm_dst": transfer.peer,
                    "comm_tag": tags.of(transfer),
                    "is_cpu_op": False,
                },
            )
        )
        node_id += 1
        if not receives:
            continue
        done[index] = node_id - 1
        if added_up[index]:
            yield frame(
                encode_node(
                    node_id=node_id,
                    name=f"step{step}_add{transfer.peer}",
                    node_type=NodeType.COMP,
                    data_deps=[node_id - 1],
                    attributes={"is_cpu_op": False, "num_ops": 0, "tensor_size": size},
                )
            )
            done[index] = node_id
            node_id += 1
