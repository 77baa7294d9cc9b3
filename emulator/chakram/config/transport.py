"""The transport of an experiment: how queue pairs behave."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from chakram.addresses import IPV6, IPV6_EXTRA_BYTES
from chakram.config.congestion import CongestionSettings, congestion_by_name
from chakram.plan.faults import FaultAction, PacketFault
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

PATH_MTUS = (256, 512, 1024, 2048, 4096)
"""The path MTUs that InfiniBand knows."""

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


class Dscp(Model):
    """DSCP of the packets."""

    data: Whole = Field(default=26, ge=0, le=63)
    """Of data packets."""
    ack: Whole = Field(default=26, ge=0, le=63)
    """Of acknowledgements and NAKs."""
    cnp: Whole = Field(default=48, ge=0, le=63)
    """Of congestion notifications."""


class AdaptiveRetransmission(Model):
    """Timeouts in ranges: the first from low to twice that, then twice as high, ..."""

    low_ns: Time = Field(default=1_000_000, alias="low", ge=4_000, le=100 * 10**9)
    """Where the first of four ranges begins; NICs allow 4 us and more."""
    tries: Whole = Field(default=2, ge=1, le=1_000)
    """Timeouts in a row that are taken from one range."""


class QueuePairs(Model):
    """How messages are spread over queue pairs."""

    per: Literal["group_peer"] = "group_peer"
    """Who has queue pairs of its own: each pair of ranks in each group and channel."""
    count: Whole = Field(default=1, ge=1, le=64)
    """Queue pairs for each of these."""
    split: Literal["round_robin", "even"] = "round_robin"
    """How a message uses them. round_robin: it goes over the next one; even: it is
    divided among all."""
    message_size_bytes: Size | None = Field(
        default=None, alias="message_size", ge=256, le=1 << 31
    )
    """Longer messages are posted in pieces of at most so much, which needs verb write;
    without it messages are posted whole."""


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


class Transport(Model):
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
    ] = CongestionSettings()
    """What decides about the rate of a queue pair: the name of a congestion control, or
    the name with its parameters; without it none. Plug-ins add more names."""
    window_bytes: Size | None = Field(default=None, alias="window", le=1 << 40)
    """Bytes that a queue pair may have unacknowledged; without it four bursts, at least
    64 KiB."""
    path_mtu: Literal[256, 512, 1024, 2048, 4096] | None = Field(
        default=None, examples=[4096]
    )
    """Payload of a full packet, in bytes; without it the largest that the fabric's MTU
    has room for."""
    verb: Literal["write", "send"] = "write"
    """Operation that carries messages: RDMA WRITE, the last packet with immediate data,
    or SEND."""
    dscp: Dscp = Dscp()
    """DSCP of packets by what they are."""
    ecn: Literal["off", "ect0", "ect1"] = "ect0"
    """ECN field of data packets and CNPs; with off switches mark nothing."""
    ack_interval: Whole | None = Field(default=None, ge=1, le=1024, examples=[32])
    """Packets after which an acknowledgement is asked for; without it two bursts."""
    retransmit_timeout_ns: Time = Field(
        default=67_108_864, alias="retransmit_timeout", ge=10_000, le=600 * 10**9
    )
    """How long an acknowledgement is waited for before packets are sent again. The
    default is local_ack_timeout 14."""
    local_ack_timeout: Whole | None = Field(default=None, ge=0, le=31, examples=[14])
    """The same as verbs have it: t stands for 4.096 us x 2**t, 0 for no timeout. Only
    one of the two."""
    retry_limit: Whole = Field(default=7, ge=0, le=1_000)
    """Timeouts, or NAKs for one packet, in a row before a queue pair gives up, and the
    run with it."""
    rnr_retry_limit: Whole = Field(default=7, ge=0, le=7)
    """Retries in a row for a receiver that is not ready; 7: no limit."""
    rnr_timer: Whole = Field(default=12, ge=0, le=31)
    """Code of the time that a peer is asked to wait then; 12 is 0.64 ms."""
    adaptive_retransmission: AdaptiveRetransmission | None = Field(
        default=None, examples=[{"low": "1ms", "tries": 2}]
    )
    """Timeouts that begin low and rise, in place of retransmit_timeout."""
    icrc: Literal["table", "full", "off"] = "table"
    """How the ICRC is made: by table, over every byte, or not at all (zeros)."""
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
    queue_pairs: QueuePairs = QueuePairs()
    """Queue pairs of two ranks, and what goes over which."""
    credits: Whole | None = Field(default=None, ge=1, le=64, examples=[4])
    """Messages of a collective that a rank may send to a peer, on one channel, before
    the peer has taken them up; without it any number."""
    burst: Whole | None = Field(default=None, ge=1, le=64, examples=[8])
    """Packets that leave as one, in one send of UDP: of path MTU 4096 at most 15, of
    2048 at most 31; without it chosen by the rate of the ports."""


class PacketFaultSettings(Model):
    """Something that ports do to packets on purpose."""

    action: Literal[
        "drop", "delay", "duplicate", "reorder", "mark", "not_ready", "corrupt"
    ]
    """What is done. drop; delay: others overtake it; duplicate; reorder: a few of its
    queue pair overtake it; mark: "congestion experienced"; corrupt: one bit is
    flipped; not_ready: answered with a receiver-not-ready NAK."""
    at: Literal["receive", "send"] = "receive"
    """Which of the two ports does it."""
    packets: Literal[
        "any", "data", "first", "middle", "last", "only", "ack", "nak", "cnp"
    ] = "data"
    """Which class of packets, by opcode."""
    job: Name | None = Field(default=None, examples=["moe"])
    """Only packets of this job."""
    source: Whole | None = Field(default=None, ge=0, lt=1 << 17, examples=[0])
    """Only packets that this rank sends."""
    destination: Whole | None = Field(default=None, ge=0, lt=1 << 17, examples=[5])
    """Only packets to this rank."""
    group: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None, examples=["p2p"]
    )
    """Only packets of this process group, as "chakram trace show" names it; p2p: of
    messages between two ranks."""
    channel: Whole | None = Field(default=None, ge=0, lt=1 << 10, examples=[0])
    """Only packets of this channel of an algorithm, from 0."""
    queue_pair: Whole | None = Field(default=None, ge=0, lt=64, examples=[0])
    """Only packets of this one of transport.queue_pairs.count, from 0."""
    nth: Whole | None = Field(default=None, ge=1, lt=1 << 53, examples=[3])
    """The packet that it happens to, counted from 1 at each port."""
    count: Whole = Field(default=1, ge=1, lt=1 << 53)
    """How many in a row."""
    every: Whole | None = Field(default=None, ge=1, lt=1 << 53, examples=[1000])
    """And again, each time after so many packets."""
    probability: Number | None = Field(default=None, gt=0.0, le=1.0, examples=[0.01])
    """Share of the packets that it happens to, at random; in place of nth."""
    by_ns: Time = Field(default=1_000_000, alias="by", ge=1, le=10 * 10**9)
    """How much a delay is; how long a reordered packet waits for others at most."""
    behind: Whole = Field(default=3, ge=1, le=1_000)
    """How many packets overtake a reordered one."""
    part: Literal["any", "header", "payload"] = "any"
    """Where corrupt flips a bit: anywhere from the BTH to the ICRC, in the headers of
    the transport, or in the payload."""

    def fault(self) -> PacketFault:
        """Return what ports are told.

        Raises:
            ValueError: If the values do not fit together; none of a checked experiment
                does.
        """
        return PacketFault(
            action=FaultAction[self.action.upper()],
            at_send=self.at == "send",
            packets=self.packets,
            job=self.job,
            source=self.source,
            destination=self.destination,
            group=self.group,
            channel=self.channel,
            queue_pair=self.queue_pair,
            nth=self.nth or 0,
            count=self.count,
            every=self.every or 0,
            probability=self.probability or 0.0,
            delay_ns=self.by_ns,
            behind=self.behind,
            part=self.part,
        )


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
