"""Which form a trace file has, and which era of the Chakra schema it belongs to.

There is no reliable version marker.  Since schema 0.0.4 (October 2023) the first record
is a GlobalMetadata; but files of that schema without one exist, and every older file
lacks it too.  Read with today's schema an older file gives no error, only nonsense:
its compute nodes become memory stores.  So the bytes are looked at first:

* a GlobalMetadata has only the fields 1 and 2, both length-delimited; a Node starts
  with field 1 or 3 as a varint;
* only proto2, that is a schema before 0.0.4, writes a zero (``08 00``) or an unpacked
  list of parents (field 4 as a varint);
* attributes stood in field 11 in 0.0.2 and 0.0.3; in 0.0.1 there were none, and the
  fields 12 to 20 were numbers;
* packed lists of dependencies, and attributes in field 10, are written since 0.0.4.

A file without metadata in which no node shows any of this is not to be trusted: a node
of 0.0.1 may consist of nothing but fields that mean something else today.

Traces travel in one binary form and several JSON ones; names of files say little: the
same ``.json`` may be any of them.  This is the one place that tells them apart, by the
first bytes; which reader belongs to a form says ``chakram.chakra.read.reader``.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from chakram.chakra.repeated_fields import LENGTH_DELIMITED, VARINT, fields_of

_FIELD_ID, _FIELD_NAME, _FIELD_TYPE, _FIELD_PARENT = 1, 2, 3, 4
_FIELD_DATA, _FIELD_ATTRIBUTE, _FIELD_OLD_ATTRIBUTE = 5, 10, 11
_FIELD_INVOLVED = 14
_STORAGE_NODE = 8
"""Since July 2026 field 11 holds a storage operation, in nodes of this type only."""


class FirstRecord(Enum):
    """What the first record of a file is."""

    METADATA = "metadata"
    NODE = "node"
    NEITHER = "neither"


def classify_first_record(body: bytes) -> FirstRecord:
    """Tell a GlobalMetadata from a Node by the top-level fields."""
    try:
        fields = [(number, wire_type) for number, wire_type, _ in fields_of(body)]
    except ValueError:
        return FirstRecord.NEITHER
    if all(field in ((1, LENGTH_DELIMITED), (2, LENGTH_DELIMITED)) for field in fields):
        return FirstRecord.METADATA
    # A name (field 2) alone would be a node of type INVALID: no producer writes that.
    if (_FIELD_TYPE, VARINT) in fields or (_FIELD_ID, VARINT) in fields:
        return FirstRecord.NODE
    return FirstRecord.NEITHER


def old_schema_of_metadata(body: bytes) -> str | None:
    """Return the name of an unreadable schema that a metadata record betrays, or None.

    In August 2023, and for one commit of the 0.0.4 series, attributes stood in field 1,
    where the version is now: an attribute starts with the tag of its name, a version
    with a digit.
    """
    for number, _, value in fields_of(body):
        if number == 1 and isinstance(value, bytes) and value.startswith(b"\n"):
            return "0.0.3"
    return None


class NodeEra(Enum):
    """What one node record says of its schema."""

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
    """Return the era that a node record betrays.

    Args:
        body: The record.
        has_metadata: Whether the file starts with a metadata record that states
            something.  Then a writer that spells out zeros or does not pack its lists
            is merely unusual.
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
                # Which dimensions are involved: one by one above, or packed.
                return NodeEra.FIRST
            elif number in (6, 7) and wire_type == LENGTH_DELIMITED:
                # Shapes and types of inputs, where times are now.
                return NodeEra.SECOND
            elif wire_type == VARINT and not has_metadata:
                if number == _FIELD_PARENT or (number == _FIELD_ID and value == 0):
                    proto2 = True
                numbers = numbers or _FIELD_PARENT < number < _FIELD_ATTRIBUTE
            elif number == _FIELD_PARENT and wire_type == LENGTH_DELIMITED:
                # Today's control dependencies, which are packed.
                today = True
            elif number == _FIELD_DATA and min(text, default=32) < 32:
                # Packed data dependencies; in 0.0.2 a text stood there.
                today = True
            elif number in (8, 9, _FIELD_ATTRIBUTE) and text[:1] == b"\n":
                # A message that starts with its field 1; in 0.0.2 texts stood there.
                today = True
    except ValueError:
        return NodeEra.UNKNOWN
    if old_attribute and node_type != _STORAGE_NODE:
        return NodeEra.SECOND
    if proto2:
        # Only in 0.0.1 were sizes and run times numbers.
        return NodeEra.FIRST if numbers else NodeEra.OLD
    return NodeEra.TODAY if today else NodeEra.UNKNOWN


SNIFF_BYTES: Final = 64 * 1024
"""How much of a file is looked at: the first nodes of a linked trace lie within."""

TEXT_LOOK: Final = 64
"""So many printable bytes behind a brace no binary trace starts with."""


class Form(Enum):
    """The forms of trace files, each by the name that users read."""

    BINARY = "Chakra's binary form"
    JSONIZER = "the output of chakra_jsonizer"
    FEEDER = "feeder JSON (workload_graph)"
    STAGE = "STAGE's JSON"
    PYTORCH_HOST = "a PyTorch host execution trace"
    PYTORCH_LINKED = "a PyTorch host trace linked with a profile (chakra_trace_link)"
    KINETO = "a Kineto profile"
    OTHER_JSON = "JSON of no known form"


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
# A key, not a value: a jsonizer's metadata holds attributes of the name "schema".
_KEY: Final = re.compile(f'"({"|".join(_KEYS)})"[ \\t\\r\\n]*:'.encode())
# Messages without a value are empty objects: metadata often is.  But a lone one is more
# likely something else.
_JSONIZER: Final = re.compile(
    rb'\s*((\{\s*\}\s*){2,}\Z|(\{\s*\}\s*)*\{\s*"(version|attr|id|name|type|ctrlDeps'
    rb'|dataDeps|startTimeMicros|durationMicros|inputs|outputs)"\s*:)'
)
_LINKED_KEYS: Final = (b'"inclusive_dur"', b'"exclusive_dur"', b'"inter_thread_dep"')


def recognise(start: bytes) -> Form:
    """Return the form of a file.

    Args:
        start: Its first ``SNIFF_BYTES``, decompressed; all of it if it is shorter.
    """
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
    if form is Form.PYTORCH_HOST and any(
        linked in start[:SNIFF_BYTES] for linked in _LINKED_KEYS
    ):
        return Form.PYTORCH_LINKED
    return form
