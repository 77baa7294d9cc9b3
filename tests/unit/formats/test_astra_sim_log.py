"""Logs of ASTRA-sim."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.formats.astra_sim import (
    NodeTime,
    RankFinish,
    read_log,
)
from chakram.foundation.errors import ResultsError

HEAD = b"[2031-02-03 10:11:12.345] [workload] "
FINISH = HEAD + b"[info] sys[%d] finished, %d cycles, exposed communication 5 cycles.\n"
EVENT = (
    HEAD + b"[debug] %s,sys->id=1, tick=%d, node->id=2, node->name=%s, node->type=7\n"
)


def test_finish_lines_come_by_rank() -> None:
    log = read_log(FINISH % (3, 70500) + b"Exiting\n" + FINISH % (0, 9), "c.txt")
    assert log.finishes == (RankFinish(0, 9, 5), RankFinish(3, 70500, 5))
    assert log.stuck == ()


def test_line_inside_another_line_is_found() -> None:
    log = read_log(b"ring of node 0 " + FINISH % (1, 7), "c.txt")
    assert log.finishes == (RankFinish(1, 7, 5),)


def test_nodes_have_their_two_times_or_one() -> None:
    events = EVENT % (b"issue", 20, b"a, b") + EVENT % (b"callback", 61, b"a, b")
    log = read_log(events, "log.log")
    assert log.nodes == (NodeTime(1, 2, "a, b", 7, 20, 61),)
    assert read_log(EVENT % (b"issue", 20, b"x"), "l").nodes[0].end_ns is None


def test_a_job_that_hangs_names_its_ranks() -> None:
    log = read_log(b"!!!Hardware Resource sys.id=4 has unreleased nodes!!!\n", "c")
    assert log.stuck == (4,)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "log: has no line about the end of a rank (use console.txt"),
        (b"\xff\n", "log:1: is not UTF-8 text"),
        (FINISH % (1, 2) * 2, "log:2: rank 1 finishes twice"),
        (EVENT % (b"issue", 1, b"x") * 2, "log:2: node 2 of rank 1 is issued twice"),
        (EVENT % (b"callback", 1, b"x"), "log:1: node 2 of rank 1 ends without"),
        (
            EVENT % (b"issue", 9, b"x") + EVENT % (b"callback", 8, b"x"),
            "log:2: node 2 of rank 1 ends without",
        ),
        (FINISH % (1, 1 << 63), "log:1: number '9223372036854775808' is not a whole"),
        (b"x" * 70_000, "log:1: is a line of 70000 bytes"),
    ],
)
def test_invalid_log_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ResultsError) as caught:
        read_log(data, "log")
    assert said.split(" (", maxsplit=1)[0] in str(caught.value)


@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_bytes_are_read_or_refused(noise: bytes, place: int) -> None:
    log = EVENT % (b"issue", 20, b"x") + EVENT % (b"callback", 61, b"x")
    good = FINISH % (1, 2) + log
    for data in (noise, good[:place] + noise + good[place:]):
        with suppress(ResultsError):
            read_log(data, "f")


def test_a_real_log_has_every_node_and_rank(chakram_data: Path) -> None:
    folder = chakram_data / "reference" / "simulators" / "analytical"
    for kind in ("aware", "unaware"):
        own = folder / f"mixed_congestion_{kind}"
        console = read_log((own / "console.txt").read_bytes(), "console.txt")
        log = read_log((own / "log.log").read_bytes(), "log.log")
        assert [each.rank for each in console.finishes] == [0, 1, 2, 3]
        assert console.finishes == log.finishes
        assert {each.rank for each in log.nodes} == {0, 1, 2, 3}
        for rank in log.finishes:
            ends_ns = [each.end_ns for each in log.nodes if each.rank == rank.rank]
            assert max(end for end in ends_ns if end is not None) == rank.end_ns
