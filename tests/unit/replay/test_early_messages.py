from __future__ import annotations

from chakram.replay.early_messages import EarlyMessages
from chakram.replay.rank_queue_pair import Pair
from tests.replay_checks import received


def test_messages_are_kept_by_key_in_the_order_in_which_they_came() -> None:
    early = EarlyMessages()
    first, second = Pair(100, 0, 1, 0), Pair(200, 0, 2, 1)
    one, two, three = (received(number, 64, 7) for number in (1, 0, 2))
    early.keep(5, first, 1, one)
    early.keep(-9, second, 0, two)
    early.keep(5, first, 2, three)
    assert early.count == 3
    assert early.take(5) == [(first, 1, one), (first, 2, three)]
    assert early.take(5) == []
    assert early.count == 1
    assert early.take(-9) == [(second, 0, two)]
    assert early.count == 0


def test_too_many_early_messages_are_refused_and_counted() -> None:
    early = EarlyMessages(limit=2)
    for number in range(4):
        early.keep(number, Pair(1, 0, 1, 0), 0, received(0, 0, 0))
    assert (early.count, early.refused) == (2, 2)
    early.take(0)
    early.keep(9, Pair(1, 0, 1, 0), 0, received(0, 0, 0))
    assert (early.count, early.refused) == (2, 2)
