"""What those who make or model NICs call the parameters of a congestion control."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

VendorNumber = int | float | str
"""As tools show it: 300, 0.00390625, or ``50Mb/s``."""


@dataclass(frozen=True, slots=True)
class VendorName:
    """What one name means.

    Attributes:
        knob: Ours: the name of a parameter.
        read: From the vendor's number to our value; None: the vendor has no such one.
        write: From a plan's parameters to the vendor's number; None: in the vendor's
            units it would be 0, which means something else.
    """

    knob: str
    read: Callable[[Fraction], Any]
    write: Callable[[Mapping[str, int]], VendorNumber | None]


def _as_it_is(name: str) -> str:
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendors:
    """All that vendors call the parameters of one congestion control.

    Attributes:
        sets: By vendor, what each of its names means.
        as_here: By name, numbers that say what is so here anyway.
        usual: Returns a name as its set spells it.
    """

    sets: Mapping[str, Mapping[str, VendorName]] = field(default_factory=dict)
    as_here: Mapping[str, int] = field(default_factory=dict)
    usual: Callable[[str], str] = _as_it_is


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Named sets of the parameters of one congestion control.

    Attributes:
        package: Import name of the package that has them, as files ``NAME.yaml`` with
            ``sources`` and ``knobs``: a value for every parameter.
        names: Of all of them.
        default: The one that is taken where the experiment names none.
        vendors: What vendors call the parameters.
    """

    package: str
    names: tuple[str, ...]
    default: str
    vendors: Vendors = field(default_factory=Vendors)
