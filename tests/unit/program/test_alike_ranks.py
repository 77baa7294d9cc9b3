"""Ranks that are copies of others get the programs that their own traces would give."""

from __future__ import annotations

import random
from typing import Any

import pytest

from chakram._compiled import status
from chakram.program.job_check import check_job
from chakram.program.lowering import LoweredJob, LoweringOptions, lower_alike, lower_job
from chakram.synth.settings.training import DenseTrace, MoeTrace
from chakram.synth.synthesize import first_traces, synthesize, synthesized_trace_set
from tests.support import draws

DIMENSIONS = ("tp", "cp", "ep", "fsdp", "dp", "pp")


def drawn(seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    kind = rng.choice(("moe", "dense"))
    degrees = {name: rng.choice((1, 2, 3, 4)) for name in DIMENSIONS}
    if kind == "dense":
        del degrees["ep"]
    else:
        degrees["ep"] = max(2, degrees["ep"])
    product = 1
    for degree in degrees.values():
        product *= degree
    while product > 128:
        name = max(degrees, key=lambda each: degrees[each])
        product = product // degrees[name]
        degrees[name] = 1 if name != "ep" else 2
        product *= degrees[name]
    order = list(DIMENSIONS)
    rng.shuffle(order)
    return {
        "synth": kind,
        "ranks": product,
        **degrees,
        "layers": 4 * degrees["pp"],
        "heads": degrees["tp"] * degrees["cp"],
        "hidden": 144,
        "sequence": 144,
        "rank_order": order,
        "micro_batches": rng.choice((1, 2, 5)),
        "pipeline": rng.choice(("1f1b", "gpipe")),
        "overlap": rng.random() < 0.5,
        "distributed_optimizer": rng.random() < 0.5,
    }


def both(settings: dict[str, Any], **options: Any) -> tuple[LoweredJob, LoweredJob]:
    model = MoeTrace if settings["synth"] == "moe" else DenseTrace
    synthesis = synthesize(model.model_validate(settings))
    traces = synthesized_trace_set(synthesis)
    first = first_traces(synthesis, least_nodes=0)
    assert first is not None
    assert first.nodes == sum(map(len, traces.graphs.values()))
    how = LoweringOptions(**options)
    return (
        lower_job("j", traces.graphs, traces.groups, how),
        lower_alike("j", first.graphs, first.groups, how, first.alike),
    )


# The plain form takes seconds for each.
@pytest.mark.parametrize("seed", draws(4 if status().is_compiled() else 2, in_soak=12))
def test_copies_have_the_programs_of_their_own_traces(seed: int) -> None:
    explicit, alike = both(drawn(seed), sync_barrier=seed % 2 == 0)
    assert len(alike.programs) == len(explicit.programs)
    for own, copied in zip(explicit.programs, alike.programs, strict=True):
        assert copied == own, own.rank
    assert check_job(alike.programs) == []
    assert alike.warnings == explicit.warnings


def test_copies_with_a_tied_embedding_have_the_programs_of_their_own_traces() -> None:
    settings = {"synth": "dense", "model": "gpt-3-175b", "vocabulary": 100, "heads": 4}
    sizes = {"layers": 3, "hidden": 64, "sequence": 32, "tp": 2, "pp": 3, "dp": 2}
    order = ["dp", "pp", "tp", "cp", "ep", "fsdp"]
    explicit, alike = both({**settings, **sizes, "rank_order": order})
    assert alike.programs == explicit.programs


@pytest.mark.parametrize(
    "changes",
    [
        {"routing": {"law": "hot_expert"}},
        {"routing": {"nodes": 2, "ranks_per_node": 2}, "experts": 8},
    ],
)
def test_ranks_with_work_of_their_own_are_no_copies(changes: dict[str, Any]) -> None:
    settings = {"synth": "moe", "ranks": 8, "ep": 4, "dp": 2, "layers": 2, **changes}
    assert first_traces(synthesize(MoeTrace.model_validate(settings))) is None
    synthesis = synthesize(MoeTrace.model_validate(settings))
    assert first_traces(synthesis, least_nodes=0) is None


def test_small_sets_are_read_rank_by_rank() -> None:
    settings = {"synth": "moe", "ranks": 8, "ep": 4, "dp": 2, "layers": 2}
    assert first_traces(synthesize(MoeTrace.model_validate(settings))) is None
