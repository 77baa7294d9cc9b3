"""Loading of users' algorithm files, and conversion to transfer lists on request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import UserAlgorithm
from chakram.collectives.algorithms.buffer_programs import BufferProgram, carry_out
from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.foundation.errors import ScheduleError
from chakram.user_algorithms.chakra_bodies import ChakraBodies, read_bodies
from chakram.user_algorithms.msccl import program_of
from chakram.user_algorithms.msccl_xml import parse_msccl
from chakram.user_algorithms.mscclpp import parse_mscclpp
from chakram.user_algorithms.python_code import PythonSource
from chakram.user_algorithms.send_receive_matching import (
    read_algorithm_file,
    refuse_problems,
)

if TYPE_CHECKING:
    from chakram.collectives.algorithms import AlgorithmSource
    from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm


def load_sources(
    users: Iterable[UserAlgorithm],
) -> dict[UserAlgorithm, AlgorithmSource]:
    """Return the algorithm source of each user algorithm.

    Raises:
        ScheduleError: If an algorithm cannot be read.
    """
    return {user: load_source(user) for user in dict.fromkeys(users)}


def user_algorithm_at(place: str) -> UserAlgorithm:
    """Return the user algorithm that *place* names, without reading its file."""
    path, _, function = place.rpartition(":")
    if path and function.isidentifier():
        return UserAlgorithm(kind="python", path=path, function=function)
    kinds = {".xml": "msccl", ".json": "mscclpp"}
    return UserAlgorithm(kind=kinds.get(Path(place).suffix, "chakra"), path=place)


def load_source(user: UserAlgorithm) -> AlgorithmSource:
    """Return the algorithm source of one user algorithm.

    Raises:
        ScheduleError: If the algorithm cannot be read or has an unknown format.
    """
    if user.kind == "python":
        return PythonSource(user)
    path = Path(user.path)
    if user.kind == "chakra":
        return ChakraSource(user, read_bodies(path))
    text = read_algorithm_file(path)
    if user.kind == "mscclpp":
        return BufferSource(user, parse_mscclpp(text, source=path.name))
    return BufferSource(user, program_of(parse_msccl(text, source=path.name)))


class BufferSource:
    """An algorithm written for one collective, one group size and root 0.

    Args:
        user: The algorithm as named in the experiment.
        program: The actions of the ranks.
    """

    def __init__(self, user: UserAlgorithm, program: BufferProgram) -> None:
        self._user = user
        self._program = program
        self._listed: ListedAlgorithm | None = None

    def listed(
        self, op: CollectiveOp, *, nranks: int, root: int, size_scale: Fraction
    ) -> ListedAlgorithm:
        """Return the list of transfers, with positions rotated for roots other than 0.

        Raises:
            ScheduleError: If the algorithm is for another collective or group size, or
                does not implement the collective.
        """
        made_for = (self._program.op, self._program.nranks)
        require_purpose(self._user, made_for, (op, nranks))
        if self._listed is None:
            listed, problems = carry_out(self._program, name=self._user.name)
            refuse_problems(f"{self._user.name} as {op}", problems)
            self._listed = listed
        assert self._listed is not None  # there were no problems
        # The requirements of an all_to_all on chunks do not depend on their sizes.
        return turned(replace(self._listed, op=op), root)

    def made_for(self) -> tuple[CollectiveOp | None, int | None]:
        """Return the algorithm's collective and number of ranks."""
        return self._program.op, self._program.nranks

    def warnings(self) -> list[str]:
        """Return no warnings, because the check of the algorithm is complete."""
        return []


class ChakraSource:
    """An algorithm in Chakra traces, with one trace for each position.

    Args:
        user: The algorithm as named in the experiment.
        bodies: Contents of the traces.
    """

    def __init__(self, user: UserAlgorithm, bodies: ChakraBodies) -> None:
        self._user = user
        self._bodies = bodies

    def listed(
        self, op: CollectiveOp, *, nranks: int, root: int, size_scale: Fraction
    ) -> ListedAlgorithm:
        """Return the list of transfers, with positions rotated for roots other than 0.

        Raises:
            ScheduleError: If the algorithm is for another collective or group size, or
                cannot implement the collective.
        """
        bodies = self._bodies
        require_purpose(self._user, (bodies.op or op, bodies.nranks), (op, nranks))
        even = CollectiveOp.ALL_TO_ALL if op in _ALL_TO_ALLS else op
        if bodies.nchunks is not None:
            return BufferSource(self._user, bodies.program(even)).listed(
                op, nranks=nranks, root=root, size_scale=size_scale
            )
        if op == CollectiveOp.ALL_TO_ALL_V:
            raise ScheduleError(
                f"collectives.{op}",
                f"{self._user.name} has sizes in bytes, which are the same for all "
                "collectives, but the sizes of an uneven all-to-all come from its "
                "splits",
                "use files with sizes in chunks (total_chunk_cnt)",
            )
        listed = bodies.listed_bytes(
            op, name=self._user.name, root=0, size_scale=size_scale
        )
        return turned(listed, root)

    def made_for(self) -> tuple[CollectiveOp | None, int | None]:
        """Return the collective, if the files state it, and the number of ranks."""
        return self._bodies.op, self._bodies.nranks

    def warnings(self) -> list[str]:
        """Return a warning about the limits of the check if files state bytes."""
        if self._bodies.nchunks is not None:
            return []
        return [
            f"{self._user.name} has sizes in bytes, not chunks, so collectives of any "
            "size move the same bytes; only two properties were checked: data can "
            "reach all ranks that need it, and no message exceeds the bytes of its "
            "source"
        ]


_ALL_TO_ALLS = {CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_TO_ALL_V}
"""Collectives that differ only in sizes; an algorithm for one also serves the other."""

Purpose = tuple[CollectiveOp, int]
"""A collective and its number of ranks."""


def require_purpose(user: UserAlgorithm, made_for: Purpose, asked: Purpose) -> None:
    """Raise an error if an algorithm was written for another collective or group size.

    Raises:
        ScheduleError: If the collective or the number of ranks differs.
    """
    if made_for[0] != asked[0] and not {made_for[0], asked[0]} <= _ALL_TO_ALLS:
        raise ScheduleError(
            f"collectives.{asked[0]}",
            f"{user.name} is an algorithm for {made_for[0]}",
            f"name it under collectives.{made_for[0]}",
        )
    if made_for[1] != asked[1]:
        raise ScheduleError(
            f"collectives.{asked[0]}",
            f"{user.name} is for {made_for[1]} ranks, but a group has {asked[1]}",
            "select another algorithm for groups of other sizes, by rules with "
            "up_to_ranks",
        )


def turned(listed: ListedAlgorithm, root: int) -> ListedAlgorithm:
    """Return an algorithm of a rooted collective, changed from its root to another one.

    Parts of the buffer keep their numbers. So the parts of a gather or scatter, which
    belong to positions, must have fixed sizes instead.
    """
    if root == listed.root or listed.op not in ROOTED:
        return listed
    return replace(
        listed,
        root=root,
        transfers=tuple(
            replace(
                each,
                src=(each.src + root) % listed.nranks,
                dst=(each.dst + root) % listed.nranks,
            )
            for each in listed.transfers
        ),
    )
