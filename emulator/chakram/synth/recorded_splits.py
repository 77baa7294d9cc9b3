"""Recorded splits of expert-parallel all-to-alls.

The format depends on the path:

* ``.json``: ``{"unit": "tokens", "dispatches": [[[3, 1], [2, 2]]]}``. Each dispatch has
  a row per source. A row has a number per rank of the group, or per expert (bin counts,
  with the same number of experts on each rank). ``unit`` is ``tokens`` or ``bytes``.
* ``.csv``: lines ``dispatch,source,count,count,...`` of tokens. Lines that do not begin
  with a number are headings.
* a folder or archive: a trace set whose all-to-alls have splits, including PyTorch host
  traces. Only groups of the requested size are used, group by group, each in order.
  Return exchanges are skipped: their matrix is the transpose of the previous one. A
  backward pass that mirrors the forward pass is also skipped.
* any other file: a matrix in the format of nccl-tests' alltoallv, with a row of bytes
  per source, separated by white space. If the matrix is larger than the group, only the
  part for the first ranks is used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chakram.chakra.sets.file_stores import is_archive
from chakram.chakra.sets.trace_set import load_trace_set
from chakram.foundation.bounded_reading import read_bounded
from chakram.foundation.errors import TraceError
from chakram.program.matching import match_ranks
from chakram.synth.expert_routing import part_sums

_LIMIT_BYTES = 64 * 2**20
_LARGEST = 2**50

Matrix = tuple[tuple[int, ...], ...]


def read_splits(path: Path, *, nranks: int, token_bytes: int) -> tuple[Matrix, ...]:
    """Return the bytes of every dispatch, by source and destination.

    Args:
        path: The file.
        nranks: Number of ranks of the group.
        token_bytes: Bytes of one token.

    Raises:
        TraceError: If the file cannot be read or does not fit the group.
    """
    if path.is_dir() or is_archive(path):
        return _from_traces(path, nranks)
    raw = read_bounded(
        path,
        limit_bytes=_LIMIT_BYTES,
        error=TraceError,
        size_hint="record fewer dispatches",
    )
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise TraceError(
            str(path), "is not text", "use JSON, CSV or a matrix"
        ) from error
    dispatches: list[list[list[Any]]]
    if path.suffix == ".json":
        dispatches, unit_bytes = _from_json(text, str(path), token_bytes)
    elif path.suffix == ".csv":
        dispatches, unit_bytes = _from_csv(text, str(path)), token_bytes
    else:
        rows = _rows(text.splitlines(), str(path))
        if len(rows) > nranks and all(len(row) >= len(rows) for row in rows):
            # If the matrix is for a larger group, use its first ranks, as nccl-tests
            # does.
            rows = [row[:nranks] for row in rows[:nranks]]
        dispatches, unit_bytes = [rows], 1
    if not dispatches:
        raise TraceError(
            str(path), "has no dispatch", "check that the file is not empty"
        )
    return tuple(
        _matrix(rows, f"{path}: dispatch {number}", nranks, unit_bytes)
        for number, rows in enumerate(dispatches)
    )


def _from_traces(path: Path, nranks: int) -> tuple[Matrix, ...]:
    traces = load_trace_set(path)
    splits = match_ranks(traces.graphs, traces.groups).splits
    by_group: dict[str, list[Matrix]] = {}
    for identity in sorted(splits):
        there = tuple(row.sent_bytes for row in splits[identity])
        matrices = by_group.setdefault(identity.group, [])
        back = tuple(zip(*matrices[-1], strict=True)) if matrices else None
        if len(there) == nranks and there != back:
            matrices.append(there)
    found: list[Matrix] = []
    for matrices in by_group.values():
        # The backward pass repeats the exchanges of the forward pass, last layer first.
        mirrored = len(matrices) % 2 == 0 and matrices == matrices[::-1]
        found += matrices[: len(matrices) // 2] if mirrored else matrices
    if not found:
        sizes = sorted({len(rows) for rows in splits.values()})
        raise TraceError(
            str(path),
            f"has no all-to-all with splits between {nranks} ranks",
            f"it has all-to-alls between {', '.join(map(str, sizes))} ranks"
            if sizes
            else "check that the tool that wrote it keeps splits",
        )
    return tuple(found)


def _from_json(
    text: str, where: str, token_bytes: int
) -> tuple[list[list[list[Any]]], int]:
    hint = 'e.g. {"unit": "tokens", "dispatches": [[[3, 1], [2, 2]]]}'
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(where, f"is not JSON: {error}", hint) from error
    if not isinstance(data, dict) or not isinstance(data.get("dispatches"), list):
        raise TraceError(where, "has no list of dispatches", hint)
    unit = data.get("unit", "tokens")
    if unit not in ("tokens", "bytes"):
        raise TraceError(where, f"unit is {unit!r}", "use tokens or bytes")
    for number, rows in enumerate(data["dispatches"]):
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise TraceError(
                f"{where}: dispatch {number}", "is not a list of rows", hint
            )
    return data["dispatches"], token_bytes if unit == "tokens" else 1


def _from_csv(text: str, where: str) -> list[list[list[int]]]:
    dispatches: dict[int, dict[int, list[int]]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip() for cell in line.split(",")]
        if not cells[0].isdecimal():
            continue
        values = [_number(cell, f"{where}:{number}") for cell in cells]
        if len(values) < 3:
            raise TraceError(
                f"{where}:{number}",
                f"has {len(values)} numbers",
                "write the dispatch, the source and a count per rank or expert",
            )
        rows = dispatches.setdefault(values[0], {})
        if values[1] in rows:
            raise TraceError(
                f"{where}:{number}",
                f"source {values[1]} of dispatch {values[0]} occurs twice",
                "write one line per dispatch and source",
            )
        rows[values[1]] = values[2:]
    result: list[list[list[int]]] = []
    for dispatch in sorted(dispatches):
        rows = dispatches[dispatch]
        if sorted(rows) != list(range(len(rows))):
            raise TraceError(
                f"{where}: dispatch {dispatch}",
                f"has the sources {sorted(rows)[:16]}",
                "number the sources from 0",
            )
        result.append([rows[source] for source in range(len(rows))])
    return result


def _rows(lines: list[str], where: str) -> list[list[int]]:
    return [
        [_number(cell, f"{where}:{number}") for cell in line.split()]
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def _number(cell: str, where: str) -> int:
    if not cell.isdecimal() or len(cell) > 16:
        raise TraceError(
            where, f"{cell[:40]!r} is not a count", "use whole numbers from 0"
        )
    return int(cell)


def _matrix(rows: list[list[Any]], where: str, nranks: int, unit_bytes: int) -> Matrix:
    """Return a square matrix of bytes, with the bins of experts summed by rank."""
    if len(rows) != nranks:
        raise TraceError(
            where,
            f"has {len(rows)} sources, but a group has {nranks} ranks",
            "write one row per rank of the group, and check its size (ep, members, "
            "ranks)",
        )
    matrix: list[tuple[int, ...]] = []
    for source, row in enumerate(rows):
        place = f"{where}: source {source}"
        if not row or len(row) % nranks:
            raise TraceError(
                place,
                f"has {len(row)} counts for {nranks} ranks",
                "write one count per rank, or per expert with equally many experts on "
                "each rank",
            )
        for value in row:
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise TraceError(place, f"{value!r} is not a count", "use 0, 1, 2, ...")
            if value * unit_bytes > _LARGEST:
                raise TraceError(
                    place,
                    f"{value} is too large",
                    "use a smaller count: this one exceeds any real buffer",
                )
        sums = part_sums(row, len(row) // nranks)
        matrix.append(tuple(each * unit_bytes for each in sums))
    return tuple(matrix)
