"""Congestion controls of a queue pair, by name. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.congestion.base import CongestionControl
from chakram.roce.congestion.dcqcn import Dcqcn
from chakram.roce.congestion.fixed_rate import FixedRate

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CONGESTION_CONTROLS",
    "CongestionControl",
    "Dcqcn",
    "FixedRate",
    "make",
    "register",
]

CONGESTION_CONTROLS: dict[str, Callable[..., CongestionControl]] = {
    "dcqcn": Dcqcn,
    "none": CongestionControl,
    "fixed_rate": FixedRate,
}
"""What makes a control, by name; `register` adds to it."""


def register(name: str, factory: Callable[..., CongestionControl]) -> None:
    """Make *factory* known as *name*; it is called once per queue pair.

    Raises:
        ValueError: If the name is taken.
    """
    if name in CONGESTION_CONTROLS:
        raise ValueError(f"there is a congestion control named {name!r} already")
    CONGESTION_CONTROLS[name] = factory


def make(name: str, **parameters: object) -> CongestionControl:
    """Return a new control for one queue pair.

    Raises:
        ValueError: If there is none of that name, or a parameter has a bad value.
        TypeError: If the control does not have one of *parameters*.
    """
    factory = CONGESTION_CONTROLS.get(name)
    if factory is None:
        known = ", ".join(sorted(CONGESTION_CONTROLS))
        raise ValueError(f"no congestion control is named {name!r} (there are {known})")
    return factory(**parameters)
