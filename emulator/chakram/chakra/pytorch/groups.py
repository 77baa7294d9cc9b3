"""Which process group a transfer of a host trace belongs to.

Since schema 1.0.3 a transfer names its group.  In 1.0.2 it has a pointer, which the
node ``process_group:init`` explains; in 1.0.1 nothing explains it, so that only where
there is one pointer it can be taken: for all ranks.  gloo's operations name none at
all; there the user says it, or the profile does (see ``gloo_groups``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.chakra.groups import ALL_RANKS_NAMES, InitialGroup, normal_name
from chakram.chakra.options import WarningKind
from chakram.chakra.pytorch.gloo_groups import Done, assign_groups
from chakram.chakra.pytorch.operations import WAIT, Communication
from chakram.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.chakra.pytorch.host import HostNode
    from chakram.chakra.pytorch.kineto import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A node that communicates or waits.

    ``rf_ids`` are the record functions of it and of its caller, ``label`` is that of
    the backend's label for it.
    """

    node: HostNode
    what: Communication
    rf_ids: tuple[int, ...]
    label: int | None


class GroupFinder:
    """Finds the groups of one rank's transfers.

    Args:
        rank: The rank.
        initial: The groups that its trace defines, in the order of their making.
        unnamed_group: The group of transfers that name none, if the user said so.
        zero_is_a_group: Whether a group file defines a group ``0``.
        profile: The profile of that rank.

    Attributes:
        members: The ranks of every group that the trace defines, by name.
        warnings: What was odd: kind, place, sentence.
    """

    def __init__(
        self,
        *,
        rank: int,
        initial: Sequence[InitialGroup],
        unnamed_group: str | None,
        zero_is_a_group: bool,
        profile: Profile | None,
    ) -> None:
        self._rank = rank
        self._initial = initial
        self._unnamed_group = unnamed_group
        self._all_ranks = frozenset() if zero_is_a_group else ALL_RANKS_NAMES
        self._profile = profile
        self.members = {
            each.name: each.ranks
            for each in initial
            if each.name not in ALL_RANKS_NAMES
        }
        self.warnings: list[tuple[WarningKind, str, str]] = []

    def names_of(self, transfers: Sequence[Transfer]) -> list[str | None]:
        """Return the group of every transfer: its name, None for all ranks.

        Raises:
            TraceError: If that cannot be told.
        """
        pointers = {
            each.what.group: each.node.where
            for each in reversed(transfers)
            if isinstance(each.what.group, int)
        }
        known = {each.pointer: each.name for each in self._initial if each.pointer}
        unknown = pointers.keys() - known.keys()
        if len(unknown) > 1 or (unknown and self._initial):
            raise TraceError(
                pointers[min(unknown)],
                "names its process group by a pointer, as "
                f"{len(unknown) - 1} others do, and nothing says who is in it",
                "record the trace with PyTorch 2.3 or later, which writes the groups",
            )
        if unknown:
            self.warnings.append(
                (
                    WarningKind.GROUP_OF_POINTER,
                    next(iter(pointers.values())),
                    "groups are named by pointers; the only one is taken for all ranks",
                )
            )
        unnamed = iter(self._unnamed_groups(transfers))
        groups: list[str | None] = []
        for each in transfers:
            name = each.what.group
            if isinstance(name, int):
                name = known.get(name)
            elif name is None and each.what.op != WAIT:
                name = next(unnamed)
            if name is not None:
                name = normal_name(name)
                if each.what.ranks:
                    self.members.setdefault(name, each.what.ranks)
            groups.append(None if name in self._all_ranks else name)
        for name in self._all_ranks:
            self.members.pop(name, None)
        return groups

    def _unnamed_groups(self, transfers: Sequence[Transfer]) -> Sequence[str | None]:
        """Return the groups of the transfers that name none, in their order."""
        unnamed = [
            each
            for each in transfers
            if each.what.group is None and each.what.op != WAIT
        ]
        if not unnamed:
            return ()
        if self._unnamed_group is not None:
            return [self._unnamed_group] * len(unnamed)
        if len(self._initial) <= 1:
            return [self._initial[0].name if self._initial else None] * len(unnamed)
        inferred = self._inferred(unnamed)
        if inferred is None:
            raise TraceError(
                unnamed[0].node.where,
                f"names no process group, and rank {self._rank} is in "
                f"{len(self._initial)}",
                "give the profile of the run (kineto), which tells, or say "
                "unnamed_group",
            )
        self.warnings.append(
            (
                WarningKind.GROUP_INFERRED,
                unnamed[0].node.where,
                f"{len(unnamed)} operations name no process group; they have those "
                "whose threads did them",
            )
        )
        return inferred

    def _inferred(self, unnamed: Sequence[Transfer]) -> list[str] | None:
        if self._profile is None:
            return None
        done: list[Done] = []
        for each in unnamed:
            # The label is what a group's thread did; the operation is the host's.
            label = -1 if each.label is None else each.label
            thread = self._profile.threads.get(label)
            if thread is None:
                return None
            splits = each.what.splits
            done.append(
                Done(
                    thread=thread,
                    splits=None if splits is None else len(splits.sent_bytes),
                )
            )
        return assign_groups(done, [(each.name, each.size) for each in self._initial])

    def size(self, what: Communication, group: str | None, where: str) -> int:
        """Return the number of ranks of a transfer's group.

        Raises:
            TraceError: At *where*, if nothing says it.
        """
        for each in self._initial:
            if each.name == group or (group is None and each.name in ALL_RANKS_NAMES):
                return each.size
        if what.ranks:
            return len(what.ranks)
        raise TraceError(
            where,
            "is a scatter in a group of unknown size",
            "record the trace with PyTorch 2.3 or later, which writes the groups",
        )

    def global_rank(self, position: int, group: str | None, where: str) -> int:
        """Return the rank at a position of a group.

        Raises:
            TraceError: At *where*, if the group has no such position.
        """
        ranks = self.members.get(group, ()) if group is not None else ()
        if not ranks:
            return position
        if position >= len(ranks):
            raise TraceError(
                where,
                f"its peer is number {position} of group {group!r}, which has "
                f"{len(ranks)} ranks",
                "a peer is counted within its group, from 0",
            )
        return ranks[position]
