"""The profiles that belong to the host traces of a set: named, or found beside them.

A profile belongs to the trace of the same rank.  Without a name for them they are
looked for in the same folder or archive, in files whose names begin with ``kineto`` or
``device``, then in all that hold a profile, then beside it, in a folder or archive
whose name begins with ``kineto``.  Where names do not number profiles by rank, as those
of PyTorch's handler for TensorBoard (``worker0.1693.pt.trace.json``), what they hold
says whose they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from chakram.chakra.read.eras import Form
from chakram.chakra.read.reader import (
    OpenTrace,
    ReadProfile,
    open_stream,
    read_profile_stream,
    start_of,
)
from chakram.chakra.read.reader_options import ReadOptions, WarningKind
from chakram.chakra.sets.file_stores import ArchiveStore, FolderStore, Store, is_archive
from chakram.chakra.sets.find_files import (
    FoundSet,
    find_trace_set,
    is_profile_name,
    json_sets,
)
from chakram.chakra.trace_warning import Remark
from chakram.foundation.errors import ForeignProfile, TraceError

_JSON: Final = (".json", ".json.gz")
_STATED_RANK: Final = re.compile(
    rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*([0-9]{1,9})\b'
)
"""Where PyTorch writes into a profile which rank it is of."""
_NAMED_RANK: Final = re.compile(
    r"(?:^|[^a-z])(?:rank|worker|host|device|gpu)[-_.]?([0-9]{1,9})(?![0-9])", re.I
)


class Profiles:
    """The profiles of a set; to be used in a ``with`` block, inside that of the set.

    They are looked for when the first one is asked for: most sets need none.

    Args:
        found: The set.
        given: Where they are, if the user said so.
        only: The only rank whose profile is needed; None: all are.

    Attributes:
        left_out: Why profiles that the user did not name are not used; None: no such.
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
        self._ranks_read = 0
        self.left_out: Remark | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, rank: int) -> ReadProfile | None:
        """Return the profile of one rank, None if there are no profiles.

        What lies beside a single trace may belong to another: what cannot be its
        profile is left out, unless the user named it.

        Raises:
            TraceError: If there are some, but none of that rank, or it cannot be read.
        """
        if self.left_out is not None:
            return None
        self._ranks_read += 1
        try:
            return self._read(rank)
        except TraceError as error:
            if not (self._is_of_one_rank and self.leave_out(error)):
                raise
            return None

    @property
    def _is_of_one_rank(self) -> bool:
        return self._only is not None or len(self._found.files) == 1

    def leave_out(self, reason: TraceError) -> bool:
        """Use no profiles; return False if the user named them or a rank took one.

        Args:
            reason: What is wrong with those that were found.
        """
        if self._given is not None or self._ranks_read > 1:
            return False
        self.left_out = Remark(
            WarningKind.PROFILE_LEFT_OUT,
            None,
            reason.where,
            f"{reason.found}; profiles that were found for the trace are left out",
        )
        return True

    def _read(self, rank: int) -> ReadProfile | None:
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
            held = self._held(self._found.store)
            if held:
                return self._found.store, held
            place = _beside(Path(self._found.store.place))
        if place is None:
            return None
        if place.is_file() and not is_archive(place):
            alone = FolderStore(place.parent)
            return alone, self._held(alone, place.name) or self._numbered(place)[1]
        try:
            return self._numbered(place)
        except TraceError:
            store = ArchiveStore(place) if is_archive(place) else FolderStore(place)
            self._stack.callback(store.close)
            held = self._held(store) if place.is_dir() or is_archive(place) else {}
            if not held:
                raise
            return store, held

    def _numbered(self, place: Path) -> tuple[Store, Mapping[int, str]]:
        """Return the profiles whose names have the ranks.

        Raises:
            TraceError: If there are none, or some are missing.
        """
        profiles = self._stack.enter_context(find_trace_set(place, only=self._only))
        return profiles.store, profiles.files

    def _held(self, store: Store, only_name: str | None = None) -> dict[int, str]:
        """Return the profiles of a store by what they hold, or else by their names.

        Raises:
            TraceError: If it cannot be told which rank one is of, or one has two.
        """
        taken = set(self._found.files.values()) if store is self._found.store else set()
        profiles: dict[str, int | None] = {}
        for name in [only_name] if only_name is not None else store.names():
            base = name.rpartition("/")[2]
            if name in taken or not name.endswith(_JSON) or base.startswith("._"):
                continue
            with store.open(name) as stream:
                form, start = start_of(stream, f"{store.place}/{name}")
            if form is Form.KINETO:
                found = _STATED_RANK.search(start) or _NAMED_RANK.search(base)
                profiles[name] = None if found is None else int(found[1])
        files: dict[int, str] = {}
        for name, rank in profiles.items():
            if rank is None:
                if len(profiles) > 1 or len(self._found.files) > 1:
                    raise TraceError(
                        f"{store.place}/{name}",
                        "is a profile that does not say which rank it is of",
                        "name profiles kineto_<rank>.json",
                    )
                rank = next(iter(self._found.files))
            if rank in files:
                raise TraceError(
                    store.place,
                    f"rank {rank} has two profiles: {files[rank]} and {name}",
                    "name that of the recorded steps (kineto), or move the others away",
                )
            files[rank] = name
        return files


def open_rank(
    found: FoundSet,
    rank: int,
    profiles: Profiles,
    *,
    options: ReadOptions,
    zero_is_a_group: bool = False,
) -> OpenTrace:
    """Return the trace of one rank, for ``settle``.

    Profiles that were found, and are not those of the first trace, are left out.

    Raises:
        TraceError: If it is no trace that is read.
    """

    def opened() -> OpenTrace:
        name = found.files[rank]
        with found.store.open(name) as stream:
            return open_stream(
                stream,
                rank=rank,
                source=f"{found.store.place}/{name}",
                options=options,
                zero_is_a_group=zero_is_a_group,
                profile_of=profiles.read,
            )

    try:
        return opened()
    except ForeignProfile as error:
        if not profiles.leave_out(error):
            raise
    return opened()


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
