"""The profiles that belong to the host traces of a set: named, or found beside them.

A profile belongs to the trace of the same rank.  Without a name for them they are
looked for in the same folder or archive, in files whose names begin with ``kineto`` or
``device``, then beside it, in a folder or archive whose name begins with ``kineto``.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.chakra.finding import find_trace_set, is_profile_name, json_sets
from chakram.chakra.reader import ReadProfile, read_profile_stream
from chakram.chakra.stores import is_archive
from chakram.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chakram.chakra.finding import FoundSet
    from chakram.chakra.stores import Store


@dataclass(slots=True)
class Profiles:
    """The profiles of a set, by rank; ``used`` counts those that were read."""

    store: Store
    files: Mapping[int, str]
    used: int = 0

    def read(self, rank: int) -> ReadProfile:
        """Return the profile of one rank.

        Raises:
            TraceError: If there is none, or it cannot be read.
        """
        if rank not in self.files:
            raise TraceError(
                self.store.place,
                f"holds profiles, but none of rank {rank}",
                "every rank needs one",
            )
        self.used += 1
        name = self.files[rank]
        with self.store.open(name) as stream:
            return read_profile_stream(stream, f"{self.store.place}/{name}")


@contextmanager
def find_profiles(
    found: FoundSet, given: Path | None, *, only: int | None = None
) -> Iterator[Profiles | None]:
    """Find the profiles of a set; their store is open inside the ``with`` block.

    Args:
        found: The set.
        given: Where they are, if the user said so.
        only: The only rank whose profile is needed; None: all are.

    Raises:
        TraceError: If what was given is not there.
    """
    with ExitStack() as stack:
        if given is None:
            own = [
                files
                for prefix, files in json_sets(found.store).items()
                if is_profile_name(prefix) and prefix != found.prefix
            ]
            if len(own) == 1:
                yield Profiles(found.store, own[0])
                return
            given = _beside(Path(found.store.place))
        if given is None:
            yield None
            return
        profiles = stack.enter_context(find_trace_set(given, only=only))
        yield Profiles(profiles.store, profiles.files)


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
