"""Reader of ``replayedCommsPerf.rank-N.json``, written by PARAM's comms replay.

Each rank has one list of replayed operations, in order. An entry has ``comms``,
``in_msg_size`` and ``out_msg_size`` in elements, ``dtype``, ``pg_id``, and the
``world_size`` of the group. The time of an entry is ``latency_us`` (on this rank) or
``global_latency_us`` (over all ranks). A repeated ``id`` starts the next replay of the
trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from chakram.collectives.ops import CollectiveOp, nccl_size_bytes
from chakram.foundation.errors import ResultsError

_OPS = {
    "allreduce": CollectiveOp.ALL_REDUCE,
    "allgather": CollectiveOp.ALL_GATHER,
    "reducescatter": CollectiveOp.REDUCE_SCATTER,
    "alltoallv": CollectiveOp.ALL_TO_ALL_V,
    "alltoallsingle": CollectiveOp.ALL_TO_ALL,
    "alltoall": CollectiveOp.ALL_TO_ALL,
    "broadcast": CollectiveOp.BROADCAST,
    "reduce": CollectiveOp.REDUCE,
    "gather": CollectiveOp.GATHER,
    "scatter": CollectiveOp.SCATTER,
}
_WORDS = re.compile(r"(_base|_into|_tensor|_coalesced|_)")
_DTYPE_BYTES = {
    **dict.fromkeys(("byte", "char", "uint8", "int8", "bool"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16", "short", "int16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64"), 8),
}
_HINT = "use a replayedCommsPerf.rank-N.json"
_MOST = 1 << 50

_MOST_DTYPE_BYTES = 64


class Replayed(NamedTuple):
    """One collective on one rank.

    Attributes:
        op: The collective.
        group: Process group.
        k: Index among the collectives of this group on this rank in this replay.
        replay: Index of the replay.
        nranks: Number of ranks in the group.
        size_bytes: S, the size column of nccl-tests.
        time_ns: Duration over all ranks if PARAM measured that, else on this rank.
    """

    op: CollectiveOp
    group: str
    k: int
    replay: int
    nranks: int
    size_bytes: int
    time_ns: float


def read_replayed(document: object, source: str) -> list[Replayed]:
    """Return the collectives that one rank replayed, without other operations.

    Raises:
        ResultsError: If the document has another format or no collective.
    """
    if not isinstance(document, Sequence) or isinstance(document, str):
        raise ResultsError(source, "is not a list of replayed operations", _HINT)
    seen: set[object] = set()
    counted: dict[tuple[int, str], int] = {}
    replay = 0
    found: list[Replayed] = []
    for place, record in enumerate(document):
        where = f"{source}: [{place}]"
        if (
            not isinstance(record, Mapping)
            or not isinstance(record.get("comms", ""), str)
            or not isinstance(record.get("id"), int | str | None)
        ):
            raise ResultsError(where, "is not a record of a replay", _HINT)
        if (identity := record.get("id")) is not None:
            if identity in seen:
                replay += 1
                seen.clear()
            seen.add(identity)
        op = _OPS.get(_WORDS.sub("", record.get("comms", "").lower()))
        if op is None:
            continue
        group = str(record.get("pg_id", "0"))
        k = counted.get((replay, group), 0)
        counted[replay, group] = k + 1
        found.append(_replayed(op, group, k, replay, record, where))
    if not found:
        raise ResultsError(source, "has no replayed collective", _HINT)
    return found


def _replayed(
    op: CollectiveOp,
    group: str,
    k: int,
    replay: int,
    record: Mapping[str, Any],
    where: str,
) -> Replayed:
    nranks = _whole(record, "world_size", where)
    each = record.get("dtype_size") or _DTYPE_BYTES.get(
        str(record.get("dtype", "")).lower().removeprefix("torch.")
    )
    if not isinstance(each, int) or not 0 < each <= _MOST_DTYPE_BYTES:
        raise ResultsError(where, f"has dtype {record.get('dtype')!r}", _HINT)
    input_bytes = _whole(record, "in_msg_size", where) * each
    time_us = record.get("global_latency_us")
    if not isinstance(time_us, int | float) or not time_us > 0:
        time_us = record.get("latency_us")
    if not isinstance(time_us, int | float) or not 0 <= time_us < inf:
        raise ResultsError(where, "has neither global_latency_us nor latency_us", _HINT)
    size_bytes = nccl_size_bytes(op, input_bytes=input_bytes, nranks=nranks)
    return Replayed(op, group, k, replay, nranks, size_bytes, time_us * 1000)


def _whole(record: Mapping[str, Any], key: str, where: str) -> int:
    value = record.get(key)
    if type(value) is not int or not 0 <= value < _MOST:
        raise ResultsError(
            where, f"{key} is {value!r}, but must be a whole number", _HINT
        )
    return value
