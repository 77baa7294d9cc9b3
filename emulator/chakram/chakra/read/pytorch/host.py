"""The nodes of a PyTorch host execution trace, whatever its schema.

Two forms are met.  Schema 1.0.1 has flat keys (``parent``, ``inputs``,
``input_types``, ``rf_id``, ``op_schema``); since 1.0.2 a node has ``ctrl_deps`` (one
number: the caller), ``inputs`` and ``outputs`` as objects, and the rest as a list of
attributes.  Both become a ``HostNode``.

Nothing in such a file is an order: ids ascend in the order in which operations started,
over all threads of the process, and a node's caller has a smaller id than itself (the
root is its own caller).

Of where the host waited for asynchronous transfers no trace tells: a wait for a
transfer of gloo leaves no event.  But the profile shows a host that stood
still until the transfer had ended, and went on then: there it waited.  Of a transfer
that ended while the host was at work nothing is known, and nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from chakram.chakra.et_codec import repeated_attribute
from chakram.foundation.errors import GarbageTrace

if TYPE_CHECKING:
    from chakram.chakra.read.pytorch.groups import Transfer
    from chakram.chakra.read.pytorch.kineto import Profile, Span

C10D: Final = "c10d::"
"""How the names of the dispatcher's communication operations begin."""

LABELS: Final = ("nccl:", "gloo:")
"""How the names of what a backend does begin; they say the least of the three."""

INIT: Final = "process_group:init"

_HINT = "is this a PyTorch execution trace?"
_MOST = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNode:
    """One node: *values* and *types* are parallel lists, as PyTorch wrote them."""

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
        """The operation's signature; empty where it has none."""
        return str(self.attributes.get("op_schema", ""))


def host_node(raw: Any, *, offset: int, source: str) -> HostNode:
    """Return a node of the array ``nodes``.

    Raises:
        GarbageTrace: If it is none.
    """
    where = f"{source}: offset {offset}"
    if not isinstance(raw, dict):
        raise GarbageTrace(where, "is no node but another JSON value", _HINT)
    node_id = _number(raw, "id", where)
    name = raw.get("name")
    where = f"{where}: node {node_id}"
    if not isinstance(name, str):
        raise GarbageTrace(where, "has no name", _HINT)
    where = f"{where} {name[:60]!r}"
    if "attrs" in raw:
        attributes = _attributes(raw["attrs"], where)
        parent = _number(raw, "ctrl_deps", where)
        inputs = _object(raw, "inputs", where)
        outputs = _object(raw, "outputs", where)
        lists = (
            _list(inputs, "values", where),
            _list(inputs, "types", where),
            _list(outputs, "values", where),
            _list(outputs, "types", where),
        )
    else:
        attributes = raw
        parent = _number(raw, "parent", where)
        lists = (
            _list(raw, "inputs", where),
            _list(raw, "input_types", where),
            _list(raw, "outputs", where),
            _list(raw, "output_types", where),
        )
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
    """Return the record function's id of a node that is otherwise not looked at."""
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
        raise GarbageTrace(where, f"its {key} is {_shown(value)}, no number", _HINT)
    return value


def _object(raw: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = raw.get(key)
    if not isinstance(value, dict):
        raise GarbageTrace(where, f"its {key} are {_shown(value)}, no object", _HINT)
    return value


def _list(raw: Mapping[str, Any], key: str, where: str) -> Sequence[Any]:
    value = raw.get(key)
    if not isinstance(value, list):
        raise GarbageTrace(where, f"its {key} are {_shown(value)}, no list", _HINT)
    return value


def _attributes(attrs: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(attrs, list):
        raise GarbageTrace(where, f"its attrs are {_shown(attrs)}, no list", _HINT)
    found: dict[str, Any] = {}
    for each in attrs:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise GarbageTrace(where, f"{_shown(each)} is no attribute", _HINT)
        name, value = each["name"], each.get("value")
        if found.setdefault(name, value) != value:
            raise repeated_attribute(name, found[name], value, where)
    return found


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:40]


_STILL: Final = 10
"""A host that waits does nothing for so many times as long as it mostly does between
two operations."""


def waits_shown(
    transfers: Sequence[Transfer],
    work: Iterable[tuple[int, int]],
    profile: Profile,
) -> Mapping[int, Sequence[int]]:
    """Return before which nodes the host waited, and for which transfers.

    Args:
        transfers: What the rank transfers.
        work: Ids and record functions of what its host computed.
        profile: Its profile.

    Returns:
        By id of a node, the ids of the transfers that it had to wait for.
    """
    busy: list[tuple[int, int, int]] = []
    ends: dict[int, int] = {}
    for node_id, rf_id in work:
        _add(busy, node_id, profile.spans.get(rf_id))
    for each in transfers:
        label = None if each.label is None else profile.spans.get(each.label)
        _add(busy, each.node.node_id, profile.spans.get(each.rf_ids[-1]))
        if each.what.is_async is False:
            # The host waited for it, whatever else ended meanwhile.
            _add(busy, each.node.node_id, label)
        elif each.what.sequence is None and label is not None:
            # What has a sequence number is recorded, and so are waits for it.
            ends[each.node.node_id] = label.start_ns + label.duration_ns
    return _waits_of(sorted(busy), ends) if ends else {}


def _add(busy: list[tuple[int, int, int]], node_id: int, span: Span | None) -> None:
    if span is not None:
        busy.append((span.start_ns, span.start_ns + span.duration_ns, node_id))


def _waits_of(
    busy: Sequence[tuple[int, int, int]], ends: Mapping[int, int]
) -> dict[int, list[int]]:
    """Return the waits, given when the host was at work on what, and ends by id."""
    gaps: list[tuple[int, int, int]] = []
    until_ns = busy[0][0]
    for start_ns, end_ns, node_id in busy:
        if start_ns > until_ns:
            gaps.append((until_ns, start_ns, node_id))
        until_ns = max(until_ns, end_ns)
    if not gaps:
        return {}
    long_ns = _STILL * median(after_ns - before_ns for before_ns, after_ns, _ in gaps)
    found: dict[int, list[int]] = {}
    for before_ns, after_ns, node_id in gaps:
        if after_ns - before_ns < long_ns:
            continue
        # It went on soon after: most of the gap was before the end.
        middle_ns = (before_ns + after_ns) // 2
        ended = [
            each
            for each, end_ns in ends.items()
            if each < node_id and middle_ns < end_ns <= after_ns
        ]
        if ended:
            found[node_id] = ended
    return found
