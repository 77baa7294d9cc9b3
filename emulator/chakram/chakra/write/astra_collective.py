"""Export of a collective algorithm for ASTRA-sim: one trace per group position.

ASTRA-sim reads the body of a custom collective from a second set of traces, with one
file ``<prefix>.<p>.et`` for every position p of the group. Keys such as
``all-reduce-implementation-custom`` in ASTRA-sim's system file select this set. Peers
are group positions. The files fix the sizes of messages. The size of the workload's
collective has no effect.

Every transfer is a send node and a receive node. A send depends on the receives whose
data it forwards. For a reduction, a compute node follows the receive, and the sends
depend on that compute node. All messages between two positions have different tags. So
the order in which a simulator matches messages with equal tags does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chakram.chakra import et_codec
from chakram.chakra.read.framing import frame
from chakram.collectives.algorithms import AUTO, algorithm, automatic_algorithm
from chakram.collectives.ops import CollectiveOp, nccl_size_bytes
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
"""The collectives that ASTRA-sim simulates, with their keys in its system file."""

TAG_LIMIT: Final = 2**31


def astra_collective(
    op: CollectiveOp, name: str, *, nranks: int, input_bytes: int
) -> Iterator[Iterator[bytes]]:
    """Yield an iterator over the records of each position's file, in order.

    Args:
        op: The collective to export.
        name: Name of the algorithm, e.g. ``ring`` or ``ring(channels=2)``, or ``auto``.
        nranks: Number of ranks in the group.
        input_bytes: One rank's contribution: ``comm_size`` of the workload's node.

    Raises:
        ScheduleError: If ASTRA-sim has no such collective, or if the algorithm does not
            exist or does not fit the number of ranks.
    """
    if op not in ASTRA_KEYS:
        raise ScheduleError(
            f"collective {op}",
            "is not supported by ASTRA-sim",
            f"choose from {', '.join(ASTRA_KEYS)}",
        )
    how = algorithm(op, name)
    if name == AUTO:
        size_bytes = nccl_size_bytes(op, input_bytes=input_bytes, nranks=nranks)
        how = automatic_algorithm(op, size_bytes=size_bytes, nranks=nranks)
    unfit = "a group needs at least two ranks" if nranks < 2 else how.unfit(nranks)
    if unfit is not None:
        raise ScheduleError(
            f"{op} of {nranks} ranks",
            f"{name} does not fit: {unfit}",
            "choose another algorithm, or another number of ranks",
        )
    tags = _Tags(how, nranks)
    return (
        _position(how, tags, position, nranks, input_bytes)
        for position in range(nranks)
    )


class _Tags:
    """Message tags that both ends derive identically."""

    def __init__(self, how: Algorithm, nranks: int) -> None:
        channels = messages = 0
        for position in range(nranks):
            for each in rank_schedule(how, position=position, nranks=nranks).sends:
                channels = max(channels, each.channel + 1)
                messages = max(messages, each.message + 1)
        if channels * messages >= TAG_LIMIT:
            raise ScheduleError(
                how.name,
                "has more messages per pair of ranks than there are tags",
                "use fewer channels or chunks",
            )
        self._messages = messages

    def of(self, transfer: LocalTransfer) -> int:
        """Return the tag of one message between two positions."""
        return transfer.channel * self._messages + transfer.message


def _position(
    how: Algorithm, tags: _Tags, position: int, nranks: int, input_bytes: int
) -> Iterator[bytes]:
    share = rank_schedule(how, position=position, nranks=nranks)
    added_up = [each.reduce for each in how.receives(position, nranks=nranks, root=0)]
    attributes: dict[str, et_codec.AttributeValue] = {
        "producer": "chakram trace convert",
        "collective": str(how.op).replace("_", ""),
        "algorithm": how.name,
        "input_bytes": input_bytes,
    }
    yield frame(
        et_codec.encode_metadata(
            et_codec.Metadata(version=et_codec.SCHEMA_VERSION, attributes=attributes)
        )
    )
    # Order by step, with the sends of a step first. In this order, every dependency has
    # a smaller id than its dependents.
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
            # If there are fewer bytes than parts, some messages are empty. Neither end
            # waits for them.
            continue
        kind = et_codec.NodeType.COMM_RECV if receives else et_codec.NodeType.COMM_SEND
        yield frame(
            et_codec.encode_node(
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
                et_codec.encode_node(
                    node_id=node_id,
                    name=f"step{step}_add{transfer.peer}",
                    node_type=et_codec.NodeType.COMP,
                    data_deps=[node_id - 1],
                    attributes={"is_cpu_op": False, "num_ops": 0, "tensor_size": size},
                )
            )
            done[index] = node_id
            node_id += 1
