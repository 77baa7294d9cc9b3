"""Jobs whose ranks differ in their roles: stages, instances and uneven experts."""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from chakram.config.experiment import parse_experiment
from chakram.preparation.resolved_run import load_run
from chakram.program.columns import COMPUTE
from chakram.synth.synthesize import synthesize, write_synthesis
from chakram.trace.graph import TraceGraph


@dataclass(frozen=True, kw_only=True)
class RoleJob:
    """A synthetic trace, its scales, and the ranks that others do the same work as."""

    synth: dict[str, Any]
    scales: dict[str, Any]
    with_peers: tuple[int, ...]


def role_job(
    rng: random.Random, ranks: int, *, total_bytes: int, compute_ns: int
) -> RoleJob | None:
    """Draw a job of some ranks, or return None if there is none of so many.

    Args:
        rng: Draws it.
        ranks: Number of ranks.
        total_bytes: What all ranks send in an iteration, roughly.
        compute_ns: What a rank computes in an iteration, roughly.
    """
    synth, with_peers = _drawn(rng, ranks)
    if synth is None:
        return None
    job = _loaded(synth)
    sent = sum(
        program.columns.amounts[row]
        for program in job.programs
        for row, kind in enumerate(program.columns.kinds)
        if kind != COMPUTE
    )
    computed_ns = max(program.columns.compute_ns for program in job.programs)
    size = Fraction(total_bytes, max(1, sent)).limit_denominator(1 << 20)
    scale = Fraction(compute_ns, max(1, computed_ns)).limit_denominator(1 << 20)
    return RoleJob(
        synth=synth,
        scales={
            "size_scale": str(max(size, Fraction(1, 1 << 20))),
            "compute": {
                "from": "trace",
                "scale": str(max(scale, Fraction(1, 1 << 20))),
            },
        },
        with_peers=with_peers,
    )


def _drawn(
    rng: random.Random, ranks: int
) -> tuple[dict[str, Any] | None, tuple[int, ...]]:
    everyone = tuple(range(ranks))
    kinds = ["stages", "stages", "experts"]
    if ranks % 4 == 0:
        kinds += ["stages", "instances"]
    match rng.choice(kinds):
        case "stages":
            depths = [each for each in range(2, ranks + 1) if ranks % each == 0]
            depth = rng.choice(depths)
            dense = {
                "synth": "dense",
                "ranks": ranks,
                "pp": depth,
                "dp": ranks // depth,
                "layers": depth * rng.choice([1, 2]),
                "micro_batches": rng.choice([2, 4]),
                "hidden": 512,
            }
            if ranks == depth:
                # Names of its stages differ in numbers only.
                return dense, everyone[1:-1] if depth >= 5 else ()
            return dense, everyone
        case "experts":
            return {
                "synth": "moe",
                "ranks": ranks,
                "ep": ranks,
                "dp": 1,
                "layers": 2,
                "hidden": 512,
                "routing": {"law": "log_normal", "sigma": rng.choice([0.3, 1.0])},
            }, ()
        case _:
            return {
                "synth": "kv_cache",
                "prefill": 2,
                "prefill_tp": ranks // 4,
                "decode": 2,
                "decode_tp": ranks // 4,
                "requests": 4,
                "steps": 2,
                "layers": 2,
                "hidden": 64 * ranks,
                "heads": ranks,
                "kv_heads": ranks,
            }, everyone if ranks > 4 else ()


def write_slower(
    folder: Path, synth: Mapping[str, Any], factors: Mapping[int, float]
) -> None:
    """Write a synthetic trace in which computations of some ranks take longer."""
    synthesis = synthesize(_job(synth).trace)

    def graph_of(rank: int) -> TraceGraph:
        graph = synthesis.graph_of(rank)
        factor = factors.get(rank, 1.0)
        times = array(
            "q", (round(each * factor) for each in graph.columns.durations_ns)
        )
        graph.columns.durations_ns[:] = times
        return graph

    write_synthesis(folder, replace(synthesis, graph_of=graph_of, alike=None))


def _job(synth: Mapping[str, Any]) -> Any:
    return _parsed(synth).jobs[0]


def _loaded(synth: Mapping[str, Any]) -> Any:
    return load_run(_parsed(synth)).jobs[0]


def _parsed(synth: Mapping[str, Any]) -> Any:
    document = {
        "version": 1,
        "name": "roles",
        "jobs": [{"name": "job", "trace": synth, "compute": {"from": "trace"}}],
        "fabric": {"kind": "namespaces", "topology": {"single_switch": {"hosts": 64}}},
    }
    return parse_experiment(json.dumps(document))
