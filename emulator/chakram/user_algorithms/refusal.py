"""How files of users' algorithms are read, and wrong ones refused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from chakram.bounded import read_bounded
from chakram.errors import ScheduleError

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


read_algorithm_file = partial(
    read_bounded,
    limit_bytes=64 << 20,
    error=ScheduleError,
    path_hint="the path starts at the folder of the experiment file",
)
