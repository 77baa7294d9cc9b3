"""A sweep folder with handmade results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chakram.sweep.folder import keep_outcome, read_sweep

if TYPE_CHECKING:
    from pathlib import Path

RUN_NAME = "20260131T120000Z-base"
TIMES_US = (1000, 900, 2000, 2400, 1500, 1600, 3200, 1900)
"""Of the iterations of the cells, in their order."""

_PLACES = [
    (case, ranks, algorithm)
    for case in ("plain", "slow")
    for ranks in (2, 4)
    for algorithm in ("ring", "tree")
]
CELLS: tuple[dict[str, Any], ...] = tuple(
    {
        "number": number,
        "case": case,
        "values": {"ranks": ranks, "collectives.all_reduce": algorithm},
        "world": "run",
        "overrides": {},
        # The plain ring of as many ranks.
        "baseline": None if number in (0, 2) else ranks - 2,
    }
    for number, (case, ranks, algorithm) in enumerate(_PLACES)
)
SUITE: dict[str, Any] = {
    "version": 1,
    "name": "shapes",
    "base": "base.yaml",
    "world": "run",
    "cases": [
        {"name": "plain", "set": {}},
        {"name": "slow", "set": {"rate": "80Gbit", "count": 3}},
    ],
    "matrix": {"ranks": [2, 4], "collectives.all_reduce": ["ring", "tree"]},
    "baseline": {"case": "plain", "collectives.all_reduce": "ring"},
}


def document_of(
    number: int, repetition: int, *, times_us: Sequence[int] = TIMES_US
) -> dict[str, Any]:
    """Return the result of a cell: 1 % less in its first repetition.

    Its bus bandwidth in GB/s is its number and one.
    """
    factor = 0.99 if repetition == 0 else 1.01
    busbw = (number + 1) * factor
    return {
        "run": {"world": "run", "banners": []},
        "ranks": [],
        "links": [],
        "iterations": [
            {
                "job": "j",
                "mean_ns": times_us[number] * 1000 * factor,
                "cv": 0.03,
                "iterations": 5,
            },
            {"job": "shorter", "mean_ns": 1.0, "cv": 0.5, "iterations": 5},
        ],
        "results": [
            {
                "job": "j",
                "collective": "all_reduce",
                "algorithm": "ring",
                "nranks": 4,
                "size": size,
                **dict.fromkeys(("time_ns", "min_ns", "p99_ns", "max_ns"), 1000.0),
                "cv": 0.03,
                "samples": 5,
                **dict.fromkeys(("bound_share", "alone_share"), 0.9),
                "packets": 500,
                "retransmitted_packets": 5,
                "ecn_marked_packets": 10,
                "generator_bound": 1,
                "out_of_place": {"alg_bw": busbw, "bus_bw": busbw, "nwrong": 0},
            }
            for size in (65536, 1024)
        ],
        "average_bus_bandwidth": float(number + 1),
        "packets": 1000,
        "retransmitted_packets": 10,
        "ecn_marked_packets": 20,
        "generator_bound": {"collectives": 1, "of": 10},
        "unfinished_collectives": 0,
    }


def made_sweep(
    folder: Path,
    *,
    cells: Sequence[Mapping[str, Any]] = CELLS,
    suite: Mapping[str, Any] | None = None,
    repetitions: int = 2,
    times_us: Sequence[int] = TIMES_US,
    bound: Mapping[str, int] | str | None = "as made",
    document: Callable[[int, int], dict[str, Any]] | None = None,
    kept: Callable[[int, int], bool] = lambda number, repetition: True,
) -> Path:
    """Return a folder with the results of cells; those of the last have no directory.

    Args:
        folder: Where.
        cells: Of ``suite.json``.
        suite: Changes of its suite.
        repetitions: Of every cell.
        times_us: Times of iterations by cell.
        bound: What documents say of the generator.
        document: Makes the document of a cell in a repetition.
        kept: Whether there is one.
    """
    runs = [
        {
            "number": cell["number"],
            "repetition": repetition,
            "name": " ".join(
                [
                    *([cell["case"]] if cell["case"] else []),
                    *(f"{key}={value}" for key, value in cell["values"].items()),
                ]
            ),
            "world": cell["world"],
            "base": "base.yaml",
            "overrides": [],
            "digest": f"{cell['number']}.{repetition}",
            "runs": str(folder / "runs" / f"{cell['number']:04d}"),
        }
        for repetition in range(repetitions)
        for cell in cells
    ]
    text = {
        "suite": {**SUITE, "repetitions": repetitions, **(suite or {})},
        "cells": list(cells),
        "runs": runs,
    }
    folder.mkdir(exist_ok=True)
    (folder / "suite.json").write_text(json.dumps(text), encoding="utf-8")
    for run in read_sweep(folder).runs:
        if not kept(run.number, run.repetition):
            continue
        found = (
            document_of(run.number, run.repetition, times_us=times_us)
            if document is None
            else document(run.number, run.repetition)
        )
        if bound != "as made":
            found["generator_bound"] = bound
        name = f"{RUN_NAME}-{run.repetition}"
        place = folder / "runs" / f"{run.number:04d}" / name
        if run.number != len(cells) - 1:
            place.mkdir(parents=True)
        outcome = {
            "digest": run.digest,
            "status": "complete",
            "document": found,
            # Where it was made; the folder may have been moved since.
            "directory": f"/elsewhere/{name}",
        }
        keep_outcome(folder, run, outcome)
    return folder
