"""Lookup of a trace set's files from a user-supplied path.

A set has a file ``<prefix>.<rank>.et`` (or ``.json``) for every rank from 0. The file
name may end in ``.gz``. You can name a set by:

* its folder or archive, if that contains only one set
* its prefix
* a pattern (``w.*.et``, ``w.%d.et``)
* any one of its files

A single file with another name is recognized by its content. It is the trace of one
rank. Inside an archive, the prefix follows the path of the archive:
``traces.tar.gz/ALL_GATHER``.

Many JSON files with a number in their name are not traces. Therefore JSON files count
only if no ``.et`` file matches, or if the given name contains ``.json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count, islice
from pathlib import Path
from typing import TypeAlias

from chakram.chakra.read.eras import FirstRecord, Form, classify_first_record
from chakram.chakra.read.reader import JSON_RECORDS, records_of, refuse_form, start_of
from chakram.chakra.sets.file_stores import ArchiveStore, FolderStore, Store, is_archive
from chakram.foundation.errors import TraceError, UnsupportedTrace

# Files of the oldest schemas end in .eg. PyTorch users often name files "name_0.json".
_RANK_FILE = re.compile(
    r"(?P<prefix>.+)[._](?P<rank>[0-9]{1,9})\.((et|eg)|(?P<json>json))(\.gz)?"
)
_LONE_SUFFIX = re.compile(r"\.(et|eg|json)(\.gz)?$")
_GROUP_FILES = ("comm_group.json", "comm_groups.json")
_NAMES = "<prefix>.<rank>.et or <prefix>.<rank>.json"
_NO_TRACES = ("comm_group",)
"""Name prefixes of JSON files that are never traces, even with a number."""
_PROFILES = ("kineto", "device")
_SHOWN = 5

_Sets: TypeAlias = dict[str, dict[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSet:
    """The files of a set.

    Attributes:
        store: The folder or archive.
        prefix: The common prefix of the file names.
        files: The file names in *store*, by rank.
        group_file: The name of the group file in *store*.
        group_path: The group file outside of *store*, if *store* has none.
        other_group_file: A second group file in *store* with equal precedence.
        other_group_path: A second group file next to *group_path* with equal
            precedence.
    """

    store: Store
    prefix: str
    files: Mapping[int, str]
    group_file: str | None
    group_path: Path | None
    other_group_file: str | None = None
    other_group_path: Path | None = None

    @property
    def place(self) -> str:
        """The location of the set, for errors and warnings."""
        return f"{self.store.place}/{self.prefix}"

    def paths(self) -> list[Path]:
        """Return the paths of the set's files, or of the archive that contains them.

        A group file next to the archive is included.
        """
        names = [*self.files.values()]
        if self.group_file is not None:
            names.append(self.group_file)
        paths = paths_in(self.store, names)
        return paths if self.group_path is None else [*paths, self.group_path]


def paths_in(store: Store, names: Iterable[str]) -> list[Path]:
    """Return the paths of files in a folder, or of the archive that contains them."""
    place = Path(store.place)
    return [place / name for name in names] if place.is_dir() else [place]


@contextmanager
def find_trace_set(
    path: str | Path, prefix: str | None = None, *, only: int | None = None
) -> Iterator[FoundSet]:
    """Find a set. Its store is open inside the ``with`` block.

    Args:
        path: The user-supplied path (see the module docstring).
        prefix: The set to find, if the folder or archive contains several sets.
        only: The only rank that is needed. Other ranks may be missing.

    Raises:
        TraceError: If no set or several sets match, or if a rank is missing.
    """
    path = Path(path)
    try:
        is_lone = path.is_file() and not is_archive(path)
        is_lone = is_lone and _RANK_FILE.fullmatch(path.name) is None
        place, wanted = _place_and_pattern(path)
        store = ArchiveStore(place) if is_archive(place) else FolderStore(place)
        if wanted is not None and not is_archive(place):
            _refuse_missing(path, wanted)
    except OSError as error:
        raise TraceError(
            str(path),
            f"cannot be accessed: {error.strerror}",
            "check the path and its permissions",
        ) from error
    wanted = prefix or wanted
    try:
        if is_lone:
            yield _lone(store, path.name, only)
            return
        yield _choose(store, wanted, named_json=".json" in path.name, only=only)
    finally:
        store.close()


def _place_and_pattern(path: Path) -> tuple[Path, str | None]:
    """Return the folder or archive, and the prefix pattern if one was given."""
    if path.is_dir() or is_archive(path):
        return path, None
    for parent in path.parents:
        if is_archive(parent):
            return parent, _pattern(path.relative_to(parent).as_posix())
    return path.parent, _pattern(path.name)


def _lone(store: Store, name: str, only: int | None) -> FoundSet:
    """Return the set of a single file whose name contains no rank.

    Raises:
        TraceError: If the file is not a trace.
    """
    source = f"{store.place}/{name}"
    form = _form(store, name)
    if form in (Form.KINETO, Form.OTHER_JSON):
        refuse_form(form, source)
    if not _holds_trace(store, name):
        raise UnsupportedTrace(
            source,
            f"is not named {_NAMES}",
            "use one file per rank, from rank 0, and give their folder, prefix or "
            "archive",
        )
    return _found(store, _LONE_SUFFIX.sub("", name), {only or 0: name})


def _found(store: Store, prefix: str, files: Mapping[int, str]) -> FoundSet:
    """Return a set, with its group file."""
    group_file = _group_file(store, prefix)
    if group_file in files.values():
        # A lone trace may have one of the names of a group file.
        group_file = None
    group_path = None if group_file else _group_path(Path(store.place), prefix)
    return FoundSet(
        store=store,
        prefix=prefix,
        files=files,
        group_file=group_file,
        group_path=group_path,
        other_group_file=_other_group_file(store, group_file),
        other_group_path=_other_group_path(group_path),
    )


def _holds_trace(store: Store, name: str) -> bool:
    """Return whether a file is a trace, judging by its first bytes."""
    try:
        form = _form(store, name)
        if form is not Form.BINARY:
            return form in JSON_RECORDS or form is Form.PYTORCH_HOST
        with store.open(name) as stream:
            _, first = next(
                records_of(stream, source=f"{store.place}/{name}"), (0, b"")
            )
    except TraceError:
        return False
    return bool(first) and classify_first_record(first) is not FirstRecord.NEITHER


def _lone_name(store: Store) -> str | None:
    """Return the only file of a store that contains a trace, or None."""
    names = [
        name
        for name in store.names()
        if _LONE_SUFFIX.search(name)
        and not name.rpartition("/")[2].startswith(("._", *_NO_TRACES))
        and _holds_trace(store, name)
    ]
    return names[0] if len(names) == 1 else None


def _refuse_missing(path: Path, wanted: str) -> None:
    """Refuse a path that neither exists nor is a prefix of existing names.

    Raises:
        TraceError: If there is no such path or prefix.
        OSError: If a parent folder cannot be read.
    """
    if path.exists():
        return
    above = next((each for each in path.parents if each.exists()), path.parent)
    hints = [] if path.is_absolute() else [f"its absolute path is {path.absolute()}"]
    if not above.is_dir():
        hints.append(f"{above} is not a folder")
    else:
        listing = FolderStore(above).listing()
        if above == path.parent and any(
            name.startswith((f"{wanted}.", f"{wanted}_"))
            or fnmatchcase(name, f"{wanted}.*")
            for name in listing
        ):
            return
        hints.append(f"{above.absolute()} contains {_some(listing)}")
    raise TraceError(str(path), "does not exist", "; ".join(hints))


def _within(store: Store) -> str:
    """Return a hint naming a folder or archive inside *store*, or an empty string."""
    for name in store.listing():
        place = Path(store.place, name)
        if place.is_dir() or is_archive(place):
            return f"; name the folder or archive with the traces, e.g. {place}"
    return ""


def _pattern(name: str) -> str:
    name = name.replace("%d", "*").replace("{rank}", "*")
    match = _RANK_FILE.fullmatch(name)
    if match is not None:
        return match["prefix"]
    for suffix in (".gz", ".et", ".json", ".*", "."):
        name = name.removesuffix(suffix)
    return name


def _choose(
    store: Store, wanted: str | None, *, named_json: bool, only: int | None
) -> FoundSet:
    binary, json = _sets(store)
    if not binary and not json:
        lone = _lone_name(store)
        if lone is not None and (wanted is None or lone.startswith(wanted)):
            return _lone(store, lone, only)
        _refuse_other_forms(store)
        raise TraceError(
            store.place,
            f"contains no files named {_NAMES}",
            f"it contains {_some(store.listing())}{_within(store)}",
        )
    fits_binary = any(_fits(prefix, wanted) for prefix in binary)
    sets = binary if (fits_binary and not named_json) or not json else json
    fitting = [prefix for prefix in sets if _fits(prefix, wanted)]
    if len(fitting) > 1:
        # Profiles next to host traces are not a separate trace set.
        fitting = [each for each in fitting if not is_profile_name(each)] or fitting
    if not fitting:
        raise TraceError(
            store.place,
            f"contains no trace set {wanted!r}",
            f"it contains {_some(list(sets))}",
        )
    if len(fitting) > 1:
        raise TraceError(
            store.place,
            f"contains {len(fitting)} trace sets: {_some(fitting)}",
            f"name one, e.g. {store.place}/{fitting[0].rpartition('/')[2]}",
        )
    (prefix,) = fitting
    files = sets[prefix]
    if sets is json and len(files) == 1 and not only:
        # The number of a single file may be a version instead of a rank.
        files = {0: next(iter(files.values()))}
    _check_ranks(files, f"{store.place}/{prefix}", only)
    return _found(store, prefix, files)


def is_profile_name(prefix: str) -> bool:
    """Return whether a file name prefix marks the files as profiles."""
    return prefix.rpartition("/")[2].startswith(_PROFILES)


def json_sets(store: Store) -> Mapping[str, Mapping[int, str]]:
    """Return the names of JSON files by prefix and rank."""
    return _sets(store)[1]


def _sets(store: Store) -> tuple[_Sets, _Sets]:
    """Return the sets in a store: first the binary ones, then the JSON ones."""
    binary: _Sets = {}
    json: _Sets = {}
    for name in store.names():
        match = _RANK_FILE.fullmatch(name)
        base = name.rpartition("/")[2]
        # Archives made on macOS contain a shadow file "._name" for every file.
        if match is None or base.startswith(("._", *_NO_TRACES)):
            continue
        sets = binary if match["json"] is None else json
        ranks = sets.setdefault(match["prefix"], {})
        rank = int(match["rank"])
        if rank in ranks:
            raise TraceError(
                store.place,
                f"rank {rank} has two files: {ranks[rank]} and {name}",
                "remove one of them",
            )
        ranks[rank] = name
    return binary, json


def _refuse_other_forms(store: Store) -> None:
    """Refuse a store that contains a Kineto profile instead of traces."""
    # Group files are not traces.
    for name in store.names():
        if name.endswith((".json", ".json.gz")) and not name.rpartition("/")[
            2
        ].startswith(_NO_TRACES):
            form = _form(store, name)
            if form is Form.KINETO:
                refuse_form(form, f"{store.place}/{name}")


def _form(store: Store, name: str) -> Form:
    with store.open(name) as stream:
        return start_of(stream, f"{store.place}/{name}")[0]


def _fits(prefix: str, wanted: str | None) -> bool:
    if wanted is None:
        return True
    # A prefix may contain wildcard characters, as in "w[1]".
    return (
        f"/{prefix}".endswith(f"/{wanted}")
        or fnmatchcase(prefix, wanted)
        or fnmatchcase(prefix, f"*/{wanted}")
    )


def _check_ranks(files: Mapping[int, str], where: str, only: int | None) -> None:
    """Refuse a set that lacks a rank below its highest rank, or the *only* rank."""
    if only is not None:
        if only not in files:
            raise TraceError(
                where,
                f"has no file for rank {only}",
                f"it has files for rank {_some(list(map(str, sorted(files))))}",
            )
        return
    if max(files) + 1 == len(files):
        return
    missing = list(islice((rank for rank in count() if rank not in files), _SHOWN))
    missing = [rank for rank in missing if rank < max(files)]
    shown = ", ".join(map(str, missing))
    raise TraceError(
        where,
        f"has files up to rank {max(files)}, but none for rank {shown}"
        + (" and others" if max(files) + 1 - len(files) > len(missing) else ""),
        "add a file for every rank, from 0",
    )


def _group_file(store: Store, prefix: str) -> str | None:
    """Return the group file next to the set, in the same store."""
    folder, _, base = prefix.rpartition("/")
    names = set(store.names())
    for name in (f"{base}.comm_group.json", *_GROUP_FILES, f"{base}.json"):
        candidate = f"{folder}/{name}" if folder else name
        if candidate in names:
            return candidate
    return None


def _other_group_file(store: Store, group_file: str | None) -> str | None:
    """Return a second group file with the same precedence as *group_file*, or None."""
    folder, _, base = (group_file or "").rpartition("/")
    first, other = _GROUP_FILES
    candidate = f"{folder}/{other}" if folder else other
    return candidate if base == first and candidate in store.names() else None


def _group_path(place: Path, prefix: str) -> Path | None:
    """Return a group file next to the archive, or in ``inputs`` next to the folder."""
    bases = [prefix.rpartition("/")[2]]
    folder = place / ".." / "inputs"
    if not place.is_dir():
        folder = place.parent
        bases.append(place.name.split(".tar")[0].removesuffix(".tgz"))
    names = (*(f"{base}.comm_group.json" for base in bases), *_GROUP_FILES)
    return next((path for name in names if (path := folder / name).is_file()), None)


def _other_group_path(group_path: Path | None) -> Path | None:
    """Return a second group file with the same precedence as *group_path*, or None."""
    first, other = _GROUP_FILES
    if group_path is None or group_path.name != first:
        return None
    path = group_path.with_name(other)
    return path if path.is_file() else None


def _some(names: Sequence[str]) -> str:
    if not names:
        return "nothing"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
