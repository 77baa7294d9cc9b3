"""The transport of an experiment: how queue pairs behave."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
    model_validator,
)

from chakram.collectives.ops import CollectiveOp
from chakram.config.congestion import CongestionSettings, congestion_by_name
from chakram.config.link_faults import LinkFaultSettings
from chakram.foundation.declared_parameters import KnobField, knobs_of
from chakram.foundation.field_bounds import AtMost, Matching, OneOf, Within
from chakram.foundation.ip_addresses import IPV6, IPV6_EXTRA_BYTES
from chakram.plan.packet_faults import PacketFault
from chakram.plan.transport import PATH_MTUS, TransportPlan
from chakram.roce.congestion import CONTROLS
from chakram.roce.constants import ICRC_BYTES, LARGEST_SEND_BYTES
from chakram.roce.headers import BTH_BYTES
from chakram.settings.quantities import (
    Model,
    Name,
    Number,
    Size,
    Time,
    Whole,
    problem,
)

# Sections made of what plans declare (chakram.foundation.declared_parameters): from a
# knob follows the key with its type, bounds, default and help; and from what was
# written, the field of the plan.

_UNITS = ("_ns", "_bytes")


def section_of(kind: type, *place: str) -> Any:
    """Return a model with the keys of a plan's part that stand at *place*.

    Sections derive from it. What describes the keys stands below the plan's fields.
    """
    fields: dict[str, Any] = {
        each.name: (_type(each), _field(each))
        for each in knobs_of(kind)
        if each.knob.key is not None and each.path[:-1] == place
    }
    made = create_model(f"{kind.__name__}Keys", __base__=Model, **fields)
    made.described_by = kind
    return made


def written(section: Model, kind: type) -> dict[str, Any]:
    """Return the fields of a plan's part that a section says something of."""
    found: dict[str, Any] = {}
    for each in knobs_of(kind):
        if each.knob.key is None:
            continue
        value: Any = section
        for name in (*each.path[:-1], each.name):
            value = None if value is None else getattr(value, name)
        if value is not None:
            words = each.knob.words
            found[each.name] = value if words is None else words[value]
    return found


def _field(each: KnobField) -> Any:
    knob = each.knob
    default = each.default if knob.default is None else knob.default
    if knob.is_optional:
        default = None
    if knob.words is not None and default is not MISSING:
        default = next(word for word, value in knob.words.items() if value == default)
    return Field(
        ... if default is MISSING else default,
        alias=each.path[-1] if each.path[-1] != each.name else None,
        examples=None if knob.example is None else [knob.example],
        **_limits(each),
    )


def _type(each: KnobField) -> Any:
    """Return what may be written."""
    kind = _single_type(each)
    return kind | None if each.knob.is_optional or each.declared.may_be_none else kind


def _single_type(each: KnobField) -> Any:
    knob, declared = each.knob, each.declared
    choices = declared.bound(OneOf)
    words = knob.words or (choices and choices.choices)
    if words:
        return Literal[tuple(words)]
    if declared.kind is str:
        pattern, length = declared.bound(Matching), declared.bound(AtMost)
        if pattern is not None:
            return Annotated[
                str, Field(pattern=pattern.pattern, max_length=pattern.most)
            ]
        most: Any = knob.most or (None if length is None else length.most)
        return Annotated[str, Field(min_length=1, max_length=most)]
    if each.name.endswith(_UNITS):
        return Time if each.name.endswith("_ns") else Size
    return Number if declared.kind is float else Whole


def _limits(each: KnobField) -> dict[str, Any]:
    """Return the bounds of what may be written, where its type has not said them."""
    knob, within = each.knob, each.declared.bound(Within)
    limits: dict[str, Any] = {}
    # Times and sizes have bounds of their own.
    if within is not None and knob.words is None and not each.name.endswith(_UNITS):
        limits = {"ge": within.least, "le": within.most}
    if knob.above is not None:
        limits["gt"] = knob.above
        limits.pop("ge", None)
    if each.declared.kind is not str:
        said = {"ge": knob.least, "le": knob.most}
        limits |= {name: limit for name, limit in said.items() if limit is not None}
    return limits


_HEADER_ALLOWANCE_BYTES = 80
"""What drivers leave for headers when they derive the path MTU from the interface's:
IPv4 20, UDP 8, BTH 12, RETH 16, immediate 4 and ICRC 4 are 64."""

_IPV4_HEADER_BYTES = 20
_MIDDLE_HEADERS_BYTES = BTH_BYTES + ICRC_BYTES


def header_allowance_bytes(family: str) -> int:
    """Return what is left for headers in a packet of ``ipv4`` or ``ipv6``."""
    return _HEADER_ALLOWANCE_BYTES + (IPV6_EXTRA_BYTES if family == IPV6 else 0)


def largest_path_mtu(mtu: int, family: str) -> int:
    """Return the largest path MTU that fits into packets of *mtu*.

    Raises:
        ValueError: If not even 256 fits; no fabric section allows such an MTU.
    """
    headers_bytes = header_allowance_bytes(family)
    return max(each for each in PATH_MTUS if each + headers_bytes <= mtu)


def largest_burst(path_mtu: int, family: str) -> int:
    """Return how many packets of *path_mtu* leave in one send over *family*.

    UDP's length, of 16 bits, counts its header; IPv4's counts IPv4's header as well.
    """
    most_bytes = LARGEST_SEND_BYTES
    if family == IPV6:
        most_bytes += _IPV4_HEADER_BYTES
    return most_bytes // (path_mtu + _MIDDLE_HEADERS_BYTES)


class Dscp(section_of(TransportPlan, "dscp")):  # type: ignore[misc] # a made class
    """DSCP of the packets."""


class AdaptiveRetransmission(
    section_of(TransportPlan, "adaptive_retransmission")  # type: ignore[misc] # a made class
):
    """Timeouts in ranges: the first from low to twice that, then twice as high, ..."""


class Accept(section_of(TransportPlan, "reordering", "accept")):  # type: ignore[misc] # a made class
    """Packets that have overtaken others are kept until what is missing has come."""


class Reordering(Model):
    """What becomes of packets that arrive before those that were sent before them."""

    accept: Accept | None = None
    """They are kept; without it they are dropped, as verbs have it (reject)."""


def _reordering_by_name(value: object) -> object:
    """Turn ``accept`` into ``{accept: {}}``, and ``reject`` into nothing."""
    if not isinstance(value, str):
        return value
    if value not in ("reject", "accept"):
        raise problem(f"{value!r} is no way to treat reordering", "reject or accept")
    return {value: {}} if value == "accept" else {}


class QueuePairs(section_of(TransportPlan, "queue_pairs")):  # type: ignore[misc] # a made class
    """How messages are spread over queue pairs."""

    per: Literal["group_peer"] = "group_peer"
    """Who has queue pairs of its own: each pair of ranks in each group and channel."""
    count: Whole = Field(default=1, ge=1, le=64)
    """Queue pairs for each of these."""


class ClassOf(Model):
    """Which queue pairs are of a class of their own: those that all of it fits."""

    job: Name | None = None
    """Name of a job; without it any."""
    collective: (
        Annotated[
            CollectiveOp,
            WithJsonSchema({"enum": [op.value for op in CollectiveOp]}),
        ]
        | None
    ) = Field(default=None, examples=["all_to_all"])
    """What their process group is there for; without it anything, messages between two
    ranks included."""
    group: str | None = Field(
        default=None, min_length=1, max_length=1024, examples=["dp*"]
    )
    """Name of their process group, where * stands for any text; without it any.
    Messages between two ranks are those of p2p."""
    traffic_class: Whole = Field(alias="class", ge=0, le=7, examples=[4])
    """The traffic class: data have the DSCP of its class selector, 8 times as much."""


SourcePorts = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1024, le=65535)], ...],
    Field(min_length=1, max_length=64),
]

_ALIASES = {"qps_per_rankpair": "count", "rdma_message_size": "message_size"}
"""Names that others have for keys of ``queue_pairs``."""

_ALIAS_TYPES: dict[str, dict[str, Any]] = {
    "qps_per_rankpair": {"type": "integer", "examples": [4]},
    "rdma_message_size": {"type": "string", "examples": ["64KiB"]},
}


def _describe_aliases(schema: dict[str, Any]) -> None:
    """Let editors know the other names, too."""
    for alias, name in _ALIASES.items():
        schema["properties"][alias] = {
            "description": f"Another name for queue_pairs.{name}.",
            **_ALIAS_TYPES[alias],
        }


class Transport(section_of(TransportPlan)):  # type: ignore[misc] # a made class
    """Settings of every queue pair.

    ``qps_per_rankpair`` and ``rdma_message_size`` are other names for
    ``queue_pairs.count`` and ``queue_pairs.message_size``.
    """

    model_config = ConfigDict(json_schema_extra=_describe_aliases)

    @model_validator(mode="before")
    @classmethod
    def _take_aliases(cls, data: object) -> object:
        if not isinstance(data, dict) or not _ALIASES.keys() & data.keys():
            return data
        kept = {name: value for name, value in data.items() if name not in _ALIASES}
        pairs = kept.get("queue_pairs", {})
        if not isinstance(pairs, dict):
            return data
        for alias, name in _ALIASES.items():
            if alias not in data:
                continue
            if name in pairs:
                raise problem(
                    f"{alias} and queue_pairs.{name} are two names for one thing",
                    "give one of them",
                )
            pairs = {**pairs, name: data[alias]}
        return {**kept, "queue_pairs": pairs}

    congestion_control: Annotated[
        CongestionSettings,
        BeforeValidator(
            congestion_by_name,
            json_schema_input_type=CongestionSettings
            | Literal[tuple(CONTROLS.own)]
            | Annotated[str, Field(examples=["fixed_rate"])],
        ),
    ] = CongestionSettings.unsaid()
    """What decides about the rate of a queue pair: the name of a congestion control, or
    the name with its parameters; without it none. Plug-ins add more names."""
    dscp: Dscp = Dscp.unsaid()
    """DSCP of packets by what they are. Modelled switches that have traffic classes
    take them from it."""
    class_of: tuple[ClassOf, ...] = Field(
        default=(),
        max_length=64,
        examples=[[{"collective": "all_to_all", "class": 4}]],
    )
    """Queue pairs of a class of their own, by job, collective or process group; the
    first that fits holds, and dscp.data is that of all others. Answers have the class
    of what they answer, unless dscp.ack differs from dscp.data."""
    local_ack_timeout: Whole | None = Field(default=None, ge=0, le=31, examples=[14])
    """The same as verbs have it: t stands for 4.096 us x 2**t, 0 for no timeout. Only
    one of the two."""
    adaptive_retransmission: AdaptiveRetransmission | None = Field(
        default=None, examples=[{"low": "1ms", "tries": 2}]
    )
    """Timeouts that begin low and rise, in place of retransmit_timeout."""
    reordering: Annotated[
        Reordering,
        BeforeValidator(
            _reordering_by_name,
            json_schema_input_type=Reordering | Literal["reject", "accept"],
        ),
    ] = Reordering.unsaid()
    """What receivers do with packets that arrive out of order: reject drops them and
    has the sender go back, accept keeps those that are in a window."""
    verify: Literal["full", "sample", "off"] | None = Field(
        default=None, examples=["full"]
    )
    """Which received packets have ICRC and payload looked at: all, one in icrc_check,
    or none; without it all, where the hot modules are compiled, else a sample."""
    icrc_check: Whole | None = Field(
        default=None, ge=0, le=1_000_000_000, examples=[100]
    )
    """One in so many packets received is looked at with verify: sample; without it one
    in 64. By itself it means that sample, and 0 none."""
    psn_seed: Whole | None = Field(default=None, ge=0, lt=1 << 63, examples=[1])
    """Seed of the first packet sequence numbers; without it a run draws one from the
    system's entropy, and a simulation takes seed."""
    source_ports: Literal["flow_label"] | SourcePorts = "flow_label"
    """UDP source ports of queue pairs, which decide about equal-cost paths: as adapters
    derive them from the two queue pair numbers, or a list that is used in turn."""
    queue_pairs: QueuePairs = QueuePairs.unsaid()
    """Queue pairs of two ranks, and what goes over which."""
    credits: Whole | None = Field(default=None, ge=1, le=64, examples=[4])
    """Messages of a collective that a rank may send to a peer, on one channel, before
    the peer has taken them up; without it any number."""


class PacketFaultSettings(section_of(PacketFault)):  # type: ignore[misc] # a made class
    """Something that ports do to packets on purpose."""

    def fault(self) -> PacketFault:
        """Return what ports are told.

        Raises:
            ValueError: If the values do not fit together; none of a checked experiment
                does.
        """
        return PacketFault(**written(self, PacketFault))


class Faults(Model):
    """Declared disturbances."""

    drop: Number = Field(default=0.0, ge=0.0, lt=1.0, examples=[0.001])
    """Share of the packets that ports drop at random when they receive them."""
    packets: tuple[PacketFaultSettings, ...] = Field(
        default=(),
        max_length=64,
        examples=[[{"action": "drop", "packets": "last", "nth": 3}]],
    )
    """What else ports do to packets, one by one."""
    links: tuple[LinkFaultSettings, ...] = Field(
        default=(),
        max_length=64,
        examples=[[{"kind": "down", "link": "leaf0-spine0", "at": "100ms"}]],
    )
    """What happens to links: in simulations of packets, and in runs in namespaces."""
