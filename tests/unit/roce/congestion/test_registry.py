"""Congestion controls by name: built-in ones, refusals and errors."""

from __future__ import annotations

import re
from typing import Any

import pytest

from chakram.foundation.errors import PlugInError, RunFailed
from chakram.roce import congestion
from chakram.roce.congestion import CONTROLS, CongestionControl
from chakram.roce.congestion.fixed_rate import FixedRate
from chakram.roce.congestion.parameters import Kind, flag, rate, time
from chakram.roce.constants import NEVER


def test_built_in_controls_are_the_modules_of_the_folder() -> None:
    assert next(iter(CONTROLS.own)) == "none"
    assert {"none", "dcqcn", "fixed_rate"} <= CONTROLS.own.keys()
    for name in CONTROLS.own:
        kind = CONTROLS.load(name)
        assert kind.text.endswith(".")
        assert all(each.text.endswith(".") for each in kind.parameters)
        found = CONTROLS.find(name)
        assert found is not None
        assert found.package == ""


def test_none_limits_nothing() -> None:
    control = congestion.make("none")

    # Its hooks are those of the base itself: in C, and nowhere overridden.
    assert type(control) is CongestionControl
    assert (control.rate_bps, control.window_bytes) == (0, 0)
    assert control.next_timer_ns == NEVER
    control.on_sent(1, 0)
    control.on_ack(1, 0, 0)
    control.on_nak(0)
    control.on_cnp(0)
    control.on_timeout(0)
    control.on_timer(0)
    assert (control.rate_bps, control.window_bytes) == (0, 0)


def test_fixed_rate_uses_its_rate() -> None:
    assert congestion.make("fixed_rate", rate_bps=5_000).rate_bps == 5_000
    with pytest.raises(ValueError, match="0 bit/s is not positive"):
        FixedRate(rate_bps=0)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"speed": 5, "rate_bps": 5_000}, "fixed_rate has no parameter 'speed'"),
        ({}, "fixed_rate: rate_bps is missing"),
        ({"rate_bps": 999}, "rate_bps 999 is not in 1000..100000000000000"),
    ],
)
def test_arguments_of_a_plan_equal_the_declared_ones(
    arguments: dict[str, int], found: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(found)):
        congestion.make("fixed_rate", **arguments)


def test_control_that_starts_at_line_rate_receives_it() -> None:
    with pytest.raises(ValueError, match="line_rate_bps"):
        congestion.make("dcqcn", **dict.fromkeys(DCQCN_ARGUMENTS, 1))


DCQCN_ARGUMENTS = [each.argument for each in CONTROLS.load("dcqcn").parameters]


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"there is no congestion control 'magic' \(known: none, "
    ):
        congestion.make("magic")


def test_argument_names_contain_the_unit() -> None:
    assert time("pause", "").argument == "pause_ns"
    assert rate("least", "").argument == "least_bps"
    assert flag("hyper", "", argument="is_hyper").argument == "is_hyper"


@pytest.mark.parametrize(
    ("parameter", "value", "dilated"),
    [
        (time("pause", ""), 7, 700),
        (rate("least", ""), 700, 7),
        (rate("least", ""), 7, 1),  # zero means something else
        (rate("least", ""), 0, 0),
        (flag("hyper", ""), 1, 1),
    ],
)
def test_argument_type_determines_the_effect_of_dilation(
    parameter: Any, value: int, dilated: int
) -> None:
    assert parameter.dilated(value, 100) == dilated
    assert isinstance(parameter.kind, Kind)


class Twice(CongestionControl):
    parameters = (time("pause", "A."), flag("pause", "B.", argument="other"))


class Words(CongestionControl):
    parameters: Any = ("pause",)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (dict, "it is not a class derived from CongestionControl"),
        (FixedRate(rate_bps=1), "it is not a class derived from CongestionControl"),
        (Twice, "two of its parameters have the same name"),
        (Words, "its parameters are not a tuple of Parameter"),
    ],
)
def test_invalid_control_is_refused(
    found: object, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chakram.roce.congestion.fixed_rate.CONTROL", found)
    monkeypatch.setattr(CONTROLS, "_loaded", {})
    with pytest.raises(PlugInError) as caught:
        CONTROLS.load("fixed_rate")
    assert str(caught.value) == (
        "congestion control fixed_rate: "
        f"chakram.roce.congestion.fixed_rate:CONTROL: {why}"
    )


class Uninitialized(CongestionControl):
    def __init__(self) -> None:
        pass


class Early(CongestionControl):
    def __init__(self) -> None:
        super().__init__()
        self.next_timer_ns = 5


class Broken(CongestionControl):
    def __init__(self) -> None:
        super().__init__()
        raise KeyError("rate")


class Leaving(CongestionControl):
    def __init__(self) -> None:
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (Leaving, "cannot be created: SystemExit: 3"),
        (Uninitialized, "its base is not initialized, or a timer was set too early"),
        (Early, "its base is not initialized, or a timer was set too early"),
        (Broken, "cannot be created: KeyError: 'rate'"),
    ],
)
def test_invalid_arguments_are_refused_at_creation(
    kind: type[CongestionControl], found: str
) -> None:
    with pytest.raises(RunFailed, match=f"^congestion control acme: {found}"):
        congestion.new_control("acme", kind, {})


class Picky(CongestionControl):
    def __init__(self, *, least_bps: int) -> None:
        super().__init__()
        raise ValueError("least is odd")


def test_argument_errors_of_a_control_are_reported() -> None:
    with pytest.raises(ValueError, match="congestion control acme: least is odd"):
        congestion.new_control("acme", Picky, {"least_bps": 1})
