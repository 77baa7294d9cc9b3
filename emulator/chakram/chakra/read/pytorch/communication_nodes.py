"""Communication parameters of the nodes in a host trace.

A transfer has up to three nested nodes: the dispatcher's ``c10d::alltoall_base_``, then
the backend's ``record_param_comms``, then the label ``nccl:all_to_all``.

* ``record_param_comms`` has the most information:
  ``[tensors, seq, group, rank, name, in splits, out splits, ...]``. Since schema 1.1.0,
  attributes repeat these values. Some backends, such as gloo, do not write this node.
* ``c10d::...`` names its arguments in ``op_schema``. Its process group is an object
  without a name in the trace.
* A label has only the input tensors and is never needed.

Sizes are converted to the contribution of one rank (``chakram.collectives.ops``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chakram.chakra.read.groups import even_ranks
from chakram.chakra.read.pytorch.host_trace_nodes import C10D, LABELS, HostNode
from chakram.chakra.read.pytorch.tensor_values import (
    DTYPE_BYTES,
    Tensor,
    is_tensors,
    split_bytes,
    split_sizes,
    tensors,
    total_bytes,
)
from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import TraceError

WAIT: Final = "wait"
"""The operation in which the host waits for a transfer that it started earlier."""

_MOST_RANKS: Final = 1 << 20
_MOST_TAG: Final = 1 << 62
_HINT: Final = "check that PyTorch wrote the file and that it is complete"

_OPS: Final[Mapping[str, CollectiveOp | str]] = {
    "allreduce": CollectiveOp.ALL_REDUCE,
    "broadcast": CollectiveOp.BROADCAST,
    "reduce": CollectiveOp.REDUCE,
    "allgather": CollectiveOp.ALL_GATHER,
    "reducescatter": CollectiveOp.REDUCE_SCATTER,
    "gather": CollectiveOp.GATHER,
    "scatter": CollectiveOp.SCATTER,
    "alltoall": CollectiveOp.ALL_TO_ALL,
    "barrier": CollectiveOp.BARRIER,
    "monitoredbarrier": CollectiveOp.BARRIER,
    "send": "send",
    "recv": "recv",
    "recvanysource": "recv",
    "wait": WAIT,
}
# Suffixes of variants such as ``all_to_allv``, ``_allgather_base`` and
# ``reduce_scatter_tensor_coalesced``.
_VARIANTS: Final = re.compile(r"(coalesced|base|oop|sparse|intotensor|tensor)+$|v$")
_ARGUMENT: Final = re.compile(r"\s*(\S+)\s+(\w+)\s*(=.*)?")

GroupName = str | int | None
"""A node's reference to its group: a name, a pointer value, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """The communication of one node.

    Attributes:
        op: A collective, ``send``, ``recv`` or ``wait``.
        size_bytes: The contribution of one rank. For a scatter, this is the part of one
            member.
        splits: The split sizes of an uneven all_to_all.
        members: The number of participants, if splits or buffers imply it.
        rank: The position of the root or peer in the group, if it is known.
        tag: The tag of a message.
        is_async: Whether the host continues without waiting, or None if only a later
            wait shows this.
        group: The node's reference to its group.
        ranks: The members, if the node states them.
        stated_size: The stated number of members, even if they are not evenly spaced.
        sequence: Identifier of the transfer within its group, or None.
    """

    op: CollectiveOp | str
    size_bytes: int
    splits: Splits | None
    members: int | None
    rank: int | None
    tag: int
    is_async: bool | None
    group: GroupName = None
    ranks: tuple[int, ...] = ()
    stated_size: int = 0
    sequence: object = None

    @property
    def least_ranks(self) -> int:
        """Minimum number of ranks in the job, or 0 if the node states nothing."""
        return max(self.stated_size, max(self.ranks, default=-1) + 1)


def kind_of(name: str) -> CollectiveOp | str | None:
    """Return the operation that a name means, or None if it is unknown."""
    for start in (C10D, *LABELS):
        name = name.removeprefix(start)
    # Labels of messages have a suffix: "nccl:send 0->1".
    plain = name.partition(" ")[0].replace("_", "").lower()
    return _OPS.get(plain) or _OPS.get(_VARIANTS.sub("", plain))


def from_record(node: HostNode, caller: HostNode | None) -> Communication | None:
    """Return the communication of a ``record_param_comms`` node, or None if unknown.

    Args:
        node: The ``record_param_comms`` node.
        caller: The enclosing ``c10d::`` node, whose arguments have names.

    Raises:
        TraceError: If values of the node are missing or contradictory.
    """
    # The operation name is the last string among the values. The group precedes it and
    # may be a string too.
    place = max(
        (index for index, each in enumerate(node.inputs) if isinstance(each, str)),
        default=-1,
    )
    if place < 3 or len(node.inputs) < place + 3:
        raise TraceError(node.where, "does not state which data it communicates", _HINT)
    name = str(node.attributes.get("collective_name") or node.inputs[place])
    op = kind_of(name)
    if op is None:
        return None
    sequence, group, rank = node.inputs[place - 3 : place]
    ranks, stated_size = _stated_ranks(node, node.inputs[place + 3 : place + 6])
    sent = tensors(list(node.inputs[: place - 3]), node.where)
    received = _output_tensors(node)
    arguments = {} if caller is None else _arguments(caller)
    is_async = arguments.get("async_op")
    if is_async is None and isinstance(node.inputs[-1], bool):
        is_async = node.inputs[-1]
    named = {"send": "dst", "recv": "src"}.get(str(op), "root_rank")
    root = arguments.get(named, rank)
    return _communication(
        node,
        op,
        sent=sent or _counted(node, "in_msg_nelems"),
        received=received or _counted(node, "out_msg_nelems"),
        in_splits=split_sizes(node.inputs[place + 1], node.where)
        or split_sizes(node.attributes.get("in_split_size") or [], node.where),
        out_splits=split_sizes(node.inputs[place + 2], node.where)
        or split_sizes(node.attributes.get("out_split_size") or [], node.where),
        group=_group(node, group),
        ranks=ranks,
        stated_size=stated_size,
        rank=_position(root),
        tag=arguments.get("tag", 0),
        sequence=_sequence(sequence),
        is_async=is_async,
        per_peer=_is_list(node.types, 0) and place > 3,
    )


def from_c10d(node: HostNode) -> Communication | None:
    """Return the communication of a ``c10d::`` node, or None if it is unknown.

    Raises:
        TraceError: If values of the node are missing or contradictory.
    """
    op = kind_of(node.name)
    if op is None:
        return None
    arguments = _arguments(node)
    if not arguments:
        raise TraceError(
            node.where,
            "has no op_schema, so its arguments have no names",
            "use the NCCL backend, whose traces have record_param_comms nodes instead",
        )
    given = _tensor_arguments(node)
    both = [value for name, value in given.items() if name in ("tensors", "tensor")]
    inputs = both or [value for name, value in given.items() if "input" in name]
    outputs = both or [value for name, value in given.items() if "output" in name]
    if op is CollectiveOp.BARRIER:
        inputs = outputs = []
    rank = next(
        (arguments[name] for name in ("root_rank", "dst", "src") if name in arguments),
        None,
    )
    return _communication(
        node,
        op,
        sent=tensors(inputs, node.where),
        received=tensors(outputs, node.where),
        in_splits=split_sizes(arguments.get("input_split_sizes", []), node.where),
        out_splits=split_sizes(arguments.get("output_split_sizes", []), node.where),
        rank=_position(rank),
        tag=arguments.get("tag", 0),
        # An operation without this argument is synchronous, because nothing waits for
        # it later.
        is_async=bool(arguments.get("async_op", False)),
        per_peer="input_tensors" in given,
    )


def _communication(
    node: HostNode,
    op: CollectiveOp | str,
    *,
    sent: Sequence[Tensor],
    received: Sequence[Tensor],
    in_splits: Sequence[int],
    out_splits: Sequence[int],
    rank: int | None,
    tag: Any,
    per_peer: bool,
    **stated: Any,
) -> Communication:
    """Return the communication of a node. *stated* values are passed through."""
    size_bytes = total_bytes(sent, node.where)
    members = _members(op, size_bytes, total_bytes(received, node.where))
    splits: Splits | None = None
    if op is CollectiveOp.ALL_TO_ALL:
        if in_splits or out_splits:
            splits = Splits(
                _side(in_splits, out_splits, sent, node.where),
                _side(out_splits, in_splits, received, node.where),
            )
        elif per_peer:
            members = len(sent)
        if splits is None and per_peer and len({*sent, *received}) > 1:
            splits = Splits(
                tuple(each.size_bytes for each in sent),
                tuple(each.size_bytes for each in received),
            )
        if splits is not None:
            op = CollectiveOp.ALL_TO_ALL_V
            size_bytes = sum(splits.sent_bytes)
            members = len(splits.sent_bytes)
    elif op is CollectiveOp.SCATTER:
        # Only the root has an input. All members have the part that they receive.
        size_bytes = total_bytes(received, node.where)
    elif op == "recv":
        size_bytes = total_bytes(received or sent, node.where)
    elif op is CollectiveOp.BARRIER:
        size_bytes = 0
    return Communication(
        op=op,
        size_bytes=size_bytes,
        splits=splits,
        members=members,
        rank=rank if op in ROOTED or op in ("send", "recv") else None,
        tag=tag if type(tag) is int and 0 <= tag < _MOST_TAG else 0,
        **stated,
    )


def _members(
    op: CollectiveOp | str, sent_bytes: int, received_bytes: int
) -> int | None:
    """Return the number of participants that the buffer sizes imply.

    For gather and scatter, only the root has the larger buffer.
    """
    if op in (CollectiveOp.ALL_GATHER, CollectiveOp.GATHER):
        whole, part = received_bytes, sent_bytes
    elif op in (CollectiveOp.REDUCE_SCATTER, CollectiveOp.SCATTER):
        whole, part = sent_bytes, received_bytes
    else:
        return None
    return whole // part if whole and part and whole % part == 0 else None


def _side(
    own: Sequence[int], other: Sequence[int], buffer: Sequence[Tensor], where: str
) -> tuple[int, ...]:
    """Return the splits of one direction in bytes. If *own* is empty, they are even."""
    if own:
        return split_bytes(own, buffer, where)
    return split_bytes([1] * len(other), buffer, where)


def _arguments(node: HostNode) -> dict[str, Any]:
    """Return the arguments of an operation by their names in its signature."""
    inside = node.schema.partition("(")[2].rpartition(") ->")[0]
    names = [
        match[2] for part in inside.split(",") if (match := _ARGUMENT.fullmatch(part))
    ]
    return dict(zip(names, node.inputs, strict=False))


def _tensor_arguments(node: HostNode) -> dict[str, Any]:
    named = zip(_arguments(node).items(), node.types, strict=False)
    return {name: value for (name, value), kind in named if is_tensors(kind)}


def _output_tensors(node: HostNode) -> list[Tensor]:
    named = zip(node.outputs, node.output_types, strict=False)
    return tensors([each for each, kind in named if is_tensors(kind)], node.where)


def _counted(node: HostNode, attribute: str) -> list[Tensor]:
    """Return a buffer from its stated number of elements, for nodes without tensors."""
    elements = node.attributes.get(attribute)
    size = DTYPE_BYTES.get(str(node.attributes.get("dtype", "")).lower())
    if not isinstance(elements, int) or elements <= 0 or size is None:
        return []
    return [Tensor(elements, size)]


def _sequence(value: Any) -> object:
    """Return the value that identifies a transfer within its group, or None.

    The value is a number. Since PyTorch 2.3, it is a pair: the number, and whether the
    number counts messages.
    """
    if isinstance(value, list) and all(isinstance(each, int) for each in value):
        return tuple(value)
    return value if isinstance(value, int) else None


def _position(value: Any) -> int | None:
    """Return a position in a group, or None if it is invalid or unknown (-1)."""
    return value if type(value) is int and 0 <= value < _MOST_RANKS else None


def _is_list(types: Sequence[Any], index: int) -> bool:
    return index < len(types) and str(types[index]).startswith("GenericList[")


def _group(node: HostNode, value: Any) -> GroupName:
    name = node.attributes.get("pg_name")
    if isinstance(name, str) and name:
        return name
    if isinstance(value, list):  # [name, description]
        value = value[0] if value else None
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    # Waits in older schemas have 0 instead of the pointer.
    return value or None


def _stated_ranks(node: HostNode, behind: Sequence[Any]) -> tuple[tuple[int, ...], int]:
    """Return the members and the size of the group, if a node states them.

    *behind* has the values that follow the splits: first rank, stride and size.
    """
    keys = ("global_rank_start", "global_rank_stride", "pg_size")
    stated = [node.attributes.get(key) for key in keys]
    if None in stated:
        stated = list(behind)
    return even_ranks(stated)
