"""The check of programs as columns, for programs that are made of objects."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.control.plan_columns import Places, decode_columns
from chakram.program.table_check import TableCheck

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chakram.collectives.groups import ProcessGroup
    from chakram.program.operations import RankProgram

__all__ = ["is_sound"]


def is_sound(
    programs: Sequence[RankProgram], more: Iterable[ProcessGroup] = ()
) -> bool:
    """Say what the check of columns says of programs.

    Groups are known by name: those that programs name, and *more* that none does.
    """
    named = (group for each in programs for group in each.groups)
    groups = tuple({group.name: group for group in (*named, *more)}.values())
    places = Places(each for program in programs for each in program.operations)
    return TableCheck(
        decode_columns(places.encode(groups), groups),
        ranks=[program.rank for program in programs],
        places=[array("I", map(places.place, each.operations)) for each in programs],
        named=[[groups.index(group) for group in each.groups] for each in programs],
    ).is_sound()
