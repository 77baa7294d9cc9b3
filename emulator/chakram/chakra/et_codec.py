"""Encoding and decoding of the messages in a trace file.

This is the only module that uses the generated protobuf code. The rest of the package
uses ``Node``, ``Metadata`` and plain Python values.

``chakra_timeline_visualizer`` reads ASTRA-sim's log and derives the type of each node
from its name. It rejects the log if any name does not contain a type. Therefore Chakram
writes names with a type prefix and removes the prefix on reading. Source:
``timeline_visualizer.py`` of mlcommons/chakra. Memory nodes have the ``REMOTE_MEMORY``
prefix because ASTRA-sim maps them to remote memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from chakram.chakra import et_pb2
from chakram.chakra.duplicate_fields import (
    refuse_repeats_in_metadata,
    refuse_repeats_in_node,
)
from chakram.foundation.errors import GarbageTrace, TraceError

if TYPE_CHECKING:
    from collections import Counter

    from google.protobuf.descriptor import Descriptor

Node: TypeAlias = et_pb2.Node

AttributeValue: TypeAlias = (
    int | float | bool | str | bytes | tuple[int | float | bool | str | bytes, ...]
)

_Message = TypeVar("_Message", et_pb2.GlobalMetadata, et_pb2.Node)

SCHEMA_VERSION = "1.0.0"
"""The schema version that Chakram writes. Version 0.0.4 has the same wire format."""


class NodeType(IntEnum):
    """Numbers of the node types, named as in the schema."""

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
    """Values of the attribute ``comm_type``, named as in the schema."""

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
    """Schema version and attributes in the metadata record of a file."""

    version: str = ""
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


def attribute_values(
    attributes: Sequence[et_pb2.AttributeProto],
    where: str,
    wanted: Container[str] | None = None,
) -> dict[str, AttributeValue]:
    """Return the values of attributes by name, from any oneof field.

    Producers store the same attribute in different oneof fields, and an unset field
    reads as 0. So only the field that is set counts. The result omits attributes
    without a value and attributes that are not in *wanted*.

    Raises:
        TraceError: If an attribute occurs twice with different values. *where* is the
            error's location.
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
    """Return the error for an attribute that has two different values."""
    return TraceError(
        where,
        f"has the attribute {name!r:.40} twice: {first!r:.40} and {second!r:.40}",
        "fix the producer: it must write one value",
    )


def decode_metadata(body: bytes, where: str) -> Metadata:
    """Decode a metadata record.

    Raises:
        GarbageTrace: If *body* is not metadata. *where* is the error's location.
        TraceError: If a field or attribute occurs twice with different values.
    """
    message = _parsed(
        et_pb2.GlobalMetadata(),
        body,
        where,
        found="the first record is not metadata",
        hint="check that this is a Chakra trace",
    )
    return Metadata(
        version=message.version, attributes=attribute_values(message.attr, where)
    )


def decode_node(body: bytes, where: str) -> Node:
    """Decode a node record.

    Raises:
        GarbageTrace: If *body* is not a node. *where* is the error's location.
        TraceError: If a field occurs twice with different values.
    """
    return _parsed(
        et_pb2.Node(), body, where, found="a record of {} bytes is not a Chakra node"
    )


def _parsed(
    message: _Message,
    body: bytes,
    where: str,
    *,
    found: str,
    hint: str = "the file is damaged here, or it is not a Chakra trace",
) -> _Message:
    """Parse *body* into *message* and return the message."""
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise GarbageTrace(where, found.format(len(body)), hint) from error
    # Serializing the message writes every field once. So a record can have repeated
    # fields only if it differs from the serialized message.
    if message.SerializeToString() != body:
        is_node = isinstance(message, et_pb2.Node)
        refuse = refuse_repeats_in_node if is_node else refuse_repeats_in_metadata
        # Protobuf skips groups, an obsolete field type that no producer uses.
        # ``fields_of`` raises ValueError for them.
        with contextlib.suppress(ValueError):
            refuse(body, where)
    return message


# Errors that protobuf raises for unexpected JSON values, in addition to ParseError.
_NOT_JSON_OF_A_MESSAGE = (TypeError, ValueError, AttributeError, OverflowError)


def encode_json_metadata(
    members: Mapping[str, Any], where: str, lost: Counter[str] | None = None
) -> bytes:
    """Return the bytes of a metadata record from its JSON mapping.

    *lost* and errors are as for ``encode_json_node``.
    """
    return _encode_json(members, et_pb2.GlobalMetadata(), where, lost)


def encode_json_node(
    members: Mapping[str, Any], where: str, lost: Counter[str] | None = None
) -> bytes:
    """Return the bytes of a node record from its JSON mapping.

    Unknown members are ignored, as in the binary format, but counted in *lost*.

    Raises:
        GarbageTrace: If the mapping is not a node, or its type is unknown. *where* is
            the error's location.
    """
    node_type = members.get("type")
    known = {f"{member.name}_NODE" for member in NodeType}
    if isinstance(node_type, str) and node_type not in known:
        # Protobuf's JSON mapping would read an unknown type name as type 0.
        raise GarbageTrace(
            where,
            f"the node type {node_type[:40]!r} is unknown",
            f"known: {', '.join(sorted(known))}",
        )
    return _encode_json(members, et_pb2.Node(), where, lost)


def _encode_json(
    members: Mapping[str, Any],
    message: _Message,
    where: str,
    lost: Counter[str] | None,
) -> bytes:
    if lost is not None:
        lost.update(_unknown_members(members, message.DESCRIPTOR))
    try:
        ParseDict(dict(members), message, ignore_unknown_fields=True)
    except (ParseError, *_NOT_JSON_OF_A_MESSAGE) as error:
        reason = str(error).partition("\n")[0][:120]
        raise GarbageTrace(
            where,
            f"this is not a Chakra message in JSON: {reason}",
            "fetch the file again; it may be damaged",
        ) from error
    return message.SerializeToString(deterministic=True)


def _unknown_members(members: Mapping[str, Any], schema: Descriptor) -> Iterator[str]:
    """Yield a description of each member that the schema lacks, even if nested."""
    for name, value in members.items():
        field = schema.fields_by_name.get(name)
        field = field or schema.fields_by_camelcase_name.get(name)
        if field is None:
            yield f"member {name!r:.40}, which is not in the schema"
        elif field.message_type is not None:
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, dict):
                    yield from _unknown_members(each, field.message_type)


def metadata_json(body: bytes, where: str) -> tuple[str, list[str]]:
    """Return a metadata record as JSON, and the fields that JSON cannot represent.

    Raises:
        GarbageTrace: If *body* is not metadata. *where* is the error's location.
    """
    return _json(body, et_pb2.GlobalMetadata(), where)


def node_json(body: bytes, where: str) -> tuple[str, list[str]]:
    """Return a node record as JSON, and the fields that JSON cannot represent.

    The format is protobuf's JSON mapping, as written by chakra_jsonizer. It writes
    64-bit integers as strings and enums by name, and omits default values.

    Raises:
        GarbageTrace: If *body* is not a node. *where* is the error's location.
    """
    return _json(body, et_pb2.Node(), where)


def _json(body: bytes, message: _Message, where: str) -> tuple[str, list[str]]:
    message = _parsed(
        message, body, where, found="a record of {} bytes is not a Chakra message"
    )
    unknown = _unknown(message, "field")
    for attribute in message.attr:
        unknown += _unknown(attribute, "attribute field")
    if isinstance(message, et_pb2.Node):
        unknown += _unknown(message.inputs, "inputs field")
        unknown += _unknown(message.outputs, "outputs field")
    return MessageToJson(message), unknown


def _unknown(message: Message, what: str) -> list[str]:
    # UnknownFieldSet is a sequence, but its type stub declares an empty class.
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

    Values go to the oneof fields that the reference tools use: bool, int64, double,
    string and bytes, or lists of these. Message ranks and tags go to int32 fields.
    Sizes and operation counts go to uint64 fields.
    """
    message = et_pb2.Node(
        id=node_id,
        name=name,
        # The enum is open (proto3), and its type in the stub is opaque.
        type=node_type,  # type: ignore[arg-type]
        ctrl_deps=ctrl_deps,
        data_deps=data_deps,
        start_time_micros=start_time_micros,
        duration_micros=duration_micros,
    )
    if input_values:
        message.inputs.values = input_values
    # Attributes are the last field of a node, and most nodes have the same attributes.
    # Appending their cached bytes halves the work of building a message.
    return message.SerializeToString(deterministic=True) + b"".join(
        _attribute_field(name, value)
        if isinstance(value, tuple)
        else _known_attribute_field(name, value)
        for name, value in attributes.items()
    )


def _attribute_field(name: str, value: AttributeValue) -> bytes:
    """Return an attribute as an encoded field of a node."""
    node = et_pb2.Node(attr=[_attribute(name, value)])
    return node.SerializeToString(deterministic=True)


# The cache is typed, because 1 and True compare equal but are encoded differently.
_known_attribute_field = lru_cache(maxsize=4096, typed=True)(_attribute_field)


_ARMS = (
    (bool, "bool"),
    (int, "int64"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
)


_INT32 = frozenset({"comm_src", "comm_dst", "comm_tag"})
"""Attributes that all producers write as int32. Some readers accept no other type."""

_UINT64 = frozenset({"comm_size", "num_ops", "tensor_size"})
"""Attributes that Chakra's C++ feeder reads as uint64. It reads other types as 0."""


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
"""Name prefix by node type. Every prefix ends with a colon and a space."""


def add_type_prefix(name: str, node_type: int) -> str:
    """Return a node name with its type prefix, as written to files."""
    return PREFIXES.get(node_type, "") + name


def strip_type_prefix(name: str, node_type: int) -> str:
    """Return a node name without its type prefix."""
    return name.removeprefix(PREFIXES.get(node_type, ""))
