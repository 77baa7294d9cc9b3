"""A failing hook of a congestion control ends the run and is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chakram.foundation.errors import RunFailed
from chakram.roce.congestion import CongestionControl
from tests.unit.roce.requesters import MTU, TIMEOUT_NS, ack, nak, requester, sent


def to_nak(qp: Any) -> None:
    sent(qp)
    nak(qp, 0)


def to_ack(qp: Any) -> None:
    sent(qp)
    ack(qp, 0)


def to_timeout(qp: Any) -> None:
    sent(qp)
    qp.handle_timeout(2 * TIMEOUT_NS)


HOOKS: dict[str, Callable[[Any], None]] = {
    "on_sent": sent,
    "on_ack": to_ack,
    "on_nak": to_nak,
    "on_cnp": lambda qp: qp.requester.handle_cnp(0),
    "on_timeout": to_timeout,
    "on_timer": lambda qp: qp.handle_timeout(0),
}


def failing(hook: str) -> CongestionControl:
    def fail(self: CongestionControl, *arguments: int) -> None:
        raise ZeroDivisionError("the share is 0")

    return type("Acme", (CongestionControl,), {hook: fail})()


@pytest.mark.parametrize("hook", HOOKS)
def test_failing_hook_is_reported_with_its_location(hook: str) -> None:
    control = failing(hook)
    qp = requester(congestion_control=control)
    qp.post_send(1, MTU, 0)
    control.next_timer_ns = 0 if hook == "on_timer" else control.next_timer_ns
    with pytest.raises(RunFailed) as caught:
        HOOKS[hook](qp)
    line = failing.__code__.co_firstlineno + 2
    assert str(caught.value) == (
        f"congestion control Acme: {hook} failed: ZeroDivisionError: the share is 0 "
        f"(test_hooks.py, line {line})"
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_hook_that_exits_fails_the_run() -> None:
    def leave(self: CongestionControl, *arguments: int) -> None:
        raise SystemExit(3)

    qp = requester(
        congestion_control=type("Acme", (CongestionControl,), {"on_sent": leave})()
    )
    qp.post_send(1, MTU, 0)
    with pytest.raises(RunFailed, match="Acme: on_sent failed: SystemExit: 3"):
        sent(qp)


@pytest.mark.parametrize("limit", ["rate_bps", "window_bytes"])
@pytest.mark.parametrize("is_pacing", [True, False])
def test_negative_limit_ends_the_run(limit: str, is_pacing: bool) -> None:
    control = Restless()
    control.is_pacing = is_pacing
    qp = requester(congestion_control=control)
    qp.post_send(1, MTU, 0)
    setattr(control, limit, -5)
    with pytest.raises(RunFailed) as caught:
        sent(qp)
    assert str(caught.value) == (
        f"congestion control Restless: {limit} is -5 (set a positive limit, or 0 for "
        "no limit)"
    )


class Restless(CongestionControl):
    """Asks for another call at the time of the last one."""

    def on_timer(self, now_ns: int) -> None:
        self.next_timer_ns = now_ns - 3


@pytest.mark.parametrize(
    "to_timer",
    [
        lambda qp: qp.handle_timeout(10),
        # It is not woken while it has nothing to send.
        lambda qp: (to_ack(qp), qp.post_send(2, MTU, 10)),
    ],
)
def test_a_timer_that_stays_due_does_not_hang_the_run(
    to_timer: Callable[[Any], object],
) -> None:
    control = Restless()
    qp = requester(congestion_control=control)
    qp.post_send(1, MTU, 0)
    control.next_timer_ns = 10
    with pytest.raises(RunFailed) as caught:
        to_timer(qp)
    assert str(caught.value) == (
        "congestion control Restless: on_timer left next_timer_ns 3 ns before the "
        "current time (set it to a later time, or to NEVER)"
    )
