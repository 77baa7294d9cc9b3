"""Vendor names for the parameters of a congestion control."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

VendorNumber = int | float | str
"""Value as vendor tools show it: 300, 0.00390625, or ``50Mb/s``."""


@dataclass(frozen=True, slots=True)
class VendorName:
    """Meaning of one vendor name.

    Attributes:
        knob: Name of the parameter in Chakram.
        read: Converts the vendor value to the parameter value. Returns None if the
            vendor value is invalid.
        write: Converts the parameters of a plan to the vendor value. Returns None if
            the result rounds to 0 in the vendor's units, where 0 has another meaning.
    """

    knob: str
    read: Callable[[Fraction], Any]
    write: Callable[[Mapping[str, int]], VendorNumber | None]


def _as_it_is(name: str) -> str:
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendors:
    """All vendor names for the parameters of one congestion control.

    Attributes:
        sets: Vendor names and their meaning, by vendor.
        as_here: Values that match the fixed behavior of Chakram, by vendor name.
        usual: Converts a name to the spelling of the keys of *sets*.
    """

    sets: Mapping[str, Mapping[str, VendorName]] = field(default_factory=dict)
    as_here: Mapping[str, int] = field(default_factory=dict)
    usual: Callable[[str], str] = _as_it_is


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Named sets of the parameters of one congestion control.

    Attributes:
        package: Import name of the package with the files ``NAME.yaml``. Each file has
            ``sources``, and ``knobs`` with a value for every parameter.
        names: Names of all profiles.
        default: Profile that applies if the experiment selects none.
        vendors: Vendor names for the parameters.
    """

    package: str
    names: tuple[str, ...]
    default: str
    vendors: Vendors = field(default_factory=Vendors)
