"""Conversion of parameters from and to vendors' names and units.

Each congestion control defines the meaning of its vendor names with the classes in
``chakram.roce.congestion.profiles.vendors``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from chakram.roce.congestion.profiles.vendors import (
    VendorName,
    VendorNumber,
    Vendors,
)
from chakram.settings.located_errors import Mistake

_NUMBER = re.compile(
    r"\s*([0-9]{1,12}(?:\.[0-9]{1,18})?(?:e-[0-9]{1,2})?)"
    r"\s*(Mb/s|Mbps|Gb/s|Gbps)?\s*\Z"
)
_MEGABITS = {None: 1, "Mb/s": 1, "Mbps": 1, "Gb/s": 1000, "Gbps": 1000}


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorValues:
    """Values read from numbers under vendor names.

    Attributes:
        values: Values by knob.
        name_of: Vendor name that set each knob.
        mistakes: Mistakes, each located at the vendor name.
    """

    values: dict[str, Any]
    name_of: dict[str, str]
    mistakes: list[Mistake]


def from_vendor(vendors: Vendors, numbers: Mapping[str, VendorNumber]) -> VendorValues:
    """Convert *numbers* under vendor names to values of knobs.

    Rates without a unit are in Mbit/s, times in us. If vendors share a name, the vendor
    with the most names in *numbers* takes precedence.
    """
    read = VendorValues(values={}, name_of={}, mistakes=[])
    usual = {vendors.usual(name) for name in numbers}
    nearest = sorted(
        vendors.sets.values(), key=lambda names: -len(usual & names.keys())
    )
    for name, given in numbers.items():
        mistake = _take(read, vendors, name, given, nearest)
        if mistake is not None:
            found, hint = mistake
            read.mistakes.append(Mistake((name,), found, hint))
    return read


def _take(
    read: VendorValues,
    vendors: Vendors,
    name: str,
    given: VendorNumber,
    nearest: Iterable[Mapping[str, VendorName]],
) -> tuple[str, str] | None:
    """Add one number to *read*; return the problem and a hint, or None."""
    number = _number(given)
    if number is not None and vendors.as_here.get(vendors.usual(name)) == number:
        return None
    meaning = _meaning(vendors.usual(name), nearest)
    if meaning is None:
        return "is not known", f"known: {_known(vendors, name)}"
    if number is None:
        return f"{given!r} is not a number", "rates in Mbit/s, times in us, e.g. 50"
    value = meaning.read(number)
    if value is None:
        return f"{given} is out of range", f"it sets {meaning.knob}"
    other = read.name_of.get(meaning.knob)
    if other is not None:
        return f"{other} sets the same parameter", "remove one of the two"
    read.name_of[meaning.knob] = name
    read.values[meaning.knob] = value
    return None


def to_vendor(
    vendors: Vendors, parameters: tuple[tuple[str, int], ...], vendor: str
) -> dict[str, VendorNumber | None]:
    """Return a plan's parameters under a vendor's names, rounded to the vendor's units.

    None represents a nonzero value that is too small for the vendor's units.

    Raises:
        ValueError: If *vendor* is unknown.
    """
    if vendor not in vendors.sets:
        known = sorted(vendors.sets)
        raise ValueError(f"unknown vendor {vendor!r} (known: {known})")
    values = dict(parameters)
    return {
        name: meaning.write(values) for name, meaning in vendors.sets[vendor].items()
    }


def knob_named(vendors: Vendors, name: str) -> str:
    """Return the knob that a vendor calls *name*.

    Raises:
        KeyError: If no vendor uses that name.
    """
    meaning = _meaning(name, vendors.sets.values())
    if meaning is None:
        raise KeyError(name)
    return meaning.knob


def _meaning(name: str, sets: Iterable[Mapping[str, VendorName]]) -> VendorName | None:
    return next((names[name] for names in sets if name in names), None)


def _number(given: VendorNumber) -> Fraction | None:
    """Return a number, with rates in Mbit/s, or None if *given* is not a number."""
    match = None if isinstance(given, bool) else _NUMBER.match(str(given))
    if match is None:
        return None
    return Fraction(match.group(1)) * _MEGABITS[match.group(2)]


def _known(vendors: Vendors, name: str) -> str:
    """Return the names of the vendor that *name* probably belongs to."""
    for names in vendors.sets.values():
        prefixes = {each.split("_", 1)[0] for each in names}
        if name.split("_", 1)[0] in prefixes:
            return ", ".join(sorted(names))
    return ", ".join(sorted(next(iter(vendors.sets.values()), ())))
