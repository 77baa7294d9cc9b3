"""Congestion controls by name."""

from __future__ import annotations

import pytest

from chakram.roce import congestion
from chakram.roce.congestion import (
    CONGESTION_CONTROLS,
    CongestionControl,
    FixedRate,
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
