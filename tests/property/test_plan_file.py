"""Laws of saved plans."""

from __future__ import annotations

import contextlib
import hashlib

from hypothesis import given
from hypothesis import strategies as st

from chakram.control.plan_file import (
    MAGIC,
    SavedInput,
    SavedJob,
    SavedPlan,
    decode,
    encode,
)
from chakram.core.program import RankProgram, check_program
from chakram.errors import PlanError
from chakram.testing.jobs import jobs


def saved(programs: list[RankProgram]) -> SavedPlan:
    """Return a plan with one job."""
    job = SavedJob(
        name="job",
        settings="0f",
        trace="t",
        producer="p",
        digest="d",
        nodes=7,
        warnings=("w",),
        programs=tuple(programs),
    )
    changed = SavedInput(path="/t/w.0.et", size_bytes=2**40, changed_ns=2**60)
    return SavedPlan(made_by="1", jobs=(job,), inputs=(changed,))


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
    # The digest is right, as that of whoever wants to do harm would be.
    whole = MAGIC + hashlib.sha256(body).digest() + body
    with contextlib.suppress(PlanError):
        for job in decode(bytes(whole), where="f").jobs:
            for program in job.programs:
                assert not check_program(program)
