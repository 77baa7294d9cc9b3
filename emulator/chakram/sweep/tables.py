"""Result tables of a sweep: one for display, and all rows as CSV, JSON and Parquet.

Each row of the files is one row of the result table of a cell and repetition. The row
contains the values of the cell's matrix, the iteration time of its job, and the fields
of ``results`` in ``chakram show --json``. Barriers are omitted. No column depends on
when or where a cell was run, or by which process. The value of a matrix key that is
also the name of a field is in the column of the long key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from chakram.analysis.comparison import (
    Difference,
    Side,
    Times,
    compare,
    stated_times,
    times_of,
)
from chakram.collectives.ops import CollectiveOp
from chakram.config.suite import SHORT_KEYS
from chakram.foundation.write_errors import explained_writes
from chakram.summary.run_summary import SIMULATE
from chakram.sweep.folder import RESULT_FIELDS

if TYPE_CHECKING:
    from chakram.config.suite import Cell


def rows(
    cells: Sequence[Cell], outcomes: Mapping[tuple[int, int], Any]
) -> list[dict[str, Any]]:
    """Return all rows, sorted by cell and repetition."""
    found = []
    for (number, repetition), outcome in sorted(outcomes.items()):
        cell, document = cells[number], outcome["document"]
        iterations = {each["job"]: each for each in document["iterations"]}
        for result in document["results"]:
            if result["collective"] == CollectiveOp.BARRIER:
                continue
            iteration = iterations.get(result["job"], {})
            block = result["out_of_place"]
            found.append(
                {
                    "cell": number,
                    "repetition": repetition,
                    "world": cell.world,
                    "case": cell.case,
                    **{
                        SHORT_KEYS[key] if key in RESULT_FIELDS else key: _plain(value)
                        for key, value in cell.values.items()
                    },
                    "job": result["job"],
                    "iteration_ns": iteration.get("mean_ns"),
                    "iteration_cv": iteration.get("cv"),
                    **{name: result[key] for name, key in RESULT_FIELDS.items()},
                    "alg_bw": block["alg_bw"],
                    "bus_bw": block["bus_bw"],
                }
            )
            if cell.world == SIMULATE:  # simulations have no traffic generator
                found[-1]["generator_bound"] = None
    return found


def _plain(value: Any) -> Any:
    """Return a value that fits into a column, with lists and mappings as JSON."""
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def write_rows(folder: Path, made: Sequence[dict[str, Any]]) -> list[Path]:
    """Write ``results.csv``, ``.json`` and ``.parquet``, and return their paths.

    Raises:
        RunDirectoryError: If a file cannot be written.
    """
    columns = list(made[0]) if made else []
    table = pa.table({name: _column([row[name] for row in made]) for name in columns})
    paths = [folder / f"results.{kind}" for kind in ("csv", "json", "parquet")]
    with explained_writes(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            temporary = path.with_suffix(f"{path.suffix}.{os.getpid()}.tmp")
            if path.suffix == ".csv":
                pyarrow.csv.write_csv(table, temporary)
            elif path.suffix == ".json":
                temporary.write_text(json.dumps(list(made), indent=1), "utf-8")
            else:
                pq.write_table(table, temporary)
            os.replace(temporary, path)
    return paths


def _column(values: list[Any]) -> pa.Array:
    """Return a column, with mixed types converted to text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if each is None else str(each) for each in values])


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """Result of a cell over all repetitions.

    ``generator_bound_share`` is a share of collectives. The other shares are shares of
    packets. ``iteration`` is the iteration time of ``longest_iteration``.
    ``difference`` is the difference from the baseline, or None without a baseline.
    """

    cell: Cell
    repetitions: int
    iteration: Times | None
    bus_bw: float | None
    retransmitted_share: float | None
    marked_share: float | None
    generator_bound_share: float | None
    difference: Difference | None


def cell_document(each: CellResult) -> dict[str, Any]:
    """Return the result of a cell as plain values."""
    times, difference = each.iteration, each.difference
    errors = None if difference is None else difference.errors
    return {
        "cell": each.cell.number,
        "case": each.cell.case or None,
        "values": dict(each.cell.values),
        "world": each.cell.world,
        "repetitions": each.repetitions,
        "iteration_ns": times.mean_ns if times else None,
        "error_ns": times.error_ns if times else None,
        "bus_bw": each.bus_bw,
        "retransmitted_share": each.retransmitted_share,
        "marked_share": each.marked_share,
        "generator_bound_share": each.generator_bound_share,
        "baseline": each.cell.baseline,
        "change": difference.change if difference else None,
        "errors": None if errors in (None, float("inf")) else errors,
        "significant": difference.significant if difference else None,
    }


def cell_results(
    cells: Sequence[Cell], outcomes: Mapping[tuple[int, int], Any]
) -> list[CellResult]:
    """Return the results of all cells that have results, in the order of the suite."""
    documents: dict[int, list[dict[str, Any]]] = {}
    for (number, _), outcome in sorted(outcomes.items()):
        documents.setdefault(number, []).append(outcome["document"])
    times = {
        number: _iteration(cells[number], found) for number, found in documents.items()
    }
    results = []
    for cell in cells:
        if cell.number not in documents:
            continue
        found = documents[cell.number]
        own = times[cell.number]
        base = None if cell.baseline is None else times.get(cell.baseline)
        packets = sum(each["packets"] or 0 for each in found)
        bound = [each["generator_bound"] for each in found if each["generator_bound"]]
        verdicts = sum(each["of"] for each in bound)
        busbw = [
            each["average_bus_bandwidth"]
            for each in found
            if each["average_bus_bandwidth"] is not None
        ]
        results.append(
            CellResult(
                cell=cell,
                repetitions=len(found),
                iteration=own,
                bus_bw=fmean(busbw) if busbw else None,
                retransmitted_share=_share(found, "retransmitted_packets", packets),
                marked_share=_share(found, "ecn_marked_packets", packets),
                generator_bound_share=(
                    sum(each["collectives"] for each in bound) / verdicts
                    if verdicts
                    else None
                ),
                difference=_difference(base, own) if base and own else None,
            )
        )
    return results


def _share(
    documents: Sequence[Mapping[str, Any]], name: str, packets: int
) -> float | None:
    return sum(each[name] or 0 for each in documents) / packets if packets else None


def longest_iteration(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the iterations of the job that takes longest, without background jobs."""
    own = (each for each in document["iterations"] if not each.get("is_background"))
    return max(own, key=lambda each: each["mean_ns"], default=None)


def _iteration(cell: Cell, documents: Sequence[Mapping[str, Any]]) -> Times | None:
    """Return the iteration time of a cell."""
    found = [one for each in documents if (one := longest_iteration(each))]
    if not found:
        return None
    exact = cell.world == SIMULATE
    if len(found) > 1:
        return times_of([[each["mean_ns"]] for each in found], exact=exact)
    (one,) = found
    return stated_times(one["mean_ns"], one["cv"], one["iterations"], exact=exact)


def _difference(base: Times, own: Times) -> Difference:
    key = ("iteration", "")
    sides = [Side(name="", kind="", times={key: each}) for each in (base, own)]
    (difference,) = compare(*sides).levels["iteration"]
    return difference
