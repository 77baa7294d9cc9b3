"""Bytes that ranks of trace sets send, counted independently of the product.

Records are decoded as messages, and closed forms give their bytes. With the algorithms
named here, an all-gather of shards of S bytes moves n (n - 1) S in all. An all-reduce
moves 2 (n - 1) S, and the others move (n - 1) S.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from chakram.chakra import et_pb2
from chakram.chakra.read.framing import read_records
from chakram.chakra.sets.find_files import find_trace_set

ALGORITHMS = {
    "all_reduce": "tree",
    "all_gather": "bruck",
    "reduce_scatter": "recursive_halving",
    "all_to_all": "direct",
    "broadcast": "tree",
}
COLLECTIVES = {
    0: "all_reduce",
    2: "all_gather",
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
    9: "barrier",
}
WORDS = {"ALL_REDUCE": 0, "ALL_GATHER": 2, "ALL_TO_ALL": 6, "REDUCE_SCATTER": 7}
TYPES = {"comm_send_node": 5, "comm_recv_node": 6, "coll_comm_node": 7, "comp_node": 4}


def nodes_of(data: bytes, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number of the type and attributes of every node of a file."""
    if name.endswith(".et"):
        for _, body in read_records([data], source=name):
            node = et_pb2.Node()
            # Metadata is no node, or one of type 0 without attributes.
            with contextlib.suppress(DecodeError):
                node.ParseFromString(body)
            values = {}
            for attribute in node.attr:
                arm = attribute.WhichOneof("value")
                if arm and not arm.endswith("_list"):
                    values[attribute.name] = getattr(attribute, arm)
            yield int(node.type), values
    elif b'"nodes"' in data[:20]:
        for node in json.loads(data)["nodes"]:
            yield (
                TYPES[node["node_type"]],
                {
                    **node,
                    "comm_type": WORDS.get(node.get("comm_type"), -1),
                },
            )
    else:
        decoder, text = json.JSONDecoder(), data.decode()
        _, at = decoder.raw_decode(text)
        node, _ = decoder.raw_decode(text, at)
        assert node["type"] == "COMM_COLL_NODE"
        values = {each["name"]: each.get("int64Val") for each in node["attr"]}
        yield 7, {name: int(value) for name, value in values.items() if value}


def work_of(path: Path, unit: int) -> Iterator[tuple[str, str, int]]:
    """Yield collective or message, group and size in bytes of all ranks' nodes."""
    with find_trace_set(path) as found:
        for rank, name in found.files.items():
            with found.store.open(name) as stream:
                data = stream.read(2**30)
            for node_type, values in nodes_of(data, name):
                group = str(values.get("pg_name", values.get("comm_group", "")))
                if node_type == 7:
                    what = COLLECTIVES[values["comm_type"]]
                    yield what, group, values.get("comm_size", 0) * unit
                elif node_type == 5:
                    yield "send", str(rank), values["comm_size"] * unit


def groups_of(path: Path, ranks: int) -> dict[str, int]:
    """Return the number of ranks of every group."""
    with find_trace_set(path) as found:
        if found.group_file is not None:
            with found.store.open(found.group_file) as stream:
                text = stream.read(2**24)
        elif found.group_path is not None:
            text = found.group_path.read_bytes()
        else:
            text = b"{}"
    return {"": ranks, **{name: len(of) for name, of in json.loads(text).items()}}


def expected_bytes(path: Path, *, ranks: int, unit: int, scale: str) -> int:
    """Return the bytes that all ranks send, by closed forms.

    Args:
        path: The set.
        ranks: Its ranks.
        unit: Bytes that one unit of a stored size is worth.
        scale: The size scale of the experiment.
    """
    sizes = groups_of(path, ranks)
    total = 0
    counts = Counter(work_of(path, unit))
    for (what, group, size_bytes), count in counts.items():
        scaled = round_scaled(size_bytes, Fraction(scale))
        if what == "send":
            total += count * scaled
            continue
        n = sizes[group]
        # Each of n members has the node.
        assert count % n == 0
        moved = {
            "all_reduce": 2 * (n - 1),
            "all_gather": n * (n - 1),
            "reduce_scatter": n - 1,
            "all_to_all": n - 1,
            "broadcast": n - 1,
            "barrier": 0,
        }[what]
        total += count // n * moved * scaled
    return total


def round_scaled(size_bytes: int, scale: Fraction) -> int:
    """Return a size as an experiment with that scale has it: rounded up."""
    return math.ceil(size_bytes * scale)
