"""For what a receiver counts the interval between congestion notifications (CNPs)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.plan.transport import TransportPlan


SCOPES = ("queue_pair", "destination", "port")
"""By the number that parameters of a plan carry."""


def notification_scope(name: str) -> int:
    """Return the number of a scope.

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


def limits_by_destination(transport: TransportPlan) -> bool:
    """Tell whether all queue pairs of a port to one destination share a limit."""
    parameters = dict(transport.congestion_parameters)
    return parameters.get("cnp_scope") == notification_scope("destination")
