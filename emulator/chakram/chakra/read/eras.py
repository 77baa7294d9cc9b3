"""Detection of the format and the Chakra schema era of a trace file.

There is no reliable version marker. Since schema 0.0.4 (October 2023), the first record
is a GlobalMetadata. But some files of that schema have no such record, and no older
file has one. Reading an older file with the current schema gives wrong results instead
of an error: its compute nodes become memory stores. Therefore, this module checks the
bytes first:

* A GlobalMetadata has only the fields 1 and 2, both length-delimited. A Node starts
  with field 1 or 3 as a varint.
* Only proto2, which means a schema before 0.0.4, writes a zero (``08 00``) or an
  unpacked list of parents (field 4 as a varint).
* Attributes were in field 11 in 0.0.2 and 0.0.3. Nodes of 0.0.1 had no attributes, and
  the fields 12 to 20 were numbers.
* Packed lists of dependencies, and attributes in field 10, have existed since 0.0.4.

Chakram refuses a file without metadata if no node shows any of these signs. A node of
0.0.1 may consist only of fields that have another meaning today.

Traces come in one binary format and several JSON formats. File names are not reliable:
a ``.json`` file may have any of the JSON formats. This module distinguishes all formats
by the first bytes of a file. ``chakram.chakra.read.reader`` selects the reader for each
format.
"""

from __future__ import annotations

import codecs
import re
from enum import Enum
from typing import Final

from chakram.chakra.duplicate_fields import LENGTH_DELIMITED, VARINT, fields_of

_FIELD_ID, _FIELD_NAME, _FIELD_TYPE, _FIELD_PARENT = 1, 2, 3, 4
_FIELD_DATA, _FIELD_ATTRIBUTE, _FIELD_OLD_ATTRIBUTE = 5, 10, 11
_FIELD_INVOLVED = 14
_STORAGE_NODE = 8
"""Node type in which field 11 is a storage operation, since July 2026."""


class FirstRecord(Enum):
    """The type of the first record of a file."""

    METADATA = "metadata"
    NODE = "node"
    NEITHER = "neither"


def classify_first_record(body: bytes) -> FirstRecord:
    """Distinguish a GlobalMetadata from a Node by the top-level fields."""
    try:
        fields = [(number, wire_type) for number, wire_type, _ in fields_of(body)]
    except ValueError:
        return FirstRecord.NEITHER
    if all(field in ((1, LENGTH_DELIMITED), (2, LENGTH_DELIMITED)) for field in fields):
        return FirstRecord.METADATA
    # A name (field 2) alone would be a node of type INVALID. No producer writes such a
    # node.
    if (_FIELD_TYPE, VARINT) in fields or (_FIELD_ID, VARINT) in fields:
        return FirstRecord.NODE
    return FirstRecord.NEITHER


def old_schema_of_metadata(body: bytes) -> str | None:
    """Return the unsupported schema that a metadata record indicates, or None.

    In August 2023, and for one commit of the 0.0.4 series, attributes were in field 1,
    which is now the version. An attribute starts with the tag of its name field, and a
    version starts with a digit.
    """
    for number, _, value in fields_of(body):
        if number == 1 and isinstance(value, bytes) and value.startswith(b"\n"):
            return "0.0.3"
    return None


class NodeEra(Enum):
    """The schema era that a node record indicates."""

    TODAY = "0.0.4 or later"
    FIRST = "0.0.1"
    SECOND = "0.0.2 or 0.0.3"
    OLD = "0.0.3 or earlier"
    UNKNOWN = "unknown"

    @property
    def is_old(self) -> bool:
        """Whether nodes of this era cannot be read."""
        return self not in (NodeEra.TODAY, NodeEra.UNKNOWN)


def era_of_node(body: bytes, *, has_metadata: bool) -> NodeEra:
    """Return the schema era that a node record indicates.

    Args:
        body: The bytes of the record.
        has_metadata: Whether the file starts with a metadata record that is not empty.
            In such a file, explicit zeros and unpacked lists are unusual but valid.
    """
    node_type: int | bytes = 0
    old_attribute = today = proto2 = numbers = False
    try:
        for number, wire_type, value in fields_of(body):
            text = value if isinstance(value, bytes) else b""
            if number == _FIELD_TYPE:
                node_type = value
            elif number == _FIELD_OLD_ATTRIBUTE and wire_type == LENGTH_DELIMITED:
                old_attribute = True
            elif 12 <= number <= 20 and wire_type == VARINT and not has_metadata:
                return NodeEra.FIRST
            elif number == _FIELD_INVOLVED and not has_metadata:
                # Packed involved dimensions. The branch above handles unpacked ones.
                return NodeEra.FIRST
            elif number in (6, 7) and wire_type == LENGTH_DELIMITED:
                # Shapes and types of inputs. Today these fields contain times.
                return NodeEra.SECOND
            elif wire_type == VARINT and not has_metadata:
                if number == _FIELD_PARENT or (number == _FIELD_ID and value == 0):
                    proto2 = True
                numbers = numbers or _FIELD_PARENT < number < _FIELD_ATTRIBUTE
            elif number == _FIELD_PARENT and wire_type == LENGTH_DELIMITED:
                # Packed control dependencies of the current schema.
                today = True
            elif number == _FIELD_DATA and min(text, default=32) < 32:
                # Packed data dependencies. In 0.0.2 this field was a string.
                today = True
            elif number in (8, 9, _FIELD_ATTRIBUTE) and text[:1] == b"\n":
                # A message that starts with its field 1. In 0.0.2 these fields were
                # strings.
                today = True
    except ValueError:
        return NodeEra.UNKNOWN
    if old_attribute and node_type != _STORAGE_NODE:
        return NodeEra.SECOND
    if proto2:
        # Sizes and run times were numbers only in 0.0.1.
        return NodeEra.FIRST if numbers else NodeEra.OLD
    return NodeEra.TODAY if today else NodeEra.UNKNOWN


SNIFF_BYTES: Final = 64 * 1024
"""Bytes examined at the start of a file: enough for a linked trace's first nodes."""

TEXT_LOOK: Final = 64
"""Bytes to check for text. No binary trace starts with a brace and printable bytes."""


class Form(Enum):
    """The formats of trace files, with their user-visible names."""

    BINARY = "Chakra's binary form"
    JSONIZER = "the output of chakra_jsonizer"
    FEEDER = "feeder JSON (workload_graph)"
    STAGE = "STAGE's JSON"
    PYTORCH_HOST = "a PyTorch host execution trace"
    PYTORCH_LINKED = "a PyTorch host trace linked with a profile (chakra_trace_link)"
    KINETO = "a Kineto profile"
    OTHER_JSON = "JSON in an unknown form"


_KEYS: Final = {
    "workload_graph": Form.FEEDER,
    "workload_name": Form.FEEDER,
    "ngpus": Form.FEEDER,
    "soc": Form.FEEDER,
    "trace_type": Form.PYTORCH_HOST,
    "schema": Form.PYTORCH_HOST,
    "schemaVersion": Form.KINETO,
    "deviceProperties": Form.KINETO,
    "traceEvents": Form.KINETO,
    "nodes": Form.STAGE,
}
# Match keys, not values: metadata from chakra_jsonizer has attributes named "schema".
_KEY: Final = re.compile(f'"({"|".join(_KEYS)})"[ \\t\\r\\n]*:'.encode())
# Messages without values are empty objects, and metadata is often empty. But a single
# empty object is probably not a trace.
_JSONIZER: Final = re.compile(
    rb'\s*((\{\s*\}\s*){2,}\Z|(\{\s*\}\s*)*\{\s*"(version|attr|id|name|type|ctrlDeps'
    rb'|dataDeps|startTimeMicros|durationMicros|inputs|outputs)"\s*:)'
)
_HOST_KEY: Final = re.compile(rb'"(attrs|rf_id|input_types|exclusive_dur)"\s*:')
"""Pattern of the node keys that only PyTorch traces have."""

_LINKED_KEYS: Final = (b'"inclusive_dur"', b'"exclusive_dur"', b'"inter_thread_dep"')


def recognize(start: bytes) -> Form:
    """Return the format of a file.

    Args:
        start: The first ``SNIFF_BYTES`` decompressed bytes, or all of a shorter file.
    """
    start = start.removeprefix(codecs.BOM_UTF8)
    head = start[:TEXT_LOOK]
    if head.lstrip()[:1] not in (b"{", b"[") or not all(
        byte >= 0x20 or byte in b"\t\r\n" for byte in head
    ):
        return Form.BINARY
    if _JSONIZER.match(start[:SNIFF_BYTES]):
        return Form.JSONIZER
    match = _KEY.search(start[:SNIFF_BYTES])
    if match is None:
        return Form.OTHER_JSON
    form = _KEYS[match[1].decode()]
    # Tools that sort keys write the nodes of a host trace before its schema.
    if form is Form.STAGE and _HOST_KEY.search(start[:SNIFF_BYTES]):
        form = Form.PYTORCH_HOST
    if form is Form.PYTORCH_HOST and any(
        linked in start[:SNIFF_BYTES] for linked in _LINKED_KEYS
    ):
        return Form.PYTORCH_LINKED
    return form
