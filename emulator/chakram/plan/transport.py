"""The settings of every queue pair: each declared once, as a field.

The text below a field is the help of its key in the experiment file.

To set something more: a line here, and the place in the engine that does it; see
docs/howto/add-a-transport-setting.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from chakram.foundation.declared_parameters import Knob
from chakram.foundation.field_bounds import (
    AtMost,
    Name,
    OneOf,
    Size,
    TimeNs,
    Within,
    check_fields,
)
from chakram.foundation.units import LARGEST_SIZE_BYTES

PATH_MTUS = (256, 512, 1024, 2048, 4096)
"""The path MTUs that InfiniBand knows."""

ICRC_MODES = ("table", "full", "off")
"""How senders make the ICRC: by table, over every byte of every packet, or zeros."""

_LONGEST_TIMEOUT_NS = 1 << 53

Dscp = Annotated[int, Within(0, 63)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportPlan:
    """Settings of every queue pair.

    Raises:
        ValueError: If one of them is out of its bounds.
    """

    path_mtu: Annotated[
        int, OneOf(PATH_MTUS), Knob(1, is_optional=True, example=4096)
    ] = 4096
    """Payload of a full packet, in bytes; without it the largest that the fabric's MTU
    has room for."""
    window_bytes: Annotated[
        int, Within(1, LARGEST_SIZE_BYTES), Knob(2, is_optional=True, most=1 << 40)
    ] = 64 * 1024
    """Bytes that a queue pair may have unacknowledged; without it four bursts, at least
    64 KiB, with modelled switches at least what a port sends in 5 ms."""
    congestion_control: Annotated[Name, Knob(3, key=None)] = "none"
    congestion_parameters: Annotated[
        tuple[tuple[Name, int], ...], AtMost(100), Knob(4, key=None)
    ] = ()
    verb: Annotated[str, OneOf(("write", "send")), Knob(5)] = "write"
    """Operation that carries messages: RDMA WRITE, the last packet with immediate data,
    or SEND."""
    dscp_data: Annotated[Dscp, Knob(6, key="dscp.data")] = 26
    """Of data packets."""
    dscp_ack: Annotated[Dscp, Knob(7, key="dscp.ack")] = 26
    """Of acknowledgements and NAKs."""
    dscp_cnp: Annotated[Dscp, Knob(14, key="dscp.cnp")] = 48
    """Of congestion notifications."""
    ecn: Annotated[
        int, Within(0, 3), Knob(8, words={"off": 0, "ect0": 2, "ect1": 1})
    ] = 2
    """ECN field of all packets; with off switches mark nothing."""
    ack_interval_packets: Annotated[
        int,
        Within(1, 2**31 - 1),
        Knob(9, key="ack_interval", is_optional=True, most=1024, example=32),
    ] = 4
    """Packets after which an acknowledgement is asked for; without it two bursts."""
    # 0: for ever.
    retransmit_timeout_ns: Annotated[
        int, Within(0, _LONGEST_TIMEOUT_NS), Knob(10, least=10_000, most=600 * 10**9)
    ] = 67_108_864
    """How long an acknowledgement is waited for before packets are sent again. The
    default is local_ack_timeout 14."""
    retry_limit: Annotated[int, Within(0, 2**31 - 1), Knob(11, most=1_000)] = 7
    """Timeouts, or NAKs for one packet, in a row before a queue pair gives up, and the
    run with it."""
    rnr_retry_limit: Annotated[int, Within(0, 7), Knob(15)] = 7
    """Retries in a row for a receiver that is not ready; 7: no limit."""
    rnr_timer: Annotated[int, Within(0, 31), Knob(16)] = 12
    """Code of the time that a peer is asked to wait then; 12 is 0.64 ms."""
    # 0: none is taken, as verbs have it.
    reordering_packets: Annotated[
        int,
        Within(0, 1 << 16),
        Knob(23, key="reordering.accept.window", least=1, default=64),
    ] = 0
    """How far ahead of the expected one, in packets, a packet is kept; one beyond that
    is dropped and shows that the expected one is lost."""
    # 0: no ranges, always the same timeout.
    adaptive_low_ns: Annotated[
        int,
        Within(0, 10**12),
        Knob(
            17,
            key="adaptive_retransmission.low",
            least=4_000,
            most=100 * 10**9,
            default=1_000_000,
        ),
    ] = 0
    """Where the first of four ranges begins; NICs allow 4 us and more."""
    adaptive_tries: Annotated[
        int, Within(1, 1_000), Knob(18, key="adaptive_retransmission.tries")
    ] = 2
    """Timeouts in a row that are taken from one range."""
    split: Annotated[
        str, OneOf(("round_robin", "even")), Knob(19, key="queue_pairs.split")
    ] = "round_robin"
    """How a message uses them. round_robin: it goes over the next one; even: it is
    divided among all."""
    message_bytes: Annotated[
        Size,
        Knob(
            20,
            key="queue_pairs.message_size",
            is_optional=True,
            least=256,
            most=1 << 31,
        ),
    ] = 0
    """Longer messages are posted in pieces of at most so much, which needs verb write;
    without it messages are posted whole."""
    icrc: Annotated[str, OneOf(ICRC_MODES), Knob(21)] = "table"
    """How the ICRC is made: by table, over every byte, or not at all (zeros)."""
    verify_every: Annotated[int, Within(0, 2**30), Knob(22, key=None)] = 1
    """One in so many received packets is looked at, ICRC and payload; 0: none."""
    max_burst_packets: Annotated[
        int, Within(1, 128), Knob(12, key="burst", is_optional=True, most=64, example=8)
    ] = 4
    """Packets that leave as one, in one send of UDP: of path MTU 4096 at most 15, of
    2048 at most 31; without it chosen by the rate of the ports."""
    burst_bound_ns: Annotated[TimeNs, Knob(13, key=None)] = 1_000_000
    """How much lag the pacing of a port may make up, in time at its rate."""
    saves_up: Annotated[bool, Knob(24, key=None)] = False
    """Whether it may have that much ahead after it was idle, too: something behind the
    port, as a NIC's queue, keeps the rate."""

    def __post_init__(self) -> None:
        check_fields(self)


SCOPES = ("queue_pair", "destination", "port")
"""For what a receiver counts the interval between congestion notifications (CNPs), by
the number that parameters of a plan carry."""


def notification_scope(name: str) -> int:
    """Return the number of a scope.

    Raises:
        ValueError: If there is none of that name.
    """
    if name not in SCOPES:
        raise ValueError(f"no CNP scope is named {name!r} (there are {SCOPES})")
    return SCOPES.index(name)


def limiter_key(scope: int, *, qpn: int, destination: int) -> int:
    """Return what queue pairs of one port that share a CNP limiter have in common.

    Raises:
        ValueError: If there is no such *scope*.
    """
    if not 0 <= scope < len(SCOPES):
        raise ValueError(f"there is no CNP scope {scope}")
    return (qpn, destination, 0)[scope]


def limits_by_destination(transport: TransportPlan) -> bool:
    """Tell whether all queue pairs of a port to one destination share a limit."""
    parameters = dict(transport.congestion_parameters)
    return parameters.get("cnp_scope") == notification_scope("destination")
