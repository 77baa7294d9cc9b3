from __future__ import annotations

from chakram.replay.expansion import Expansion
from chakram.replay.rank_progress import ActiveOperation, Activity
from chakram.replay.rank_queue_pair import Pair


def spent(activity: Activity) -> tuple[int, int, int, int]:
    return (
        activity.compute_ns,
        activity.communication_ns,
        activity.exposed_ns,
        activity.idle_ns,
    )


def test_time_is_compute_communication_both_or_neither() -> None:
    activity = Activity()
    activity.begin(100)
    activity.change(1, 0, 110)  # idle until here
    activity.change(0, 1, 130)  # compute alone
    activity.change(-1, 0, 160)  # both
    activity.change(0, -1, 200)  # communication alone
    activity.change(0, 0, 205)  # idle
    assert spent(activity) == (20 + 30, 30 + 40, 40, 10 + 5)


def test_operations_that_overlap_count_once() -> None:
    activity = Activity()
    activity.begin(0)
    activity.change(2, 3, 0)
    activity.change(-1, -2, 10)
    activity.change(-1, -1, 15)
    assert spent(activity) == (15, 15, 0, 0)


def test_finished_time_stays_counted() -> None:
    activity = Activity()
    activity.begin(0)
    activity.change(1, 0, 50)
    activity.change(0, 1, 40)  # late news
    activity.change(-1, 0, 60)
    assert spent(activity) == (10, 10, 0, 50)


def test_an_iteration_begins_at_nothing() -> None:
    activity = Activity()
    activity.begin(0)
    activity.change(1, 0, 0)
    activity.change(-1, 0, 9)
    activity.begin(20)
    activity.change(0, 0, 21)
    assert spent(activity) == (0, 0, 0, 1)


def test_an_operation_needs_all_its_messages_and_keeps_its_expansion() -> None:
    expansion = Expansion()
    expansion.needs = [0, 1]
    expansion.send_pairs = [Pair(16, 0, 1, 0)] * 2
    expansion.receive_steps = [0]
    active = ActiveOperation()
    active.begin(3, 7, 7 << 16, 0, expansion, 10, 12, True)
    active.missing_needs[1] -= 1
    assert expansion.needs == [0, 1]
    assert active.messages_left == 3
    active.marks[0] = 1
    assert list(active.marks) == [1, 0, 0]
    assert (active.ready_ns, active.start_ns, active.end_ns) == (10, 12, 12)
