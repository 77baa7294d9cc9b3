"""Find the files of a trace set from what a user writes.

A set is ``<prefix>.<rank>.et`` for every rank from 0, optionally with ``.gz`` behind.
It is named by its folder or archive, where that holds one set only; by its prefix; by
a pattern (``w.*.et``, ``w.%d.et``); or by any one of its files.  Inside an archive the
prefix follows its path: ``traces.tar.gz/ALL_GATHER``.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.chakra.reader import refuse_json
from chakram.chakra.stores import ArchiveStore, FolderStore, is_archive
from chakram.errors import TraceError, UnsupportedTrace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chakram.chakra.stores import Store

_RANK_FILE = re.compile(r"(?P<prefix>.+)\.(?P<rank>[0-9]{1,9})\.et(\.gz)?")
_GROUP_FILES = ("comm_group.json", "comm_groups.json")
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSet:
    """The files of a set: names in *store* by rank, and of its group file."""

    store: Store
    prefix: str
    files: Mapping[int, str]
    group_file: str | None
    group_path: Path | None

    @property
    def place(self) -> str:
        """The set, for messages."""
        return f"{self.store.place}/{self.prefix}"


@contextmanager
def find_trace_set(path: str | Path, prefix: str | None = None) -> Iterator[FoundSet]:
    """Find a set; its store is open inside the ``with`` block.

    Args:
        path: What the user wrote; see above.
        prefix: Which set, where the folder or archive holds several.

    Raises:
        TraceError: If there is none, are several, or a rank is missing.
    """
    path = Path(path)
    try:
        place, wanted = _place_and_pattern(path)
        store = ArchiveStore(place) if is_archive(place) else FolderStore(place)
        if wanted is not None and not is_archive(place):
            _refuse_missing(path, wanted)
    except OSError as error:
        raise TraceError(
            str(path),
            f"cannot be looked at: {error.strerror}",
            "is the path right, and may you read it?",
        ) from error
    wanted = prefix or wanted
    try:
        yield _choose(store, place, wanted)
    finally:
        store.close()


def _place_and_pattern(path: Path) -> tuple[Path, str | None]:
    """Return the folder or archive, and the pattern of the prefix if one was given."""
    if path.is_dir() or is_archive(path):
        return path, None
    if path.is_file() and _RANK_FILE.fullmatch(path.name) is None:
        with FolderStore(path.parent).open(path.name) as stream:
            refuse_json(stream, str(path))
        raise UnsupportedTrace(
            str(path),
            "this is not named <prefix>.<rank>.et",
            "one file per rank, ranks from 0; give their folder, prefix or archive",
        )
    for parent in path.parents:
        if is_archive(parent):
            return parent, _pattern(path.relative_to(parent).as_posix())
    return path.parent, _pattern(path.name)


def _refuse_missing(path: Path, wanted: str) -> None:
    """Refuse a path that is neither there nor the beginning of names that are.

    Raises:
        TraceError: If it is missing.
        OSError: If the folders above it may not be looked into.
    """
    if path.exists():
        return
    above = next((each for each in path.parents if each.exists()), path.parent)
    hints = [] if path.is_absolute() else [f"it stands for {path.absolute()}"]
    if not above.is_dir():
        hints.append(f"{above} is no folder")
    else:
        listing = FolderStore(above).listing()
        if above == path.parent and any(
            name.startswith(f"{wanted}.") or fnmatchcase(name, f"{wanted}.*")
            for name in listing
        ):
            return
        hints.append(f"{above.absolute()} holds {_some(listing)}")
    raise TraceError(str(path), "does not exist", "; ".join(hints))


def _pattern(name: str) -> str:
    name = name.replace("%d", "*").replace("{rank}", "*")
    match = _RANK_FILE.fullmatch(name)
    if match is not None:
        return match["prefix"]
    for suffix in (".gz", ".et", ".*", "."):
        name = name.removesuffix(suffix)
    return name


def _choose(store: Store, place: Path, wanted: str | None) -> FoundSet:
    sets: dict[str, dict[int, str]] = {}
    for name in store.names():
        match = _RANK_FILE.fullmatch(name)
        # Archives made on macOS hold a shadow "._name" of every file.
        if match is None or name.rpartition("/")[2].startswith("._"):
            continue
        ranks = sets.setdefault(match["prefix"], {})
        rank = int(match["rank"])
        if rank in ranks:
            raise TraceError(
                store.place,
                f"rank {rank} has two files: {ranks[rank]} and {name}",
                "remove one of them",
            )
        ranks[rank] = name
    if not sets:
        _refuse_json(store)
        raise TraceError(
            store.place,
            "holds no files named <prefix>.<rank>.et",
            f"it holds {_some(store.listing())}",
        )
    fitting = [prefix for prefix in sets if _fits(prefix, wanted)]
    if not fitting:
        raise TraceError(
            store.place,
            f"holds no trace set {wanted!r}",
            f"it holds {_some(list(sets))}",
        )
    if len(fitting) > 1:
        raise TraceError(
            store.place,
            f"holds {len(fitting)} trace sets: {_some(fitting)}",
            f"name one, e.g. {store.place}/{fitting[0].rpartition('/')[2]}",
        )
    (prefix,) = fitting
    files = sets[prefix]
    _check_ranks(files, f"{store.place}/{prefix}")
    return FoundSet(
        store=store,
        prefix=prefix,
        files=files,
        group_file=_group_file(store, prefix),
        group_path=_group_path(place, prefix),
    )


def _refuse_json(store: Store) -> None:
    """Say which form of JSON a store holds, if that is all."""
    # Only a file per rank is a trace; a lone comm_group.json is not.
    for name in store.names():
        if name.endswith(".json") and name.rpartition("/")[2] not in _GROUP_FILES:
            with store.open(name) as stream:
                refuse_json(stream, f"{store.place}/{name}")


def _fits(prefix: str, wanted: str | None) -> bool:
    if wanted is None:
        return True
    return fnmatchcase(prefix, wanted) or fnmatchcase(prefix, f"*/{wanted}")


def _check_ranks(files: Mapping[int, str], where: str) -> None:
    """Refuse a set in which a rank below the highest has no file."""
    if max(files) + 1 == len(files):
        return
    missing = list(islice((rank for rank in count() if rank not in files), _SHOWN))
    missing = [rank for rank in missing if rank < max(files)]
    shown = ", ".join(map(str, missing))
    raise TraceError(
        where,
        f"has files up to rank {max(files)}, but none for rank {shown}"
        + (" and others" if max(files) + 1 - len(files) > len(missing) else ""),
        "every rank from 0 needs a file",
    )


def _group_file(store: Store, prefix: str) -> str | None:
    """Return the group file that stands beside the set in the same store."""
    folder, _, base = prefix.rpartition("/")
    names = set(store.names())
    for name in (f"{base}.comm_group.json", *_GROUP_FILES, f"{base}.json"):
        candidate = f"{folder}/{name}" if folder else name
        if candidate in names:
            return candidate
    return None


def _group_path(place: Path, prefix: str) -> Path | None:
    """Return the group file that stands beside the archive, if there is one."""
    if place.is_dir():
        return None
    stem = place.name.split(".tar")[0].removesuffix(".tgz")
    candidates = (f"{stem}.comm_group.json", *_GROUP_FILES)
    paths = (place.parent / name for name in candidates)
    return next((path for path in paths if path.is_file()), None)


def _some(names: Sequence[str]) -> str:
    if not names:
        return "nothing"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
