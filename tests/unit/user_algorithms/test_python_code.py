"""Algorithms defined by a Python function."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.collectives.algorithms import UserAlgorithm
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ScheduleError
from chakram.user_algorithms.files import load_source

if TYPE_CHECKING:
    from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm

STAR = """
from chakram.collectives.schedule import Transfer
from chakram.collectives.schedule_check import Schedule

def star(op, nranks, root):
    for leaf in range(1, nranks):
        yield Transfer(step=0, src=leaf, dst=0, chunk=0, reduce=True)
    for leaf in range(1, nranks):
        yield Transfer(step=1, src=0, dst=leaf, chunk=0)

def whole(op, nranks, root):
    return Schedule(op=op, nranks=nranks, root=root, nchunks=2 * nranks, transfers=(
        Transfer(step=0, src=0, dst=1, chunk=0, further=(1,)),
        Transfer(step=0, src=1, dst=0, chunk=2, further=(3,)),
    ))

def half(op, nranks, root):
    return [Transfer(step=0, src=1, dst=0, chunk=0, reduce=True)]

def nothing(op, nranks, root):
    return 7

def odd(op, nranks, root):
    return ["transfer"]

def fails(op, nranks, root):
    return 1 // 0

def endless(op, nranks, root):
    while True:
        yield Transfer(step=0, src=0, dst=1, chunk=0)

def no_tuple(op, nranks, root):
    yield Transfer(step=0, src=0, dst=1, chunk=0, further=None)

def too_far(op, nranks, root):
    yield Transfer(step=0, src=0, dst=1, chunk=0, further=range(1, 2**70))

def no_truth(op, nranks, root):
    yield Transfer(step=0, src=0, dst=1, chunk=0, reduce="no")

def no_number(op, nranks, root):
    one = Transfer(step=0, src=0, dst=1, chunk=0)
    return Schedule(op=op, nranks=nranks, root=root, nchunks="2", transfers=(one,))
"""


def listed(
    folder: Path,
    function: str,
    op: CollectiveOp = CollectiveOp.ALL_REDUCE,
    *,
    nranks: int = 2,
    code: str = STAR,
) -> ListedAlgorithm:
    path = folder / "mine.py"
    path.write_text(code)
    user = UserAlgorithm(kind="python", path=str(path), function=function)
    return load_source(user).listed(op, nranks=nranks, root=0, size_scale=Fraction(1))


def test_transfers_of_a_function_are_checked_and_listed(tmp_path: Path) -> None:
    how = listed(tmp_path, "star", nranks=3)
    assert how.name == "python:mine.py:star"
    assert [(each.src, each.dst, each.after) for each in how.transfers] == [
        (1, 0, ()),
        (2, 0, ()),
        (0, 1, (0, 1)),
        (0, 2, (0, 1)),
    ]
    assert how.chunk_bytes(0, nranks=3, input_bytes=99) == 99


def test_function_for_splits_names_chunks_of_pairs(tmp_path: Path) -> None:
    code = """
from chakram.collectives.schedule import Transfer

def straight(op, nranks, root):
    assert op == "all_to_all_v"
    for src in range(nranks):
        for dst in range(nranks):
            if src != dst:
                yield Transfer(step=0, src=src, dst=dst, chunk=src * nranks + dst)
"""
    how = listed(tmp_path, "straight", CollectiveOp.ALL_TO_ALL_V, nranks=3, code=code)
    assert how.op is CollectiveOp.ALL_TO_ALL_V
    sizes = [
        (each.src, each.dst, how.uneven_bytes(place, lambda a, b: 10 * a + b))
        for place, each in enumerate(how.transfers)
    ]
    assert sorted(sizes) == [
        (a, b, 10 * a + b) for a in range(3) for b in range(3) if a != b
    ]


def test_schedule_declares_its_number_of_chunks(tmp_path: Path) -> None:
    how = listed(tmp_path, "whole", CollectiveOp.ALL_GATHER)
    assert how.nparts == 4
    assert how.transfers[1].parts == ((2, 2),)
    assert how.chunk_bytes(1, nranks=2, input_bytes=7) == 7


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("half", r"position 1 ends with \[1\] of chunk 0, but must have \[0, 1\]"),
        ("nothing", "returns int .yield Transfer objects"),
        ("odd", "transfer 0 is transfer"),
        ("fails", r"mine.py:27: ZeroDivisionError"),
        ("endless", "yields more than 131072 transfers"),
        ("none", "has no function 'none'"),
        ("no_tuple", "transfer 0 is .*further=None.*tuples of chunks"),
        ("too_far", "transfer 0 is .*further=range"),
        ("no_truth", "transfer 0 is .*reduce='no'"),
        ("no_number", "has chunk 0 of 2 chunks"),
    ],
)
def test_invalid_algorithm_is_refused(tmp_path: Path, function: str, told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        listed(tmp_path, function)


def test_code_that_does_not_run_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match=r"mine.py:2: SyntaxError"):
        listed(tmp_path, "star", code="x = 1\ndef star(:\n")
    with pytest.raises(ScheduleError, match=r"mine.py:1: ModuleNotFoundError"):
        listed(tmp_path, "star", code="import nothing_of_that_name\n")
    user = UserAlgorithm(kind="python", path=str(tmp_path / "a.py"), function="f")
    with pytest.raises(ScheduleError, match="does not exist"):
        load_source(user)
