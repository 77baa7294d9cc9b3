"""Field types of the experiment file, e.g. integers parsed from text with units."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from chakram.foundation import units
from chakram.foundation.errors import ConfigError
from chakram.foundation.units import LARGEST_SIZE_BYTES, LONGEST_TIME_NS

_NUMBER = r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"

BASE_DIRECTORY = "base_directory"
"""Key of the validation context: the folder that relative paths start from."""


CONFINED_TO = "confined_to"
"""Key of the validation context: a folder. Experiments of clients may name neither
files outside of it nor Python code."""


class Model(BaseModel):
    """Base of all sections: immutable, and rejects unknown keys.

    If the Python name of a field contains a unit, the key in the file is its alias. The
    docstring below a field describes its key to users, in the JSON Schema and in
    ``docs/reference/experiment/``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    described_by: ClassVar[type | None] = None
    """Class that the section was created from, if any. It has the docstrings of the
    keys."""

    @classmethod
    def section_defaults(cls, **but: Any) -> Self:
        """Return the section with its defaults, for use as the default of a field.

        The values are not validated. Building the validator takes longer than the rest
        of the import, so it is deferred until an experiment is read.

        Args:
            but: Values that differ from the section's own defaults.
        """
        return cls.model_construct(**but)


class Stretches(Enum):
    """Metadata of a type: how a dilation changes its quantities."""

    TIME = "times"
    RATE = "divided by"


def dilation_hint(most: int) -> str:
    """Return a hint for a dilation that is larger than the maximum, *most*."""
    return f"use a dilation of at most {most}" if most > 1 else "remove fabric.dilation"


def too_slow(rate_bps: int, dilation: int) -> tuple[str, str]:
    """Return the problem with a rate that a dilation makes too slow, and a hint."""
    return (
        f"{units.format_rate(rate_bps)} divided by the dilation of {dilation} is less "
        "than 1 kbit/s",
        dilation_hint(rate_bps // LEAST_RATE_BPS),
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """Metadata of a type: how errors print its quantities."""

    write: Callable[[int], str]


def problem(found: str, hint: str) -> PydanticCustomError:
    """Return the error of a validator: the problem *found*, and a *hint*."""
    # Pass the text as a value, because braces in a template would be parsed as fields.
    return PydanticCustomError("chakram", "{found}", {"found": found, "hint": hint})


def _with_units(parse: Callable[..., Any], kind: str) -> Callable[[object], Any]:
    def validate(value: object) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            shown = "nothing" if value is None else f"{value!r}"
            raise problem(f"{shown} is not a {kind}", f"e.g. {_EXAMPLES[kind]}")
        try:
            return parse(str(value), where="")
        except ConfigError as error:
            raise problem(error.found, error.hint or "") from None

    return validate


_EXAMPLES = {
    "size": "64KiB",
    "rate": "400Gbit",
    "time": "10us",
    "compute rate": "989 TFLOPS",
    "byte rate": "3.35 TB/s",
    "ratio": "1/64",
}


def _text_of(units_of: dict[str, int], *shown: str) -> PlainSerializer:
    """Return a serializer that writes a value exactly, in its largest whole unit."""

    def write(value: int) -> str:
        for unit in shown:
            if value and value % units_of[unit] == 0:
                return f"{value // units_of[unit]}{unit}"
        return f"{value}{shown[-1]}"

    return PlainSerializer(write, return_type=str, when_used="json")


_SIZE_TEXT = _text_of(units.SIZE_UNITS, "GiB", "MiB", "KiB", "B")
_RATE_TEXT = _text_of(units.RATE_UNITS, "Gbit", "Mbit", "kbit", "bit")
_TIME_TEXT = _text_of(units.TIME_UNITS, "s", "ms", "us", "ns")
_FLOPS_TEXT = _text_of(units.FLOPS_UNITS, "TFLOPS", "GFLOPS", "MFLOPS", "kFLOPS")
_BYTE_RATE_TEXT = _text_of(units.BYTE_RATE_UNITS, "GB/s", "MB/s", "kB/s", "B/s")


LEAST_RATE_BPS = 1_000
LARGEST_RATE_BPS = 10**14
_LARGEST_FLOPS = 10**21
_LARGEST_BYTE_RATE = 10**17
_LARGEST_RATIO = 10**9

BOUNDS: Mapping[str, str] = {
    "size": f"at most {units.format_size(LARGEST_SIZE_BYTES)}",
    "rate": f"{units.exact_rate(LEAST_RATE_BPS)} to "
    f"{units.exact_rate(LARGEST_RATE_BPS)}",
    "time": f"at most {units.exact_time(LONGEST_TIME_NS)}",
    "compute rate": f"at most {units.exact_flops(_LARGEST_FLOPS)}",
    "byte rate": f"at most {units.exact_byte_rate(_LARGEST_BYTE_RATE)}",
    "ratio": f"above 0, at most {_LARGEST_RATIO}",
}
"""Bounds of quantities as text, by kind."""


def _schema(kind: str, units_of: dict[str, int]) -> WithJsonSchema:
    ordered = sorted(units_of, key=lambda unit: (units_of[unit], unit))
    return WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^\s*{_NUMBER}\s*({'|'.join(ordered)})\s*$",
            "description": f"A {kind} with its unit, e.g. {_EXAMPLES[kind]}; "
            f"{BOUNDS[kind]}",
            "examples": [_EXAMPLES[kind]],
        }
    )


def _positive(value: int, kind: str) -> int:
    if value <= 0:
        raise problem("is zero", f"e.g. {_EXAMPLES[kind]}")
    return value


def _positive_rate(value: object) -> int:
    rate_bps = _positive(_with_units(units.parse_rate, "rate")(value), "rate")
    if not LEAST_RATE_BPS <= rate_bps <= LARGEST_RATE_BPS:
        raise problem(f"{value} is not a valid network rate", BOUNDS["rate"])
    return rate_bps


def _positive_size(value: object) -> int:
    return _positive(_with_units(units.parse_size, "size")(value), "size")


Rate = Annotated[
    int,
    PlainValidator(_positive_rate),
    _RATE_TEXT,
    _schema("rate", units.RATE_UNITS),
    Stretches.RATE,
    Shown(units.exact_rate),
]
"""Bits per second, from 1 kbit/s to 100 Tbit/s."""

Size = Annotated[
    int,
    BeforeValidator(_positive_size),
    Field(le=LARGEST_SIZE_BYTES),
    _SIZE_TEXT,
    _schema("size", units.SIZE_UNITS),
    Shown(units.format_size),
]
"""Bytes, above 0, at most 1 PiB."""

ZeroableSize = Annotated[
    int,
    BeforeValidator(_with_units(units.parse_size, "size")),
    Field(le=LARGEST_SIZE_BYTES),
    _SIZE_TEXT,
    _schema("size", units.SIZE_UNITS),
    Shown(units.format_size),
]
"""Bytes, at most 1 PiB. Zero is allowed."""

Time = Annotated[
    int,
    BeforeValidator(_with_units(units.parse_time, "time")),
    Field(le=LONGEST_TIME_NS),
    _TIME_TEXT,
    _schema("time", units.TIME_UNITS),
    Stretches.TIME,
    Shown(units.exact_time),
]
"""Nanoseconds, at most 10**15."""

TimeUnit = Annotated[
    int,
    BeforeValidator(_with_units(units.parse_time_unit, "time")),
    Field(le=LONGEST_TIME_NS),
    _TIME_TEXT,
    _schema("time", units.TIME_UNITS),
    Stretches.TIME,
    Shown(units.exact_time),
]
"""Whole nanoseconds, above 0, used as a factor of other times."""

ComputeRate = Annotated[
    int,
    PlainValidator(_with_units(units.parse_flops, "compute rate")),
    Field(le=_LARGEST_FLOPS),
    _FLOPS_TEXT,
    _schema("compute rate", units.FLOPS_UNITS),
    Stretches.RATE,
    Shown(units.exact_flops),
]
"""Floating-point operations per second."""

ByteRate = Annotated[
    int,
    PlainValidator(_with_units(units.parse_byte_rate, "byte rate")),
    Field(le=_LARGEST_BYTE_RATE),
    _BYTE_RATE_TEXT,
    _schema("byte rate", units.BYTE_RATE_UNITS),
    Stretches.RATE,
    Shown(units.exact_byte_rate),
]
"""Bytes per second."""


def _ratio(value: object) -> Fraction:
    ratio: Fraction = _with_units(units.parse_fraction, "ratio")(value)
    if ratio > _LARGEST_RATIO:
        raise problem(f"{value} is too large", f"must be at most {_LARGEST_RATIO}")
    return ratio


Ratio = Annotated[
    Fraction,
    PlainValidator(_ratio),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*[0-9.]+\s*(/\s*[0-9]+)?\s*$"},
                {"type": "number", "exclusiveMinimum": 0},
            ],
            "description": f"A ratio, e.g. 1/64; {BOUNDS['ratio']}",
            "examples": ["1/64"],
        }
    ),
]
"""A positive ratio, at most 10**9."""


def _path(value: object, info: ValidationInfo) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise problem("is not a path", "e.g. traces/mixtral")
    return resolved_path(value, info)


def resolved_path(value: str, info: ValidationInfo) -> Path:
    """Return *value* as a path, relative to the folder of the experiment file.

    Raises:
        PydanticCustomError: If the path leaves the folder of ``CONFINED_TO``.
    """
    context = info.context or {}
    base = context.get(BASE_DIRECTORY)
    path = Path(base) / value if base is not None else Path(value)
    root = context.get(CONFINED_TO)
    if root is not None:
        try:
            is_inside = path.resolve().is_relative_to(Path(root).resolve())
        except (OSError, RuntimeError, ValueError):
            is_inside = False
        if not is_inside:
            raise problem(
                f"{value!r} is outside the resources of the service",
                "name a file below the folder of resources",
            )
    return path


FilePath = Annotated[
    Path,
    PlainValidator(_path),
    WithJsonSchema({"type": "string", "minLength": 1, "examples": ["traces/mixtral"]}),
]
"""A path. A relative path starts at the folder of the experiment file."""


def _working_path(value: object, info: ValidationInfo) -> Path:
    if CONFINED_TO in (info.context or {}):
        raise problem("is chosen by the service", "remove the key")
    if not isinstance(value, str) or not value or "\0" in value:
        raise problem("is not a path", "e.g. runs")
    return Path(value)


WorkingPath = Annotated[
    Path,
    PlainValidator(_working_path),
    WithJsonSchema({"type": "string", "minLength": 1, "examples": ["runs"]}),
]
"""A path. A relative path starts at the current working directory."""


PORT_KINDS = ("udp", "verbs", "memory")
"""Kinds of ports that agents open. Ports of kind ``memory`` are for tests."""
_INTERFACE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,15}")
# Linux's IB_DEVICE_NAME_MAX is 64, including the final zero. Device names contain the
# place on the PCI bus, e.g. roceP22p195s0f1v12.
_DEVICE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}(,huge-pages)?")


def _port_specification(value: object) -> str:
    text = value if isinstance(value, str) else ""
    kind, colon, name = text.partition(":")
    if not colon or kind not in PORT_KINDS:
        raise problem(
            f"{value!r} is not a port specification",
            "e.g. udp:ens1f0, or verbs:mlx5_0",
        )
    if kind == "udp" and _INTERFACE_NAME.fullmatch(name) is None:
        raise problem(f"{name!r} is not the name of an interface", "e.g. udp:ens1f0")
    if kind == "verbs" and _DEVICE_NAME.fullmatch(name) is None:
        raise problem(f"{name!r} is not the name of a device", "e.g. verbs:mlx5_0")
    return text


PortSpecification = Annotated[
    str,
    PlainValidator(_port_specification),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^({'|'.join(PORT_KINDS)}):.*$",
            "examples": ["udp:ens1f0"],
        }
    ),
]
"""Specification of a port: ``kind:name``."""


def _text(pattern: str, examples: list[str], limit: int) -> Any:
    return Field(pattern=pattern, max_length=limit, examples=examples)


Whole = Annotated[int, Field(strict=True)]
"""A whole number. ``true`` and text with digits are rejected."""

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A number, whole or fractional."""

Name = Annotated[str, _text(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", ["quickstart"], 64)]
"""Name of an experiment, a job or a host: letters, digits, ``_``, ``.``, ``-``."""

LabName = Annotated[str, _text(r"^[a-z0-9][a-z0-9-]*$", ["quickstart"], 32)]
"""Prefix for the names of objects that a run creates on a machine."""
