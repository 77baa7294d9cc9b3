"""Jobs of an experiment: their traces, compute times and placement."""

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
from chakram.settings.field_types import (
    ByteRate,
    ComputeRate,
    FilePath,
    Model,
    Name,
    Rate,
    Ratio,
    Time,
    TimeUnit,
    Whole,
    problem,
)
from chakram.settings.located_errors import tag_of
from chakram.synth.settings import KINDS
from chakram.synth.settings.base import SynthTrace

UNNAMED_OPERATIONS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v",
    "broadcast", "reduce", "gather", "scatter", "barrier", "send", "recv",
    ANY_OPERATION,
)  # fmt: skip
"""Operations that may lack a process group in PyTorch host traces."""

MAX_RANKS = 65_536
"""Largest number of ranks of a replicated trace."""

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
"""Corrections for traces of known producers. Each has the name of its warning."""


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
                f"{names!r} is not the name of a dimension", "e.g. tp, [tp, dp] or all"
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
"""Names of the dimensions of each process group."""


def _unnamed_groups(value: object) -> dict[str, str]:
    if value is None:
        return {}
    stated = value if isinstance(value, dict) else {ANY_OPERATION: value}
    groups: dict[str, str] = {}
    for operation, group in stated.items():
        if operation not in UNNAMED_OPERATIONS:
            raise problem(
                f"{operation!r} is not a supported operation",
                f"use one of {', '.join(UNNAMED_OPERATIONS)}",
            )
        if not isinstance(group, str) or not 1 <= len(group) <= 64:
            raise problem(f"{group!r} is not the name of a group", "e.g. '0', dp")
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
"""Name of the process group for each operation."""


class TraceFiles(Model):
    """A trace set in files."""

    path: FilePath
    """Location of the trace: folder, prefix, archive, or one of the files."""
    bytes_per_element: Whole | None = Field(default=None, ge=1, le=64, examples=[2])
    """Bytes per element, for traces with sizes in elements, such as STAGE traces.
    Default: sizes are in bytes."""
    comm_groups: FilePath | None = Field(
        default=None, examples=["traces/mixtral/comm_group.json"]
    )
    """File of process groups, if it is not next to the traces."""
    kineto: FilePath | None = Field(default=None, examples=["traces/kineto/"])
    """Profiles of PyTorch host traces, if they are not next to the traces."""
    unnamed_group: UnnamedGroups = Field(
        default_factory=dict, examples=["world", {"all_reduce": "0"}]
    )
    """Group of operations that name no group, such as gloo operations: one group for
    all, or one per operation. * matches any text in the name or description of a
    group."""
    dependencies: Literal["auto", "data", "control", "both"] = "auto"
    """Dependencies that order the nodes. auto: data dependencies, or control
    dependencies if the file has no others."""
    drop_missing_dependencies: bool = Field(default=False, strict=True)
    """Ignore dependencies on missing nodes."""
    duration_unit_ns: TimeUnit | None = Field(
        default=None, alias="duration_unit", examples=["1ns"]
    )
    """Time unit of durations in the trace. Default: 1us."""
    uncorrected: tuple[Correction, ...] = Field(
        default=(), examples=[["self-control-dependency"]]
    )
    """Corrections of known deviations of the trace's producer to disable."""

    replicate: Whole | None = Field(default=None, ge=2, le=MAX_RANKS, examples=[64])
    """Number of ranks that replay the trace of one rank. Default: every rank has a
    trace."""
    rank: Whole = Field(default=0, ge=0, le=MAX_RANKS)
    """Rank whose trace is replicated."""
    dimensions: dict[Name, Annotated[Whole, Field(ge=1, le=MAX_RANKS)]] = Field(
        default_factory=dict, examples=[{"tp": 8, "dp": 8}]
    )
    """Sizes of the parallel dimensions, innermost first, for groups of a replicated
    trace and collectives with involved_dim. Their product is the number of ranks."""
    groups: GroupDimensions = Field(
        default_factory=dict, examples=[{"1": "tp", "2": ["tp", "dp"]}]
    )
    """Dimensions of each process group of a replicated trace: one, several, or all.
    Default: the layout on the recorded rank."""
    peer_offset: int | None = Field(
        default=None, ge=-MAX_RANKS, le=MAX_RANKS, examples=[1]
    )
    """Offset from a rank to its peer, for messages of a replicated trace that name no
    peer."""


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
"""A trace set in files, or a synthetic trace."""


class Compute(Model):
    """Duration of compute nodes."""

    source: Literal["none", "trace", "roofline"] = Field(default="trace", alias="from")
    """Duration of a compute node. none: zero; trace: as recorded; roofline: operations
    divided by peak, or bytes divided by memory, whichever is longer."""
    scale: Ratio = Fraction(1)
    """Factor that multiplies the duration of every compute node."""
    peak_flops: ComputeRate | None = Field(default=None, alias="peak")
    """Peak operations per second of a rank, for roofline."""
    memory_bytes_per_s: ByteRate | None = Field(default=None, alias="memory")
    """Memory bandwidth of a rank, for roofline. Default: no limit."""


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
    # Pydantic's default serializer does not support this union with text.
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
    # Pydantic's default serializer does not support an optional tuple of unions.
    PlainSerializer(list, return_type=list),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]},
            "minItems": 1,
        }
    ),
]
"""Ports, by number or host name."""


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
    """Assignment of ranks to ports."""

    order: Order = "linear"
    """Ranks in the order of their ports. linear: ascending."""
    ranks_per_port: Whole = Field(default=1, ge=1, le=1024)
    """Number of ranks per port."""
    first_port: Whole | None = Field(default=None, ge=0, examples=[4])
    """First port, or for striped and random, the first port to choose from. Default for
    packed: the first port after those of earlier jobs."""
    pattern: Literal["packed", "striped", "random"] = "packed"
    """Choice of ports. packed: consecutive ports; striped: ports that alternate between
    all switches; random: ports drawn from seed."""
    ports: Ports | None = Field(default=None, examples=[[0, 1, "h4", "h5"]])
    """Ports to choose from, by number or host name. Default: ports that no earlier job
    uses."""
    same_host: Literal["fabric", "skip"] = "fabric"
    """Path of messages within a host. fabric: through the ports of the host; skip: not
    through the fabric."""
    local_rate_bps: Rate | None = Field(default=None, alias="local_rate")
    """Rate of each rank's messages that skip the fabric. Default: unlimited."""


class Job(Model):
    """One trace with its placement on the fabric."""

    name: Name
    """Name of the job in all results."""
    trace: Trace
    """Files (path), or a synthetic trace (synth)."""
    compute: Compute = Compute.section_defaults()
    """Duration of compute nodes."""
    size_scale: Ratio = Fraction(1)
    """Factor that multiplies the size of every message."""
    placement: Placement = Placement.section_defaults()
    """Placement of the job's ranks on the fabric."""
    ordering: Literal["serial", "overlap"] = "serial"
    """Order of collectives in a process group. serial: one at a time in a fixed order,
    as in NCCL; overlap: each as soon as it is ready."""
    order: Literal["dependencies", "start_times"] = "dependencies"
    """When nodes start. dependencies: after the nodes that they depend on; start_times:
    at their recorded times."""
    policy: Literal["fifo", "start_time", "communication_first"] = "fifo"
    """Which ready node starts first. fifo: the one that became ready first; start_time:
    the one recorded first; communication_first: the one that leads to communication
    soonest."""
    resources: Literal["streams", "astra-sim"] = "streams"
    """Resources of a rank that run one operation at a time. streams: the CPU and each
    GPU stream; astra-sim: CPU compute, GPU compute, and all others, in the same order
    on all ranks."""
    start_ns: Time = Field(default=0, alias="start", examples=["200ms"])
    """Start time, from the start of the run."""
    repeat: Repeat | None = Field(default=None, examples=[20, "until_others_end"])
    """Number of measured iterations. Default: iterations.measured."""

    @property
    def is_background(self) -> bool:
        """Whether the job repeats until all other jobs have ended."""
        return self.repeat == UNTIL_OTHERS_END
