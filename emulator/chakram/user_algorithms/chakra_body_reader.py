"""Chakra trace files of collective bodies: the nodes of every position."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.chakra.et_codec import (
    AttributeValue,
    NodeType,
    attribute_values,
    decode_metadata,
    decode_node,
)
from chakram.chakra.read.eras import FirstRecord, classify_first_record
from chakram.chakra.read.framing import read_records
from chakram.collectives.algorithms.symbolic_execution import MAX_ACTIONS
from chakram.foundation.errors import ScheduleError
from chakram.user_algorithms.json_fields import (
    COLLECTIVES,
    MAX_CHANNELS,
    MAX_CHUNKS,
    MAX_RANKS,
)
from chakram.user_algorithms.send_receive_matching import read_algorithm_file

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp


_FILE = re.compile(r"(.*)\.([0-9]{1,6})\.et")
_MAX_BYTES = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyNode:
    """One node of a file. *peer* is None if the node neither sends nor receives."""

    where: str
    after: tuple[int, ...]
    sends: bool = False
    peer: int | None = None
    channel: int = 0
    nbytes: int | None = None
    chunks: range | None = None
    nchunks: int = 0
    adds: bool = False


def body_files(path: Path) -> list[Path]:
    """Return the files of all positions, in folder *path* or with the prefix *path*.

    Raises:
        ScheduleError: If there is not exactly one complete set of files.
    """
    folder, prefix = (path, None) if path.is_dir() else (path.parent, path.name)
    found: dict[str, dict[int, Path]] = {}
    try:
        for file in folder.iterdir():
            named = _FILE.fullmatch(file.name)
            if named and prefix in (None, named[1]):
                found.setdefault(named[1], {})[int(named[2])] = file
    except OSError as error:
        raise ScheduleError(
            str(path),
            f"cannot be read: {error.strerror}",
            "give a path relative to the folder of the experiment file",
        ) from error
    if len(found) != 1:
        raise ScheduleError(
            str(path),
            f"contains {len(found) or 'no'} sets of files PREFIX.POSITION.et",
            "name a folder with one set, or folder/PREFIX",
        )
    (by_position,) = found.values()
    count = len(by_position)
    if not 2 <= count <= MAX_RANKS or sorted(by_position) != list(range(count)):
        raise ScheduleError(
            str(path),
            f"has files for {count} positions, but not for each of 0 to {count - 1}",
            f"add one file per position of the group, 2 to {MAX_RANKS} in total",
        )
    return [by_position[position] for position in range(count)]


def read_body(
    file: Path, nranks: int
) -> tuple[CollectiveOp | None, tuple[BodyNode, ...]]:
    """Return the nodes of a file, and the collective that it states, if any.

    Raises:
        ScheduleError: If the file is not the body of a collective of *nranks* ranks.
        TraceError: If the file is not a Chakra trace.
    """
    raw = []
    op = None
    records = read_records([read_algorithm_file(file)], source=file.name)
    for place, (offset, body) in enumerate(records):
        where = f"{file.name}: offset {offset}"
        if place == 0:
            if classify_first_record(body) is FirstRecord.NODE:
                raise ScheduleError(
                    where,
                    "is a node, but the first record must be metadata",
                    "add it: convert the files with chakram trace convert json, and "
                    "back with convert et",
                )
            name = decode_metadata(body, where).attributes.get("collective")
            op = COLLECTIVES.get(str(name))
            if name is not None and op is None:
                raise ScheduleError(
                    where,
                    f"is for the collective {str(name)[:40]!r}",
                    f"choose from {', '.join(COLLECTIVES)}",
                )
            continue
        if place > MAX_ACTIONS:
            raise ScheduleError(
                where, f"has more than {MAX_ACTIONS} nodes", "use fewer chunks"
            )
        raw.append(decode_node(body, where))
    places: dict[int, int] = {}
    for place, node in enumerate(raw):
        if places.setdefault(node.id, place) != place:
            raise ScheduleError(
                f"{file.name}: node {node.id}",
                "occurs twice in the file",
                "use unique ids within each file",
            )
    nodes = []
    for node in raw:
        where = f"{file.name}: node {node.id}"
        edges = [*node.data_deps, *node.ctrl_deps]
        missing = [each for each in edges if each not in places]
        if missing:
            raise ScheduleError(
                where,
                f"depends on node {missing[0]}, which does not exist",
                "check that the file is complete",
            )
        after = tuple(dict.fromkeys(places[each] for each in edges))
        values = attribute_values(node.attr, where)
        kind = int(node.type)  # the stub declares an opaque type
        if kind in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            sends = kind == NodeType.COMM_SEND
            nodes.append(_message(where, after, values, sends=sends, nranks=nranks))
        elif kind == NodeType.COMM_COLL:
            raise ScheduleError(
                where,
                "is a collective",
                "use only sends, receives and computation in the body of a collective",
            )
        else:
            nodes.append(BodyNode(where=where, after=after))
    return op, tuple(nodes)


def _message(
    where: str,
    after: tuple[int, ...],
    values: Mapping[str, AttributeValue],
    *,
    sends: bool,
    nranks: int,
) -> BodyNode:
    def number(name: str, most: int, default: int | None = None) -> int:
        value = values.get(name, default)
        if not isinstance(value, int) or not 0 <= value <= most:
            raise ScheduleError(
                where, f"{name} is {value!r}", f"use a number from 0 to {most}"
            )
        return value

    peer = number("comm_dst" if sends else "comm_src", nranks - 1)
    node = BodyNode(
        where=where,
        after=after,
        sends=sends,
        peer=peer,
        channel=number("comm_tag", MAX_CHANNELS - 1, 0),
    )
    if "total_chunk_cnt" not in values:
        return replace(node, nbytes=number("comm_size", _MAX_BYTES))
    total = number("total_chunk_cnt", MAX_CHUNKS)
    first = number("msg_chunk_idx", MAX_CHUNKS)
    count = number("msg_chunk_cnt", MAX_CHUNKS)
    if first + count > total or not count:
        last = first + count - 1
        raise ScheduleError(
            where,
            f"carries chunks {first} to {last}, but there are {total}"
            if count
            else "carries no chunks (msg_chunk_cnt)",
            "use chunks from 0 to total_chunk_cnt - 1",
        )
    return replace(
        node,
        chunks=range(first, first + count),
        nchunks=total,
        adds=bool(values.get("is_rrc", False)),
    )
