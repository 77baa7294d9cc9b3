"""Losses are not mistaken for timeouts that are too short."""

import pytest

from chakram.preparation.predictions import early_timeouts


@pytest.mark.parametrize(
    ("resent", "lost", "missing", "is_told"),
    [
        (640, 0, 0, True),
        (640, 0, 10, True),  # sent again just before the end
        (640, 0, 11, False),  # no switch counted them, but they did not arrive
        (640, 1, 0, False),
        (0, 0, 0, False),
    ],
)
def test_packets_that_do_not_arrive_are_losses(
    resent: int, lost: int, missing: int, *, is_told: bool
) -> None:
    notes = early_timeouts(resent, lost, missing)
    assert [f"{resent} are retransmitted" in note for note in notes] == [True] * is_told
