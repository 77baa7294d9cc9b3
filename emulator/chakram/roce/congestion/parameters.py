"""Declarations of the parameters that users can set for a congestion control.

Each parameter is declared once, in the class of its control. The declaration defines:

* the key in the experiment file, with its type, bounds and help
* the JSON Schema
* the effect of time dilation and of the line rate on the value
* the constructor argument of the control

The argument is always a whole number: nanoseconds, bits per second, bytes, parts of
`SHARE_UNIT`, a count, 0 or 1, or the index of a choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from functools import partial

from chakram.plan.transport import SCOPES

SHARE_UNIT = 1 << 20
"""Denominator of shares (g, alpha, cuts), which are passed as integers."""

LONGEST_NS = 10**12
"""Longest period in nanoseconds, dilated or not."""

LINE_RATE = "line_rate_bps"
"""Name of the argument with the line rate, for controls that start at line rate."""

_LARGEST_RATE_BPS = 10**14
_LARGEST_BYTES = 1 << 40


class Kind(Enum):
    """Type of a parameter: its notation in the experiment file and its argument."""

    TIME = "time"
    """``50us``, multiplied by the time dilation."""
    RATE = "rate"
    """``40Mbit``, divided by the time dilation, or ``0.1%`` of the line rate."""
    SIZE = "size"
    """``64KiB``, the same at any line rate and time dilation."""
    SHARE = "share"
    """``1/256``, a share of 1. The argument is in parts of `SHARE_UNIT`."""
    COUNT = "count"
    """A whole number."""
    FLAG = "flag"
    """Yes or no. The argument is 1 or 0."""
    CHOICE = "choice"
    """One of several words. The argument is the index of the word."""


_UNITS = {Kind.TIME: "_ns", Kind.RATE: "_bps", Kind.SIZE: "_bytes", Kind.SHARE: "_q20"}
"""Suffix of the argument name, by kind."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a congestion control that users can set.

    Attributes:
        name: Key in the experiment file.
        text: Help of the key.
        kind: Type of the parameter.
        default: Default as written in the experiment file; None: the file or a profile
            must set the value.
        lowest: Lowest value of the argument.
        highest: Highest value of the argument.
        floor: Minimum to which lower values are raised.
        below_line: Whether the parameter is a rate that must not exceed the line rate.
        choices: Words that a `CHOICE` parameter accepts.
        argument: Name of the argument; empty: *name* and the suffix of its unit.
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
        """Return the argument *value*, adjusted to a time dilation."""
        if self.kind is Kind.TIME:
            return value * dilation
        if self.kind is Kind.RATE:
            # A nonzero rate stays at least 1, because 0 has a special meaning.
            return max(min(value, 1), value // dilation)
        return value


time = partial(Parameter, kind=Kind.TIME)
"""Declare a time, for example ``50us``. The argument name ends in ``_ns``."""

rate = partial(Parameter, kind=Kind.RATE, highest=_LARGEST_RATE_BPS)
"""Declare a rate, for example ``40Mbit`` or ``1%`` of the line rate.

The argument name ends in ``_bps``.
"""

size = partial(Parameter, kind=Kind.SIZE, highest=_LARGEST_BYTES)
"""Declare a number of bytes. The argument name ends in ``_bytes``."""

share = partial(Parameter, kind=Kind.SHARE, lowest=1, highest=SHARE_UNIT)
"""Declare a share above 0 and at most 1. The argument name ends in ``_q20``."""

flag = partial(Parameter, kind=Kind.FLAG, highest=1)
"""Declare a parameter that is yes or no."""


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
    """Return a parameter that is one of several words."""
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
        "Minimum time between two notifications; 0us: no limit.",
        default="50us",
    ),
    choice(
        "cnp_scope",
        "Scope of this interval.",
        SCOPES,
        default="queue_pair",
    ),
)
"""Receiver parameters, added to the parameters of a control that wants CNPs."""


def check_arguments(
    name: str, parameters: Iterable[Parameter], arguments: Mapping[str, int]
) -> None:
    """Check that all arguments of a control are present and within bounds.

    Raises:
        ValueError: If an argument is missing or out of bounds.
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
