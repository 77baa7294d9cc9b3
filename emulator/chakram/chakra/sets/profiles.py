"""Profiles for a set's host traces, named by the user or found next to the traces.

A profile belongs to the trace of the same rank. If the user does not name the profiles,
Chakram searches for them in this order:

* files in the same folder or archive whose names begin with ``kineto`` or ``device``
* all profiles in the same folder or archive
* a neighboring folder or archive whose name begins with ``kineto``

Some file names contain no rank, such as those of PyTorch's TensorBoard handler
(``worker0.1693.pt.trace.json``). In that case, the content of a profile determines its
rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
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
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.sets.file_stores import ArchiveStore, FolderStore, Store, is_archive
from chakram.chakra.sets.find_files import (
    FoundSet,
    find_trace_set,
    is_profile_name,
    json_sets,
    paths_in,
)
from chakram.chakra.trace_warning import TraceWarning, WarningKind
from chakram.foundation.errors import ForeignProfile, TraceError

_JSON: Final = (".json", ".json.gz")
_STATED_RANK: Final = re.compile(
    rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*([0-9]{1,9})\b'
)
"""Pattern of the rank that PyTorch writes into a profile."""
_NAMED_RANK: Final = re.compile(
    r"(?:^|[^a-z])(?:rank|worker|host|device|gpu)[-_.]?([0-9]{1,9})(?![0-9])", re.I
)


@dataclass(slots=True, eq=False)
class Profiles:
    """Context manager for the profiles of a set, for use while the set is open.

    The search starts when the first profile is requested, because most sets need none.

    Args:
        found: The files of the set.
        given: The location of the profiles, if the user named it.
        only: The only rank whose profile is needed, or None for all ranks.

    Attributes:
        left_out: Why the found profiles are not used, or None. Profiles that the user
            named are always used.
    """

    found: FoundSet
    given: Path | None
    _: KW_ONLY
    only: int | None = None
    _stack: ExitStack = field(init=False, default_factory=ExitStack)
    _files: tuple[Store, Mapping[int, str]] | None = field(init=False, default=None)
    _asked: bool = field(init=False, default=False)
    _ranks_read: int = field(init=False, default=0)
    left_out: TraceWarning | None = field(init=False, default=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, rank: int) -> ReadProfile | None:
        """Return the profile of one rank, or None if there are no profiles.

        A profile found next to a single trace may belong to another trace. In that case
        it is left out, unless the user named it.

        Raises:
            TraceError: If there are profiles but none for this rank, or if the profile
                of this rank cannot be read.
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
        return self.only is not None or len(self.found.files) == 1

    def leave_out(self, reason: TraceError) -> bool:
        """Stop using the profiles that were found, and return True.

        If the user named the profiles, or another rank has already requested one,
        return False instead and keep using them.

        Args:
            reason: The problem with the found profiles.
        """
        if self.given is not None or self._ranks_read > 1:
            return False
        self.left_out = TraceWarning(
            WarningKind.PROFILE_LEFT_OUT,
            None,
            reason.where,
            f"{reason.found}; the profiles that were found for the trace are ignored",
        )
        return True

    def _read(self, rank: int) -> ReadProfile | None:
        if not self._asked:
            self._asked = True
            self._files = self._find()
        if self._files is None:
            return None
        store, files = self._files
        if len(files) == len(self.found.files) == 1:
            # A single trace counts as rank 0, so its profile may have another number.
            rank = next(iter(files))
        if rank not in files:
            raise TraceError(
                store.place,
                f"contains profiles, but none for rank {rank}",
                "add a profile for every rank",
            )
        with store.open(files[rank]) as stream:
            return read_profile_stream(stream, f"{store.place}/{files[rank]}")

    def require_use(self) -> None:
        """Refuse profiles that the user named if no trace needs profiles.

        Raises:
            TraceError: If the user named profiles that no trace needs.
        """
        if self.given is not None and not self._asked:
            raise TraceError(
                self.found.place,
                "does not use profiles (kineto)",
                "use profiles only with PyTorch host traces; other traces contain "
                "times",
            )

    def paths(self) -> list[Path]:
        """Return the paths of the profiles, or of the archive that contains them.

        The result is empty if there are no profiles, or if profiles that the user did
        not name are not usable.

        Raises:
            TraceError: If profiles that the user named are not usable.
        """
        try:
            found = self._find()
        except TraceError:
            if self.given is not None:
                raise
            return []
        return [] if found is None else paths_in(found[0], found[1].values())

    def _find(self) -> tuple[Store, Mapping[int, str]] | None:
        place = self.given
        if place is None:
            own = [
                files
                for prefix, files in json_sets(self.found.store).items()
                if is_profile_name(prefix) and prefix != self.found.prefix
            ]
            if len(own) == 1:
                return self.found.store, own[0]
            held = self._held(self.found.store)
            if held:
                return self.found.store, held
            place = _beside(Path(self.found.store.place))
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
        """Return profiles whose file names contain the ranks.

        Raises:
            TraceError: If there are no such profiles, or if some are missing.
        """
        profiles = self._stack.enter_context(find_trace_set(place, only=self.only))
        return profiles.store, profiles.files

    def _held(self, store: Store, only_name: str | None = None) -> dict[int, str]:
        """Return the profiles of a store by rank, from their content or their names.

        Raises:
            TraceError: If the rank of a profile is unknown, or if a rank has two
                profiles.
        """
        taken = set(self.found.files.values()) if store is self.found.store else set()
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
                if len(profiles) > 1 or len(self.found.files) > 1:
                    raise TraceError(
                        f"{store.place}/{name}",
                        "is a profile of an unknown rank",
                        "name profiles kineto_<rank>.json",
                    )
                rank = next(iter(self.found.files))
            if rank in files:
                raise TraceError(
                    store.place,
                    f"rank {rank} has two profiles: {files[rank]} and {name}",
                    "name the profile of the recorded steps (kineto), or move the "
                    "other profiles away",
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
    """Open the trace of one rank, as input for ``settle``.

    Profiles that were found automatically and do not match the first trace are left
    out.

    Raises:
        TraceError: If the file is not a readable trace.
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
    """Return the only folder or archive of profiles next to the traces, or None."""
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


def profile_paths(
    found: FoundSet, given: Path | None, *, only: int | None = None
) -> list[Path]:
    """Return the paths of the profiles that the traces of a set need.

    Args:
        found: The set, while its store is open.
        given: The location of the profiles, if the user named it.
        only: The only rank whose profile is needed, or None for all ranks.

    Raises:
        TraceError: If a trace cannot be read.
    """
    name = found.files[min(found.files) if only is None else only]
    with found.store.open(name) as stream:
        form, _ = start_of(stream, f"{found.store.place}/{name}")
    if form is not Form.PYTORCH_HOST:
        return []
    with Profiles(found, given, only=only) as profiles:
        return profiles.paths()
