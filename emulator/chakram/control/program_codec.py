"""Conversion of programs to and from messages, for agents and saved plans.

Messages contain columns as bytes, so decoding a column only copies it. The decoder
checks the programs. A short message may refer to the same columns, groups and splits
many times, so the limits apply to the total cost of all programs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, TypeVar

from chakram.collectives.algorithms import transfer_lists
from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.control.dataclass_codec import Mapper, pack_numbers, unpack_numbers
from chakram.control.protobuf_messages import pb
from chakram.foundation.field_bounds import (
    MAX_NAMES,
    MAX_TEXT,
    AtMost,
    Fault,
    Name,
    Size,
    Text,
    Within,
    declared,
    inside,
    rows,
)
from chakram.program.columns import COLLECTIVE, RECEIVE, OperationColumns
from chakram.program.operations import RankProgram, RankSplits
from chakram.program.program_check import ProgramChecks, are_ends, largest

if TYPE_CHECKING:
    from chakram.program.columns import Column


_MAX_RUNS = 1 << 20
_CHANNEL = Within(0, 1 << 10)


def collective_op(name: str) -> CollectiveOp:
    """Return the collective called *name*, or raise ``Fault`` if there is none."""
    try:
        return CollectiveOp(name)
    except ValueError:
        raise Fault("", f"{name[:40]!r} is not a collective") from None


def encode_listed(how: transfer_lists.ListedAlgorithm) -> pb.ListedAlgorithm:
    """Convert an algorithm to a message. Columns of default values stay empty."""
    transfers = how.transfers
    fixed = any(each.nbytes is not None for each in transfers)
    return pb.ListedAlgorithm(
        name=how.name,
        op=how.op.value,
        nranks=how.nranks,
        root=how.root,
        nparts=how.nparts,
        steps=[each.step for each in transfers],
        sources=[each.src for each in transfers],
        destinations=[each.dst for each in transfers],
        channels=(
            [each.channel for each in transfers]
            if any(each.channel for each in transfers)
            else []
        ),
        reduces=[each.reduce for each in transfers],
        run_counts=[len(each.parts) for each in transfers],
        runs=[number for each in transfers for run in each.parts for number in run],
        after_counts=[len(each.after) for each in transfers],
        after=[
            place - other
            for place, each in enumerate(transfers)
            for other in each.after
        ],
        sizes=[each.nbytes or 0 for each in transfers] if fixed else [],
    )


def decode_listed(message: pb.ListedAlgorithm) -> transfer_lists.ListedAlgorithm:
    """Convert a message to an algorithm, or raise ``Fault`` if it is invalid."""
    for name, most in (
        ("steps", transfer_lists.MAX_LISTED),
        ("runs", 2 * _MAX_RUNS),
        ("after", _MAX_RUNS),
    ):
        inside(name, getattr(message, name), AtMost(most).take)
    op = inside("op", message.op, collective_op)
    nranks = inside("nranks", message.nranks, Within(2, 1 << 16).take)
    nparts = inside("nparts", message.nparts, Within(1, transfer_lists.MAX_PARTS).take)
    count = len(message.steps)
    channels = message.channels or [0] * count
    sizes = message.sizes or [None] * count
    for name, column in (
        ("sources", message.sources),
        ("destinations", message.destinations),
        ("channels", channels),
        ("reduces", message.reduces),
        ("run_counts", message.run_counts),
        ("after_counts", message.after_counts),
        ("sizes", sizes),
    ):
        if len(column) != count:
            raise Fault(name, f"{len(column)} entries for {count} transfers")
    runs = _slices("runs", message.run_counts, len(message.runs) // 2)
    after = _slices("after", message.after_counts, len(message.after))
    transfers = tuple(
        transfer_lists.ListedTransfer(
            step=message.steps[place],
            src=message.sources[place],
            dst=message.destinations[place],
            channel=inside("channels", channels[place], _CHANNEL.take),
            parts=tuple(
                (message.runs[2 * run], message.runs[2 * run + 1])
                for run in runs[place]
            ),
            nbytes=sizes[place] and inside("sizes", sizes[place], _SIZE),
            reduce=message.reduces[place],
            after=tuple(place - message.after[back] for back in after[place]),
        )
        for place in range(count)
    )
    problems = transfer_lists.check_listed(
        transfers, op=op, nranks=nranks, nparts=nparts
    )
    if problems:
        raise Fault("steps", problems[0])
    return transfer_lists.ListedAlgorithm(
        name=inside("name", message.name, *declared(Name).takers),
        op=op,
        nranks=nranks,
        root=inside("root", message.root, Within(0, nranks - 1).take),
        nparts=nparts,
        transfers=transfers,
    )


def _slices(name: str, counts: Sequence[int], total: int) -> list[range]:
    """Return, for each transfer, the range of its entries in a flat column."""
    if any(count > transfer_lists.MAX_AFTER for count in counts):
        raise Fault(name, f"one transfer has more than {transfer_lists.MAX_AFTER}")
    ends = list(accumulate(counts, initial=0))
    if ends[-1] != total:
        raise Fault(name, f"{total} entries, but the transfers count {ends[-1]}")
    return [range(begin, end) for begin, end in pairwise(ends)]


_MAX_ALL_OPERATIONS = 2**26
"""Limit on operations in all programs of a job, to limit decoding time and memory."""

_MAX_OPERATIONS = 2**20
_MAX_PROGRAMS = 2**16
"""Limit on ranks of a job, equal to the limit of experiments."""
_MAX_GROUPS = 2**14
_MAX_LISTED = 2**10
"""Limit on user algorithms. Each group size and root needs a separate algorithm."""
_MAX_SPLITS = 2**24
_MAX_ALGORITHMS = 2**16
_MAX_ALL_DEPENDENCIES = 2**28
_MAX_ALL_MEMBERS = 2**28
_MAX_ALL_PARTS = 2**28

_COLUMNS: Final = (
    ("node_ids", "Q"),
    ("name_ends", "I"),
    ("dependency_ends", "I"),
    ("amounts", "q"),
    ("trace_bytes", "q"),
    ("targets", "I"),
    ("numbers", "I"),
    ("details", "q"),
    ("algorithms", "I"),
    ("starts_ns", "q"),
    ("splits", "I"),
)
"""Columns with one number per operation, and the array types of the columns."""

_MAY_BE_EMPTY = ("starts_ns", "splits")

_GROUPS = Mapper(ProcessGroup, pb.ProcessGroup)
_RANK = Within(0, MAX_NAMES)
(_SIZE,) = declared(Size).takers

_T = TypeVar("_T")


def encode_programs(job: str, programs: Sequence[RankProgram]) -> pb.JobPrograms:
    """Convert the programs of one job to a message."""
    groups: dict[ProcessGroup, int] = {}
    columns: dict[int, OperationColumns] = {}
    splits: dict[RankSplits, int] = {}
    listed: dict[transfer_lists.ListedAlgorithm, int] = {}
    encoded = []
    for program in programs:
        columns.setdefault(id(program.columns), program.columns)
        encoded.append(
            pb.RankProgram(
                rank=program.rank,
                groups=_places(program.groups, groups),
                peers=program.peers,
                splits=_places(program.splits, splits),
                algorithms=_places(program.algorithms, listed),
            )
        )
    place_of = {known: place for place, known in enumerate(columns)}
    for message, program in zip(encoded, programs, strict=True):
        message.columns = place_of[id(program.columns)]
    return pb.JobPrograms(
        job=job,
        groups=map(_GROUPS.encode, groups),
        columns=[_encode_columns(each) for each in columns.values()],
        splits=[
            pb.RankSplits(
                sent_bytes=each.splits.sent_bytes,
                received_bytes=each.splits.received_bytes,
                passed_bytes=each.passed_bytes,
            )
            for each in splits
        ],
        listed_algorithms=[encode_listed(how) for how in listed],
        programs=encoded,
    )


def _places(items: Iterable[_T], known: dict[_T, int]) -> list[int]:
    return [known.setdefault(item, len(known)) for item in items]


def _encode_columns(columns: OperationColumns) -> pb.OperationColumns:
    return pb.OperationColumns(
        kinds=columns.kinds,
        names=columns.names,
        dependencies=pack_numbers(columns.dependencies, "I"),
        without_node=sorted(columns.without_node),
        all_algorithms=[
            pb.OperationAlgorithm(op=op.value, algorithm=algorithm)
            for op, algorithm in columns.all_algorithms
        ],
        **{name: pack_numbers(getattr(columns, name), code) for name, code in _COLUMNS},
    )


def decode_programs(
    message: pb.JobPrograms, *, is_checked: bool = False
) -> tuple[RankProgram, ...]:
    """Convert a message to programs, or raise ``Fault`` if a program is invalid.

    Args:
        message: Message with the programs of one job.
        is_checked: Whether the caller or the sender checks complete programs. If so,
            this function skips these checks.
    """
    job = inside("job", message.job, *declared(Name).takers)
    groups = rows("groups", message.groups, _GROUPS.decode, most=_MAX_GROUPS)
    if len({group.name for group in groups}) != len(groups):
        raise Fault("groups", "two process groups have the same name")
    columns = rows("columns", message.columns, decode_columns, most=_MAX_PROGRAMS)
    splits = rows("splits", message.splits, _decode_splits, most=_MAX_SPLITS)
    listed = rows(
        "listed_algorithms", message.listed_algorithms, decode_listed, most=_MAX_LISTED
    )
    checks = ProgramChecks()

    def decode_program(each: pb.RankProgram) -> RankProgram:
        program = RankProgram(
            job=job,
            rank=inside("rank", each.rank, _RANK.take),
            groups=tuple(_chosen("groups", each.groups, groups)),
            columns=_chosen("columns", [each.columns], columns)[0],
            peers=rows("peers", each.peers, _RANK.take, most=MAX_NAMES),
            splits=tuple(_chosen("splits", each.splits, splits)),
            algorithms=tuple(_chosen("algorithms", each.algorithms, listed)),
        )
        if len(set(each.groups)) != len(each.groups):
            raise Fault("groups", "a process group is listed twice")
        if len(set(each.peers)) != len(each.peers):
            raise Fault("peers", "a rank is listed twice")
        return program

    programs = rows("programs", message.programs, decode_program, most=_MAX_PROGRAMS)
    for what, number, most in (
        ("operations", lambda each: len(each.columns), _MAX_ALL_OPERATIONS),
        (
            "dependencies",
            lambda each: len(each.columns.dependencies),
            _MAX_ALL_DEPENDENCIES,
        ),
        (
            "members of groups to compare",
            lambda each: sum(group.lookup_cost(each.rank) for group in each.groups),
            _MAX_ALL_MEMBERS,
        ),
        (
            "parts of splits",
            lambda each: sum(
                len(own.splits.sent_bytes) + len(own.passed_bytes)
                for own in each.splits
            ),
            _MAX_ALL_PARTS,
        ),
    ):
        total = sum(map(number, programs))
        if total > most:
            raise Fault(
                "programs", f"{total} {what} in total, but at most {most} are allowed"
            )
    for place, program in enumerate(() if is_checked else programs):
        problems = checks.problems(program)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise Fault(f"programs[{place}]", problems[0] + more)
    return programs


def _chosen(name: str, places: Sequence[int], items: Sequence[_T]) -> list[_T]:
    """Return the items at *places*, or raise ``Fault`` if a place is out of range."""
    for place in places:
        if place >= len(items):
            raise Fault(name, f"{place} is out of range: there are {len(items)}")
    return [items[place] for place in places]


def _decode_splits(message: pb.RankSplits) -> RankSplits:
    sent, received, passed = (
        rows(name, getattr(message, name), _SIZE, most=most)
        for name, most in (
            ("sent_bytes", MAX_NAMES),
            ("received_bytes", MAX_NAMES),
            ("passed_bytes", transfer_lists.MAX_PARTS),
        )
    )
    return RankSplits(Splits(sent, received), passed)


def decode_columns(message: pb.OperationColumns) -> OperationColumns:
    """Convert a message to columns, or raise ``Fault`` if they are inconsistent.

    ``chakram.program.program_check`` later checks columns against their program.
    """
    kinds = message.kinds
    inside("kinds", kinds, AtMost(_MAX_OPERATIONS).take)
    if max(kinds, default=0) > RECEIVE:
        raise Fault("kinds", "contains an unknown kind of operation")
    columns = {
        name: _column(
            name,
            code,
            getattr(message, name),
            0 if name in _MAY_BE_EMPTY and not getattr(message, name) else len(kinds),
        )
        for name, code in _COLUMNS
    }
    dependencies = _column("dependencies", "I", message.dependencies)
    if not are_ends(columns["dependency_ends"], len(dependencies), len(dependencies)):
        raise Fault("dependency_ends", "do not divide the dependencies")
    _check_names(message.names, columns["name_ends"])
    all_algorithms = rows(
        "all_algorithms",
        message.all_algorithms,
        _decode_algorithm,
        most=_MAX_ALGORITHMS,
    )
    if COLLECTIVE in kinds and largest(columns["algorithms"]) >= len(all_algorithms):
        raise Fault(
            "algorithms",
            f"{largest(columns['algorithms'])} is out of range: there are "
            f"{len(all_algorithms)}",
        )
    without_node = frozenset(message.without_node)
    if max(without_node, default=-1) >= len(kinds):
        raise Fault(
            "without_node",
            f"{max(without_node)} is out of range: there are {len(kinds)} operations",
        )
    return OperationColumns(
        kinds=kinds,
        names=message.names,
        dependencies=dependencies,
        without_node=without_node,
        all_algorithms=all_algorithms,
        **columns,
    )


def _check_names(names: bytes, ends: Column) -> None:
    if not are_ends(ends, len(names), MAX_TEXT):
        raise Fault("name_ends", f"do not divide names into parts of {MAX_TEXT} bytes")
    try:
        names.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Fault("names", "are not valid UTF-8") from None
    # A name must not end within a multi-byte character.
    if any(end < len(names) and names[end] & 0xC0 == 0x80 for end in ends):
        raise Fault("name_ends", "split a character")


def _decode_algorithm(message: pb.OperationAlgorithm) -> tuple[CollectiveOp, str]:
    op = inside("op", message.op, collective_op)
    return op, inside("algorithm", message.algorithm, *declared(Text).takers)


def _column(name: str, code: str, data: bytes, count: int | None = None) -> Column:
    """Return the numbers of a column, or raise ``Fault`` if there are not *count*."""
    width = array(code).itemsize
    found, rest = divmod(len(data), width)
    if rest or found != (found if count is None else count):
        wanted = f"numbers of {width} bytes"
        raise Fault(
            name,
            f"{len(data)} bytes for {wanted if count is None else f'{count} {wanted}'}",
        )
    return unpack_numbers(data, code)
