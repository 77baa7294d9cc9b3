"""Process groups of the transfers in a host trace.

Since schema 1.0.3, a transfer names its group. In 1.0.2, a transfer has a pointer
instead, and the node ``process_group:init`` maps pointers to groups. In 1.0.1, no such
mapping exists. If there is only one pointer, Chakram assumes that it means all ranks.
gloo's operations name no group. The user can state the group. Otherwise, Chakram infers
it from the traces of all ranks (see ``unnamed_groups``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from fnmatch import fnmatchcase

from chakram.chakra.read.groups import ALL_RANKS_NAMES, InitialGroup, normal_name
from chakram.chakra.read.pytorch.communication_nodes import WAIT, Communication
from chakram.chakra.read.pytorch.host_trace_nodes import HostNode
from chakram.chakra.read.pytorch.kineto import Profile, Span
from chakram.chakra.read.pytorch.unnamed_groups import (
    RankOperations,
    UnnamedOperation,
    operations_in_groups,
)
from chakram.chakra.trace_warning import WarningKind
from chakram.collectives.groups import ANY_OPERATION
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A node that communicates or waits.

    ``rf_ids`` are the record function ids of the node and of its caller. ``label`` is
    the record function id of the backend's label for the transfer.
    """

    node: HostNode
    what: Communication
    rf_ids: tuple[int, ...]
    label: int | None

    @property
    def nearest_rf_ids(self) -> tuple[int, ...]:
        """All record function ids, those nearest to the transfer first."""
        return self.rf_ids if self.label is None else (self.label, *self.rf_ids)

    def kernel(self, profile: Profile) -> tuple[int, Span] | None:
        """Return the stream and the time of the transfer's kernel, or None."""
        for rf_id in self.nearest_rf_ids:
            for kernel in profile.kernels.get(rf_id, {}).items():
                return kernel
        return None


@dataclass(frozen=True, slots=True)
class _Settled:
    """The name of a known group, or None for all ranks."""

    name: str | None


@dataclass(eq=False, kw_only=True)
class GroupFinder:
    """Resolver for the groups of one rank's transfers.

    Attributes:
        rank: Rank whose transfers are resolved.
        initial: The groups that the trace defines, in the order of their creation.
        unnamed_groups: The name or purpose that the user states for the group of
            transfers that name no group, by operation (see ``ReadOptions``).
        zero_is_a_group: Whether a group file defines a group ``0``.
        profile: The profile of the rank.
        members: The ranks of every group that the trace defines, by name.
        warnings: Kind, location and sentence of each warning.
    """

    rank: int
    initial: Sequence[InitialGroup]
    unnamed_groups: Mapping[str, str]
    zero_is_a_group: InitVar[bool]
    profile: Profile | None
    warnings: list[tuple[WarningKind, str, str]] = field(default_factory=list)

    def __post_init__(self, zero_is_a_group: bool) -> None:
        self._all_ranks = frozenset() if zero_is_a_group else ALL_RANKS_NAMES
        self.members = {
            each.name: each.ranks
            for each in self.initial
            if each.name not in ALL_RANKS_NAMES
        }

    def names_of(
        self, transfers: Sequence[Transfer], inferred: Sequence[str]
    ) -> list[str | None]:
        """Return the group name of every transfer, or None for all ranks.

        Args:
            transfers: All transfers of the rank, in order.
            inferred: The groups inferred for the result of ``open_operations``.

        Raises:
            TraceError: If a group cannot be determined.
        """
        pointers = {
            each.what.group: each.node.where
            for each in reversed(transfers)
            if isinstance(each.what.group, int)
        }
        known = {each.pointer: each.name for each in self.initial if each.pointer}
        unknown = pointers.keys() - known.keys()
        if len(unknown) > 1 or (unknown and self.initial):
            raise TraceError(
                pointers[min(unknown)],
                f"names its process group by a pointer, as do {len(unknown) - 1} "
                "others, and the members are unknown",
                "record the trace with PyTorch 2.3 or later, which writes the groups",
            )
        if unknown:
            self.warnings.append(
                (
                    WarningKind.GROUP_OF_POINTER,
                    next(iter(pointers.values())),
                    "pointers name the groups; the only group is assumed to contain "
                    "all ranks",
                )
            )
        unnamed = iter(self._groups_of_unnamed(transfers, inferred))
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

    def open_operations(self, transfers: Sequence[Transfer]) -> RankOperations | None:
        """Return the transfers whose groups must be inferred, or None."""
        found = [each for each in _unnamed(transfers) if self._settled(each) is None]
        if not found:
            return None
        return RankOperations(
            rank=self.rank,
            groups=tuple(self.initial),
            operations=tuple(map(self._operation, found)),
        )

    def _groups_of_unnamed(
        self, transfers: Sequence[Transfer], inferred: Sequence[str]
    ) -> Sequence[str | None]:
        """Return the group of each transfer that names no group, in order."""
        following = iter(inferred)
        groups: list[str | None] = []
        settled_by_user = 0
        for each in _unnamed(transfers):
            settled = self._settled(each)
            if settled is None:
                groups.append(next(following))
                # If the user's setting allows only one group, nothing was inferred.
                settled_by_user += len(self._stated(each)) == 1
            else:
                groups.append(settled.name)
        opened = self.open_operations(transfers)
        if opened is not None and settled_by_user < len(inferred):
            self.warnings.append(
                (
                    WarningKind.GROUP_INFERRED,
                    opened.operations[0].where,
                    f"{len(inferred)} operations name no process group; their members "
                    "and the other "
                    f"ranks{'' if self.profile is None else ' and threads'} imply: "
                    f"{operations_in_groups(opened, inferred)}",
                )
            )
        return groups

    def _settled(self, transfer: Transfer) -> _Settled | None:
        """Return the group of an unnamed transfer if it needs no inference."""
        stated = self._user_setting(transfer)
        if stated is not None and not self._stated(transfer):
            return _Settled(stated)  # the group file may define this group
        if len(self.initial) <= 1:
            return _Settled(self.initial[0].name if self.initial else None)
        return None

    def _user_setting(self, transfer: Transfer) -> str | None:
        """Return the user's setting for the group of an operation."""
        op = str(transfer.what.op)
        names = [op]
        if op == CollectiveOp.ALL_TO_ALL_V:
            names.append(CollectiveOp.ALL_TO_ALL)
        for name in (*names, ANY_OPERATION):
            if name in self.unnamed_groups:
                return self.unnamed_groups[name]
        return None

    def _stated(self, transfer: Transfer) -> tuple[str, ...]:
        """Return the groups of the rank that match the user's setting.

        The setting is compared with names first, then with purposes.
        """
        stated = self._user_setting(transfer)
        if stated is None:
            return ()
        by_name = [each.name for each in self.initial if each.name == stated]
        # Purposes contain group numbers that differ between ranks. A pattern can match
        # all of them.
        return tuple(
            by_name
            or [
                each.name
                for each in self.initial
                if each.purpose and fnmatchcase(each.purpose, stated)
            ]
        )

    def _operation(self, transfer: Transfer) -> UnnamedOperation:
        what = transfer.what
        # The label ran on a thread of the group, but the operation ran on a host
        # thread.
        label = -1 if transfer.label is None else transfer.label
        return UnnamedOperation(
            where=transfer.node.where,
            op=str(what.op),
            size_bytes=what.size_bytes,
            members=what.members,
            splits=what.splits,
            position=what.rank,
            tag=what.tag,
            thread=None if self.profile is None else self.profile.threads.get(label),
            stated=self._stated(transfer),
        )

    def size(self, what: Communication, group: str | None, where: str) -> int:
        """Return the number of ranks of a transfer's group.

        Raises:
            TraceError: If the size is unknown. *where* is the error's location.
        """
        for each in self.initial:
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
            TraceError: If the group has no such position. *where* is the error's
                location.
        """
        ranks = self.members.get(group, ()) if group is not None else ()
        if not ranks:
            return position
        if position >= len(ranks):
            raise TraceError(
                where,
                f"its peer is number {position} of group {group!r}, but the group has "
                f"{len(ranks)} ranks",
                "number peers within the group, from 0",
            )
        return ranks[position]


def _unnamed(transfers: Sequence[Transfer]) -> list[Transfer]:
    """Return the transfers that name no group although they have one."""
    return [
        each for each in transfers if each.what.group is None and each.what.op != WAIT
    ]
