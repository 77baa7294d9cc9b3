"""Queries of algorithm schedules for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chakram.collectives.schedule import transfer_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chakram.collectives.schedule import Algorithm, Transfer
    from chakram.collectives.schedule_check import Schedule

__all__ = ["nsteps", "received_bytes", "sent_bytes"]


def nsteps(schedule: Schedule) -> int:
    """Return the number of steps."""
    return 1 + max((transfer.step for transfer in schedule.transfers), default=-1)


def sent_bytes(
    how: Algorithm, *, position: int, nranks: int, root: int, input_bytes: int
) -> int:
    """Return the payload that *position* sends in one collective."""
    sends = how.sends(position, nranks=nranks, root=root)
    return _total(how, sends, nranks=nranks, input_bytes=input_bytes)


def received_bytes(
    how: Algorithm, *, position: int, nranks: int, root: int, input_bytes: int
) -> int:
    """Return the payload that *position* receives in one collective."""
    receives = how.receives(position, nranks=nranks, root=root)
    return _total(how, receives, nranks=nranks, input_bytes=input_bytes)


def _total(how: Algorithm, transfers: Iterator[Transfer], **sizes: Any) -> int:
    return sum(transfer_bytes(how, transfer, **sizes) for transfer in transfers)
