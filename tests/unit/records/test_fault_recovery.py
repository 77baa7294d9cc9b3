"""Traffic has recovered when its flows reach their rate again."""

from __future__ import annotations

import pytest

from chakram.records.fault_recovery import SentAcross, recovered_ns

START, END = 300, 400


def sent(
    first_ns: int, last_ns: int, session: str = "a", like: str = "x"
) -> SentAcross:
    return SentAcross(session, like, first_ns, last_ns)


BEFORE = [sent(0, 100), sent(100, 210), sent(0, 50, "b")]
"""The least rate of session a is that of 110 ns, of session b that of 50."""


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([sent(500, 622)], END),
        # What was over before the fault was does not count.
        ([sent(310, 390), sent(500, 600)], END),
        ([sent(250, 700), sent(700, 800)], 700),
        ([sent(350, 600), sent(600, 1000), sent(1000, 1100), sent(1100, 9000)], 1000),
        # One that is back does not help what is still in flight.
        ([sent(350, 900), sent(500, 600)], 900),
        ([sent(500, 9000, like="y"), sent(600, 700)], END),
        ([sent(500, 600), sent(350, 700, "b"), sent(700, 750, "b")], 700),
        # Begun in the fault it is no proof.
        ([sent(399, 450)], None),
        ([], None),
        ([sent(500, 623)], None),
        ([sent(500, 600), sent(500, 600, "b")], None),
        ([sent(500, 600, "c")], None),
    ],
)
def test_recovery_ends_with_the_last_recovered_flow(
    after: list[SentAcross], expected: int | None
) -> None:
    assert recovered_ns([*BEFORE, *after], START, END) == expected
    assert recovered_ns([*reversed(after), *BEFORE], START, END) == expected


def test_recovery_is_unknown_without_earlier_messages() -> None:
    assert recovered_ns([sent(500, 600)], START, END) is None
    assert recovered_ns([sent(250, 301), sent(500, 600)], START, END) is None
