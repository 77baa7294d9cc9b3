"""Algorithms defined by a user's Python function, which yields the transfers.

The experiment specifies the function and its file. The function takes the collective,
the number of ranks and the root. It returns a
``chakram.collectives.schedule_check.Schedule`` or transfers
(``chakram.collectives.schedule.Transfer``)::

    from chakram.collectives.schedule import Transfer

    def star(op, nranks, root):
        for leaf in range(1, nranks):
            yield Transfer(step=0, src=leaf, dst=0, chunk=0, reduce=True)
        for leaf in range(1, nranks):
            yield Transfer(step=1, src=0, dst=leaf, chunk=0)

The code runs with all rights of the user who runs chakram, and only on the controller.
Agents get the list of transfers.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chakram.collectives.algorithms.base import Scheduled
from chakram.collectives.algorithms.transfer_lists import (
    MAX_LISTED,
    MAX_PARTS,
    ListedAlgorithm,
    listed_from,
)
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer, part_bytes
from chakram.collectives.schedule_check import (
    Schedule,
    check_schedule,
    inputs_of,
    parts_of,
)
from chakram.foundation.errors import ScheduleError
from chakram.user_algorithms.send_receive_matching import refuse_problems

if TYPE_CHECKING:
    from chakram.collectives.algorithms import UserAlgorithm


class PythonSource:
    """One function in one file.

    Args:
        user: The algorithm as named in the experiment.

    Raises:
        ScheduleError: If the file cannot be read or run, or has no such function.
    """

    def __init__(self, user: UserAlgorithm) -> None:
        self._user = user
        self._path = Path(user.path)
        self._function = self._load()

    def listed(
        self, op: CollectiveOp, *, nranks: int, root: int, size_scale: Fraction
    ) -> ListedAlgorithm:
        """Return the checked list of the transfers that the function yields.

        Raises:
            ScheduleError: If the function fails or yields something else, or if its
                transfers do not implement the collective.
        """
        given = self._call(op, nranks=nranks, root=root)
        where = f"{self._user.name} for {op} of {nranks} ranks"
        refuse_problems(where, check_schedule(given, nranks=nranks, root=root))
        return listed_from(given, name=self._user.name, nranks=nranks, root=root)

    def made_for(self) -> tuple[CollectiveOp | None, int | None]:
        """Return None for both: the function may serve any collective and group."""
        return None, None

    def warnings(self) -> list[str]:
        """Return no warnings, because the check of the algorithm is complete."""
        return []

    def _load(self) -> Callable[..., Any]:
        name = f"chakram_user_algorithm_{self._path.stem}"
        spec = importlib.util.spec_from_file_location(name, self._path)
        if spec is None or spec.loader is None:
            raise ScheduleError(
                str(self._path),
                "is not a Python file",
                "use a file name that ends in .py",
            )
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # as the import system does; dataclasses need it
        try:
            spec.loader.exec_module(module)
        except FileNotFoundError:
            raise ScheduleError(
                str(self._path),
                "does not exist",
                "give a path relative to the folder of the experiment file",
            ) from None
        except (Exception, SystemExit) as error:
            raise self._failed(error) from error
        function = getattr(module, str(self._user.function), None)
        if not callable(function):
            raise ScheduleError(
                str(self._path),
                f"has no function {self._user.function!r}",
                "name one of its functions: FILE.py:FUNCTION",
            )
        # The arguments and the result of the function are checked at each call.
        return function  # type: ignore[no-any-return]

    def _call(self, op: CollectiveOp, *, nranks: int, root: int) -> _Given:
        where = f"{self._path}: {self._user.function}"
        nchunks: Any = None
        try:
            answer = self._function(op.value, nranks, root)
            if isinstance(answer, Schedule):
                nchunks, answer = answer.nchunks, answer.transfers
            if not isinstance(answer, Iterable):
                raise ScheduleError(
                    where,
                    f"returns {type(answer).__name__}",
                    "yield Transfer objects, or return a Schedule",
                )
            transfers = list(islice(answer, MAX_LISTED + 1))
        except ScheduleError:
            raise
        except (Exception, SystemExit) as error:
            raise self._failed(error) from error
        if len(transfers) > MAX_LISTED:
            raise ScheduleError(
                where,
                f"yields more than {MAX_LISTED} transfers",
                "use fewer chunks, or install the algorithm as a package",
            )
        most = 0
        for place, transfer in enumerate(transfers):
            if not _is_sound(transfer, nranks):
                raise ScheduleError(
                    where,
                    f"transfer {place} is {str(transfer)[:120]}",
                    "use a chakram.collectives.schedule.Transfer between positions "
                    f"0..{nranks - 1}, with numbers from 0, tuples of chunks, and "
                    "reduce true or false",
                )
            most = max(most, *transfer.chunks)
        if nchunks is None:
            parts = parts_of(op, nranks)
            nchunks = -(-(most + 1) // parts) * parts
        if not isinstance(nchunks, int) or not most < nchunks <= MAX_PARTS:
            raise ScheduleError(
                where,
                f"has chunk {most} of {nchunks} chunks",
                f"use at most {MAX_PARTS} chunks",
            )
        return _Given(
            name=self._user.name, op=op, chunks=nchunks, transfers=tuple(transfers)
        )

    def _failed(self, error: BaseException) -> ScheduleError:
        """Return an error that states the exception in the user's code and its line."""
        line = ""
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(self._path):
                line = f":{frame.lineno}"
        if isinstance(error, SyntaxError) and error.lineno:
            line = f":{error.lineno}"
        return ScheduleError(
            f"{self._path}{line}", f"{type(error).__name__}: {str(error)[:300]}"
        )


def _is_sound(transfer: object, nranks: int) -> bool:
    if not isinstance(transfer, Transfer):
        return False
    reduce: Any = transfer.reduce  # the user's code may put anything into the fields
    if not isinstance(reduce, bool):
        return False
    if not _are_chunks(transfer.further) or not _are_chunks(transfer.after):
        return False
    numbers: tuple[Any, ...] = (
        transfer.step,
        transfer.src,
        transfer.dst,
        transfer.channel,
        *transfer.awaited,
    )
    return (
        all(isinstance(number, int) and 0 <= number < MAX_PARTS for number in numbers)
        and transfer.src < nranks
        and transfer.dst < nranks
        and transfer.channel < 1 << 10
    )


def _are_chunks(given: object) -> bool:
    """Return whether *given* is a tuple or range of at most ``MAX_PARTS`` chunks."""
    if isinstance(given, range):
        # ``len`` fails for ranges that are too long.
        return max(abs(given.start), abs(given.stop)) <= MAX_PARTS
    return isinstance(given, tuple) and len(given) <= MAX_PARTS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given(Scheduled):
    """The transfers that the function yielded for one group size and root."""

    name: str
    op: CollectiveOp
    chunks: int
    transfers: tuple[Transfer, ...]

    def nchunks(self, nranks: int) -> int:
        return self.chunks

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        return iter(self._of("src", position))

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        return iter(self._of("dst", position))

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        # The transfer list that is made from this algorithm determines the real sizes.
        if self.op is CollectiveOp.BARRIER:
            return 0
        total_bytes = input_bytes * inputs_of(self.op, nranks)
        return part_bytes(total_bytes, nparts=self.chunks, part=chunk)

    def _of(self, end: str, position: int) -> list[Transfer]:
        """Return the transfers of one position in ascending order of step."""
        found = (each for each in self.transfers if getattr(each, end) == position)
        return sorted(found, key=lambda each: each.step)
