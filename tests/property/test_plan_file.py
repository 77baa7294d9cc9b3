"""Laws of saved plans."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.control.plan_file import (
    MAGIC,
    SavedInput,
    SavedPlan,
    decode,
    encode,
)
from chakram.foundation.errors import PlanError
from chakram.program.job_check import check_job
from chakram.program.operations import (
    CollectiveOperation,
    Operation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
)
from tests.plans import rewritten, saved_plan
from tests.random_jobs import jobs


def saved(programs: list[RankProgram]) -> SavedPlan:
    """Return a plan with one job."""
    changed = SavedInput(path="/t/w.0.et", size_bytes=2**40, changed_ns=2**60)
    return saved_plan(programs, inputs=[changed])


@given(programs=jobs())
def test_reading_a_plan_undoes_writing_it(programs: list[RankProgram]) -> None:
    plan = saved(programs)
    assert decode(encode(plan), where="f") == plan


@given(programs=jobs(), data=st.data())
def test_any_file_is_read_or_refused(
    programs: list[RankProgram], data: st.DataObject
) -> None:
    body = bytearray(encode(saved(programs))[len(MAGIC) + 32 :])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    # The digest is correct, as an attacker would make it.
    whole = MAGIC + hashlib.sha256(body).digest() + body
    with contextlib.suppress(PlanError):
        for job in decode(bytes(whole), where="f").jobs:
            assert check_job(job.programs) == []


@given(programs=jobs(), data=st.data())
def test_a_plan_is_refused_where_its_programs_do_not_fit(
    programs: list[RankProgram], data: st.DataObject
) -> None:
    for _ in range(data.draw(st.integers(0, 2))):
        if check_job(programs):
            break  # operations of groups that are gone cannot be looked at
        at = data.draw(st.integers(0, len(programs) - 1))
        programs[at] = data.draw(changed(programs[at]))
    if check_job(programs) == []:
        assert decode(encode(saved(programs)), where="f") == saved(programs)
    else:
        with pytest.raises(PlanError):
            decode(encode(saved(programs)), where="f")


@st.composite
def changed(draw: st.DrawFn, program: RankProgram) -> RankProgram:
    """Return a program that may not fit its job any more."""
    if program.groups and draw(st.integers(0, 9)) == 0:
        return replace(program, groups=program.groups[:-1])
    rows = list(program.operations)
    if not rows:
        return program
    at = draw(st.integers(0, len(rows) - 1))
    what = draw(st.sampled_from(["drop", "twice", "wait", "other"]))
    if what == "drop":
        del rows[at]
    elif what == "twice":
        rows.append(rows[at])
    elif what == "wait":
        waits = draw(st.lists(st.integers(0, len(rows)), max_size=3))
        rows[at] = replace(rows[at], dependencies=tuple(waits))
    else:
        rows[at] = draw(other(rows[at], [group.name for group in program.groups]))
    return rewritten(program, rows)


def other(operation: Operation, groups: list[str]) -> st.SearchStrategy[Operation]:
    """Return an operation with one field that is perhaps another."""
    few = st.integers(0, 3)
    fields: dict[str, st.SearchStrategy[object]] = {}
    if isinstance(operation, CollectiveOperation):
        fields = {
            "group": st.sampled_from([*groups, operation.group]),
            "number": few,
            "op": st.sampled_from(CollectiveOp),
            "algorithm": st.sampled_from(["direct", "pairwise"]),
            "input_bytes": few,
            "trace_bytes": few,
            "root": few,
            "splits": st.none() | st.builds(Splits, *[st.tuples(few, few)] * 2),
        }
    elif isinstance(operation, SendOperation | ReceiveOperation):
        names = ("peer", "number", "tag", "size_bytes", "trace_bytes")
        fields = dict.fromkeys(names, few)
    else:
        fields = {"duration_ns": few}
    return st.one_of(
        values.map(lambda value, name=name: replace(operation, **{name: value}))
        for name, values in fields.items()
    )
