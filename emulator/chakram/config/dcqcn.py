"""DCQCN in an experiment: named profiles, single knobs over them, vendors' names.

A profile is a file of this package with a value for every knob. What an experiment
says overrides it knob by knob, in two spellings: ours with units (`overrides`), or a
vendor's names with the plain numbers that its tools show (`vendor`, see
`chakram.config.vendor_names`). Rates may be given in percent of the line rate, so that
they scale with it. All of it goes both ways: parameters of a plan can be said in each
of these spellings again.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from chakram import units
from chakram.config.vendor_names import VendorNumber, VendorValues, from_vendor
from chakram.errors import ConfigError
from chakram.plan.notification_scopes import notification_scope
from chakram.roce.congestion.dcqcn import PARAMETER_RANGES, SHARE_UNIT
from chakram.settings.mistakes import Location, Mistake, report
from chakram.settings.quantities import (
    Model,
    Rate,
    Ratio,
    Stretches,
    Time,
    Whole,
    ZeroableSize,
    problem,
)

ProfileName = Literal["dcqcn-paper", "dcqcn-nvidia", "dcqcn-intel", "dcqcn-hpcc-ns3"]
DEFAULT_PROFILE: ProfileName = "dcqcn-nvidia"

_RATES = ("additive_increase", "hyper_increase", "min_rate", "first_cnp_rate")
_LONGEST_PERIOD_NS = PARAMETER_RANGES["increase_period_ns"][1]

_SCOPES: tuple[Literal["queue_pair", "destination", "port"], ...] = (
    "queue_pair",
    "destination",
    "port",
)
_PERCENT = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%\s*\Z")


def _line_rate(value: object) -> int | Fraction:
    if isinstance(value, str):
        match = _PERCENT.match(value)
        if match is not None:
            share = Fraction(match.group(1)) / 100
            if share > 1:
                raise problem(f"{value!r} is more than the line", "at most 100%")
            return share
        try:
            return units.parse_rate(value, where="")
        except ConfigError:
            pass
    raise problem(
        f"{value!r} is neither a rate nor a percentage of the line rate",
        "e.g. 40Mbit or 0.1%",
    )


def _rate_text(value: int | Fraction) -> str:
    if isinstance(value, Fraction):
        return f"{float(value * 100):.9f}".rstrip("0").rstrip(".") + "%"
    for unit in ("Gbit", "Mbit", "kbit"):
        if value and value % units.RATE_UNITS[unit] == 0:
            return f"{value // units.RATE_UNITS[unit]}{unit}"
    return f"{value}bit"


LineRate = Annotated[
    int | Fraction,
    PlainValidator(_line_rate),
    PlainSerializer(_rate_text, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "description": "A rate with its unit, or a percentage of the line rate",
            "examples": ["40Mbit", "0.1%"],
        }
    ),
    Stretches.RATE,
]
"""Bits per second, or a share of the line rate; 0 means something."""


class DcqcnKnobs(Model):
    """What can be set of DCQCN; what is not, is as the profile has it."""

    alpha_gain: Ratio | None = None
    """g: how far one notification, or its absence, moves alpha."""
    alpha_initial: Ratio | None = None
    """Alpha at the first notification."""
    alpha_period: Time | None = Field(default=None, ge=1)
    """How often alpha is looked at."""
    decrease_period: Time | None = None
    """How often a cut is decided; 0us: at every notification."""
    cut_shift: Whole | None = Field(default=None, ge=1, le=20)
    """A cut takes alpha / 2**this of the rate."""
    max_cut: Ratio | None = None
    """The largest share of the rate that one cut takes."""
    increase_period: Time | None = Field(default=None, ge=1)
    """T: how often the rate is increased."""
    byte_counter: ZeroableSize | None = None
    """B: bytes after which it is increased as well; 0B: never."""
    recovery_stages: Whole | None = Field(default=None, ge=1, le=1_000)
    """F: increases of fast recovery."""
    additive_increase: LineRate | None = None
    """R_AI: what an increase adds to the target after fast recovery."""
    hyper_increase: LineRate | None = None
    """R_HAI: what a hyper increase adds to the target."""
    hyper_scaled: bool | None = None
    """Whether the i-th hyper increase adds i x R_HAI."""
    min_rate: LineRate | None = None
    """The lowest rate."""
    first_cnp_rate: LineRate | None = None
    """What the first notification sets the rate to; 0%: nothing."""
    clamp_target: bool | None = None
    """Whether each cut sets the target to the rate before it; else only one that
    follows an increase by the byte counter does."""
    clamp_target_after_increase: bool | None = None
    """Whether one that follows an increase by the timer does so, too."""
    release_at_line: bool | None = None
    """Whether a queue pair that is back at line rate forgets alpha."""
    cnp_interval: Time | None = None
    """At most one notification is sent in this time; 0us: no limit."""
    cnp_scope: Literal["queue_pair", "destination", "port"] | None = None
    """What has an interval of its own: each queue pair, destination or port."""


class DcqcnSettings(Model):
    """A profile, and what is different here."""

    profile: ProfileName = DEFAULT_PROFILE
    """Named set of parameters, with a value for every knob."""
    scaled_from: Rate | None = None
    """Line rate that the profile's rates are meant for: they are multiplied by the
    port's over it. Without it they are as they stand there."""
    overrides: DcqcnKnobs = DcqcnKnobs()
    """Single knobs that differ from the profile."""
    vendor: dict[str, VendorNumber] = Field(
        default={}, max_length=32, examples=[{"rpg_ai_rate": 5}]
    )
    """Numbers by a vendor's names; they go before the profile, and overrides before
    them."""

    def describe(self) -> str:
        """Return profile and what differs from it, in a few words."""
        given = self.overrides.model_dump(mode="json", exclude_none=True)
        changes = [f"{name} {_shown(value)}" for name, value in given.items()]
        changes += [f"{name} {value}" for name, value in self.vendor.items()]
        if self.scaled_from is not None:
            changes.insert(0, f"rates scaled from {units.exact_rate(self.scaled_from)}")
        return f"{self.profile} with {', '.join(changes)}" if changes else self.profile


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Profile(Model):
    """A named set of parameters."""

    sources: tuple[str, ...] = Field(min_length=1)
    knobs: DcqcnKnobs


@cache
def load_profile(name: ProfileName) -> Profile:
    """Return a profile of this package."""
    text = files("chakram.config.profiles").joinpath(f"{name}.yaml").read_text("utf-8")
    return Profile.model_validate(yaml.safe_load(text))


def dcqcn_parameters(
    settings: DcqcnSettings, line_rate_bps: int, *, dilation: int = 1
) -> tuple[tuple[str, int], ...]:
    """Return the parameters for queue pairs of a port, as a plan carries them.

    Args:
        settings: A profile and what differs from it.
        line_rate_bps: Of the port, before it is divided by *dilation*.
        dilation: What times are multiplied with and rates divided by.

    Raises:
        ConfigError: With every mistake: the vendor's names are not known, or values
            contradict each other at this line rate.
    """
    vendor = from_vendor(settings.vendor)
    values = _values(settings, vendor, line_rate_bps)
    parameters = _integers(values, line_rate_bps)
    mistakes = _mistakes(settings, vendor, parameters, dilation)
    if mistakes:
        where = "transport.congestion_control.dcqcn"
        raise report(where, mistakes, lambda _: None)
    return tuple(
        (name, _dilated(name, value, dilation)) for name, value in parameters.items()
    )


def dcqcn_mistakes(
    settings: DcqcnSettings, line_rate_bps: int, *, dilation: int = 1
) -> list[Mistake]:
    """Return what is wrong with *settings* for ports of that rate, stretched.

    The places are those of what was given: ``vendor.<name>`` or ``overrides.<knob>``,
    and ``profile`` for what neither of them says.
    """
    vendor = from_vendor(settings.vendor)
    values = _values(settings, vendor, line_rate_bps)
    parameters = _integers(values, line_rate_bps)
    return _mistakes(settings, vendor, parameters, dilation)


def _values(
    settings: DcqcnSettings, vendor: VendorValues, line_rate_bps: int
) -> dict[str, Any]:
    """Return a value for every knob: overrides before vendor before profile."""
    values: dict[str, Any] = dict(load_profile(settings.profile).knobs)
    if settings.scaled_from is not None:
        factor = Fraction(line_rate_bps, settings.scaled_from)
        for name in _RATES:
            # Shares of the line scale anyhow.
            if isinstance(values[name], int):
                # Of what is not zero something remains: zero means something else.
                values[name] = max(min(values[name], 1), round(values[name] * factor))
    for knobs in (vendor.values.items(), settings.overrides):
        values |= {name: value for name, value in knobs if value is not None}
    return values


def _dilated(name: str, value: int, dilation: int) -> int:
    """Return a parameter of stretched time: its name says what it is."""
    if name.endswith("_ns"):
        return value * dilation
    if name.endswith("_bps"):
        # Of what is not zero something remains: zero means something else.
        return max(min(value, 1), value // dilation)
    return value


def _integers(values: dict[str, Any], line_rate_bps: int) -> dict[str, int]:
    """Return knobs as the engine has them."""

    def rate(name: str) -> int:
        value = values[name]
        if isinstance(value, Fraction):
            return round(value * line_rate_bps)
        return int(value)

    def share(name: str) -> int:
        value: Fraction = values[name]
        return round(value * SHARE_UNIT)

    return {
        "line_rate_bps": line_rate_bps,
        "gain_q20": share("alpha_gain"),
        "alpha_initial_q20": share("alpha_initial"),
        "alpha_period_ns": values["alpha_period"],
        "decrease_period_ns": values["decrease_period"],
        "cut_shift": values["cut_shift"],
        "max_cut_q20": share("max_cut"),
        "increase_period_ns": values["increase_period"],
        "byte_counter_bytes": values["byte_counter"],
        "recovery_stages": values["recovery_stages"],
        "additive_increase_bps": rate("additive_increase"),
        "hyper_increase_bps": rate("hyper_increase"),
        "is_hyper_scaled": int(values["hyper_scaled"]),
        # A rate of nothing would never send again.
        "min_rate_bps": max(1, rate("min_rate")),
        "first_cnp_rate_bps": rate("first_cnp_rate"),
        "clamps_target": int(values["clamp_target"]),
        "clamps_target_after_increase": int(values["clamp_target_after_increase"]),
        "is_released_at_line": int(values["release_at_line"]),
        "cnp_interval_ns": values["cnp_interval"],
        "cnp_scope": notification_scope(values["cnp_scope"]),
    }


def knobs_of(
    parameters: tuple[tuple[str, int], ...], *, in_percent: bool = False
) -> DcqcnKnobs:
    """Return the knobs that *parameters* of a plan stand for, each with its value.

    Args:
        parameters: As `dcqcn_parameters` returns them.
        in_percent: Rates as shares of the line rate, which scale with it.
    """
    values = dict(parameters)

    def rate(name: str) -> int | Fraction:
        rate_bps = values[name]
        return Fraction(rate_bps, values["line_rate_bps"]) if in_percent else rate_bps

    def share(name: str) -> Fraction:
        exact = Fraction(values[name], SHARE_UNIT)
        short = exact.limit_denominator(1024)
        return short if round(short * SHARE_UNIT) == values[name] else exact

    return DcqcnKnobs.model_construct(
        alpha_gain=share("gain_q20"),
        alpha_initial=share("alpha_initial_q20"),
        alpha_period=values["alpha_period_ns"],
        decrease_period=values["decrease_period_ns"],
        cut_shift=values["cut_shift"],
        max_cut=share("max_cut_q20"),
        increase_period=values["increase_period_ns"],
        byte_counter=values["byte_counter_bytes"],
        recovery_stages=values["recovery_stages"],
        additive_increase=rate("additive_increase_bps"),
        hyper_increase=rate("hyper_increase_bps"),
        hyper_scaled=bool(values["is_hyper_scaled"]),
        min_rate=rate("min_rate_bps"),
        first_cnp_rate=rate("first_cnp_rate_bps"),
        clamp_target=bool(values["clamps_target"]),
        clamp_target_after_increase=bool(values["clamps_target_after_increase"]),
        release_at_line=bool(values["is_released_at_line"]),
        cnp_interval=values["cnp_interval_ns"],
        cnp_scope=_scope(values["cnp_scope"]),
    )


def _scope(number: int) -> Literal["queue_pair", "destination", "port"]:
    """Return the name of a scope."""
    (name,) = [each for each in _SCOPES if notification_scope(each) == number]
    return name


def _mistakes(
    settings: DcqcnSettings,
    vendor: VendorValues,
    parameters: dict[str, int],
    dilation: int,
) -> list[Mistake]:
    mistakes = [
        replace(each, location=("vendor", *each.location)) for each in vendor.mistakes
    ]

    def tell(knob: str, found: str, hint: str) -> None:
        location: Location = ("profile",)
        if getattr(settings.overrides, knob) is not None:
            location = ("overrides", knob)
        elif knob in vendor.name_of:
            location = ("vendor", vendor.name_of[knob])
        mistakes.append(Mistake(location=location, found=found, hint=hint))

    line_rate_bps = parameters["line_rate_bps"]
    line = units.format_rate(line_rate_bps)
    for knob in ("min_rate", "first_cnp_rate"):
        rate_bps = parameters[f"{knob}_bps"]
        if rate_bps > line_rate_bps:
            tell(
                knob,
                f"{knob} of {units.format_rate(rate_bps)} is above the line rate of "
                f"{line}",
                f"set {knob}, e.g. to 1%",
            )
    for name, knob in (
        ("gain_q20", "alpha_gain"),
        ("alpha_initial_q20", "alpha_initial"),
        ("max_cut_q20", "max_cut"),
    ):
        if not 1 <= parameters[name] <= SHARE_UNIT:
            tell(knob, f"{knob} is not a share", "above 0 and at most 1")
    if 0 < parameters["byte_counter_bytes"] < 512:
        tell(
            "byte_counter", "byte_counter is less than 512 bytes", "0B counts no bytes"
        )
    for knob in ("alpha_period", "decrease_period", "increase_period", "cnp_interval"):
        period_ns = parameters[f"{knob}_ns"]
        if period_ns * dilation > _LONGEST_PERIOD_NS:
            longest = units.exact_time(_LONGEST_PERIOD_NS)
            stretched = f" times the dilation of {dilation}" if dilation > 1 else ""
            tell(
                knob,
                f"{knob} of {units.exact_time(period_ns)}{stretched} is more than "
                f"{longest}",
                f"at most {units.exact_time(_LONGEST_PERIOD_NS // dilation)}",
            )
    return mistakes
