"""The jobs of an experiment: their traces, their compute, their place."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    WithJsonSchema,
)

from chakram.config.mistakes import tag_of
from chakram.config.quantities import (
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
from chakram.config.synth import (
    KINDS,
    AllToAllTrace,
    CollectivesTrace,
    DenseTrace,
    IncastTrace,
    InferenceTrace,
    KvCacheTrace,
    MoeTrace,
    OneToAllTrace,
    PermutationTrace,
    RandomPairsTrace,
    SynthTrace,
)

MAX_RANKS = 65_536
"""Of a replicated trace."""

Correction: TypeAlias = Literal[
    "element-sizes",
    "cycle-durations",
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


class TraceFiles(Model):
    """A trace set that lies in files."""

    path: FilePath
    """Folder, prefix, archive, or one of the files."""
    bytes_per_element: Whole | None = Field(default=None, ge=1, le=64)
    """What one unit of a stored size is worth; None: the sizes are bytes."""
    comm_groups: FilePath | None = None
    """Group file, where it does not lie beside the traces."""
    kineto: FilePath | None = None
    """Profiles of PyTorch host traces, where they are not found beside them."""
    unnamed_group: Name | None = None
    """Process group of operations that name none: gloo's in PyTorch host traces."""
    dependencies: Literal["auto", "data", "control", "both"] = "auto"
    """Which edges of the trace order its nodes."""
    drop_missing_dependencies: bool = Field(default=False, strict=True)
    """Go on where a dependency names a node that the file does not have."""
    duration_unit_ns: Time | None = Field(default=None, alias="duration_unit")
    """What one unit of the trace's durations is worth; None: a microsecond, or what
    its producer is known to write."""
    uncorrected: tuple[Correction, ...] = ()
    """What is left as the trace has it, of what its producer is known to write
    differently."""

    replicate: Whole | None = Field(default=None, ge=2, le=MAX_RANKS)
    """So many ranks do what the trace of one says; None: every rank has its own."""
    rank: Whole = Field(default=0, ge=0, le=MAX_RANKS)
    """The one that is replicated."""
    dimensions: dict[Name, Annotated[Whole, Field(ge=1, le=MAX_RANKS)]] = Field(
        default_factory=dict
    )
    """Sizes of the dimensions of replicated ranks, innermost first."""
    groups: GroupDimensions = Field(default_factory=dict)
    """By process group of a replicated trace: a dimension, several, or ``all``."""
    peer_offset: int | None = Field(default=None, ge=-MAX_RANKS, le=MAX_RANKS)
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


Trace = Annotated[
    Annotated[TraceFiles, Tag(tag_of(TraceFiles))]
    | Annotated[MoeTrace, Tag(tag_of(MoeTrace))]
    | Annotated[DenseTrace, Tag(tag_of(DenseTrace))]
    | Annotated[InferenceTrace, Tag(tag_of(InferenceTrace))]
    | Annotated[KvCacheTrace, Tag(tag_of(KvCacheTrace))]
    | Annotated[CollectivesTrace, Tag(tag_of(CollectivesTrace))]
    | Annotated[IncastTrace, Tag(tag_of(IncastTrace))]
    | Annotated[PermutationTrace, Tag(tag_of(PermutationTrace))]
    | Annotated[AllToAllTrace, Tag(tag_of(AllToAllTrace))]
    | Annotated[OneToAllTrace, Tag(tag_of(OneToAllTrace))]
    | Annotated[RandomPairsTrace, Tag(tag_of(RandomPairsTrace))],
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
    """``none``: no delay; ``trace``: its durations; ``roofline``: operations over
    ``peak`` or bytes over ``memory``, whichever takes longer."""
    scale: Ratio = Fraction(1)
    """Factor on every delay."""
    peak_flops: ComputeRate | None = Field(default=None, alias="peak")
    memory_bytes_per_s: ByteRate | None = Field(default=None, alias="memory")


def _order(value: object) -> str | tuple[int, ...]:
    if value == "linear":
        return "linear"
    if not isinstance(value, list | tuple) or not value:
        raise problem(f"{value!r} is not an order of ranks", "e.g. linear or [0, 1]")
    for rank in value:
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
            raise problem(f"{rank!r} is not a rank", "ranks are whole numbers from 0")
    return tuple(value)


Order = Annotated[
    Literal["linear"] | tuple[int, ...],
    PlainValidator(_order),
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
    """Ranks in the order of the ports; ``linear``: ascending."""
    ranks_per_port: Whole = Field(default=1, ge=1, le=1024)
    first_port: Whole | None = Field(default=None, ge=0)
    """Port of the first rank; None: the first one that no earlier job uses."""
    pattern: Literal["packed", "striped", "random"] = "packed"
    """``packed``: one port after the other; ``striped``: in turns from every switch;
    ``random``: any, by ``seed``."""
    ports: Ports | None = None
    """Ports that may be taken, in order; None: all that no earlier job uses."""
    same_host: Literal["fabric", "skip"] = "fabric"
    """``skip``: messages between ranks of one host do not go through its ports."""
    local_rate_bps: Rate | None = Field(default=None, alias="local_rate")
    """What each rank sends within its host, with ``skip``; None: it takes no time."""


class Job(Model):
    """One trace with its place on the fabric."""

    name: Name
    trace: Trace
    compute: Compute = Compute()
    size_scale: Ratio = Fraction(1)
    """Factor on the size of every message."""
    placement: Placement = Placement()
    ordering: Literal["serial", "overlap"] = "serial"
    """Whether collectives of one process group run one at a time."""
    order: Literal["dependencies", "start_times"] = "dependencies"
    """``start_times``: nodes start at their recorded times instead of after others."""
    policy: Literal["fifo", "start_time", "communication_first"] = "fifo"
    """Which of several ready nodes goes first."""
    start_ns: Time = Field(default=0, alias="start")
    """When the job begins, from the start of the run."""
    repeat: Repeat | None = None
    """Its measured iterations; None: those of the run."""

    @property
    def is_background(self) -> bool:
        """Whether it repeats until all others have ended."""
        return self.repeat == UNTIL_OTHERS_END
