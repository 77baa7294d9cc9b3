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
    "SCOPES",
    "CongestionControl",
    "Dcqcn",
    "FixedRate",
    "limiter_key",
    "make",
    "notification_scope",
    "register",
]

CONGESTION_CONTROLS: dict[str, Callable[..., CongestionControl]] = {
    "dcqcn": Dcqcn,
    "none": CongestionControl,
    "fixed_rate": FixedRate,
}
"""What makes a control, by name; `register` adds to it."""


SCOPES = ("queue_pair", "destination", "port")
"""For what a receiver counts the interval between congestion notifications."""


def notification_scope(name: str) -> int:
    """Return the number of a scope, as parameters carry it.

    Raises:
        ValueError: If there is none of that name.
    """
    if name not in SCOPES:
        raise ValueError(f"no CNP scope is named {name!r} (there are {SCOPES})")
    return SCOPES.index(name)


def limiter_key(scope: int, *, qpn: int, destination: int) -> int:
    """Return what queue pairs of one port that share a CNP limiter have in common.

    Raises:
        ValueError: If there is no such *scope*.
    """
    if not 0 <= scope < len(SCOPES):
        raise ValueError(f"there is no CNP scope {scope}")
    return (qpn, destination, 0)[scope]


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
