"""Congestion controls by name."""

from __future__ import annotations

import pytest

from chakram.roce import congestion
from chakram.roce.congestion import (
    CONGESTION_CONTROLS,
    SCOPES,
    CongestionControl,
    FixedRate,
    limiter_key,
    notification_scope,
)
from chakram.roce.constants import NEVER


def test_none_limits_nothing() -> None:
    control = congestion.make("none")

    assert (control.rate_bps, control.window_bytes) == (0, 0)
    assert control.next_timer_ns == NEVER
    control.on_sent(1, 0)
    control.on_ack(1, 0, 0)
    control.on_nak(0)
    control.on_cnp(0)
    control.on_timeout(0)
    control.on_timer(0)
    assert (control.rate_bps, control.window_bytes) == (0, 0)


def test_fixed_rate_has_its_rate() -> None:
    assert congestion.make("fixed_rate", rate_bps=5).rate_bps == 5
    with pytest.raises(ValueError, match="0 bit/s is not positive"):
        FixedRate(rate_bps=0)
    with pytest.raises(TypeError):
        congestion.make("fixed_rate", speed=5)


def test_unknown_names_are_answered_with_the_known() -> None:
    with pytest.raises(ValueError, match=r"named 'magic' \(there are .*fixed_rate"):
        congestion.make("magic")


def test_names_are_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CONGESTION_CONTROLS, "mine", raising=False)
    congestion.register("mine", CongestionControl)
    assert type(congestion.make("mine")) is CongestionControl
    with pytest.raises(ValueError, match="named 'mine' already"):
        congestion.register("mine", CongestionControl)


def test_limiters_are_shared_by_queue_pair_by_destination_or_by_port() -> None:
    keys = [
        [limiter_key(scope, qpn=qpn, destination=qpn // 2) for qpn in (2, 3, 4)]
        for scope in map(notification_scope, SCOPES)
    ]
    assert [len(set(each)) for each in keys] == [3, 2, 1]
    with pytest.raises(ValueError, match="no CNP scope 3"):
        limiter_key(3, qpn=1, destination=1)
    with pytest.raises(ValueError, match="no CNP scope is named 'rack'"):
        notification_scope("rack")
