"""Which ranks are suspected to be slow, and which only have other work."""

from __future__ import annotations

import itertools
import json
from array import array
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chakram.analysis.cause_ranking import CauseClass
from chakram.config.experiment import parse_experiment
from chakram.diagnosis.rank_suspects import (
    odd_ranks,
    uneven_computation,
    uneven_routing,
)
from chakram.foundation.units import format_time
from chakram.preparation.resolved_run import load_run
from chakram.program.columns import COMPUTE
from chakram.program.operations import RankProgram

DENSE: dict[str, Any] = {
    "synth": "dense",
    "pp": 4,
    "layers": 4,
    "micro_batches": 4,
    "hidden": 512,
}
JOBS: dict[str, dict[str, Any]] = {
    "four stages": DENSE | {"ranks": 4},
    "eight stages": DENSE | {"ranks": 8, "pp": 8, "layers": 8},
    "stages with replicas": DENSE | {"ranks": 8, "dp": 2},
    "prefill and decode": {
        "synth": "kv_cache",
        "prefill": 2,
        "prefill_tp": 2,
        "decode": 2,
        "decode_tp": 2,
        "requests": 4,
        "steps": 4,
        "layers": 4,
    },
    "uneven routing": {
        "synth": "moe",
        "ranks": 8,
        "ep": 8,
        "dp": 1,
        "layers": 2,
        "routing": {"law": "log_normal", "sigma": 1.0},
    },
    "equal ranks": {"synth": "moe", "ranks": 8, "ep": 4, "dp": 2, "layers": 2},
}


def programs_of(trace: dict[str, Any]) -> tuple[RankProgram, ...]:
    document = {
        "version": 1,
        "name": "roles",
        "jobs": [{"name": "job", "trace": trace, "compute": {"from": "trace"}}],
        "fabric": {"kind": "namespaces", "topology": {"single_switch": {"hosts": 8}}},
    }
    (job,) = load_run(parse_experiment(json.dumps(document))).jobs
    return tuple(job.programs)


def slower(program: RankProgram, factor: float) -> RankProgram:
    """Return a program whose computations take longer by a factor."""
    amounts = array("q", program.columns.amounts)
    for row in program.columns.rows_of(COMPUTE):
        amounts[row] = round(amounts[row] * factor)
    return replace(program, columns=replace(program.columns, amounts=amounts))


def suspects(programs: tuple[RankProgram, ...]) -> list[tuple[str, str]]:
    variant = Variant((Job("job", programs),))
    time_ns = max(each.columns.compute_ns for each in programs)
    found = odd_ranks(cast("Any", variant), time_ns)
    return [(each.suspect.cause, each.suspect.place) for each in found]


@pytest.mark.parametrize("trace", JOBS.values(), ids=JOBS)
def test_ranks_with_other_work_are_no_suspects(trace: dict[str, Any]) -> None:
    assert suspects(programs_of(trace)) == []


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("eight stages", 3),
        ("stages with replicas", 7),
        ("stages with replicas", 2),
        ("prefill and decode", 1),
        ("prefill and decode", 6),
        ("equal ranks", 5),
    ],
)
def test_a_slow_rank_is_the_suspect_among_ranks_with_its_work(
    name: str, rank: int
) -> None:
    programs = tuple(
        slower(each, 1.5) if each.rank == rank else each
        for each in programs_of(JOBS[name])
    )
    assert suspects(programs) == [("slow compute", f"rank {rank}")]


def begins_late(program: RankProgram) -> RankProgram:
    """Return a program with one more computation, before its first message."""
    columns = program.columns
    (first, *_) = columns.rows_of(COMPUTE)
    amounts = array("q", columns.amounts)
    amounts[first] += columns.compute_ns
    names = [columns.name(row).encode() for row in range(len(columns))]
    names[first] = b"load data"
    ends = array(columns.name_ends.typecode, itertools.accumulate(map(len, names)))
    changed = replace(columns, amounts=amounts, names=b"".join(names), name_ends=ends)
    return replace(program, columns=changed)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_late_rank_is_found_among_the_replicas_of_its_stage(rank: int) -> None:
    programs = tuple(
        begins_late(each) if each.rank == rank else each
        for each in programs_of(JOBS["stages with replicas"])
    )
    assert suspects(programs) == [("late rank", f"rank {rank}")]


def test_a_stage_without_peers_is_no_suspect() -> None:
    first, *others = programs_of(JOBS["four stages"])
    assert suspects((slower(first, 1.5), *others)) == []


@dataclass(frozen=True)
class Job:
    name: str
    programs: tuple[RankProgram, ...]


@dataclass(frozen=True)
class Variant:
    jobs: tuple[Job, ...]
    alone: str | None = None
    experiment: Any = field(default_factory=lambda: SimpleNamespace(dilation=10))


def test_uneven_routing_is_replaced_by_that_of_a_balanced_job() -> None:
    uneven = JOBS["uneven routing"]
    variant = Variant((Job("job", programs_of(uneven)), Job("other", ())))
    (case,) = uneven_routing(cast("Any", variant))
    assert (case.suspect.cause, case.suspect.place) == ("uneven routing", "job job")
    assert case.suspect.kind is CauseClass.LIMIT
    changed = cast("Variant", case.change(cast("Any", variant)))
    balanced = programs_of(uneven | {"routing": {"law": "balanced"}})
    for program, expected in zip(changed.jobs[0].programs, balanced, strict=True):
        rows = program.columns.rows_of(COMPUTE)
        own = [program.columns.amounts[row] for row in rows]
        # Durations of experts are rounded to 50 ns after their scale.
        assert own == pytest.approx(
            [expected.columns.amounts[row] for row in rows], rel=0.02
        )
        sent = {size for each in program.splits for size in each.splits.sent_bytes}
        assert max(sent) - min(sent) <= max(sent) // 50
    assert changed.jobs[1] == variant.jobs[1]


def test_even_routing_and_other_jobs_are_no_limit() -> None:
    equal = Variant((Job("job", programs_of(JOBS["equal ranks"])),))
    assert list(uneven_routing(cast("Any", equal))) == []
    uneven = Variant((Job("job", programs_of(JOBS["uneven routing"])),), alone="other")
    assert list(uneven_routing(cast("Any", uneven))) == []


def test_evidence_has_undilated_times() -> None:
    first, *others = programs_of(JOBS["equal ranks"])
    time_ns = first.columns.compute_ns
    variant = Variant((Job("job", (slower(first, 1.5), *others)),))
    (case,) = odd_ranks(cast("Any", variant), time_ns)
    assert case.suspect.evidence.startswith(f"computes {format_time(time_ns / 20)} ")


@pytest.mark.parametrize(("alone", "place"), [(None, "job rank 0"), ("job", "rank 0")])
def test_ranks_have_the_name_of_their_job_if_others_run(
    alone: str | None, place: str
) -> None:
    first, *others = programs_of(JOBS["equal ranks"])
    jobs = Job("job", (slower(first, 1.5), *others)), Job("other", ())
    found = odd_ranks(cast("Any", Variant(jobs, alone)), first.columns.compute_ns)
    assert [case.suspect.place for case in found] == [place]


def uneven(programs: tuple[RankProgram, ...]) -> list[Any]:
    variant = Variant((Job("job", programs),))
    odd = list(odd_ranks(cast("Any", variant), programs[0].columns.compute_ns))
    return list(uneven_computation(cast("Any", variant), odd))


def test_many_ranks_that_compute_longer_are_a_limit() -> None:
    equal = programs_of(JOBS["equal ranks"])
    assert uneven(equal) == []
    one = (*equal[:-1], slower(equal[-1], 1.5))
    assert uneven(one) == []  # it is a suspect, and no limit
    half = (*equal[:4], *(slower(each, 1.5) for each in equal[4:]))
    assert suspects(half) == []
    (case,) = uneven(half)
    assert case.suspect.kind is CauseClass.LIMIT
    changed = case.change(cast("Any", Variant((Job("job", half),))))
    totals = [each.columns.compute_ns for each in changed.jobs[0].programs]
    assert totals == pytest.approx([1.25 * each.columns.compute_ns for each in equal])


def test_a_computation_that_only_one_rank_has_is_no_slow_one() -> None:
    first, *others = programs_of(JOBS["equal ranks"])
    columns = first.columns
    rows = columns.rows_of(COMPUTE)
    last = columns.name(rows[-1])
    names = [columns.name(row) for row in range(len(columns))]
    saves = [f"save {name}" if name == last else name for name in names]
    texts = "".join(saves).encode()
    ends = array("I", itertools.accumulate(len(each.encode()) for each in saves))
    changed = replace(columns, names=texts, name_ends=ends)
    amounts = array("q", columns.amounts)
    amounts[rows[-1]] += sum(amounts[row] for row in rows)
    longer = replace(first, columns=replace(changed, amounts=amounts))
    assert suspects((longer, *others)) == []
    assert len(uneven((longer, *others))) == 1
