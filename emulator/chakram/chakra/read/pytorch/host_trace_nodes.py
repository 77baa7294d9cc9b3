"""Nodes of a PyTorch host execution trace, independent of its schema.

There are two formats. Schema 1.0.1 has flat keys (``parent``, ``inputs``,
``input_types``, ``rf_id``, ``op_schema``). Since 1.0.2, a node has ``ctrl_deps`` (one
number: the caller), ``inputs`` and ``outputs`` as objects, and a list of attributes for
all other values. Both become a ``HostNode``.

The file does not state the order of execution. But ids ascend in the order in which
operations started, over all threads of the process. The caller of a node has a smaller
id than the node. The root is its own caller.

Traces do not record when the host waits for gloo's asynchronous transfers. The profile
can show such a wait: the host was idle until the transfer ended and then continued. If
a transfer ended while the host was busy, no wait is known, and nothing waits for that
transfer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chakram.chakra.et_codec import repeated_attribute
from chakram.foundation.errors import GarbageTrace

C10D: Final = "c10d::"
"""Name prefix of the dispatcher's communication operations."""

LABELS: Final = ("nccl:", "gloo:")
"""Name prefixes of the backends' labels. Labels have the least information."""

INIT: Final = "process_group:init"

_HINT = "check that this is a PyTorch execution trace"
_MOST = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNode:
    """One node. *types* is parallel to *inputs*, and *output_types* to *outputs*."""

    where: str
    offset: int
    node_id: int
    parent: int
    name: str
    rf_id: int
    inputs: Sequence[Any]
    types: Sequence[Any]
    outputs: Sequence[Any]
    output_types: Sequence[Any]
    attributes: Mapping[str, Any]

    @property
    def schema(self) -> str:
        """The signature of the operation, or an empty string."""
        return str(self.attributes.get("op_schema", ""))


def host_node(raw: Any, *, offset: int, source: str) -> HostNode:
    """Return a node of the array ``nodes``.

    Raises:
        GarbageTrace: If *raw* is not a valid node.
    """
    where = f"{source}: offset {offset}"
    if not isinstance(raw, dict):
        raise GarbageTrace(where, "is not a node but another JSON value", _HINT)
    node_id = _number(raw, "id", where)
    name = raw.get("name")
    where = f"{where}: node {node_id}"
    if not isinstance(name, str):
        raise GarbageTrace(where, "has no name", _HINT)
    where = f"{where} {name[:60]!r}"
    if "attrs" in raw:
        attributes = _attributes(raw["attrs"], where)
        parent = _number(raw, "ctrl_deps", where)
        sides = [_object(raw, side, where) for side in ("inputs", "outputs")]
        keys = [(side, key) for side in sides for key in ("values", "types")]
    else:
        attributes = raw
        parent = _number(raw, "parent", where)
        names = ("inputs", "input_types", "outputs", "output_types")
        keys = [(raw, key) for key in names]
    lists = [_list(side, key, where) for side, key in keys]
    rf_id = attributes.get("rf_id", 0)
    return HostNode(
        where=where,
        offset=offset,
        node_id=node_id,
        parent=parent,
        name=name,
        rf_id=rf_id if isinstance(rf_id, int) else 0,
        inputs=lists[0],
        types=lists[1],
        outputs=lists[2],
        output_types=lists[3],
        attributes=attributes,
    )


def quick_rf_id(raw: Any) -> int | None:
    """Return the record function id of a node without parsing the rest of the node."""
    if "rf_id" in raw:
        found = raw["rf_id"]
    else:
        attrs = raw.get("attrs")
        first = attrs[0] if isinstance(attrs, list) and attrs else None
        if not isinstance(first, dict) or first.get("name") != "rf_id":
            return None
        found = first.get("value")
    return found if isinstance(found, int) else None


def _number(raw: Mapping[str, Any], key: str, where: str) -> int:
    value = raw.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
        raise GarbageTrace(where, f"its {key} is {_shown(value)}, not a number", _HINT)
    return value


def _object(raw: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = raw.get(key)
    if not isinstance(value, dict):
        raise GarbageTrace(
            where, f"its {key} are {_shown(value)}, not an object", _HINT
        )
    return value


def _list(raw: Mapping[str, Any], key: str, where: str) -> Sequence[Any]:
    value = raw.get(key)
    if not isinstance(value, list):
        raise GarbageTrace(where, f"its {key} are {_shown(value)}, not a list", _HINT)
    return value


def _attributes(attrs: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(attrs, list):
        raise GarbageTrace(where, f"its attrs are {_shown(attrs)}, not a list", _HINT)
    found: dict[str, Any] = {}
    for each in attrs:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise GarbageTrace(where, f"{_shown(each)} is not an attribute", _HINT)
        name, value = each["name"], each.get("value")
        if found.setdefault(name, value) != value:
            raise repeated_attribute(name, found[name], value, where)
    return found


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:40]
