"""Settings of known switches.

- ``ns3``: the switch of the RDMA models for ns-3 that ASTRA-sim uses (HPCC's)
- ``sonic``: a data-center switch under SONiC with two lossless classes, as in SONiC's
  buffer and QoS templates
- ``fifo``: a Linux kernel with one byte-limited queue in front of each link, without
  classes, shared memory or pauses
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from chakram.switch.settings import (
    CLASSES,
    NO_LIMIT_BYTES,
    Balancing,
    BufferLimit,
    PauseSettings,
    PoolSettings,
    PortSettings,
    SwitchSettings,
    WatchdogSettings,
    WredSettings,
)

if TYPE_CHECKING:
    from chakram.switch.ecmp import EcmpHash


DSCP_IS_CLASS = tuple(dscp // 8 for dscp in range(64))
"""Class of each DSCP: its class selector, e.g. 3 for DSCP 26 and 6 for DSCP 48."""

_BITS_PER_BYTE_NS = 8 * 10**9
_KIB = 1024
_MIB = 1024 * 1024

_NS3_RESERVED_BYTES = 4096
_NS3_XON_OFFSET_BYTES = 3072
_NS3_FRAME_BYTES = 43
_NS3_ALPHA_SHIFT = -3

_SONIC_LOSSLESS = (3, 4)
_SONIC_FRAME_BYTES = 60
_PEER_RESPONSE_QUANTA = 40
_BYTES_PER_QUANTUM = 64


class LinkEnd:
    """Rate and delay of a port's link, on which settings depend.

    Attributes:
        rate_bps: Rate; None for no limit.
        delay_ns: One-way propagation delay.
    """

    __slots__ = ("delay_ns", "rate_bps")

    def __init__(self, *, rate_bps: int | None, delay_ns: int) -> None:
        self.rate_bps = rate_bps
        self.delay_ns = delay_ns

    def bytes_in(self, time_ns: int) -> int:
        """Return the bytes that the link carries in a time, rounded up."""
        return -(-(self.rate_bps or 0) * time_ns // _BITS_PER_BYTE_NS)


def headroom_bytes(end: LinkEnd, *, mtu: int, cell_bytes: int = 1) -> int:
    """Return the bytes that can still arrive after a port pauses its sender.

    The formula covers two packets: one that delays the pause frame, and one that the
    sender has already begun. It also covers a full link in both directions, and the
    sender's response time. Source: IEEE 802.1Qbb, annex O, and the formula of SONiC's
    buffer manager.

    Args:
        end: End of the link.
        mtu: Bytes of the largest packet.
        cell_bytes: Size of a memory cell. A packet that is one byte longer than a cell
            occupies two cells.
    """
    nbytes = 2 * mtu + 2 * end.bytes_in(end.delay_ns)
    nbytes += _PEER_RESPONSE_QUANTA * _BYTES_PER_QUANTUM + 2 * _SONIC_FRAME_BYTES
    if cell_bytes > 1:
        # The worst packets are one byte longer than a cell.
        nbytes = nbytes * 2 * cell_bytes // (cell_bytes + 1)
    return -(-nbytes // _KIB) * _KIB


def ns3_headroom_bytes(end: LinkEnd) -> int:
    """Return the headroom of the RDMA models for ns-3, which ignores packet sizes."""
    return 3 * end.bytes_in(end.delay_ns)


def ns3_overrun_bytes(end: LinkEnd, *, mtu: int) -> int:
    """Return how many bytes beyond the ns-3 headroom can arrive after a pause.

    One packet leaves before the pause frame and one arrives after it. The link is full
    in both directions.
    """
    needed_bytes = 2 * mtu + 2 * end.bytes_in(end.delay_ns) + _NS3_FRAME_BYTES
    return max(0, needed_bytes - ns3_headroom_bytes(end))


def fifo(
    ends: Sequence[LinkEnd],
    *,
    queue_bytes: Sequence[int | None],
    wred: Sequence[WredSettings | None] | None = None,
) -> SwitchSettings:
    """Return a switch with one byte-limited queue per port.

    Args:
        ends: Ends of its links.
        queue_bytes: Queue limit of each link; None for no limit.
        wred: Marking at each link; None for no marks.
    """
    marks = wred if wred is not None else [None] * len(ends)
    free = BufferLimit(pool="memory")
    return SwitchSettings(
        pools=(PoolSettings(name="memory"),),
        ports=tuple(
            PortSettings(
                ingress=(free,) * CLASSES,
                egress=(
                    BufferLimit(
                        pool="memory",
                        static_bytes=NO_LIMIT_BYTES if nbytes is None else nbytes,
                    ),
                )
                * CLASSES,
                wred=(mark,) * CLASSES,
            )
            for nbytes, mark in zip(queue_bytes, marks, strict=True)
        ),
        class_of_dscp=(0,) * 64,
    )


def host(
    *, queue_bytes: int | None = None, pause: PauseSettings | None = None
) -> SwitchSettings:
    """Return the settings of a host's only port.

    Args:
        queue_bytes: Queue limit of its link; None for no limit.
        pause: Priority flow control of the port; None for the default. Traffic classes
            are the same as at switches.
    """
    free = BufferLimit(pool="memory")
    limit = BufferLimit(
        pool="memory",
        static_bytes=NO_LIMIT_BYTES if queue_bytes is None else queue_bytes,
    )
    return SwitchSettings(
        pools=(PoolSettings(name="memory"),),
        ports=(
            PortSettings(
                ingress=(free,) * CLASSES,
                egress=(limit,) * CLASSES,
                pause=pause or PauseSettings(),
            ),
        ),
        class_of_dscp=DSCP_IS_CLASS,
    )


def ns3(
    ends: Sequence[LinkEnd],
    *,
    buffer_bytes: int = 32 * _MIB,
    wred: Sequence[WredSettings | None] | None = None,
    classes: tuple[int, ...] = (3,),
) -> SwitchSettings:
    """Return the switch of the RDMA models for ns-3.

    All limits apply at ingress. Each port and class has 4 KiB reserved, then a share of
    the free memory, then headroom. The headroom is three times the bytes that the link
    holds in one direction. The share is 1/8 at the slowest port of the switch, and
    doubles with every doubling of the rate.

    Args:
        ends: Ends of its links.
        buffer_bytes: Memory of the switch.
        wred: Marking at each port, by the queue length when a packet leaves.
        classes: Lossless classes; in the original model, all but the first.
    """
    rates = [end.rate_bps for end in ends if end.rate_bps]
    slowest_bps = min(rates, default=1)
    headrooms = [ns3_headroom_bytes(end) for end in ends]
    shared_bytes = buffer_bytes - sum(headrooms) - len(ends) * _NS3_RESERVED_BYTES
    if shared_bytes <= 0:
        raise ValueError(
            f"a buffer of {buffer_bytes} bytes is too small for the headroom of "
            f"{sum(headrooms)} bytes and {len(ends)} x {_NS3_RESERVED_BYTES} reserved "
            "bytes"
        )
    marks = wred if wred is not None else [None] * len(ends)
    ports = []
    for end, headroom, mark in zip(ends, headrooms, marks, strict=True):
        shift = _NS3_ALPHA_SHIFT
        rate_bps = end.rate_bps or slowest_bps
        while rate_bps >= 2 * slowest_bps:
            rate_bps //= 2
            shift += 1
        lossless = BufferLimit(
            pool="buffer",
            reserved_bytes=_NS3_RESERVED_BYTES,
            alpha_shift=shift,
            headroom_bytes=headroom,
            xon_offset_bytes=_NS3_XON_OFFSET_BYTES,
        )
        free = BufferLimit(pool="uncounted")
        ports.append(
            PortSettings(
                ingress=tuple(
                    lossless if each in classes else free for each in range(CLASSES)
                ),
                egress=(free,) * CLASSES,
                wred=tuple(
                    mark if each in classes else None for each in range(CLASSES)
                ),
                pause=PauseSettings(
                    classes=classes, quanta=None, frame_bytes=_NS3_FRAME_BYTES
                ),
            )
        )
    return SwitchSettings(
        pools=(
            PoolSettings(name="buffer", shared_bytes=shared_bytes),
            PoolSettings(name="uncounted"),
        ),
        ports=tuple(ports),
        class_of_dscp=DSCP_IS_CLASS,
        time_per_packet="nearest",
    )


def sonic(
    ends: Sequence[LinkEnd],
    *,
    buffer_bytes: int = 32 * _MIB,
    mtu: int = 9216,
    cell_bytes: int = 1,
    classes: tuple[int, ...] = _SONIC_LOSSLESS,
    wred: Sequence[WredSettings | None] | None = None,
    watchdog: WatchdogSettings | None = None,
    quanta: int = 65_535,
    response_ns: int = 0,
) -> SwitchSettings:
    """Return a switch with dynamic ingress and egress limits, as in SONiC's templates.

    The ingress limit of lossless classes is 2^0 times the free bytes of the pool. At
    that limit they pause their senders, who resume 2,496 bytes below it. Headroom holds
    the packets in flight. The egress limit of lossy classes, which drop packets, is 2^1
    times the free bytes.

    Args:
        ends: Ends of its links.
        buffer_bytes: Memory of the switch.
        mtu: Bytes of the largest packet.
        cell_bytes: Size of a memory cell.
        classes: Lossless classes.
        wred: Marking of lossless classes at each port.
        watchdog: Watchdog of every port, or None.
        quanta: Duration of a pause, in 512 bit times.
        response_ns: Time until a paused sender obeys.
    """
    headrooms = [headroom_bytes(end, mtu=mtu, cell_bytes=cell_bytes) for end in ends]
    reserved_bytes = -(-mtu // cell_bytes) * cell_bytes
    shared_bytes = buffer_bytes - len(classes) * sum(headrooms)
    shared_bytes -= 2 * len(ends) * CLASSES * reserved_bytes
    if shared_bytes <= 0:
        raise ValueError(
            f"a buffer of {buffer_bytes} bytes is too small for the headroom of "
            f"{len(classes)} x {sum(headrooms)} bytes and the reserved bytes of "
            f"{len(ends)} ports"
        )
    marks = wred if wred is not None else [None] * len(ends)
    unlimited = BufferLimit(pool="egress_lossless")
    reserved = BufferLimit(pool="ingress", reserved_bytes=reserved_bytes)
    lossy = BufferLimit(
        pool="egress_lossy", reserved_bytes=reserved_bytes, alpha_shift=1
    )
    ports = [
        PortSettings(
            ingress=tuple(
                BufferLimit(
                    pool="ingress",
                    reserved_bytes=reserved_bytes,
                    alpha_shift=0,
                    headroom_bytes=headroom,
                    xon_offset_bytes=2496,
                )
                if each in classes
                else reserved
                for each in range(CLASSES)
            ),
            egress=tuple(
                unlimited if each in classes else lossy for each in range(CLASSES)
            ),
            wred=tuple(mark if each in classes else None for each in range(CLASSES)),
            pause=PauseSettings(
                classes=classes, quanta=quanta, response_ns=response_ns
            ),
            watchdog=watchdog,
        )
        for headroom, mark in zip(headrooms, marks, strict=True)
    ]
    return SwitchSettings(
        pools=(
            PoolSettings(name="ingress", shared_bytes=shared_bytes),
            PoolSettings(name="egress_lossy", shared_bytes=shared_bytes),
            PoolSettings(name="egress_lossless"),
        ),
        ports=tuple(ports),
        class_of_dscp=DSCP_IS_CLASS,
        cell_bytes=cell_bytes,
    )


ProfileName = Literal["fifo", "ns3", "sonic"]

Thresholds = tuple[int, int, float]
"""Kmin and Kmax in bytes, and the fraction of packets marked at Kmax."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Common properties of all switches of a fabric.

    Attributes:
        name: Name of the known switch that they resemble.
        buffer_bytes: Memory of a switch; not used by ``fifo``.
        mark_at: When the queue length is used for marks, ``enqueue`` or ``dequeue``;
            None for the default of the known switch.
        balancing: How they choose among equal-cost next hops.
        cut_through: Whether packets may begin to leave before they have arrived
            completely.
        quanta: Duration of a pause, in 512 bit times; used by ``sonic`` only.
        watchdog: Watchdog of every port, or None; used by ``sonic`` only.
        mtu: Bytes of the largest packet, for headroom.
    """

    name: ProfileName = "fifo"
    buffer_bytes: int = 32 * _MIB
    mark_at: Literal["enqueue", "dequeue"] | None = None
    balancing: Balancing = "hash"
    cut_through: bool = False
    quanta: int = 65_535
    watchdog: WatchdogSettings | None = None
    mtu: int = 9216

    def switch(
        self,
        ends: Sequence[LinkEnd],
        *,
        queue_bytes: Sequence[int | None],
        thresholds: Sequence[Thresholds | None],
    ) -> SwitchSettings:
        """Return the settings of a switch with these links.

        Args:
            ends: Ends of its links.
            queue_bytes: Queue limit of each link, for switches without classes.
            thresholds: ECN thresholds of each link; None for no marks.

        Raises:
            ValueError: If the switch has too little memory.
        """
        at = self.mark_at or ("enqueue" if self.name == "fifo" else "dequeue")
        wred = [
            None
            if each is None
            else WredSettings(
                kmin_bytes=each[0], kmax_bytes=each[1], probability=each[2], at=at
            )
            for each in thresholds
        ]
        if self.name == "ns3":
            settings = ns3(ends, buffer_bytes=self.buffer_bytes, wred=wred)
        elif self.name == "sonic":
            settings = sonic(
                ends,
                buffer_bytes=self.buffer_bytes,
                mtu=self.mtu,
                wred=wred,
                watchdog=self.watchdog,
                quanta=self.quanta,
            )
        else:
            settings = fifo(ends, queue_bytes=queue_bytes, wred=wred)
        return replace(settings, balancing=self.balancing, cut_through=self.cut_through)

    def host(self, *, queue_bytes: int | None) -> SwitchSettings:
        """Return the settings of a host that is connected to such switches.

        Args:
            queue_bytes: Queue limit of its link, for switches without classes.
        """
        settings = host(queue_bytes=queue_bytes if self.name == "fifo" else None)
        if self.name == "ns3":
            return replace(settings, time_per_packet="nearest")
        return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Switching:
    """Model of how packets cross a simulated fabric.

    Attributes:
        ecmp: ECMP hash of its switches.
        profile: Other properties of its switches.
    """

    ecmp: EcmpHash
    profile: Profile = Profile()
