"""The profiles that belong to the host traces of a set: named, or found beside them.

A profile belongs to the trace of the same rank.  Without a name for them they are
looked for in the same folder or archive, in files whose names begin with ``kineto`` or
``device``, then beside it, in a folder or archive whose name begins with ``kineto``.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from chakram.chakra.finding import find_trace_set, is_profile_name, json_sets
from chakram.chakra.reader import ReadProfile, read_profile_stream
from chakram.chakra.stores import is_archive
from chakram.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.chakra.finding import FoundSet
    from chakram.chakra.stores import Store

__all__ = ["Profiles"]


class Profiles:
    """The profiles of a set; to be used in a ``with`` block, inside that of the set.

    They are looked for when the first one is asked for: most sets need none.

    Args:
        found: The set.
        given: Where they are, if the user said so.
        only: The only rank whose profile is needed; None: all are.
    """

    def __init__(
        self, found: FoundSet, given: Path | None, *, only: int | None = None
    ) -> None:
        self._found = found
        self._given = given
        self._only = only
        self._stack = ExitStack()
        self._files: tuple[Store, Mapping[int, str]] | None = None
        self._asked = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, rank: int) -> ReadProfile | None:
        """Return the profile of one rank, None if there are no profiles.

        Raises:
            TraceError: If there are some, but none of that rank, or it cannot be read.
        """
        if not self._asked:
            self._asked = True
            self._files = self._find()
        if self._files is None:
            return None
        store, files = self._files
        if rank not in files:
            raise TraceError(
                store.place,
                f"holds profiles, but none of rank {rank}",
                "every rank needs one",
            )
        with store.open(files[rank]) as stream:
            return read_profile_stream(stream, f"{store.place}/{files[rank]}")

    def require_use(self) -> None:
        """Refuse profiles that the user gave and nobody asked for.

        Raises:
            TraceError: If there are such.
        """
        if self._given is not None and not self._asked:
            raise TraceError(
                self._found.place,
                "has no use for profiles (kineto)",
                "they are for PyTorch host traces; other traces have times themselves",
            )

    def _find(self) -> tuple[Store, Mapping[int, str]] | None:
        place = self._given
        if place is None:
            own = [
                files
                for prefix, files in json_sets(self._found.store).items()
                if is_profile_name(prefix) and prefix != self._found.prefix
            ]
            if len(own) == 1:
                return self._found.store, own[0]
            place = _beside(Path(self._found.store.place))
        if place is None:
            return None
        profiles = self._stack.enter_context(find_trace_set(place, only=self._only))
        return profiles.store, profiles.files


def _beside(place: Path) -> Path | None:
    """Return the one folder or archive of profiles beside that of the traces."""
    try:
        candidates = [
            path
            for path in place.parent.iterdir()
            if path.name.startswith("kineto")
            and path != place
            and (path.is_dir() or is_archive(path))
        ]
    except OSError:
        return None
    return candidates[0] if len(candidates) == 1 else None
