"""What a congestion control lets people set, declared once, in its class.

From a declaration follow the key of the experiment file with its type, bounds and help,
the JSON Schema, what a dilation and the rate of the line do to the value, and the
argument that the control is made with. That is always a whole number: nanoseconds, bits
per second, bytes, parts of `SHARE_UNIT`, a count, 0 or 1, or the place of a choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from functools import partial

from chakram.plan.transport import SCOPES

SHARE_UNIT = 1 << 20
"""Shares (g, alpha, cuts) are given as integers in parts of this."""

LONGEST_NS = 10**12
"""No period is longer, dilated or not."""

LINE_RATE = "line_rate_bps"
"""The argument that a control gets which begins at the rate of the line."""

_LARGEST_RATE_BPS = 10**14
_LARGEST_BYTES = 1 << 40


class Kind(Enum):
    """What a parameter is: how it is written, and what becomes of it."""

    TIME = "time"
    """``50us``; a dilation multiplies it."""
    RATE = "rate"
    """``40Mbit``, which a dilation divides, or ``0.1%`` of the line."""
    SIZE = "size"
    """``64KiB``; neither the line nor a dilation changes it."""
    SHARE = "share"
    """``1/256``, of 1; an argument in parts of `SHARE_UNIT`."""
    COUNT = "count"
    """A whole number."""
    FLAG = "flag"
    """Yes or no; an argument of 1 or 0."""
    CHOICE = "choice"
    """One of some words; the argument is its place among them."""


_UNITS = {Kind.TIME: "_ns", Kind.RATE: "_bps", Kind.SIZE: "_bytes", Kind.SHARE: "_q20"}
"""What stands behind the name of an argument."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing that can be set of a congestion control.

    Attributes:
        name: Its key in the experiment file.
        text: What it means: the help of the key.
        kind: What it is.
        default: As the experiment file would have it; None: it must be given, by the
            file or a profile.
        lowest: The lowest value of the argument.
        highest: The highest.
        floor: What is less becomes this.
        below_line: Whether it is a rate that may not be above the line's.
        choices: The words of a choice.
        argument: Name of the argument; empty: the name with the unit behind it.
    """

    name: str
    text: str
    _: KW_ONLY
    kind: Kind
    default: str | int | bool | None = None
    lowest: int = 0
    highest: int = LONGEST_NS
    floor: int = 0
    below_line: bool = False
    choices: tuple[str, ...] = ()
    argument: str = ""

    def __post_init__(self) -> None:
        if not self.argument:
            named = f"{self.name}{_UNITS.get(self.kind, '')}"
            object.__setattr__(self, "argument", named)

    def dilated(self, value: int, dilation: int) -> int:
        """Return the argument of stretched time."""
        if self.kind is Kind.TIME:
            return value * dilation
        if self.kind is Kind.RATE:
            # Of what is not zero something remains: zero means something else.
            return max(min(value, 1), value // dilation)
        return value


time = partial(Parameter, kind=Kind.TIME)
"""A time, e.g. ``50us``; its argument ends in _ns."""

rate = partial(Parameter, kind=Kind.RATE, highest=_LARGEST_RATE_BPS)
"""A rate, e.g. ``40Mbit`` or ``1%`` of the line; its argument ends in _bps."""

size = partial(Parameter, kind=Kind.SIZE, highest=_LARGEST_BYTES)
"""A number of bytes; its argument ends in _bytes."""

share = partial(Parameter, kind=Kind.SHARE, lowest=1, highest=SHARE_UNIT)
"""A share above 0 and at most 1; its argument ends in _q20."""

flag = partial(Parameter, kind=Kind.FLAG, highest=1)
"""Yes or no."""


def count(
    name: str, text: str, *, lowest: int, highest: int, default: int | None = None
) -> Parameter:
    """Return a parameter that is a whole number."""
    return Parameter(
        name, text, kind=Kind.COUNT, default=default, lowest=lowest, highest=highest
    )


def choice(
    name: str, text: str, choices: tuple[str, ...], *, default: str | None = None
) -> Parameter:
    """Return a parameter that is one of some words."""
    return Parameter(
        name,
        text,
        kind=Kind.CHOICE,
        default=default,
        highest=len(choices) - 1,
        choices=choices,
    )


CNP_PARAMETERS = (
    time(
        "cnp_interval",
        "At most one notification is sent in this time; 0us: no limit.",
        default="50us",
    ),
    choice(
        "cnp_scope",
        "What has an interval of its own: each queue pair, destination or port.",
        SCOPES,
        default="queue_pair",
    ),
)
"""What can be set of a control that wants CNPs, beside its own: of the receiver."""


def check_arguments(
    name: str, parameters: Iterable[Parameter], arguments: Mapping[str, int]
) -> None:
    """Check that a control gets what it asks for.

    Raises:
        ValueError: If an argument is missing or out of its bounds.
    """
    for each in parameters:
        value = arguments.get(each.argument)
        lowest = max(each.lowest, each.floor)
        if value is None:
            raise ValueError(f"{name}: {each.argument} is missing")
        if not lowest <= value <= each.highest:
            raise ValueError(
                f"{name}: {each.argument} {value} is not in {lowest}..{each.highest}"
            )
