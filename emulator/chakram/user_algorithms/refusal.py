"""How an algorithm that is wrong is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.errors import ScheduleError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["refuse_problems"]

_SHOWN = 3


def refuse_problems(where: str, problems: Sequence[str]) -> None:
    """Refuse an algorithm of which there are *problems*.

    Raises:
        ScheduleError: With the first few of them; none if there are none.
    """
    if not problems:
        return
    found = "; ".join(problems[:_SHOWN])
    if len(problems) > _SHOWN:
        found += f"; and {len(problems) - _SHOWN} more problems"
    raise ScheduleError(where, found)
