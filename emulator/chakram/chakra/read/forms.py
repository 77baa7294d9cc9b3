"""Which form a trace file has, by its first bytes.

Traces travel in one binary form and several JSON ones; names of files say little: the
same ``.json`` may be any of them.  This is the one place that tells them apart; which
reader belongs to a form says ``chakram.chakra.read.reader``.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

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
