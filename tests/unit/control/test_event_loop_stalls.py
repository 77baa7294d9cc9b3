"""Which side stalled, from the records of both."""

from __future__ import annotations

import pytest

from chakram.control.event_loop_stalls import StallMeter, explain_loss

S = 10**9
SILENCE = "no heartbeat from the controller for 1.5 s"


def test_longest_and_current_intervals_count() -> None:
    meter = StallMeter(0)
    meter.alive(2 * S)
    meter.alive(3 * S)
    assert meter.longest_ns(3 * S) == 2 * S
    assert meter.longest_ns(8 * S) == 5 * S


def test_an_old_stall_is_forgotten() -> None:
    meter = StallMeter(0)
    for now_s in (3, *range(4, 15)):
        meter.alive(now_s * S)
    assert meter.longest_ns(15 * S) == S


@pytest.mark.parametrize(
    ("controller_ns", "record", "found", "is_controller"),
    [
        (
            2 * S,
            (5 * 10**7, SILENCE),
            f"the controller stalled for 2.0 s: agent h4 ended the session ({SILENCE})",
            True,
        ),
        (2 * S, (0, ""), "the controller stalled for 2.0 s", True),
        (
            10 * S,
            (9 * S, ""),
            "the controller stalled for 10.0 s, and agent h4 for 9.0 s",
            True,
        ),
        (
            3 * 10**8,
            (4 * S, SILENCE),
            "it stalled for 4.0 s",
            False,
        ),
        (
            3 * 10**8,
            (5 * 10**7, SILENCE),
            f"{SILENCE}, but the controller did not stall: it sent a heartbeat every "
            "0.3 s",
            False,
        ),
    ],
)
def test_the_side_that_stalled_is_named(
    controller_ns: int, record: tuple[int, str], found: str, is_controller: bool
) -> None:
    explained = explain_loss(
        agent="h4",
        controller_stalled_ns=controller_ns,
        agent_stalled_ns=record[0],
        reason=record[1],
        heartbeat_ns=3 * 10**8,
    )
    assert explained is not None
    assert (explained[0], explained[2]) == (found, is_controller)


@pytest.mark.parametrize(
    "record",
    [(0, ""), (0, "the agent is shutting down")],
)
def test_no_side_is_named_without_evidence(record: tuple[int, str]) -> None:
    explained = explain_loss(
        agent="h4",
        controller_stalled_ns=4 * 10**8,
        agent_stalled_ns=record[0],
        reason=record[1],
        heartbeat_ns=3 * 10**8,
    )
    assert explained is None
