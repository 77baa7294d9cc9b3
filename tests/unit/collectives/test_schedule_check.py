"""The checker finds mistakes in algorithms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from chakram.collectives import schedule_check
from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.algorithms.base import OnePartPerRank
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Algorithm, Transfer, rank_schedule
from chakram.collectives.schedule_check import build_schedule, check_schedule, promised
from tests.schedules import nsteps

AR, AG = CollectiveOp.ALL_REDUCE, CollectiveOp.ALL_GATHER


@dataclass(frozen=True)
class Given(OnePartPerRank):
    """An algorithm that consists of the transfers it is given."""

    of: CollectiveOp
    transfers: tuple[Transfer, ...]
    expected: tuple[Transfer, ...] | None = None
    name: str = "given"
    chunks: int = 2

    @property
    def op(self) -> CollectiveOp:
        return self.of

    def nchunks(self, nranks: int) -> int:
        return self.chunks

    def sends(self, position: int, *, nranks: int, root: int):
        return iter(t for t in self.transfers if t.src == position)

    def receives(self, position: int, *, nranks: int, root: int):
        expected = self.transfers if self.expected is None else self.expected
        return iter(t for t in expected if t.dst == position)


def move(step: int, src: int, dst: int, chunk: int, reduce: bool = False) -> Transfer:
    return Transfer(step=step, src=src, dst=dst, chunk=chunk, reduce=reduce)


EXCHANGE = (move(0, 0, 1, 0), move(0, 1, 0, 1))


def problems(op: CollectiveOp, *transfers: Transfer, **more: object) -> list[str]:
    return check_schedule(Given(op, tuple(transfers), **more), nranks=2)


def test_correct_schedule_passes() -> None:
    assert problems(AG, *EXCHANGE) == []


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (
            problems(AG, EXCHANGE[0]),
            "position 0 ends with [] of chunk 1, but must have [1]",
        ),
        (
            problems(AG, *EXCHANGE, move(1, 0, 1, 1), expected=EXCHANGE),
            "step 1: chunk 1 from 0 to 1: sent, but position 1 does not expect it",
        ),
        (
            problems(AG, EXCHANGE[0], expected=EXCHANGE),
            "step 0: chunk 1 from 1 to 0: expected, but position 1 does not send it",
        ),
        (
            problems(AG, move(1, 0, 1, 0), move(0, 0, 1, 0)),
            "position 0: step 0 follows step 1",
        ),
        (
            problems(AG, move(0, 0, 1, 5)),
            "step 0: chunk 5 from 0 to 1: outside 2 positions and 2 chunks",
        ),
        (
            problems(AG, *EXCHANGE, move(1, 0, 0, 0)),
            "step 1: chunk 0 from 0 to 0: a position sends to itself",
        ),
        (
            problems(AG, move(0, 0, 1, 1), move(0, 1, 0, 1)),
            "step 0: chunk 1 from 0 to 1: its source does not have it",
        ),
        (
            problems(AR, move(0, 0, 1, 0), chunks=1),
            "step 0: chunk 0 from 0 to 1: loses [1]",
        ),
        (
            problems(AR, move(0, 0, 1, 0, True), move(1, 0, 1, 0, True), chunks=1),
            "step 1: chunk 0 from 0 to 1: counts [0] twice",
        ),
        (
            problems(AG, move(0, 0, 1, 0), move(0, 1, 0, 0), chunks=2),
            "step 0: chunk 0 from 0 to 1: its destination sends that chunk in step 0",
        ),
    ],
)
def test_wrong_schedule_is_reported(found: list[str], wanted: str) -> None:
    assert wanted in found


def test_position_may_only_list_its_own_transfers() -> None:
    class Confused(Given):
        def sends(self, position: int, *, nranks: int, root: int):
            return iter(self.transfers)

    found = check_schedule(Confused(AG, EXCHANGE), nranks=2)
    assert (
        "position 1 yields a transfer of another position: step 0: chunk 0 from 0 to 1"
        in found
    )


def test_different_message_numbers_of_both_ends_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def miscounting(how: Algorithm, *, position: int, nranks: int, root: int):
        share = rank_schedule(how, position=position, nranks=nranks, root=root)
        return replace(share, sends=tuple(s._replace(message=1) for s in share.sends))

    monkeypatch.setattr(schedule_check, "rank_schedule", miscounting)
    assert problems(AG, *EXCHANGE) == [
        "message 0 from 0 to 1 on channel 0 is None at its source, but "
        "(0, 0) at its destination",
        "message 1 from 0 to 1 on channel 0 is (0, 0) at its source, but "
        "None at its destination",
        "message 0 from 1 to 0 on channel 0 is None at its source, but "
        "(0, 1) at its destination",
        "message 1 from 1 to 0 on channel 0 is (0, 1) at its source, but "
        "None at its destination",
    ]


def test_sends_that_wait_for_later_receives_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def waiting(how: Algorithm, *, position: int, nranks: int, root: int):
        share = rank_schedule(how, position=position, nranks=nranks, root=root)
        return replace(share, sends=tuple(s._replace(needs=(0,)) for s in share.sends))

    monkeypatch.setattr(schedule_check, "rank_schedule", waiting)
    assert problems(AG, *EXCHANGE) == [
        "position 0 sends chunk 0 in step 0 but waits for chunk 1 of step 0",
        "position 1 sends chunk 1 in step 0 but waits for chunk 0 of step 0",
    ]


@pytest.mark.parametrize("op", CollectiveOp)
def test_every_operation_has_a_postcondition(op: CollectiveOp) -> None:
    for name in algorithm_names(op):
        for root in (0, 2):
            assert check_schedule(algorithm(op, name), nranks=3, root=root) == []


def test_reduction_result_is_required_only_at_its_root() -> None:
    schedule = build_schedule(
        algorithm(CollectiveOp.REDUCE, algorithm_names(CollectiveOp.REDUCE)[0]),
        nranks=3,
        root=2,
    )
    whole = dict.fromkeys(range(schedule.nchunks), frozenset(range(3)))
    assert [promised(schedule, each) for each in range(3)] == [{}, {}, whole]


def test_transfers_are_ordered_by_step_turn_and_position() -> None:
    schedule = build_schedule(algorithm(CollectiveOp.ALL_TO_ALL, "direct"), nranks=3)
    assert [(t.src, t.dst) for t in schedule.transfers] == [
        (0, 1),
        (1, 2),
        (2, 0),
        (0, 2),
        (1, 0),
        (2, 1),
    ]
    assert nsteps(schedule) == 1
    assert schedule.nchunks == 9


def test_a_single_rank_has_no_steps() -> None:
    assert nsteps(build_schedule(algorithm(AR, "ring"), nranks=1)) == 0


def test_unsuitable_algorithm_is_reported() -> None:
    how = algorithm(AR, "ring(order=0-2-1)")
    assert check_schedule(how, nranks=4) == [
        "its order names 3 positions, but a group has 4 ranks"
    ]


def test_every_position_has_as_many_chunks() -> None:
    assert problems(AG, *EXCHANGE, chunks=3) == [
        "3 chunks do not divide evenly into 2 parts"
    ]


def test_a_message_carries_a_chunk_once() -> None:
    twice = EXCHANGE[0]._replace(further=(0,))
    assert "step 0: chunk 0 from 0 to 1: carries a chunk twice" in problems(
        AG, twice, EXCHANGE[1]
    )


def test_all_chunks_of_a_message_must_be_present() -> None:
    more = EXCHANGE[0]._replace(further=(1,))
    assert problems(AG, more) == [
        "step 0: chunk 1 from 0 to 1: its source does not have it",
        "position 0 ends with [] of chunk 1, but must have [1]",
    ]


def test_peers_that_contradict_the_transfers_are_reported() -> None:
    class Secretive(Given):
        def peers(self, position: int, *, nranks: int, root: int):
            return set()

    assert check_schedule(Secretive(AG, EXCHANGE), nranks=2) == [
        "position 0 sends to [(0, 1)], but its peers are [] (channel, position)",
        "position 1 sends to [(0, 0)], but its peers are [] (channel, position)",
    ]


def halved(nbytes: int) -> int:
    return nbytes // 2


@pytest.mark.parametrize(
    ("sized", "wanted"),
    [
        (halved, "chunks 0 to 1 add up to 0 bytes if the input has 1:"),
        (
            lambda nbytes: halved(nbytes + 1),
            "chunks 0 to 1 add up to 2 bytes if the input has 1:",
        ),
        (lambda nbytes: nbytes - 1, "chunk 0 has -1 bytes if the input has 0:"),
        (lambda nbytes: nbytes / 2, "chunk 0 has 0.0 bytes if the input has 0:"),
    ],
)
def test_sizes_of_chunks_must_add_up(
    sized: Callable[[int], float], wanted: str
) -> None:
    class Missized(Given):
        def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int):
            return sized(input_bytes)

    (found,) = check_schedule(Missized(AR, ()), nranks=2)[:1]
    assert found.startswith(wanted)


def test_chunks_of_each_position_must_add_up_to_its_own_input() -> None:
    class Uneven(Given):
        def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int):
            return 0 if chunk else 2 * input_bytes

    assert check_schedule(Uneven(AG, EXCHANGE), nranks=2) == [
        "chunks 0 to 0 add up to 2 bytes if the input has 1: chunk_bytes must return "
        "sizes that add up to exactly 1"
    ]
