"""The jobs of an experiment: their traces, their compute, their place."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import (
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    WithJsonSchema,
)

from chakram.collectives.groups import ANY_OPERATION
from chakram.settings.located_errors import tag_of
from chakram.settings.quantities import (
    ByteRate,
    ComputeRate,
    FilePath,
    Model,
    Name,
    Rate,
    Ratio,
    Time,
    Whole,
    problem,
)
from chakram.synth.settings import KINDS, SynthTrace

UNNAMED_OPERATIONS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v",
    "broadcast", "reduce", "gather", "scatter", "barrier", "send", "recv",
    ANY_OPERATION,
)  # fmt: skip
"""Operations of a PyTorch host trace that may name no process group."""

MAX_RANKS = 65_536
"""Of a replicated trace."""

Correction: TypeAlias = Literal[
    "element-sizes",
    "divided-sizes",
    "control-dependencies-only",
    "missing-control-dependency",
    "self-control-dependency",
    "collective-label",
    "untyped-collective",
    "unordered-kernels",
]
"""What is corrected in traces of known producers, by the kind of its warning."""


def _groups(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise problem(
            f"{value!r} is not a mapping of groups", "e.g. {'1': tp, '2': dp}"
        )
    found: dict[str, tuple[str, ...]] = {}
    for key, names in value.items():
        listed = (names,) if isinstance(names, str) else names
        if not isinstance(listed, list | tuple) or not all(
            isinstance(name, str) for name in listed
        ):
            raise problem(
                f"{names!r} is no name of a dimension", "e.g. tp, [tp, dp] or all"
            )
        found[str(key)] = tuple(listed)
    return found


def _listed(groups: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {name: list(dimensions) for name, dimensions in groups.items()}


GroupDimensions = Annotated[
    dict[str, tuple[str, ...]],
    PlainValidator(_groups),
    PlainSerializer(_listed),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}},
                ]
            },
        }
    ),
]
"""Names of dimensions by the name of a process group."""


def _unnamed_groups(value: object) -> dict[str, str]:
    if value is None:
        return {}
    stated = value if isinstance(value, dict) else {ANY_OPERATION: value}
    groups: dict[str, str] = {}
    for operation, group in stated.items():
        if operation not in UNNAMED_OPERATIONS:
            raise problem(
                f"{operation!r} is no operation",
                f"{', '.join(UNNAMED_OPERATIONS)} are",
            )
        if not isinstance(group, str) or not 1 <= len(group) <= 64:
            raise problem(f"{group!r} is no name of a group", "e.g. '0', dp")
        groups[operation] = group
    return groups


def _unnamed_stated(groups: dict[str, str]) -> dict[str, str] | str | None:
    if groups.keys() == {ANY_OPERATION}:
        return groups[ANY_OPERATION]
    return groups or None


UnnamedGroups = Annotated[
    dict[str, str],
    PlainValidator(_unnamed_groups),
    PlainSerializer(_unnamed_stated),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": 64},
                {
                    "type": "object",
                    "propertyNames": {"enum": list(UNNAMED_OPERATIONS)},
                    "additionalProperties": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 64,
                    },
                },
                {"type": "null"},
            ]
        }
    ),
]
"""Names of process groups by operation."""


class TraceFiles(Model):
    """A trace set that lies in files."""

    path: FilePath
    """Where the trace lies: folder, prefix, archive, or one of the files."""
    bytes_per_element: Whole | None = Field(default=None, ge=1, le=64, examples=[2])
    """Bytes of one unit of a stored size; without it the sizes are bytes. Traces of
    STAGE need it."""
    comm_groups: FilePath | None = Field(
        default=None, examples=["traces/mixtral/comm_group.json"]
    )
    """File of process groups, where it does not lie beside the traces."""
    kineto: FilePath | None = Field(default=None, examples=["traces/kineto/"])
    """Profiles of PyTorch host traces, where they are not found beside them."""
    unnamed_group: UnnamedGroups = Field(
        default_factory=dict, examples=["world", {"all_reduce": "0"}]
    )
    """Process group of operations that name none, as gloo's in PyTorch host traces: one
    for all, or by operation; its name, or what it is for, where * stands for any
    text."""
    dependencies: Literal["auto", "data", "control", "both"] = "auto"
    """Which edges of the trace order its nodes. auto: data dependencies, and control
    dependencies in a file that has no others."""
    drop_missing_dependencies: bool = Field(default=False, strict=True)
    """Go on where a dependency names a node that the file does not have."""
    duration_unit_ns: Time | None = Field(
        default=None, alias="duration_unit", examples=["1ns"]
    )
    """What one unit of the trace's durations is worth; without it a microsecond."""
    uncorrected: tuple[Correction, ...] = Field(
        default=(), examples=[["self-control-dependency"]]
    )
    """Corrections that are not made, of what the trace's producer is known to write
    differently."""

    replicate: Whole | None = Field(default=None, ge=2, le=MAX_RANKS, examples=[64])
    """So many ranks do what the trace of one says; without it every rank has a trace of
    its own."""
    rank: Whole = Field(default=0, ge=0, le=MAX_RANKS)
    """Rank whose trace is replicated."""
    dimensions: dict[Name, Annotated[Whole, Field(ge=1, le=MAX_RANKS)]] = Field(
        default_factory=dict, examples=[{"tp": 8, "dp": 8}]
    )
    """Sizes of the dimensions in which the ranks stand, innermost first; their product
    is the number of ranks. For groups of a replicated trace, and for collectives that
    involve some dimensions only (involved_dim)."""
    groups: GroupDimensions = Field(
        default_factory=dict, examples=[{"1": "tp", "2": ["tp", "dp"]}]
    )
    """By process group of a replicated trace: a dimension, several, or all. Without it
    a group becomes on every rank what it is on the recorded one."""
    peer_offset: int | None = Field(
        default=None, ge=-MAX_RANKS, le=MAX_RANKS, examples=[1]
    )
    """How many ranks further go messages of a replicated trace that name no rank."""


def _trace_tag(value: Any) -> str | None:
    kind = value.get("synth") if isinstance(value, dict) else None
    if isinstance(value, SynthTrace):
        kind = value.synth
    elif not isinstance(value, dict) or "synth" not in value:
        return tag_of(TraceFiles)
    if not isinstance(kind, str) or kind not in KINDS:
        return None
    return tag_of(KINDS[kind])


if TYPE_CHECKING:
    _Traces: TypeAlias = TraceFiles | SynthTrace
else:
    _Traces = reduce(
        or_,
        (Annotated[each, Tag(tag_of(each))] for each in (TraceFiles, *KINDS.values())),
    )

Trace = Annotated[
    _Traces,
    Discriminator(
        _trace_tag,
        custom_error_type="kind",
        custom_error_message="unknown kind",
        custom_error_context={"key": "synth", "kinds": ", ".join(KINDS)},
    ),
]
"""The files of a trace set, or what is made up instead."""


class Compute(Model):
    """How compute nodes become delays."""

    source: Literal["none", "trace", "roofline"] = Field(default="trace", alias="from")
    """What a compute node takes. none: nothing; trace: its duration; roofline: its
    operations over peak or its bytes over memory, whichever is longer."""
    scale: Ratio = Fraction(1)
    """Factor on every delay."""
    peak_flops: ComputeRate | None = Field(default=None, alias="peak")
    """Operations per second of a rank; roofline needs it."""
    memory_bytes_per_s: ByteRate | None = Field(default=None, alias="memory")
    """Memory rate of a rank, for roofline; without it memory is never slower than
    computing."""


def _order(value: object) -> str | tuple[int, ...]:
    if value == "linear":
        return "linear"
    if not isinstance(value, list | tuple) or not value:
        raise problem(f"{value!r} is not an order of ranks", "e.g. linear or [0, 1]")
    for rank in value:
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
            raise problem(f"{rank!r} is not a rank", "ranks are whole numbers from 0")
    return tuple(value)


def _order_written(order: str | tuple[int, ...]) -> str | list[int]:
    return order if isinstance(order, str) else list(order)


Order = Annotated[
    Literal["linear"] | tuple[int, ...],
    PlainValidator(_order),
    # A union with text is more than the usual serializer takes.
    PlainSerializer(_order_written),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "linear"},
                {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 0},
                    "minItems": 1,
                },
            ]
        }
    ),
]
"""``linear``, or all ranks in the order in which they are placed."""


def _ports(value: object) -> tuple[int | str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise problem(f"{value!r} is not a list of ports", "e.g. [0, 1] or [h1, h2]")
    for port in value:
        number = isinstance(port, int) and not isinstance(port, bool) and port >= 0
        if not number and not (isinstance(port, str) and _PORT_NAME.fullmatch(port)):
            raise problem(
                f"{port!r} is not a port", "ports are numbers from 0 or names of hosts"
            )
    if len(set(value)) < len(value):
        raise problem("names a port twice", "name every port once")
    return tuple(value)


_PORT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,80}")

Ports = Annotated[
    tuple[int | str, ...],
    PlainValidator(_ports),
    # A tuple of unions beside None is more than the usual serializer takes.
    PlainSerializer(list, return_type=list),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]},
            "minItems": 1,
        }
    ),
]
"""Ports by number, or by the name of their host."""


def _repeat(value: object) -> int | str:
    if value == UNTIL_OTHERS_END:
        return UNTIL_OTHERS_END
    if isinstance(value, bool) or not isinstance(value, int):
        raise problem(
            f"{value!r} is not a number of iterations",
            f"e.g. 20, or {UNTIL_OTHERS_END}",
        )
    if not 1 <= value <= MAX_REPEATS:
        raise problem(f"{value} is not in 1..{MAX_REPEATS}", "e.g. 20")
    return value


UNTIL_OTHERS_END = "until_others_end"
MAX_REPEATS = 1_000_000

Repeat = Annotated[
    int | str,
    PlainValidator(_repeat),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": UNTIL_OTHERS_END},
                {"type": "integer", "minimum": 1, "maximum": MAX_REPEATS},
            ]
        }
    ),
]
"""Measured iterations of a job, or ``until_others_end``."""


class Placement(Model):
    """Which rank uses which port."""

    order: Order = "linear"
    """Ranks in the order in which they get ports. linear: ascending; or a list of all
    ranks."""
    ranks_per_port: Whole = Field(default=1, ge=1, le=1024)
    """How many ranks share a port."""
    first_port: Whole | None = Field(default=None, ge=0, examples=[4])
    """Port where packed begins; without it the first one that no earlier job uses."""
    pattern: Literal["packed", "striped", "random"] = "packed"
    """Which ports are taken. packed: one after the other; striped: in turns from every
    switch; random: any, drawn from seed."""
    ports: Ports | None = Field(default=None, examples=[[0, 1, "h4", "h5"]])
    """Ports that may be taken, by number or by name of their host; without it all that
    no earlier job uses."""
    same_host: Literal["fabric", "skip"] = "fabric"
    """How messages between ranks of one host go. fabric: through its ports; skip: not
    over the fabric at all."""
    local_rate_bps: Rate | None = Field(default=None, alias="local_rate")
    """Rate of each rank's messages within its host, with skip; without it they take no
    time."""


class Job(Model):
    """One trace with its place on the fabric."""

    name: Name
    """Name of the job, in all results."""
    trace: Trace
    """What it does: files of a trace set (path), or a made-up trace (synth)."""
    compute: Compute = Compute.unsaid()
    """How long compute nodes take."""
    size_scale: Ratio = Fraction(1)
    """Factor on the size of every message."""
    placement: Placement = Placement.unsaid()
    """Where its ranks are on the fabric."""
    ordering: Literal["serial", "overlap"] = "serial"
    """Collectives of one process group: serial, one at a time in one order, as NCCL
    does it; or overlap, as soon as each is ready."""
    order: Literal["dependencies", "start_times"] = "dependencies"
    """When nodes start: after those that they depend on, or at their recorded times."""
    policy: Literal["fifo", "start_time", "communication_first"] = "fifo"
    """Which of several ready nodes goes first: the one that became ready first, the one
    that was recorded first, or the one that leads to communication soonest."""
    resources: Literal["streams", "astra-sim"] = "streams"
    """What a rank does one at a time: streams, what a CPU computes, and what each
    stream of a GPU computes; astra-sim, what a CPU computes, what a GPU computes, and
    whatever sends or moves memory, all ranks in one order."""
    start_ns: Time = Field(default=0, alias="start", examples=["200ms"])
    """When the job begins, from the start of the run."""
    repeat: Repeat | None = Field(default=None, examples=[20, "until_others_end"])
    """Its measured iterations, or until_others_end; without it those of the run."""

    @property
    def is_background(self) -> bool:
        """Whether it repeats until all others have ended."""
        return self.repeat == UNTIL_OTHERS_END
