"""Files of users' algorithms: read within bounds, parsed once, listed as asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import UserAlgorithm
from chakram.collectives.algorithms.buffer_programs import BufferProgram, carry_out
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ScheduleError
from chakram.user_algorithms.chakra_bodies import ChakraBodies, read_bodies
from chakram.user_algorithms.file_errors import read_algorithm_file, refuse_problems
from chakram.user_algorithms.msccl import program_of
from chakram.user_algorithms.msccl_xml import parse_msccl
from chakram.user_algorithms.mscclpp import parse_mscclpp
from chakram.user_algorithms.python_code import PythonSource

if TYPE_CHECKING:
    from chakram.collectives.algorithms import AlgorithmSource
    from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm


def load_sources(
    users: Iterable[UserAlgorithm],
) -> dict[UserAlgorithm, AlgorithmSource]:
    """Return what makes the lists of users' algorithms.

    Raises:
        ScheduleError: If one cannot be read.
    """
    return {user: load_source(user) for user in dict.fromkeys(users)}


def user_algorithm_at(place: str) -> UserAlgorithm:
    """Return the algorithm that *place* looks like, without a look at it."""
    path, _, function = place.rpartition(":")
    if path and function.isidentifier():
        return UserAlgorithm(kind="python", path=path, function=function)
    kinds = {".xml": "msccl", ".json": "mscclpp"}
    return UserAlgorithm(kind=kinds.get(Path(place).suffix, "chakra"), path=place)


def load_source(user: UserAlgorithm) -> AlgorithmSource:
    """Return what makes the lists of one user's algorithm.

    Raises:
        ScheduleError: If it cannot be read, or is not of its kind.
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
    """An algorithm that was written for one collective, size of group and root 0.

    Args:
        user: What the experiment names.
        program: What it does.
    """

    def __init__(self, user: UserAlgorithm, program: BufferProgram) -> None:
        self._user = user
        self._program = program
        self._listed: ListedAlgorithm | None = None

    def listed(
        self, op: CollectiveOp, *, nranks: int, root: int, size_scale: Fraction
    ) -> ListedAlgorithm:
        """Return the list; another root than 0 turns all positions round.

        Raises:
            ScheduleError: If it is for another collective or size of group, or does not
                do what the collective promises.
        """
        made_for = (self._program.op, self._program.nranks)
        require_purpose(self._user, made_for, (op, nranks))
        if self._listed is None:
            listed, problems = carry_out(self._program, name=self._user.name)
            refuse_problems(f"{self._user.name} as {op}", problems)
            self._listed = listed
        assert self._listed is not None  # there was no problem
        # What an all_to_all promises of chunks does not depend on their sizes.
        return turned(replace(self._listed, op=op), root)

    def made_for(self) -> tuple[CollectiveOp | None, int | None]:
        """Return the collective and number of ranks that it was written for."""
        return self._program.op, self._program.nranks

    def warnings(self) -> list[str]:
        """Return nothing: what was checked needs no words."""
        return []


class ChakraSource:
    """An algorithm that stands in Chakra traces, one for each position.

    Args:
        user: What the experiment names.
        bodies: The traces.
    """

    def __init__(self, user: UserAlgorithm, bodies: ChakraBodies) -> None:
        self._user = user
        self._bodies = bodies

    def listed(
        self, op: CollectiveOp, *, nranks: int, root: int, size_scale: Fraction
    ) -> ListedAlgorithm:
        """Return the list; another root than 0 turns all positions round.

        Raises:
            ScheduleError: If it is for another collective or size of group, or cannot
                do what the collective promises.
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
                f"{self._user.name} says bytes, the same for collectives of any size, "
                "and those of an uneven all-to-all come from its splits",
                "take files that say chunks (total_chunk_cnt)",
            )
        listed = bodies.listed_bytes(
            op, name=self._user.name, root=0, size_scale=size_scale
        )
        return turned(listed, root)

    def made_for(self) -> tuple[CollectiveOp | None, int | None]:
        """Return the collective, if the files say it, and the number of ranks."""
        return self._bodies.op, self._bodies.nranks

    def warnings(self) -> list[str]:
        """Return what files with bytes do not tell."""
        if self._bodies.nchunks is not None:
            return []
        return [
            f"{self._user.name} says bytes, not chunks: collectives of any size move "
            "these, and it was checked only that data can reach whoever must get it, "
            "and that no message has more bytes than its source can have"
        ]


_ALL_TO_ALLS = {CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_TO_ALL_V}
"""Alike but for the sizes: an algorithm for one serves the other."""

Purpose = tuple[CollectiveOp, int]
"""A collective, and the number of ranks."""


def require_purpose(user: UserAlgorithm, made_for: Purpose, asked: Purpose) -> None:
    """Refuse to use an algorithm for something else.

    Raises:
        ScheduleError: If collective or number of ranks differ.
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
            f"{user.name} is made for {made_for[1]} ranks, and a group has {asked[1]}",
            "give groups of other sizes another algorithm, by rules with up_to_ranks",
        )


def turned(listed: ListedAlgorithm, root: int) -> ListedAlgorithm:
    """Return an algorithm of root 0 for another root of broadcast or reduce."""
    if root == listed.root or listed.op not in (
        CollectiveOp.BROADCAST,
        CollectiveOp.REDUCE,
    ):
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
