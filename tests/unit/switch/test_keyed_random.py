"""Numbers that identify packets for random draws."""

from __future__ import annotations

from chakram.switch.keyed_random import Attempts, packet_number


def numbers(attempts: Attempts, *psns: int) -> list[int]:
    return [attempts.number(psn) for psn in psns]


def test_first_sends_have_the_numbers_of_their_psns() -> None:
    assert numbers(Attempts(5), 10, 11, 12) == numbers(Attempts(5), 10, 11, 12)
    # What is lost before, or sent again meanwhile, changes no number of a first send.
    assert numbers(Attempts(5), 10, 12)[1] == numbers(Attempts(5), 10, 11, 12)[2]
    assert (
        numbers(Attempts(5), 10, 11, 10, 11, 12)[4]
        == (numbers(Attempts(5), 10, 11, 12)[2])
    )
    assert numbers(Attempts(6), 10) != numbers(Attempts(5), 10)


def test_every_send_of_a_packet_has_another_number() -> None:
    again = [10, 11, 12, 13, 11, 12, 13, 11, 13, 11, 12, 12, 12, 13, 14, 11, 14, 14]
    found = numbers(Attempts(5), *again)
    assert len(set(found)) == len(again)
    # In any order, repeated forever.
    attempts = Attempts(5)
    assert len({attempts.number(psn) for _ in range(500) for psn in (7, 9, 8)}) == 1500


def test_numbers_continue_after_the_psn_wraps() -> None:
    last = (1 << 24) - 1
    found = numbers(Attempts(5), last - 1, last, 0, 1, last, 0, 1, 2)
    assert len(set(found)) == len(found)
    assert found[7] == numbers(Attempts(5), last, 0, 1, 2)[3]


def test_numbers_have_63_bits() -> None:
    for position in (0, 1, (1 << 62) - 1):
        for attempt in (0, 1, 1 << 60):
            assert 0 <= packet_number(1 << 61, position, attempt) < 1 << 63
