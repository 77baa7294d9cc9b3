from __future__ import annotations

from chakram.replay.words import missing_words, operation_words
from chakram.testing.plans import collective, compute, receive, send


def test_an_operation_is_named_with_its_iteration() -> None:
    assert [
        operation_words(operation, 3)
        for operation in (
            collective("all_reduce", 8, number=5),
            send(4, 8, number=1),
            receive(2, 8),
            compute(9),
        )
    ] == [
        "all_reduce 5 of group 'world' in iteration 3",
        "send 1 to rank 4 in iteration 3",
        "receive 0 from rank 2 in iteration 3",
        "compute 'compute' in iteration 3",
    ]


def test_one_missing_message_is_named() -> None:
    assert missing_words([(4, 1)]) == "the message of step 4 from rank 1"


def test_of_many_missing_messages_the_lowest_steps_are_named() -> None:
    assert (
        missing_words([(9, 1), (0, 7), (0, 2), (5, 1), (6, 1)])
        == "5 messages: step 0 from rank 2, step 0 from rank 7, step 5 from rank 1, "
        "2 more"
    )
