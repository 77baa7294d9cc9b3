"""Reader of the text output of nccl-tests and of its JSON files (option ``-J``).

Each row of the text covers one size. It starts with size, count, type, redop and root.
Then come time in us, algbw, busbw and #wrong, first out of place, then in place. With
``-I 1``, the columns i_min, i_max, i_p99 and i_cv% follow in each placement.

From version 2.17, the text contains the name of the test. The JSON has the name in
``args``. If neither exists, the name of the file may contain the name of the test. Old
versions print neither the group of a rank nor, for most collectives, the root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from chakram.collectives.ops import CollectiveOp
from chakram.formats.text_lines import lines_of, number
from chakram.foundation.errors import ResultsError

TESTS = {
    "all_reduce": CollectiveOp.ALL_REDUCE,
    "all_gather": CollectiveOp.ALL_GATHER,
    "reduce_scatter": CollectiveOp.REDUCE_SCATTER,
    "alltoallv": CollectiveOp.ALL_TO_ALL_V,
    "alltoall": CollectiveOp.ALL_TO_ALL,
    "sendrecv": CollectiveOp.SEND_RECV,
    "broadcast": CollectiveOp.BROADCAST,
    "reduce": CollectiveOp.REDUCE,
    "gather": CollectiveOp.GATHER,
    "scatter": CollectiveOp.SCATTER,
}
"""Collective of each test program, by its name before ``_perf``."""

_NAME = re.compile(r"(?:\A|[^a-z])([a-z_]+)_perf(?:[^a-z]|\Z)")
_RANK = re.compile(r"#\s+Rank\s+[0-9]+\s+(?:Group\s+([0-9]+)\s+)?Pid\s")
_PREFIX = re.compile(r"\A\s*(?:[0-9]+:|\[[^\s\]]*\](?:<\w+>)?:?)\s*")
"""Name of the process before each line.

The name comes from ``srun --label`` (``0:``), ``mpirun --tag-output``
(``[1,0]<stdout>:``) or ``kubectl logs --prefix`` (``[pod/a/b]``).
"""

_HINT = "use the output of all_reduce_perf, or its JSON (-J)"
_PLAIN, _PER_ITERATION = 4, 8
"""Number of columns per placement in a row, without and with ``-I 1``."""

_FIRST = 5
"""Index of the first time if no line names the columns."""

_LONGEST_US = 1e15


class NcclRow(NamedTuple):
    """Result for one size and one placement of the buffers.

    Attributes:
        size_bytes: S, the size column of nccl-tests.
        in_place: Whether the result replaces the input.
        time_ns: Mean time of the iterations.
        cv: Coefficient of variation of the iteration times, or None without ``-I 1``.
        times_ns: Time of each iteration, if the JSON has these times.
    """

    size_bytes: int
    in_place: bool
    time_ns: float
    cv: float | None
    times_ns: tuple[float, ...] = ()


class NcclTest(NamedTuple):
    """Results of one test, with *iterations* None if the source does not state it."""

    op: str
    nranks: int
    iterations: int | None
    rows: tuple[NcclRow, ...]


def read_nccl_text(data: bytes, source: str) -> NcclTest:
    """Parse the text output of nccl-tests.

    Raises:
        ResultsError: If the text has another format, or lacks the test name or the
            ranks.
    """
    name: str | None = None
    groups: list[str] = []
    iterations: int | None = None
    rows: list[NcclRow] = []
    first = _FIRST
    for where, line in lines_of(data, source):
        line = _PREFIX.sub("", line)
        at = line.find("#")
        text = line[at:] if at >= 0 else line
        if found := _RANK.match(text):
            groups.append(found[1] or "0")
        elif text.startswith("# Collective test starting:"):
            name = name or _test(text)
        elif found := re.search(r"warmup iters: [0-9]+ iters: ([0-9]{1,9}) ", text):
            iterations = int(found[1])
        elif at < 0:
            rows += _rows(line, where, first)
        else:
            first = _first_time(text) or first
    if not rows:
        raise ResultsError(source, "has no line with a size", _HINT)
    return _found(
        name, max(map(groups.count, groups), default=0), iterations, rows, source
    )


def _first_time(text: str) -> int | None:
    """Return the index of the first time, if *text* is the line of column names."""
    names = text.lstrip("#").split()
    if names[:2] == ["size", "count"] and "time" in names:
        return names.index("time")
    return None


def _rows(line: str, where: str, first: int) -> Iterator[NcclRow]:
    """Yield the results in a line whose column *first* is the first time."""
    fields = line.split()
    if len(fields) < first + _PLAIN or not fields[0].isdigit():
        return
    width = _PER_ITERATION if len(fields) >= first + 2 * _PER_ITERATION else _PLAIN
    for placement in range(2):
        cells = fields[first + placement * width :][:width]
        # Trace replay has no out-of-place columns.
        if len(cells) < width or cells[0] == "N/A":
            continue
        cv = _decimal(cells[-1], where) / 100 if width == _PER_ITERATION else None
        yield (
            NcclRow(
                number(fields[0], where, "size"),
                bool(placement),
                _decimal(cells[0], where) * 1000,
                cv,
            )
        )


def _decimal(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < _LONGEST_US:
        raise ResultsError(where, f"{text[:60]!r} is not a time or share", _HINT)
    return value


def read_nccl_json(document: Mapping[str, Any], source: str) -> NcclTest:
    """Parse the JSON of nccl-tests or ``chakram bench -J``.

    Raises:
        ResultsError: If the document has another format.
    """
    config = document.get("config")
    config = config if isinstance(config, Mapping) else {}
    devices = config.get("devices", document.get("devices"))
    args = document.get("args")
    results = document.get("results")
    if not isinstance(results, list) or not results:
        raise ResultsError(source, "has no results", _HINT)
    rows: list[NcclRow] = []
    for place, row in enumerate(results):
        where = f"{source}: results[{place}]"
        if not isinstance(row, Mapping) or type(row.get("size")) is not int:
            raise ResultsError(where, "has no size", _HINT)
        for in_place, key in enumerate(("out_of_place", "in_place")):
            if isinstance(block := row.get(key), Mapping):
                found = _json_row(
                    row["size"],
                    bool(in_place),
                    block,
                    row.get(f"{key}_per_iter"),
                    f"{where}.{key}",
                )
                cv = row.get("cv")  # written by ``chakram bench``
                if found.cv is None and isinstance(cv, int | float) and cv >= 0:
                    found = found._replace(cv=float(cv))
                rows.append(found)
    iterations = config.get("iterations")
    return _found(
        _test(" ".join(map(str, args))) if isinstance(args, list) else None,
        len(devices) if isinstance(devices, list) else 0,
        iterations if type(iterations) is int else None,
        rows,
        source,
    )


def _json_row(
    size_bytes: int, in_place: bool, block: Mapping[str, Any], each: Any, where: str
) -> NcclRow:
    def time_ns(value: Any) -> float:
        if not isinstance(value, int | float) or not 0 <= value < inf:
            raise ResultsError(where, f"{str(value)[:60]!r} is not a time", _HINT)
        return float(value) * 1000

    mean_ns = time_ns(block.get("time", block.get("cpu_time")))
    if not isinstance(each, Mapping):
        return NcclRow(size_bytes, in_place, mean_ns, None)
    times = each.get("times_us")
    times_ns = [time_ns(value) for value in times] if isinstance(times, list) else []
    skipped = each.get("skipped_iterations")
    times_ns = times_ns[skipped if type(skipped) is int and skipped > 0 else 0 :]
    cv = each.get("cv_pct")
    return NcclRow(
        size_bytes,
        in_place,
        mean_ns,
        cv / 100 if isinstance(cv, int | float) else None,
        tuple(times_ns),
    )


def _test(text: str) -> str | None:
    """Return the test name in *text*, or None."""
    found = _NAME.search(text)
    return found[1] if found else None


def _found(
    name: str | None,
    nranks: int,
    iterations: int | None,
    rows: Sequence[NcclRow],
    source: str,
) -> NcclTest:
    name = name or _test(source.rpartition("/")[2])
    if name is None:
        raise ResultsError(
            source,
            "does not name its test",
            "name the file after the test, e.g. all_reduce_perf.txt",
        )
    if not nranks:
        raise ResultsError(
            source,
            "does not list the ranks",
            "keep the lines `#  Rank  0 Group  0 Pid ...`, or config.devices in JSON",
        )
    op = TESTS.get(name.removesuffix("_perf"))
    return NcclTest(str(op) if op else name, nranks, iterations, tuple(rows))
