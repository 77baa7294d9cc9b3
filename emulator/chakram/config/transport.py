"""The transport section of an experiment: how queue pairs behave."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from chakram.collectives.ops import CollectiveOp
from chakram.config.congestion import CongestionSettings, congestion_by_name
from chakram.config.link_faults import LinkFaultSettings
from chakram.foundation.ip_addresses import IPV6, IPV6_EXTRA_BYTES
from chakram.plan.packet_faults import PacketFault
from chakram.plan.transport import PATH_MTUS, TransportPlan
from chakram.roce.congestion import CONTROLS
from chakram.roce.constants import BTH_BYTES, ICRC_BYTES, LARGEST_SEND_BYTES
from chakram.settings.declared_sections import field_values, section_of
from chakram.settings.field_types import Model, Name, Number, Whole, problem

_HEADER_ALLOWANCE_BYTES = 80
"""Bytes that drivers reserve for headers when they derive the path MTU from the
interface MTU. IPv4 (20), UDP (8), BTH (12), RETH (16), immediate data (4) and ICRC (4)
add up to 64 bytes."""

_IPV4_HEADER_BYTES = 20
_MIDDLE_HEADERS_BYTES = BTH_BYTES + ICRC_BYTES


def header_allowance_bytes(family: str) -> int:
    """Return the bytes reserved for headers in a packet of ``ipv4`` or ``ipv6``."""
    return _HEADER_ALLOWANCE_BYTES + (IPV6_EXTRA_BYTES if family == IPV6 else 0)


def largest_path_mtu(mtu: int, family: str) -> int:
    """Return the largest path MTU whose packets fit into an interface MTU of *mtu*.

    Raises:
        ValueError: If the smallest path MTU, 256, does not fit. No fabric section
            allows such an interface MTU.
    """
    headers_bytes = header_allowance_bytes(family)
    return max(each for each in PATH_MTUS if each + headers_bytes <= mtu)


def largest_burst(path_mtu: int, family: str) -> int:
    """Return how many packets of *path_mtu* fit into one send over *family*.

    The 16-bit UDP length includes the UDP header. The IPv4 total length also includes
    the IPv4 header.
    """
    most_bytes = LARGEST_SEND_BYTES
    if family == IPV6:
        most_bytes += _IPV4_HEADER_BYTES
    return most_bytes // (path_mtu + _MIDDLE_HEADERS_BYTES)


class Dscp(section_of(TransportPlan, "dscp")):  # type: ignore[misc] # a made class
    """DSCP values of the packets."""


class AdaptiveRetransmission(
    section_of(TransportPlan, "adaptive_retransmission")  # type: ignore[misc] # a made class
):
    """Timeouts in four ranges: from low to twice low, then each range twice as high."""


class Accept(section_of(TransportPlan, "reordering", "accept")):  # type: ignore[misc] # a made class
    """Window in which receivers keep packets until missing earlier packets arrive."""


class Reordering(Model):
    """Handling of packets that arrive out of order."""

    accept: Accept | None = None
    """Keep packets that arrive out of order."""


def _reordering_by_name(value: object) -> object:
    """Convert ``accept`` to ``{accept: {}}``, and ``reject`` to an empty section."""
    if not isinstance(value, str):
        return value
    if value not in ("reject", "accept"):
        raise problem(f"{value!r} is not a reordering mode", "write reject or accept")
    return {value: {}} if value == "accept" else {}


class QueuePairs(section_of(TransportPlan, "queue_pairs")):  # type: ignore[misc] # a made class
    """Number of queue pairs, and how messages are spread over them."""

    per: Literal["group_peer"] = "group_peer"
    """Scope of a set of queue pairs: two ranks, in each process group and channel."""
    count: Whole = Field(default=1, ge=1, le=64)
    """Number of queue pairs in each set."""


class ClassOf(Model):
    """Rule that assigns a traffic class to queue pairs that match all of its keys.

    The rule has either a class or a DSCP.
    """

    job: Name | None = None
    """Job. Default: any job."""
    collective: (
        Annotated[
            CollectiveOp,
            WithJsonSchema({"enum": [op.value for op in CollectiveOp]}),
        ]
        | None
    ) = Field(default=None, examples=["all_to_all"])
    """Collective of the process group; send_recv: messages between two ranks. Default:
    any collective, and messages between two ranks."""
    group: str | None = Field(
        default=None, min_length=1, max_length=1024, examples=["dp*"]
    )
    """Process group, where * matches any text, or p2p. Default: any."""
    traffic_class: Whole | None = Field(
        default=None, alias="class", ge=0, le=7, examples=[4]
    )
    """Traffic class; the DSCP of data packets is 8 times the class."""
    dscp: Whole | None = Field(default=None, ge=0, le=63, examples=[26])
    """DSCP of data packets, instead of class."""

    @property
    def code_point(self) -> int:
        """DSCP of data packets."""
        return (self.traffic_class or 0) << 3 if self.dscp is None else self.dscp


SourcePorts = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1024, le=65535)], ...],
    Field(min_length=1, max_length=64),
]

_ALIASES = {"qps_per_rankpair": "count", "rdma_message_size": "message_size"}
"""Alternative names of keys in ``queue_pairs``."""

_ALIAS_TYPES: dict[str, dict[str, Any]] = {
    "qps_per_rankpair": {"type": "integer", "examples": [4]},
    "rdma_message_size": {"type": "string", "examples": ["64KiB"]},
}


def _describe_aliases(schema: dict[str, Any]) -> None:
    """Add the alternative names to the schema, for editors."""
    for alias, name in _ALIASES.items():
        schema["properties"][alias] = {
            "description": f"Alternative name of queue_pairs.{name}.",
            **_ALIAS_TYPES[alias],
        }


class Transport(section_of(TransportPlan)):  # type: ignore[misc] # a made class
    """Settings of every queue pair.

    ``qps_per_rankpair`` and ``rdma_message_size`` are alternative names of
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
                    f"{alias} and queue_pairs.{name} are the same setting",
                    "remove one of them",
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
    ] = CongestionSettings.section_defaults()
    """Congestion control: its name, or its name with parameters. Default: none.
    Plug-ins add names."""
    dscp: Dscp = Dscp.section_defaults()
    """DSCP by packet type. Modeled switches with traffic classes derive the class
    from the DSCP."""
    class_of: tuple[ClassOf, ...] = Field(
        default=(),
        max_length=64,
        examples=[[{"collective": "all_to_all", "class": 4}]],
    )
    """Rules for traffic classes. The first matching rule applies. If none matches,
    dscp.data sets the class. Acknowledgments have the class of their data, unless
    dscp.ack differs from dscp.data."""
    local_ack_timeout: Whole | None = Field(default=None, ge=0, le=31, examples=[14])
    """Alternative to retransmit_timeout, as in RDMA verbs: 4.096us x 2**t; 0: no
    timeout."""
    adaptive_retransmission: AdaptiveRetransmission | None = Field(
        default=None, examples=[{"low": "1ms", "tries": 2}]
    )
    """Timeouts that start low and increase, instead of retransmit_timeout."""
    reordering: Annotated[
        Reordering,
        BeforeValidator(
            _reordering_by_name,
            json_schema_input_type=Reordering | Literal["reject", "accept"],
        ),
    ] = Reordering.section_defaults()
    """Packets that arrive out of order. reject: dropped, and the sender goes back
    (go-back-N); accept: kept within a window."""
    verify: Literal["full", "sample", "off"] | None = Field(
        default=None, examples=["full"]
    )
    """Check of ICRC and payload of received packets. full: all; sample: one in
    icrc_check; off: none. Default: full if hot modules are compiled, else sample."""
    icrc_check: Whole | None = Field(
        default=None, ge=0, le=1_000_000_000, examples=[100]
    )
    """For sample: check one in this many packets. Default: 64. Without verify, 0
    selects off, and any other number selects sample."""
    psn_seed: Whole | None = Field(default=None, ge=0, lt=1 << 63, examples=[1])
    """Seed of initial packet sequence numbers. Default: random in a run, seed in a
    simulation."""
    source_ports: Literal["flow_label"] | SourcePorts = "flow_label"
    """UDP source ports, which determine equal-cost paths. flow_label: computed from the
    queue pair numbers, as in NICs; or a list of ports to use alternately."""
    queue_pairs: QueuePairs = QueuePairs.section_defaults()
    """Queue pairs between two ranks, and how messages use them."""
    credits: Whole | None = Field(default=None, ge=1, le=64, examples=[4])
    """Number of messages per channel of a collective that a rank may send before the
    peer consumes them. Default: no limit."""


class PacketFaultSettings(section_of(PacketFault)):  # type: ignore[misc] # a made class
    """A packet fault that ports inject."""

    def fault(self) -> PacketFault:
        """Convert the section to the packet fault of a plan.

        Raises:
            ValueError: If the values contradict each other. A checked experiment has no
                such values.
        """
        return PacketFault(**field_values(self, PacketFault))


class Faults(Model):
    """Deliberate packet and link faults."""

    drop: Number = Field(default=0.0, ge=0.0, lt=1.0, examples=[0.001])
    """Fraction of received packets dropped at random."""
    packets: tuple[PacketFaultSettings, ...] = Field(
        default=(),
        max_length=64,
        examples=[[{"action": "drop", "packets": "last", "nth": 3}]],
    )
    """Rules for other packet faults."""
    links: tuple[LinkFaultSettings, ...] = Field(
        default=(),
        max_length=64,
        examples=[[{"kind": "down", "link": "leaf0-spine0", "at": "100ms"}]],
    )
    """Link faults. Simulations at levels message and flow support only faults that last
    the whole run."""
