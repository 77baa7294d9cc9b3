"""A reader of trace sets as strict as ASTRA-sim and Chakra's C++ feeder.

They fill what they miss with zeros, wait forever or abort; this one says what it
misses.  It shares nothing with the reader of ``chakram.chakra`` but the generated code
of the schema.

Whether the timeline visualizer knows nodes by their names is its own question.

Sources: ``Statistics.cc`` and ``Workload.cc`` of ASTRA-sim 518bd51, which was built
and run; ``et_feeder_node.cpp`` and ``timeline_visualizer.py`` of Chakra 1.0.0.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

from chakram.chakra import et_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["shown_problems", "strict_problems"]

_MEM_LOAD, _MEM_STORE, _COMP, _SEND, _RECV, _COLL = range(2, 8)
_SIMULATED = {0: "all_reduce", 2: "all_gather", 6: "all_to_all", 7: "reduce_scatter"}
_ARMS = {
    "num_ops": "uint64_val",
    "tensor_size": "uint64_val",
    "comm_size": "uint64_val",
    "comm_type": "int64_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
    "pg_name": "string_val",
    "is_cpu_op": "bool_val",
}
_MEMORIES = ("LOCAL_MEMORY", "REMOTE_MEMORY")
_SHOWN: dict[int, list[tuple[str, ...]]] = {
    _COMP: [("COMP_NODE",)],
    _MEM_LOAD: [("MEM_LOAD_NODE", memory) for memory in _MEMORIES],
    _MEM_STORE: [("MEM_STORE_NODE", memory) for memory in _MEMORIES],
    _COLL: [("COMM_COLL_NODE",)],
    _SEND: [("COMM_SEND_NODE",)],
    _RECV: [("COMM_RECV_NODE",)],
}
_NEEDED = {
    _COMP: ("num_ops", "tensor_size"),
    _MEM_LOAD: ("tensor_size",),
    _MEM_STORE: ("tensor_size",),
    _COLL: ("comm_type", "comm_size"),
    _SEND: ("comm_dst", "comm_size", "comm_tag"),
    _RECV: ("comm_src", "comm_size", "comm_tag"),
}


def strict_problems(folder: Path) -> list[str]:
    """Return the problems that other readers have with the set in a folder."""
    files: dict[int, Path] = {}
    for path in folder.glob("*.et"):
        match = re.fullmatch(r"(.+)\.([0-9]+)\.et", path.name)
        if match is None:
            return [f"{path.name}: is not called <prefix>.<rank>.et"]
        files[int(match[2])] = path
    if sorted(files) != list(range(len(files))):
        return [f"ranks {sorted(files)} are not 0 to {len(files) - 1}"]
    groups = {"": set(files)}
    group_file = folder / "comm_group.json"
    problems: list[str] = []
    if group_file.exists():
        for name, ranks in json.loads(group_file.read_text()).items():
            if not name.isdecimal() or int(name) < 1:
                problems.append(f"group {name!r}: is not called by a number above 0")
            if len(ranks) < 2 or not set(ranks) <= files.keys():
                problems.append(f"group {name!r}: has the ranks {ranks}")
            groups[name] = set(ranks)
    done: dict[str, dict[int, Counter[tuple[int, int]]]] = {}
    messages: Counter[tuple[int, int, int, int]] = Counter()
    for rank, path in sorted(files.items()):
        nodes = list(_nodes(path))
        problems += [f"{path.name}: {each}" for each in _of_edges(nodes)]
        for node in nodes:
            where = f"{path.name}: node {node.id}"
            values = {each.name: _value(each) for each in node.attr}
            found = list(_of_node(node, values))
            problems += [f"{where}: {each}" for each in found]
            if found:
                continue
            size = int(values.get("comm_size", 0))
            if node.type == _COLL:
                group = str(values.get("pg_name", ""))
                if rank not in groups.get(group, ()):
                    problems.append(f"{where}: is in group {group!r}, its rank is not")
                of_rank = done.setdefault(group, {}).setdefault(rank, Counter())
                of_rank[int(values["comm_type"]), size] += 1
            elif node.type == _SEND:
                messages[
                    rank, int(values["comm_dst"]), int(values["comm_tag"]), size
                ] += 1
            elif node.type == _RECV:
                messages[
                    int(values["comm_src"]), rank, int(values["comm_tag"]), size
                ] -= 1
    for group, by_rank in done.items():
        members = groups.get(group, set())
        if by_rank.keys() != members or len(set(map(_frozen, by_rank.values()))) > 1:
            problems.append(f"group {group!r}: its ranks do not do the same")
        if len(members) < 2:
            problems.append(f"group {group!r}: has collectives and one rank")
    problems += [f"message {each}: has one end" for each, n in messages.items() if n]
    return problems


def shown_problems(folder: Path) -> list[str]:
    """Return the names that the timeline visualizer would not know a node by."""
    return [
        f"{path.name}: node {node.id} is called {node.name!r}"
        for path in sorted(folder.glob("*.et"))
        for node in _nodes(path)
        if not any(
            all(word in node.name for word in words) for words in _SHOWN[node.type]
        )
    ]


def _nodes(path: Path) -> Iterator[et_pb2.Node]:
    data = path.read_bytes()
    at = number = 0
    while at < len(data):
        length, at = _length(data, at)
        if number:
            yield et_pb2.Node.FromString(data[at : at + length])
        else:
            et_pb2.GlobalMetadata.FromString(data[at : at + length])
        at += length
        number += 1
    if not number or at != len(data):
        raise ValueError(f"{path.name} is empty or cut off")


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint that begins at a place, and where it ends."""
    value = shift = 0
    while data[at] > 0x7F:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1


def _value(attribute: et_pb2.AttributeProto) -> str | int:
    """Return the value that the C++ feeder reads from an attribute."""
    arm = attribute.WhichOneof("value")
    wanted = _ARMS.get(attribute.name, arm)
    if arm != wanted:
        return f"in {arm}, not {wanted}"
    return getattr(attribute, arm) if arm else ""


def _of_node(node: et_pb2.Node, values: Mapping[str, str | int]) -> Iterator[str]:
    if node.type not in _NEEDED:
        yield f"has node type {node.type}"
        return
    for name in _NEEDED[node.type]:
        if name not in values:
            yield f"lacks {name}"
    for name, value in values.items():
        if name in _ARMS and name != "pg_name" and isinstance(value, str):
            yield f"has {name} {value}"
    if node.type in (_COLL, _SEND, _RECV):
        if values.get("is_cpu_op"):
            yield "communicates on a CPU"
        if values.get("comm_size") == 0:
            yield "communicates nothing"
    if node.type == _COLL and values.get("comm_type") not in _SIMULATED:
        yield f"is a collective of type {values.get('comm_type')}"


def _of_edges(nodes: list[et_pb2.Node]) -> Iterator[str]:
    """Yield what is wrong with ids and dependencies; both kinds hold a node back."""
    ids = Counter(node.id for node in nodes)
    yield from (f"node {each} stands twice" for each, count in ids.items() if count > 1)
    waits = {node.id: {*node.data_deps, *node.ctrl_deps} for node in nodes}
    for node_id, before in waits.items():
        if not before <= waits.keys():
            yield f"node {node_id} depends on {sorted(before - waits.keys())[:3]}"
            return
    successors: dict[int, list[int]] = {}
    left = {}
    for node_id, before in waits.items():
        left[node_id] = len(before)
        for each in before:
            successors.setdefault(each, []).append(node_id)
    ready = [node_id for node_id, count in left.items() if not count]
    issued = 0
    while ready:
        issued += 1
        for each in successors.get(ready.pop(), ()):
            left[each] -= 1
            if not left[each]:
                ready.append(each)
    if issued < len(waits):
        yield "dependencies form a cycle"


def _frozen(counts: Counter[tuple[int, int]]) -> frozenset[tuple[tuple[int, int], int]]:
    return frozenset(counts.items())
