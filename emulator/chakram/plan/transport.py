"""Transport settings of every queue pair, each declared once, as a field.

The docstring below a field is the help of its key in the experiment file.

To add a setting, add a field here and implement the setting in the engine (see
docs/howto/add-a-transport-setting.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from chakram.foundation.declared_settings import Setting
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
"""The path MTUs that InfiniBand defines."""

ICRC_MODES = ("table", "full", "off")
"""How senders compute the ICRC: by table, over every byte, or as zeros."""

_LONGEST_TIMEOUT_NS = 1 << 53

Dscp = Annotated[int, Within(0, 63)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportPlan:
    """Settings of every queue pair.

    Raises:
        ValueError: If a setting is out of bounds.
    """

    path_mtu: Annotated[
        int, OneOf(PATH_MTUS), Setting(1, is_optional=True, example=4096)
    ] = 4096
    """Payload of a full packet, in bytes. Default: the largest that fits the fabric's
    MTU."""
    window_bytes: Annotated[
        int, Within(1, LARGEST_SIZE_BYTES), Setting(2, is_optional=True, most=1 << 40)
    ] = 64 * 1024
    """Bytes that a queue pair may have in flight. Default: four bursts, at least 64KiB,
    and with modeled switches at least 5ms of a port's rate."""
    congestion_control: Annotated[Name, Setting(3, key=None)] = "none"
    congestion_parameters: Annotated[
        tuple[tuple[Name, int], ...], AtMost(100), Setting(4, key=None)
    ] = ()
    verb: Annotated[str, OneOf(("write", "send")), Setting(5)] = "write"
    """write: RDMA WRITE, with immediate data in the last packet; send: SEND."""
    dscp_data: Annotated[Dscp, Setting(6, key="dscp.data")] = 26
    """DSCP of data packets."""
    dscp_ack: Annotated[Dscp, Setting(7, key="dscp.ack")] = 26
    """DSCP of acknowledgments and NAKs."""
    dscp_cnp: Annotated[Dscp, Setting(14, key="dscp.cnp")] = 48
    """DSCP of congestion notification packets (CNPs)."""
    ecn: Annotated[
        int, Within(0, 3), Setting(8, words={"off": 0, "ect0": 2, "ect1": 1})
    ] = 2
    """ECN field of all packets. With off, switches mark no packets."""
    ack_interval_packets: Annotated[
        int,
        Within(1, 2**31 - 1),
        Setting(9, key="ack_interval", is_optional=True, most=1024, example=32),
    ] = 4
    """Packets per acknowledgment request. Default: two bursts, or one if congestion
    control measures round trips."""
    # With 0, there is no timeout.
    retransmit_timeout_ns: Annotated[
        int, Within(0, _LONGEST_TIMEOUT_NS), Setting(10, least=10_000, most=600 * 10**9)
    ] = 67_108_864
    """Time without acknowledgment before packets are retransmitted."""
    retry_limit: Annotated[int, Within(0, 2**31 - 1), Setting(11, most=1_000)] = 7
    """Consecutive timeouts, or NAKs for one packet, before the run fails."""
    rnr_retry_limit: Annotated[int, Within(0, 7), Setting(15)] = 7
    """Consecutive retries for a receiver that is not ready; 7: no limit."""
    rnr_timer: Annotated[int, Within(0, 31), Setting(16)] = 12
    """RNR timer code: wait after a receiver-not-ready NAK; 12 is 0.64ms."""
    # With 0, no packet is accepted out of order, as in verbs.
    reordering_packets: Annotated[
        int,
        Within(0, 1 << 16),
        Setting(23, key="reordering.accept.window", least=1, default=64),
    ] = 0
    """Packets after the expected one that are kept; a later packet is dropped and
    indicates that the expected one is lost."""
    # With 0, there are no ranges, and the timeout is constant.
    adaptive_low_ns: Annotated[
        int,
        Within(0, 10**12),
        Setting(
            17,
            key="adaptive_retransmission.low",
            least=4_000,
            most=100 * 10**9,
            default=1_000_000,
        ),
    ] = 0
    """Start of the first of four ranges, each twice as high; NICs allow 4us and
    more."""
    adaptive_tries: Annotated[
        int, Within(1, 1_000), Setting(18, key="adaptive_retransmission.tries")
    ] = 2
    """Consecutive timeouts from one range."""
    split: Annotated[
        str, OneOf(("round_robin", "even")), Setting(19, key="queue_pairs.split")
    ] = "round_robin"
    """round_robin: each message uses the next queue pair; even: each message is divided
    among all."""
    message_bytes: Annotated[
        Size,
        Setting(
            20,
            key="queue_pairs.message_size",
            is_optional=True,
            least=256,
            most=1 << 31,
        ),
    ] = 0
    """Longer messages are posted in pieces of at most this size; for verb: write."""
    icrc: Annotated[str, OneOf(ICRC_MODES), Setting(21)] = "table"
    """ICRC. table: by table; full: over every byte; off: zeros."""
    verify_every: Annotated[int, Within(0, 2**30), Setting(22, key=None)] = 1
    """Verify ICRC and payload of one in this many received packets; 0: none."""
    max_burst_packets: Annotated[
        int,
        Within(1, 128),
        Setting(12, key="burst", is_optional=True, most=64, example=8),
    ] = 4
    """Packets in one UDP send: at most 15 with path MTU 4096, 31 with 2048. Default: by
    the rate of the ports."""
    burst_bound_ns: Annotated[TimeNs, Setting(13, key=None)] = 1_000_000
    """Lag that the pacing of a port may make up, as time at its rate."""
    saves_up: Annotated[bool, Setting(24, key=None)] = False
    """Whether pacing may also run ahead by that much after an idle period. This suits
    ports followed by a queue that enforces the rate, such as that of a NIC."""

    def __post_init__(self) -> None:
        check_fields(self)


SCOPES = ("queue_pair", "destination", "port")
"""Scopes of the minimum interval between congestion notification packets (CNPs) at a
receiver. The parameters of a plan contain the index of a scope."""


def notification_scope(name: str) -> int:
    """Return the number of a CNP scope.

    Raises:
        ValueError: If there is no scope of that name.
    """
    if name not in SCOPES:
        raise ValueError(f"no CNP scope is named {name!r} (choose from {SCOPES})")
    return SCOPES.index(name)


def limiter_key(scope: int, *, qpn: int, destination: int) -> int:
    """Return the key of a CNP limiter. Queue pairs of a port with equal keys share it.

    Raises:
        ValueError: If there is no such *scope*.
    """
    if not 0 <= scope < len(SCOPES):
        raise ValueError(f"there is no CNP scope {scope}")
    return (qpn, destination, 0)[scope]


def limits_by_destination(transport: TransportPlan) -> bool:
    """Return whether all queue pairs of a port to one destination share a CNP limit."""
    parameters = dict(transport.congestion_parameters)
    return parameters.get("cnp_scope") == notification_scope("destination")
