"""Trace sets: the traces of all ranks of one job, and their process groups."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.chakra.et_codec import Metadata
from chakram.chakra.read.groups import parse_group_file
from chakram.chakra.read.involved_dims import check_dimensions
from chakram.chakra.read.rank_decoder import RankTrace
from chakram.chakra.read.reader import (
    OpenTrace,
    ReadTrace,
    complete,
    settle,
)
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.sets.find_files import FoundSet, find_trace_set
from chakram.chakra.sets.parallel_reading import read_elsewhere
from chakram.chakra.sets.profiles import Profiles, open_rank
from chakram.chakra.trace_warning import TraceWarning, WarningKind
from chakram.collectives.groups import WORLD, ProcessGroup, ranks_text, world_group
from chakram.foundation.bounded_reading import read_bounded, read_stream_bounded
from chakram.foundation.errors import ConfigError, TraceError
from chakram.trace.graph import TraceGraph
from chakram.trace.replication import ALL, Replication, replicate
from chakram.trace.shared_columns import SharedColumns

if TYPE_CHECKING:
    from concurrent.futures import Executor

_GROUP_FILE_LIMIT_BYTES = 64 * 2**20
_GROUP_FILE_HINT = "check that this is the group file"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSet:
    """The traces of all ranks of one job.

    Attributes:
        name: Location from which the set was loaded.
        graphs: The graph of every rank. Ranks are numbered from 0 without gaps.
        groups: The process groups by name, including ``world``. Nodes that name no
            group use ``world``.
        digest: SHA-256 of the decompressed content of all files and of the groups. It
            is the same for a folder, an archive and gzipped files.
        warnings: Warnings about the files. ``chakram.chakra.lint`` finds problems.
        producer: The tool that wrote the traces, as far as it can be recognized.
        schema: The schema that the files state.
        notes: Sentences about changes to the traces, such as replication, for inclusion
            in results.
        purposes: The purpose of each group by name, as stated in the files.
        least_ranks: The minimum number of ranks in the job that each rank's trace
            implies, by rank. Ranks whose traces imply nothing are left out.
    """

    name: str
    graphs: Mapping[int, TraceGraph]
    groups: Mapping[str, ProcessGroup]
    digest: str
    warnings: tuple[TraceWarning, ...]
    producer: str
    schema: str
    notes: tuple[str, ...] = ()
    purposes: Mapping[str, str] = field(default_factory=dict)
    least_ranks: Mapping[int, int] = field(default_factory=dict)

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return len(self.graphs)


def load_trace_set(
    path: str | Path,
    *,
    bytes_per_element: int | None = None,
    comm_groups: str | Path | None = None,
    kineto: str | Path | None = None,
    prefix: str | None = None,
    options: ReadOptions | None = None,
    on_rank: Callable[[int, int], None] | None = None,
    workers: Executor | None = None,
) -> TraceSet:
    """Return the trace set that *path* names.

    Args:
        path: A folder, an archive, a prefix, a pattern, or one of the files (see
            ``chakram.chakra.sets.find_files``).
        bytes_per_element: Bytes per unit of a stored size (see ``ReadOptions``).
        comm_groups: The group file, if it is not next to the traces.
        kineto: The profiles of PyTorch host traces, if they are not next to the traces
            (see ``chakram.chakra.sets.profiles``).
        prefix: The set to load, if the folder or archive contains several sets.
        options: Reader options. *bytes_per_element* takes precedence over the value in
            them.
        on_rank: Called with (ranks read, total ranks) after every file.
        workers: Processes that read files in parallel. If None, this process reads
            them.

    Raises:
        TraceError: If the set is missing, incomplete or unreadable.
        ConfigError: If *bytes_per_element* is not a positive integer.
    """
    options = options or ReadOptions()
    if bytes_per_element is not None:
        try:
            options = replace(options, bytes_per_element=bytes_per_element)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                "bytes_per_element",
                f"is {bytes_per_element!r}",
                "give a positive integer, e.g. 2",
            ) from error
    with find_trace_set(path, prefix) as found:
        check_dimensions(options.dimensions, nranks=len(found.files), where=found.place)
        options = replace(options, nranks=len(found.files))
        traces, file_groups = _read(
            found, comm_groups, kineto, options, on_rank=on_rank, workers=workers
        )
        return assemble(name=found.place, traces=traces, file_groups=file_groups)


def _read(
    found: FoundSet,
    comm_groups: str | Path | None,
    kineto: str | Path | None,
    options: ReadOptions,
    *,
    only: int | None = None,
    on_rank: Callable[[int, int], None] | None = None,
    workers: Executor | None = None,
) -> tuple[dict[int, ReadTrace], dict[str, tuple[int, ...]]]:
    """Return a set's traces, or only one of them, and the groups of its group file."""
    file_groups = _file_groups(found, Path(comm_groups) if comm_groups else None)
    zero_is_a_group = "0" in file_groups
    opened: dict[int, OpenTrace] = {}
    shared = SharedColumns()
    with Profiles(found, Path(kineto) if kineto else None, only=only) as profiles:
        for rank, read in (
            read_elsewhere(workers, found, options, zero_is_a_group=zero_is_a_group)
            if only is None
            else [(only, None)]
        ):
            opened[rank] = each = (
                open_rank(
                    found,
                    rank,
                    profiles,
                    options=options,
                    zero_is_a_group=zero_is_a_group,
                )
                if read is None
                else complete(read)
            )
            if each.graph is not None:
                shared.share(each.graph)
            if on_rank is not None:
                on_rank(len(opened), len(found.files))
        profiles.require_use()
        traces = settle(opened)
        if profiles.left_out is not None:
            first = min(traces)
            trace = traces[first].trace
            trace = replace(trace, warnings=(*trace.warnings, profiles.left_out))
            traces[first] = replace(traces[first], trace=trace)
        return traces, file_groups


def load_replicated(
    path: str | Path,
    replication: Replication,
    *,
    rank: int = 0,
    comm_groups: str | Path | None = None,
    kineto: str | Path | None = None,
    options: ReadOptions | None = None,
) -> TraceSet:
    """Return a trace set in which every rank has the trace of one recorded rank.

    Args:
        path: As for ``load_trace_set``. Files of other ranks may be missing.
        replication: The number of ranks and their groups.
        rank: The recorded rank.
        comm_groups: As for ``load_trace_set``.
        kineto: As for ``load_trace_set``.
        options: As for ``load_trace_set``.

    Raises:
        TraceError: If the trace is missing or unreadable, or cannot be replicated.
    """
    options = replace(
        options or ReadOptions(),
        dimensions=tuple(replication.dimensions.values()),
        nranks=replication.nranks,
    )
    with find_trace_set(path, only=rank) as found:
        traces, file_groups = _read(found, comm_groups, kineto, options, only=rank)
        read = traces[rank]
        members = {name: ranks for name, ranks in read.trace.groups.items() if ranks}
        members |= file_groups
        highest = max((max(ranks) for ranks in members.values()), default=0)
        # Not all traces state the number of ranks. File names and groups give a lower
        # bound.
        hinted = max(max(found.files), highest, rank) + 1
        recorded_ranks = max(hinted, read.trace.least_ranks)
        groups = {
            name: ProcessGroup(name=name, ranks=ranks)
            for name, ranks in members.items()
        }
        for name, ranks in read.trace.groups.items():
            if not ranks and name not in groups:
                groups[name] = ProcessGroup(
                    name=name, ranks=world_group(recorded_ranks).ranks
                )
        replicas = replicate(
            read.trace.graph,
            groups,
            _with_parts(replication, read.trace),
            recorded_ranks=recorded_ranks,
        )
        digest = hashlib.sha256(f"{rank} {read.sha256} {replication}".encode())
        for name, ranks in sorted(file_groups.items()):
            digest.update(f"\n{name} {ranks}".encode())
        overruled = _overruled(traces, file_groups, recorded_ranks)
        return TraceSet(
            name=f"{found.place}.{rank}",
            graphs=replicas.graphs,
            groups=replicas.groups,
            digest=digest.hexdigest(),
            warnings=(*read.trace.warnings, *overruled.get(rank, ())),
            producer=read.trace.producer,
            schema=_schema(read.trace.metadata),
            notes=replicas.notes,
        )


def _with_parts(replication: Replication, trace: RankTrace) -> Replication:
    """Return *replication* with groups added for collectives over some dimensions.

    Raises:
        TraceError: If the dimensions of such a group are unknown.
    """
    groups = dict(replication.groups)
    names = list(replication.dimensions)
    for name, part in trace.parts.items():
        involved = [names[place] for place in part.involved]
        whole = (ALL,) if part.group is None else replication.groups.get(part.group)
        if whole is None and part.group in replication.dimensions:
            whole = (str(part.group),)
        if whole is None:
            raise TraceError(
                f"{trace.graph.source}: process group {part.group!r}",
                "has collectives over some of its dimensions, but its dimensions are "
                "unknown",
                f"set them: trace.groups: {{{part.group!r}: {ALL}}}, or names of "
                "trace.dimensions",
            )
        groups[name] = tuple(each for each in involved if ALL in whole or each in whole)
    return replace(replication, groups=groups)


def assemble(
    *,
    name: str,
    traces: Mapping[int, ReadTrace],
    file_groups: Mapping[str, tuple[int, ...]],
) -> TraceSet:
    """Return a trace set with the given traces of all ranks.

    Args:
        name: Name of the set.
        traces: The traces, by rank.
        file_groups: The groups of the group file. They override the groups in the
            traces.

    Raises:
        TraceError: If the ranks disagree about a group.
    """
    ranks = sorted(traces)
    groups = _merge_groups(traces, file_groups)
    overruled = _overruled(traces, file_groups, len(traces))
    metadata = traces[ranks[0]].trace.metadata
    digest = hashlib.sha256()
    for rank in ranks:
        digest.update(f"{rank} {traces[rank].sha256}\n".encode())
    for group in sorted(groups):
        digest.update(f"{group} {groups[group].ranks}\n".encode())
    return TraceSet(
        name=name,
        graphs={rank: traces[rank].trace.graph for rank in ranks},
        groups=groups,
        digest=digest.hexdigest(),
        warnings=tuple(
            warning
            for rank in ranks
            for warning in (*traces[rank].trace.warnings, *overruled.get(rank, ()))
        ),
        producer=traces[ranks[0]].trace.producer,
        schema=_schema(metadata),
        purposes={
            name: purpose
            for read in traces.values()
            for name, purpose in read.trace.purposes.items()
            if purpose and name in groups
        },
        least_ranks={
            rank: read.trace.least_ranks
            for rank, read in traces.items()
            if read.trace.least_ranks
        },
    )


def _merge_groups(
    traces: Mapping[int, ReadTrace], file_groups: Mapping[str, tuple[int, ...]]
) -> dict[str, ProcessGroup]:
    world = world_group(len(traces))
    members = dict(file_groups)
    first_seen: dict[str, int] = {}
    # Traces share rank tuples, which may be long. Compare each shared tuple only once.
    checked: set[tuple[str, int]] = set()
    for rank in sorted(traces):
        for name, ranks in traces[rank].trace.groups.items():
            stated = ranks or world.ranks
            if name in file_groups or (name, id(ranks)) in checked:
                continue
            checked.add((name, id(ranks)))
            if members.setdefault(name, stated) != stated:
                raise TraceError(
                    traces[rank].trace.graph.source,
                    f"group {name!r} has the ranks {list(stated)} in the trace of rank "
                    f"{rank}, but {list(members[name])} in that of rank "
                    f"{first_seen[name]}",
                    "define the groups in a comm_group.json",
                )
            first_seen.setdefault(name, rank)
    if not set(world.ranks) <= set(members.get(WORLD, world.ranks)):
        raise TraceError(
            traces[first_seen[WORLD]].trace.graph.source,
            f"defines the group {WORLD!r} of the ranks {ranks_text(members[WORLD])}",
            "rename it: this name is reserved for the group of all ranks",
        )
    groups = {name: ProcessGroup(name=name, ranks=members[name]) for name in members}
    groups[WORLD] = world
    return groups | _parts(traces, groups)


def _parts(
    traces: Mapping[int, ReadTrace], groups: Mapping[str, ProcessGroup]
) -> dict[str, ProcessGroup]:
    """Return the groups of collectives that cover only some dimensions.

    Parts of an undefined group stay undefined.
    """
    parts: dict[str, ProcessGroup] = {}
    for read in traces.values():
        for name, part in read.trace.parts.items():
            whole = groups.get(part.group or WORLD)
            if name in parts or whole is None:
                continue
            ranks = set(part.ranks)
            members = tuple(rank for rank in whole.ranks if rank in ranks)
            if members:
                parts[name] = ProcessGroup(name=name, ranks=members)
    return parts


def _overruled(
    traces: Mapping[int, ReadTrace],
    file_groups: Mapping[str, tuple[int, ...]],
    nranks: int,
) -> dict[int, list[TraceWarning]]:
    """Return warnings about groups that the group file overrides, by rank."""
    found: dict[int, list[TraceWarning]] = {}
    world = world_group(nranks).ranks
    # Traces share rank tuples, which may be long. Compare each equal pair only once.
    same: set[tuple[int, int]] = set()

    def differs(stated: tuple[int, ...], by_file: tuple[int, ...]) -> bool:
        key = id(stated), id(by_file)
        if key in same:
            return False
        if stated == by_file:
            same.add(key)
        return key not in same

    for rank, read in traces.items():
        differing = [
            (name, stated or world)
            for name, stated in read.trace.groups.items()
            if name in file_groups and differs(stated or world, file_groups[name])
        ]
        if differing:
            name, stated = differing[0]
            found[rank] = [
                TraceWarning(
                    WarningKind.GROUP_DIFFERS,
                    rank,
                    read.trace.graph.source,
                    f"gives group {name!r} the ranks {ranks_text(stated)}; the group "
                    f"file takes precedence: {ranks_text(file_groups[name])}",
                    len(differing),
                )
            ]
    return found


def _file_groups(found: FoundSet, given: Path | None) -> dict[str, tuple[int, ...]]:
    text, source = _group_file(found, given)
    groups = {} if text is None else parse_group_file(text, source)
    if given is None:
        _refuse_another(found, groups)
    return groups


def _refuse_another(found: FoundSet, groups: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a set with a second group file that defines different groups.

    Raises:
        TraceError: If the set has such a file.
    """
    stored, path = found.other_group_file, found.other_group_path
    if stored is not None:
        text, source = _stored(found, stored)
    elif path is not None:
        text, source = _beside(path)
    else:
        return
    if parse_group_file(text, source) != groups:
        raise TraceError(
            found.place,
            "has two group files that differ: "
            f"{found.group_file or found.group_path} and {stored or path}",
            "name the right one (--comm-groups), or move the other one away",
        )


def group_file_bytes(found: FoundSet) -> bytes | None:
    """Return the unchanged content of a set's group file, or None if there is none.

    Raises:
        TraceError: If the file cannot be read, or is not a group file.
    """
    text, source = _group_file(found, None)
    if text is not None:
        _refuse_another(found, parse_group_file(text, source))
    return text


def _group_file(found: FoundSet, given: Path | None) -> tuple[bytes | None, str]:
    """Return the content and name of the group file.

    The content is None if there is no group file.
    """
    path = given or (found.group_path if found.group_file is None else None)
    if path is not None:
        return _beside(path)
    return (None, "") if found.group_file is None else _stored(found, found.group_file)


def _beside(path: Path) -> tuple[bytes, str]:
    """Return the content of a group file outside of the store, and its name."""
    text = read_bounded(
        path,
        limit_bytes=_GROUP_FILE_LIMIT_BYTES,
        error=TraceError,
        size_hint=_GROUP_FILE_HINT,
    )
    return text, str(path)


def _stored(found: FoundSet, name: str) -> tuple[bytes, str]:
    """Return the content of a group file in the store of a set, and its name."""
    source = f"{found.store.place}/{name}"
    with found.store.open(name) as stream:
        text = read_stream_bounded(
            stream,
            source,
            limit_bytes=_GROUP_FILE_LIMIT_BYTES,
            error=TraceError,
            hint=_GROUP_FILE_HINT,
        )
    return text, source


def _schema(metadata: Metadata) -> str:
    schema = metadata.attributes.get("schema")
    if schema is not None:
        return str(schema)[:80]
    return metadata.version[:80] or "not stated"
