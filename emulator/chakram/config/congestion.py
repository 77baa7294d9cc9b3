"""Congestion control sections, created from the parameters that controls declare.

Each control has a section in ``transport.congestion_control``, under its name. For a
control without profiles, the section contains the parameters. For a control with
profiles, the section has these keys:

- ``profile``: the name of a set of values for all parameters
- ``overrides``: single parameters, with units
- ``vendor``: numbers under the parameter names of a vendor's tools (see
  ``chakram.config.vendor_names``)
- ``scaled_from``: the line rate that the profile's rates are meant for

Overrides take precedence over vendor numbers, and vendor numbers over the profile. A
rate given as a percentage scales with the line rate. `knobs_of` converts the arguments
in a plan back to parameters.

Built-in controls are fields of the model and appear in the JSON Schema. The section of
a plug-in is created when an experiment names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import (
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler

from chakram.config.vendor_names import VendorValues, from_vendor
from chakram.foundation import units
from chakram.foundation.errors import ConfigError, PlugInError
from chakram.roce.congestion import CONTROLS, all_parameters
from chakram.roce.congestion.parameters import LINE_RATE, SHARE_UNIT, Kind, Parameter
from chakram.roce.congestion.profiles.vendors import VendorNumber, Vendors
from chakram.settings.field_types import (
    BOUNDS,
    LARGEST_RATE_BPS,
    Model,
    Rate,
    Ratio,
    Stretches,
    Time,
    Whole,
    ZeroableSize,
    problem,
    too_slow,
)
from chakram.settings.located_errors import Location, Mistake, report, suggest

_PERCENT = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%\s*\Z")


def _line_rate(value: object) -> int | Fraction:
    if isinstance(value, str):
        match = _PERCENT.match(value)
        if match is not None:
            share = Fraction(match.group(1)) / 100
            if share > 1:
                raise problem(
                    f"{value!r} is more than the line rate", "use at most 100%"
                )
            return share
        try:
            rate_bps = units.parse_rate(value, where="")
        except ConfigError:
            pass
        else:
            if rate_bps > LARGEST_RATE_BPS:
                raise problem(f"{value} is not a valid network rate", BOUNDS["rate"])
            return rate_bps
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
"""Bits per second, or a fraction of the line rate. Zero has a special meaning."""

_TYPES: dict[Kind, Any] = {
    Kind.TIME: Time,
    Kind.RATE: LineRate,
    Kind.SIZE: ZeroableSize,
    Kind.SHARE: Ratio,
    Kind.COUNT: Whole,
    Kind.FLAG: bool,
}


class ProfiledSettings(Model):
    """A profile and the values that override it."""

    if TYPE_CHECKING:
        profile: str
        scaled_from: int | None
        overrides: Model
        vendor: dict[str, VendorNumber]

    def describe(self) -> str:
        """Return the profile and the changes to it as a short text."""
        given = self.overrides.model_dump(mode="json", exclude_none=True)
        changes = [f"{name} {value_text(value)}" for name, value in given.items()]
        changes += [f"{name} {value}" for name, value in self.vendor.items()]
        if self.scaled_from is not None:
            changes.insert(0, f"rates scaled from {units.exact_rate(self.scaled_from)}")
        return f"{self.profile} with {', '.join(changes)}" if changes else self.profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A named set of parameters.

    Attributes:
        sources: Where the values come from, as text.
        knobs: A value for every parameter.
    """

    sources: tuple[str, ...]
    knobs: Model


def value_text(value: object) -> str:
    """Return a value as experiment files contain it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _one_of(words: tuple[str, ...]) -> Any:
    return Literal[words]


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _field(parameter: Parameter, *, optional: bool) -> tuple[Any, Any]:
    """Return the type and the pydantic field for a parameter's key."""
    kind = _TYPES.get(parameter.kind) or _one_of(parameter.choices)
    bounds: dict[str, Any] = {}
    if parameter.kind is Kind.COUNT:
        bounds = {"ge": parameter.lowest, "le": parameter.highest}
    elif parameter.kind is Kind.TIME and parameter.lowest:
        bounds = {"ge": parameter.lowest}
    if optional:
        return kind | None, Field(None, description=parameter.text, **bounds)
    if parameter.default is None:
        return kind, Field(description=parameter.text, **bounds)
    value = TypeAdapter(kind).validate_python(parameter.default)
    return kind, Field(value, description=parameter.text, **bounds)


@cache
def knobs_model(name: str) -> type[Model]:
    """Return the model for overrides of a profile; every parameter is optional."""
    fields: dict[str, Any] = {
        each.name: _field(each, optional=True)
        for each in all_parameters(CONTROLS.load(name))
    }
    title = "DCQCN" if name == "dcqcn" else name
    return create_model(
        f"{_camel(name)}Knobs",
        __base__=Model,
        __doc__=f"Parameters of {title}. Default: the values of the profile.",
        **fields,
    )


@cache
def settings_model(name: str) -> type[Model]:
    """Return the settings model of the congestion control *name*.

    Raises:
        ValueError: If there is no such control.
        PlugInError: If it cannot be imported.
    """
    kind = CONTROLS.load(name)
    profiles = kind.profiles
    if profiles is None:
        fields: dict[str, Any] = {
            each.name: _field(each, optional=False) for each in all_parameters(kind)
        }
        return create_model(
            f"{_camel(name)}Settings", __base__=Model, __doc__=kind.text, **fields
        )
    knobs = knobs_model(name)
    return create_model(
        f"{_camel(name)}Settings",
        __base__=ProfiledSettings,
        __doc__=ProfiledSettings.__doc__,
        profile=(
            _one_of(profiles.names),
            Field(
                profiles.default,
                description="Named set of parameters.",
            ),
        ),
        scaled_from=(
            Rate | None,
            Field(
                None,
                description=(
                    "Line rate of the profile; its rates are multiplied by the rate "
                    "of the port divided by this rate. Default: not scaled."
                ),
            ),
        ),
        overrides=(
            knobs,
            Field(
                knobs.section_defaults(),
                description="Parameters that differ from the profile.",
            ),
        ),
        vendor=(
            dict[str, VendorNumber],
            Field(
                {},
                max_length=32,
                examples=[{"rpg_ai_rate": 5}],
                description=(
                    "Parameters under a vendor's names; overrides take precedence over "
                    "them."
                ),
            ),
        ),
    )


class _Chosen(Model):
    """A congestion control with its parameters: exactly one key."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": {
                "type": ["object", "null"],
                "description": (
                    "A congestion control of a plug-in, with its parameters."
                ),
            }
        },
    )

    @model_validator(mode="wrap")
    @classmethod
    def _take_plug_ins(
        cls, data: Any, handler: ModelWrapValidatorHandler[_Chosen]
    ) -> _Chosen:
        """Validate the sections of plug-ins with the models that plug-ins declare."""
        if not isinstance(data, dict):
            return handler(data)
        fields = cls.model_fields
        chosen = handler({key: data[key] for key in data if key in fields})
        for key, value in data.items():
            if key in fields or value is None:
                continue
            if not isinstance(key, str) or CONTROLS.find(key) is None:
                raise _unknown_key(key, value)
            # The enclosing mapping adds the key to the location of mistakes.
            section: Any = dict[str, settings_model(key)]  # type: ignore[misc]
            read = TypeAdapter(section).validate_python({key: value})
            assert chosen.__pydantic_extra__ is not None
            chosen.__pydantic_extra__.update(read)
        return chosen

    @classmethod
    def further_section(cls, key: str) -> type[Model] | None:
        """Return the settings model of a plug-in control, or None if it is unknown."""
        return settings_model(key) if CONTROLS.find(key) is not None else None

    @property
    def given(self) -> tuple[tuple[str, Model], ...]:
        """The given congestion controls; a valid experiment has at most one."""
        ours = [(name, getattr(self, name)) for name in type(self).model_fields]
        return (
            *((name, each) for name, each in ours if each is not None),
            *(self.__pydantic_extra__ or {}).items(),
        )

    @property
    def name(self) -> str:
        """Name of the congestion control."""
        return next((name for name, _ in self.given), "none")

    @property
    def settings(self) -> Model:
        """Settings of the congestion control."""
        return next((each for _, each in self.given), settings_model("none")())

    def describe(self) -> str:
        """Return a short description of the congestion control."""
        settings = self.settings
        if isinstance(settings, ProfiledSettings):
            return settings.describe()
        given = settings.model_dump(mode="json", exclude_unset=True)
        changes = [f"{name} {value_text(value)}" for name, value in given.items()]
        return f"{self.name} with {', '.join(changes)}" if changes else self.name


def _unknown_key(key: object, value: object) -> ValidationError:
    """Return the error for an unknown control, located at its key."""
    hint = suggest(str(key), CONTROLS.names())
    return ValidationError.from_exception_data(
        "CongestionSettings",
        [{"type": problem("unknown key", hint), "loc": (str(key),), "input": value}],
    )


def _example(name: str) -> list[dict[str, Any]]:
    """Return an example of a built-in control's section, for the JSON Schema."""
    kind = CONTROLS.load(name)
    if kind.profiles is not None:
        return [{"profile": kind.profiles.default}]
    return [{each.name: each.default for each in all_parameters(kind)}]


if TYPE_CHECKING:
    CongestionSettings = _Chosen
else:
    CongestionSettings = create_model(
        "CongestionSettings",
        __base__=_Chosen,
        __doc__=_Chosen.__doc__,
        **{
            name: (
                settings_model(name) | None,
                Field(
                    None,
                    description=CONTROLS.load(name).text,
                    examples=_example(name),
                ),
            )
            for name in CONTROLS.own
        },
    )


def congestion_by_name(value: object) -> object:
    """Convert a name, e.g. ``fixed_rate``, to ``{fixed_rate: {}}``."""
    if isinstance(value, str):
        if CONTROLS.find(value) is None:
            raise problem(
                f"{value!r} is not a congestion control",
                f"known: {', '.join(CONTROLS.names())}",
            )
        return {value: {}}
    return value


@cache
def load_profile(name: str, profile: str) -> Profile:
    """Return a profile of a congestion control.

    Raises:
        PlugInError: If the control has no such profile, or the profile is invalid or
            incomplete.
    """
    profiles = CONTROLS.load(name).profiles
    where = f"congestion control {name}: profile {profile}"
    if profiles is None or profile not in profiles.names:
        raise PlugInError(where, "there is no such profile")
    try:
        text = files(profiles.package).joinpath(f"{profile}.yaml").read_text("utf-8")
        data = yaml.safe_load(text)
        knobs = knobs_model(name).model_validate(data["knobs"])
        sources = tuple(map(str, data["sources"]))
    except (OSError, ImportError, yaml.YAMLError, ValueError, KeyError) as error:
        raise PlugInError(where, f"cannot be read: {error}") from error
    missing = [key for key, value in knobs if value is None]
    if missing or not sources:
        raise PlugInError(where, f"has no {', '.join(missing) or 'sources'}")
    return Profile(sources=sources, knobs=knobs)


def vendors_of(name: str) -> Vendors:
    """Return the vendor names for a control's parameters; most controls have none."""
    profiles = CONTROLS.load(name).profiles
    return Vendors() if profiles is None else profiles.vendors


def congestion_arguments(
    name: str, settings: Model, line_rate_bps: int | None, *, dilation: int = 1
) -> tuple[tuple[str, int], ...]:
    """Return a control's arguments for the queue pairs of a port, as stored in plans.

    Args:
        name: Name of the control.
        settings: Settings from the section of the control.
        line_rate_bps: Undilated rate of the port, or None if the port has no rate.
        dilation: Factor that multiplies times and divides rates.

    Raises:
        ConfigError: If vendor names are unknown, or values contradict each other at
            this line rate. The error reports all mistakes.
    """
    mistakes = congestion_mistakes(name, settings, line_rate_bps, dilation=dilation)
    if mistakes:
        raise report(f"transport.congestion_control.{name}", mistakes, lambda _: None)
    arguments = _arguments(name, _values(name, settings, line_rate_bps), line_rate_bps)
    kinds = {each.argument: each for each in all_parameters(CONTROLS.load(name))}
    return tuple(
        (
            argument,
            kinds[argument].dilated(value, dilation)
            if argument in kinds
            else value // dilation,
        )
        for argument, value in arguments.items()
    )


def congestion_mistakes(
    name: str, settings: Model, line_rate_bps: int | None, *, dilation: int = 1
) -> list[Mistake]:
    """Return the mistakes in a control's section for ports of the given line rate.

    Values are also checked after dilation. Locations are relative to the section:
    ``overrides.<knob>``, ``vendor.<name>``, or ``profile`` for a value from the
    profile. In a section without profiles, the location is the key.
    """
    kind = CONTROLS.load(name)
    if kind.starts_at_line and line_rate_bps is None:
        return [
            Mistake(
                (),
                "starts at line rate, but the fabric's ports have no rate",
                "set a rate for the links of hosts, or for the ports",
            )
        ]
    values = _values(name, settings, line_rate_bps)
    if line_rate_bps is None:
        shares = [
            each.name
            for each in all_parameters(kind)
            if each.kind is Kind.RATE and isinstance(values[each.name], Fraction)
        ]
        if shares:
            return [_no_line(name, settings, shares[0])]
    vendor = _from_vendor(name, settings)
    mistakes = [
        replace(each, location=("vendor", *each.location)) for each in vendor.mistakes
    ]
    arguments = _arguments(name, values, line_rate_bps)

    def tell(key: str, found: str, hint: str) -> None:
        mistakes.append(Mistake(_place(settings, vendor, key), found, hint))

    for each in all_parameters(kind):
        wrong = _out_of_bounds(each, arguments[each.argument], line_rate_bps, dilation)
        if wrong is not None:
            tell(each.name, *wrong)
    with CONTROLS.calls(name):
        for key, (found, hint) in kind.contradictions(arguments).items():
            tell(key, found, hint)
    return mistakes


def _place(settings: Model, vendor: VendorValues, key: str) -> Location:
    """Return the location that sets the value of a parameter."""
    if not isinstance(settings, ProfiledSettings):
        return (key,)
    if getattr(settings.overrides, key) is not None:
        return ("overrides", key)
    if key in vendor.name_of:
        return ("vendor", vendor.name_of[key])
    return ("profile",)


def _no_line(name: str, settings: Model, key: str) -> Mistake:
    """Return the mistake for a percentage of the line rate if ports have no rate."""
    hint = f"e.g. congestion_control: {{{name}: {{{key}: 100Mbit}}}}"
    if key in settings.model_fields_set:
        return Mistake(
            (key,),
            "is a share of the line rate, but the fabric's ports have no rate",
            hint,
        )
    return Mistake(
        (), f"{name} has no {key}, and the fabric's ports have no rate", hint
    )


def _out_of_bounds(
    parameter: Parameter, value: int, line_rate_bps: int | None, dilation: int
) -> tuple[str, str] | None:
    """Return the problem with an undilated argument and a hint, or None if valid."""
    name = parameter.name
    lowest, highest = parameter.lowest, parameter.highest
    dilated = parameter.dilated(value, dilation)
    stretched = f" times the dilation of {dilation}" if dilation > 1 else ""
    match parameter.kind:
        case Kind.TIME if dilated > highest:
            return (
                f"{name} of {units.exact_time(value)}{stretched} is more than "
                f"{units.exact_time(highest)}",
                f"at most {units.exact_time(highest // dilation)}",
            )
        case Kind.TIME if value < lowest:
            return f"{name} is too short", f"at least {units.exact_time(lowest)}"
        case Kind.RATE if (
            parameter.below_line and line_rate_bps is not None and value > line_rate_bps
        ):
            return (
                f"{name} of {units.format_rate(value)} is above the line rate of "
                f"{units.format_rate(line_rate_bps)}",
                f"set {name}, e.g. to 1%",
            )
        case Kind.RATE if dilated < lowest <= value:
            return too_slow(value, dilation)
        case Kind.RATE if not lowest <= dilated <= highest:
            return (
                f"{units.format_rate(value)} is not a valid network rate",
                f"{units.exact_rate(lowest)} to {units.exact_rate(highest)}",
            )
        case Kind.SHARE if not lowest <= value <= highest:
            return f"{name} is out of range", "use a value above 0 and at most 1"
        case Kind.SIZE | Kind.COUNT if not lowest <= value <= highest:
            return f"{name} of {value} is out of range", f"use {lowest} to {highest}"
    return None


def _from_vendor(name: str, settings: Model) -> VendorValues:
    given = settings.vendor if isinstance(settings, ProfiledSettings) else {}
    return from_vendor(vendors_of(name), given)


def _values(name: str, settings: Model, line_rate_bps: int | None) -> dict[str, Any]:
    """Return a value for every parameter.

    Overrides take precedence over vendor numbers, and vendor numbers over the profile.
    """
    if not isinstance(settings, ProfiledSettings):
        return dict(settings)
    values: dict[str, Any] = dict(load_profile(name, settings.profile).knobs)
    if settings.scaled_from is not None and line_rate_bps is not None:
        factor = Fraction(line_rate_bps, settings.scaled_from)
        for each in all_parameters(CONTROLS.load(name)):
            # Only absolute rates need scaling. Fractions already follow the line rate.
            value = values[each.name]
            if each.kind is Kind.RATE and isinstance(value, int):
                # Keep a nonzero rate above zero, because zero has a special meaning.
                values[each.name] = max(min(value, 1), round(value * factor))
    for knobs in (_from_vendor(name, settings).values.items(), settings.overrides):
        values |= {key: value for key, value in knobs if value is not None}
    return values


def _arguments(
    name: str, values: Mapping[str, Any], line_rate_bps: int | None
) -> dict[str, int]:
    """Return parameter values as the integer arguments that the engine expects."""
    kind = CONTROLS.load(name)
    arguments = (
        {}
        if line_rate_bps is None or not kind.starts_at_line
        else {LINE_RATE: line_rate_bps}
    )
    for each in all_parameters(kind):
        value = values[each.name]
        if each.kind is Kind.CHOICE:
            value = each.choices.index(value)
        elif each.kind is Kind.SHARE:
            value = round(value * SHARE_UNIT)
        elif isinstance(value, Fraction):
            value = round(value * (line_rate_bps or 0))
        arguments[each.argument] = max(each.floor, int(value))
    return arguments


def knobs_of(
    name: str, arguments: tuple[tuple[str, int], ...], *, in_percent: bool = False
) -> Model:
    """Convert a plan's *arguments* back to parameters with values.

    Args:
        name: Name of the control.
        arguments: Arguments, as returned by `congestion_arguments`.
        in_percent: Return rates as fractions of the line rate, so that they scale with
            it.
    """
    given = dict(arguments)
    values: dict[str, Any] = {}
    for each in all_parameters(CONTROLS.load(name)):
        value: Any = given[each.argument]
        if each.kind is Kind.CHOICE:
            value = each.choices[value]
        elif each.kind is Kind.SHARE:
            exact = Fraction(value, SHARE_UNIT)
            short = exact.limit_denominator(1024)
            value = short if round(short * SHARE_UNIT) == value else exact
        elif each.kind is Kind.FLAG:
            value = bool(value)
        elif each.kind is Kind.RATE and in_percent:
            value = Fraction(value, given[LINE_RATE])
        values[each.name] = value
    return knobs_model(name).model_construct(**values)
