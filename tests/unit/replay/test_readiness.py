from __future__ import annotations

from chakram.replay.readiness import NOTHING, Readiness


def test_nothing_is_ready_before_the_iteration_begins() -> None:
    assert Readiness([()]).take() == NOTHING


def test_ready_operations_are_returned_lowest_first() -> None:
    readiness = Readiness([(1,), (), ()])
    readiness.begin(5)
    assert [readiness.take() for _ in range(3)] == [1, 2, NOTHING]
    readiness.done(1, 6)
    assert readiness.take() == 0


def test_ready_operations_are_returned_by_preference() -> None:
    readiness = Readiness([(), (), (), (1,)], [7, 8, 5, 7])
    readiness.begin(5)
    assert [readiness.take() for _ in range(2)] == [2, 0]
    readiness.done(1, 6)
    assert [readiness.take() for _ in range(3)] == [3, 1, NOTHING]


def test_postponed_operation_becomes_ready_by_time_only() -> None:
    readiness = Readiness([(), (0,)])
    readiness.begin(0)
    readiness.done(0, 5)
    readiness.postpone(1, 9)
    assert (readiness.ready_ns[1], readiness.released_by[1]) == (9, NOTHING)


def test_an_operation_waits_for_all_it_depends_on() -> None:
    readiness = Readiness([(), (), (0, 1)])
    readiness.begin(0)
    readiness.take(), readiness.take()
    readiness.done(0, 10)
    assert readiness.take() == NOTHING
    readiness.done(1, 20)
    assert readiness.take() == 2
    assert readiness.ready_ns[2] == 20
    assert readiness.released_by[2] == 1
    assert readiness.left == 1


def test_latest_completion_releases_in_any_report_order() -> None:
    readiness = Readiness([(), (), (0, 1)])
    readiness.begin(0)
    readiness.done(0, 20)
    readiness.done(1, 10)
    assert readiness.ready_ns[2] == 20
    assert readiness.released_by[2] == 0
    readiness.done(2, 15)
    assert readiness.left == 0
    assert readiness.end_ns == 20


def test_iteration_resets_readiness() -> None:
    readiness = Readiness([(), (0,)])
    for start_ns in (0, 100):
        readiness.begin(start_ns)
        assert (readiness.left, readiness.end_ns) == (2, start_ns)
        assert readiness.take() == 0
        assert list(readiness.ready_ns[:2]) == [start_ns, start_ns]
        assert list(readiness.released_by[:2]) == [NOTHING, NOTHING]
        readiness.done(0, start_ns + 7)
        assert readiness.take() == 1
        readiness.done(1, start_ns + 9)
        assert (readiness.left, readiness.end_ns) == (0, start_ns + 9)


def test_first_operation_in_the_program_releases_at_equal_times() -> None:
    for order in ((1, 2), (2, 1)):
        readiness = Readiness([(), (), (), (1, 2), ()])
        readiness.begin(0)
        for index in order:
            readiness.done(index, 10)
        assert readiness.released_by[3] == 1


def test_operation_without_time_does_not_release_by_itself() -> None:
    readiness = Readiness([(), (0,), (1,), (), (3,)])
    readiness.begin(5)
    readiness.done(0, 10)
    readiness.done(1, 10, True)
    assert (readiness.ready_ns[2], readiness.released_by[2]) == (10, 0)
    readiness.done(3, 5, True)
    assert (readiness.ready_ns[4], readiness.released_by[4]) == (5, NOTHING)
