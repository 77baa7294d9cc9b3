"""The messages of a trace file and the bytes that stand for them.

This is the only module that touches the generated code: the rest of the package sees
``Node``, ``Metadata`` and plain Python values.

``chakra_timeline_visualizer`` knows what a node is by its name, in the log of
ASTRA-sim, and refuses a log with a name that does not say so.  So names are written
with what they want in front, and read without.  Source: ``timeline_visualizer.py`` of
mlcommons/chakra; ASTRA-sim has memory nodes access a remote memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from chakram.chakra import et_pb2
from chakram.chakra.repeated_fields import (
    refuse_repeats_in_metadata,
    refuse_repeats_in_node,
)
from chakram.foundation.errors import GarbageTrace, TraceError

Node: TypeAlias = et_pb2.Node

AttributeValue: TypeAlias = (
    int | float | bool | str | bytes | tuple[int | float | bool | str | bytes, ...]
)

_Message = TypeVar("_Message", et_pb2.GlobalMetadata, et_pb2.Node)

SCHEMA_VERSION = "1.0.0"
"""The version that we write; its wire form is that of 0.0.4 too."""


class NodeType(IntEnum):
    """Numbers of the node types, in the words of the schema."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7
    STORAGE = 8
    DATA_OP = 9


class CollectiveType(IntEnum):
    """Values of the attribute ``comm_type``, in the words of the schema."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The first record of a file."""

    version: str = ""
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


def attribute_values(
    attributes: Sequence[et_pb2.AttributeProto],
    where: str,
    wanted: Container[str] | None = None,
) -> dict[str, AttributeValue]:
    """Return the values by name, whatever arm of the oneof holds them.

    The same attribute stands in different arms in the files of different producers,
    and an arm that is not set reads as 0: so only the arm that is set is looked at.
    An attribute without a value is left out, as one that is not *wanted*.

    Raises:
        TraceError: At *where*, if an attribute occurs twice with different values.
    """
    values: dict[str, AttributeValue] = {}
    for attribute in attributes:
        name = attribute.name
        if wanted is not None and name not in wanted:
            continue
        arm = attribute.WhichOneof("value")
        if arm is None:
            continue
        value = getattr(attribute, arm)
        if arm.endswith("_list"):
            value = tuple(value.values)
        if name in values and values[name] != value:
            raise repeated_attribute(name, values[name], value, where)
        values[name] = value
    return values


def repeated_attribute(
    name: str, first: object, second: object, where: str
) -> TraceError:
    """Return the error that an attribute occurs twice with different values."""
    return TraceError(
        where,
        f"has the attribute {name!r:.40} twice: {first!r:.40} and {second!r:.40}",
        "which one counts? its producer must write one",
    )


def decode_metadata(body: bytes, where: str) -> Metadata:
    """Return the metadata that *body* holds.

    Raises:
        GarbageTrace: At *where*, if it holds none.
        TraceError: If a field or attribute occurs twice with different values.
    """
    message = _parsed(
        et_pb2.GlobalMetadata(),
        body,
        where,
        found="the first record is no metadata",
        hint="is this a Chakra trace?",
    )
    return Metadata(
        version=message.version, attributes=attribute_values(message.attr, where)
    )


def decode_node(body: bytes, where: str) -> Node:
    """Return the node that *body* holds.

    Raises:
        GarbageTrace: At *where*, if it holds none.
        TraceError: If a field occurs twice with different values.
    """
    return _parsed(
        et_pb2.Node(), body, where, found="a record of {} bytes is no Chakra node"
    )


def _parsed(
    message: _Message,
    body: bytes,
    where: str,
    *,
    found: str,
    hint: str = "the file is damaged here, or it is not a Chakra trace",
) -> _Message:
    """Return the message that *body* holds."""
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise GarbageTrace(where, found.format(len(body)), hint) from error
    # Written anew, a field stands once: only where that differs need one look.
    if message.SerializeToString() != body:
        is_node = isinstance(message, et_pb2.Node)
        refuse = refuse_repeats_in_node if is_node else refuse_repeats_in_metadata
        # Protobuf passes over groups, an old kind of field that nobody writes.
        with contextlib.suppress(ValueError):
            refuse(body, where)
    return message


# What the library lets through of values that it did not expect, ParseError aside.
_NOT_JSON_OF_A_MESSAGE = (TypeError, ValueError, AttributeError, OverflowError)


def encode_json_metadata(members: Mapping[str, Any], where: str) -> bytes:
    """Return the bytes of a metadata record from its JSON mapping.

    Raises:
        GarbageTrace: At *where*, if it is none.
    """
    return _encode_json(members, et_pb2.GlobalMetadata(), where)


def encode_json_node(members: Mapping[str, Any], where: str) -> bytes:
    """Return the bytes of a node record from its JSON mapping.

    Fields that we do not know are passed over, as in the binary form.

    Raises:
        GarbageTrace: At *where*, if it is none, or of a type that has no number here.
    """
    node_type = members.get("type")
    known = {f"{member.name}_NODE" for member in NodeType}
    if isinstance(node_type, str) and node_type not in known:
        # The mapping would take a name that it does not know for type 0.
        raise GarbageTrace(
            where,
            f"the node type {node_type[:40]!r} is unknown",
            f"{', '.join(sorted(known))} are known",
        )
    return _encode_json(members, et_pb2.Node(), where)


def _encode_json(members: Mapping[str, Any], message: _Message, where: str) -> bytes:
    try:
        ParseDict(dict(members), message, ignore_unknown_fields=True)
    except (ParseError, *_NOT_JSON_OF_A_MESSAGE) as error:
        reason = str(error).partition("\n")[0][:120]
        raise GarbageTrace(
            where, f"this is no Chakra message in JSON: {reason}", "is it damaged?"
        ) from error
    return message.SerializeToString(deterministic=True)


def metadata_json(body: bytes, where: str) -> tuple[str, list[str]]:
    """Return a metadata record in JSON, and the fields that have no place there.

    Raises:
        GarbageTrace: At *where*, if it is none.
    """
    return _json(body, et_pb2.GlobalMetadata(), where)


def node_json(body: bytes, where: str) -> tuple[str, list[str]]:
    """Return a node record in JSON, and the fields that have no place there.

    It is protobuf's JSON mapping, as chakra_jsonizer writes it: 64-bit numbers as
    texts, enums by name, defaults left out.

    Raises:
        GarbageTrace: At *where*, if it is none.
    """
    return _json(body, et_pb2.Node(), where)


def _json(body: bytes, message: _Message, where: str) -> tuple[str, list[str]]:
    message = _parsed(
        message, body, where, found="a record of {} bytes is no Chakra message"
    )
    unknown = _unknown(message, "field")
    for attribute in message.attr:
        unknown += _unknown(attribute, "attribute field")
    if isinstance(message, et_pb2.Node):
        unknown += _unknown(message.inputs, "inputs field")
        unknown += _unknown(message.outputs, "outputs field")
    return MessageToJson(message), unknown


def _unknown(message: Message, what: str) -> list[str]:
    # The library gives a sequence, its type stub an empty class.
    fields: Any = UnknownFieldSet(message)
    return [f"{what} {each.field_number}" for each in fields]


def encode_metadata(metadata: Metadata) -> bytes:
    """Return the bytes of a metadata record."""
    message = et_pb2.GlobalMetadata(version=metadata.version)
    message.attr.extend(
        _attribute(name, value) for name, value in metadata.attributes.items()
    )
    return message.SerializeToString(deterministic=True)


def encode_node(
    *,
    node_id: int,
    name: str,
    node_type: int,
    data_deps: Sequence[int] = (),
    ctrl_deps: Sequence[int] = (),
    start_time_micros: int = 0,
    duration_micros: int = 0,
    attributes: Mapping[str, AttributeValue],
    input_values: str = "",
) -> bytes:
    """Return the bytes of a node record.

    Booleans, integers, floats, texts and bytes go to the arms that the reference
    tools use: bool, int64, double, string and bytes, or the lists of these; ranks and
    tags of messages go to int32, sizes and numbers of operations to uint64.
    """
    message = et_pb2.Node(
        id=node_id,
        name=name,
        # The enum is open (proto3), and the stub's type for it is opaque.
        type=node_type,  # type: ignore[arg-type]
        ctrl_deps=ctrl_deps,
        data_deps=data_deps,
        start_time_micros=start_time_micros,
        duration_micros=duration_micros,
    )
    if input_values:
        message.inputs.values = input_values
    # Attributes are the last field that is written, and the same ones come in every
    # node: putting their bytes behind the rest is half the work of building messages.
    return message.SerializeToString(deterministic=True) + b"".join(
        _attribute_field(name, value)
        if isinstance(value, tuple)
        else _known_attribute_field(name, value)
        for name, value in attributes.items()
    )


def _attribute_field(name: str, value: AttributeValue) -> bytes:
    """Return an attribute as a field of a node."""
    node = et_pb2.Node(attr=[_attribute(name, value)])
    return node.SerializeToString(deterministic=True)


# Typed, for 1 and True are equal and not the same attribute.
_known_attribute_field = lru_cache(maxsize=4096, typed=True)(_attribute_field)


_ARMS = (
    (bool, "bool"),
    (int, "int64"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
)


_INT32 = frozenset({"comm_src", "comm_dst", "comm_tag"})
"""Attributes that all producers write as int32: some readers look nowhere else."""

_UINT64 = frozenset({"comm_size", "num_ops", "tensor_size"})
"""Attributes that Chakra's C++ feeder reads as uint64: of others it takes a 0."""


def _attribute(name: str, value: AttributeValue) -> et_pb2.AttributeProto:
    message = et_pb2.AttributeProto(name=name)
    if name in _INT32 and type(value) is int and -(2**31) <= value < 2**31:
        message.int32_val = value
        return message
    if name in _UINT64 and type(value) is int and 0 <= value < 2**64:
        message.uint64_val = value
        return message
    sample = (value[0] if value else 0) if isinstance(value, tuple) else value
    arm = next(arm for kind, arm in _ARMS if isinstance(sample, kind))
    if isinstance(value, tuple):
        values = getattr(message, f"{arm}_list")
        values.SetInParent()
        values.values.extend(value)
    else:
        setattr(message, f"{arm}_val", value)
    return message


PREFIXES: Final[Mapping[int, str]] = {
    NodeType.COMP: "COMP_NODE: ",
    NodeType.MEM_LOAD: "MEM_LOAD_NODE of REMOTE_MEMORY: ",
    NodeType.MEM_STORE: "MEM_STORE_NODE of REMOTE_MEMORY: ",
    NodeType.COMM_SEND: "COMM_SEND_NODE: ",
    NodeType.COMM_RECV: "COMM_RECV_NODE: ",
    NodeType.COMM_COLL: "COMM_COLL_NODE: ",
}
"""By type of a node, what stands before its name; a colon is the last but one of it."""


def shown_name(name: str, node_type: int) -> str:
    """Return a name as it is written."""
    return PREFIXES.get(node_type, "") + name


def own_name(name: str, node_type: int) -> str:
    """Return a name without what was written before it for others."""
    return name.removeprefix(PREFIXES.get(node_type, ""))
