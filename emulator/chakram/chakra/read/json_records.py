"""Conversion of the JSON formats of Chakra traces to binary records.

All formats share the same decoder, rules and lint. If a format has no metadata record,
Chakram adds one that identifies the format.

* ``chakra_jsonizer`` writes every message in protobuf's JSON mapping, one after
  another. Metadata comes first, 64-bit integers are strings, enums are names, and
  defaults are omitted.
* The *feeder JSON* of mlcommons/chakra has a member ``workload_graph``. Node types and
  collectives are numbers, and ``runtime`` is in microseconds. Attributes are direct
  members of a node. The format has no metadata. The reference reader ignores groups,
  but Chakram reads them.
* STAGE's JSON has a member ``nodes``. Types are lower-case words, and collectives are
  upper-case words. As in STAGE's binary files, sizes are numbers of elements.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from chakram.chakra.et_codec import (
    AttributeValue,
    CollectiveType,
    Metadata,
    NodeType,
    encode_json_metadata,
    encode_json_node,
    encode_metadata,
    encode_node,
)
from chakram.chakra.read.json_scan import JsonScanner
from chakram.chakra.read.producers import STAGE_SCHEMA, Producer
from chakram.foundation.errors import GarbageTrace, TraceError, UnsupportedTrace

if TYPE_CHECKING:
    from collections import Counter

_NODE_KEYS: Final = frozenset(
    {
        *("id", "name", "type", "ctrlDeps", "dataDeps", "ctrl_deps", "data_deps"),
        *("startTimeMicros", "durationMicros", "start_time_micros", "duration_micros"),
        *("inputs", "outputs"),
    }
)
"""Members that only nodes have, in both spellings that protobuf accepts."""

# Field names before schema 0.0.4, as spelled by protobuf's JSON mapping.
_OLD_KEYS: Final = frozenset({"parent", "nodeType", "attribute", "simulatedRunTime"})

_ATTRIBUTES: Final = (
    "num_ops",
    "tensor_size",
    "op_type",
    "comm_priority",
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "comm_group",
    "pg_name",
    "root",
    "is_cpu_op",
    "stream",
    "involved_dim",
)
"""Attributes of a node that are direct members of its object, except ``comm_type``."""

_FEEDER_NAMES: Final = ("Id", "Name", "ctrlDeps", "runtime")
_STAGE_NAMES: Final = ("id", "name", "ctrl_deps", "duration_micros")
"""Names of the members with id, name, control dependencies and duration."""

_MEMBERS: Final = frozenset({*_ATTRIBUTES, "comm_type", "data_deps"})
_FEEDER_MEMBERS: Final = _MEMBERS | {*_FEEDER_NAMES, "NodeType"}
_STAGE_MEMBERS: Final = _MEMBERS | {*_STAGE_NAMES, "node_type"}

_LISTS: Final = frozenset({"involved_dim"})
_STAGE_TYPES: Final[Mapping[str, NodeType]] = {
    "mem_load_node": NodeType.MEM_LOAD,
    "mem_store_node": NodeType.MEM_STORE,
    "comp_node": NodeType.COMP,
    "comm_send_node": NodeType.COMM_SEND,
    "comm_recv_node": NodeType.COMM_RECV,
    "coll_comm_node": NodeType.COMM_COLL,
}


def jsonizer_records(
    chunks: Iterable[bytes], source: str, lost: Counter[str] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, record)`` from the output of chakra_jsonizer.

    The first object is metadata, unless it has members of a node. *lost* counts the
    data that the records lack, by description.

    Raises:
        TraceError: At the first object that is not a message.
    """
    first = True
    for offset, message in JsonScanner(chunks, source=source).values():
        where = f"{source}: offset {offset}"
        members = members_of(message, where)
        if old := _OLD_KEYS & members.keys():
            raise UnsupportedTrace(
                where,
                f"a node has {min(old)!r}: the trace has a Chakra schema before 0.0.4",
                "convert it with the tool that wrote it to schema 0.0.4 or later",
            )
        # Metadata would ignore the members of a node, so the node would be lost.
        is_metadata = first and not _NODE_KEYS & members.keys()
        encode = encode_json_metadata if is_metadata else encode_json_node
        first = False
        yield offset, encode(members, where, lost)


def feeder_records(
    chunks: Iterable[bytes],
    source: str,
    lost: Counter[str] | None = None,
    *,
    scale: int = 1,
) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, record)`` from feeder JSON.

    *lost* is as for ``jsonizer_records``. Durations, which may have fractions, are
    multiplied by *scale* and then rounded.

    Raises:
        TraceError: At the first invalid node.
    """
    yield 0, encode_metadata(Metadata(attributes={"producer": Producer.FEEDER.value}))
    for offset, where, members in _nodes(chunks, source, "workload_graph"):
        _count_others(members, _FEEDER_MEMBERS, lost)
        node = _node(members, where, scale, *_FEEDER_NAMES)
        node["node_type"] = _required(members, "NodeType", where)
        node["attributes"] = _chosen(members, ("comm_type", *_ATTRIBUTES), where)
        yield offset, encode(where, **node)


def stage_records(
    chunks: Iterable[bytes],
    source: str,
    lost: Counter[str] | None = None,
    *,
    scale: int = 1,
) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, record)`` from STAGE's JSON.

    *lost* is as for ``jsonizer_records``, and *scale* as for ``feeder_records``.

    Raises:
        TraceError: At the first invalid node.
    """
    yield 0, encode_metadata(Metadata(attributes={"schema": STAGE_SCHEMA}))
    for offset, where, members in _nodes(chunks, source, "nodes"):
        word = _required(members, "node_type", where)
        if not isinstance(word, str) or word not in _STAGE_TYPES:
            raise GarbageTrace(
                where,
                f"node_type is {word!r:.40}",
                f"use one of {', '.join(_STAGE_TYPES)}",
            )
        attributes = _chosen(members, _ATTRIBUTES, where)
        if "comm_type" in members:
            attributes["comm_type"] = _stage_collective(members["comm_type"], where)
        _count_others(members, _STAGE_MEMBERS, lost)
        node = _node(members, where, scale, *_STAGE_NAMES)
        node |= {"node_type": _STAGE_TYPES[word], "attributes": attributes}
        yield offset, encode(where, **node)


def _nodes(
    chunks: Iterable[bytes], source: str, key: str
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the offset, location and members of each node in the array *key*."""
    for offset, node in JsonScanner(chunks, source=source).elements(key):
        where = f"{source}: offset {offset}"
        yield offset, where, members_of(node, where)


def _count_others(
    members: Mapping[str, Any], known: Container[str], lost: Counter[str] | None
) -> None:
    if lost is not None:
        lost.update(
            f"member {name!r:.40}, which is not converted"
            for name in members
            if name not in known
        )


def _node(
    members: Mapping[str, Any],
    where: str,
    scale: int,
    number: str,
    name: str,
    control: str,
    duration: str,
) -> dict[str, Any]:
    """Return id, name, dependencies and duration, from members with these names."""
    return {
        "node_id": _required(members, number, where),
        "name": members.get(name, ""),
        "data_deps": members.get("data_deps", ()),
        "ctrl_deps": members.get(control, ()),
        "duration_micros": _scaled(members.get(duration, 0), scale),
    }


def members_of(value: Any, where: str) -> dict[str, Any]:
    """Return the members of a node's JSON object.

    Raises:
        GarbageTrace: If the value is not an object. *where* is the error's location.
    """
    if not isinstance(value, dict):
        raise GarbageTrace(
            where,
            f"there is {value!r:.40} instead of a node",
            "check that the file is complete",
        )
    return value


def _required(members: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in members:
        raise GarbageTrace(
            where,
            f"a node has no {name!r}",
            "fix the producer: it must write this field",
        )
    return members[name]


def _chosen(
    members: Mapping[str, Any], names: Iterable[str], where: str
) -> dict[str, AttributeValue]:
    chosen: dict[str, AttributeValue] = {}
    for name in names:
        value = members.get(name)
        if isinstance(value, int | float | str):
            chosen[name] = value
        elif name in _LISTS and isinstance(value, list):
            chosen[name] = tuple(value)
        elif value is not None:
            raise GarbageTrace(
                where,
                f"a node has a wrong value: {name} is {value!r:.40}",
                "use a number or a text",
            )
    return chosen


def _stage_collective(word: Any, where: str) -> int:
    if isinstance(word, str) and word in CollectiveType.__members__:
        return CollectiveType[word]
    raise TraceError(
        where,
        f"comm_type {word!r:.40} is not a collective",
        f"use one of {', '.join(CollectiveType.__members__)}",
    )


def _scaled(duration: Any, scale: int) -> Any:
    """Multiply a duration and round it. Keep other values unchanged."""
    if isinstance(duration, float) and abs(duration) < 2**63:
        return round(duration * scale)
    return duration * scale if isinstance(duration, int) else duration


def encode(where: str, **fields: Any) -> bytes:
    """Return the record of a node.

    Raises:
        GarbageTrace: If a field has a value of the wrong type or range. *where* is the
            error's location.
    """
    try:
        return encode_node(**fields)
    except (TypeError, ValueError) as error:
        raise GarbageTrace(
            where,
            f"a node has a wrong value: {str(error)[:120]}",
            "fetch the file again; it may be damaged",
        ) from error
