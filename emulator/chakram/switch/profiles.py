"""Settings of known switches.

``ns3``: the switch of the RDMA models for ns-3 that ASTRA-sim uses (HPCC's).
``sonic``: a switch of a data centre under SONiC with two lossless classes, as its
buffer and QoS templates set it.  ``fifo``: what a Linux kernel with one queue of
limited bytes in front of each link does: no classes, no shared memory, no pauses.
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
"""The class selector of a DSCP is its class: 26 is of class 3, 48 of class 6."""

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
    """What is known of a port when its switch is set: rate and delay of its link.

    Attributes:
        rate_bps: None: no limit.
        delay_ns: Propagation, one way.
    """

    __slots__ = ("delay_ns", "rate_bps")

    def __init__(self, *, rate_bps: int | None, delay_ns: int) -> None:
        self.rate_bps = rate_bps
        self.delay_ns = delay_ns

    def bytes_in(self, time_ns: int) -> int:
        """Return how much the link carries in a time, rounded up."""
        return -(-(self.rate_bps or 0) * time_ns // _BITS_PER_BYTE_NS)


def headroom_bytes(end: LinkEnd, *, mtu: int, cell_bytes: int = 1) -> int:
    """Return what may still come in on a link once its sender is to be paused.

    One packet is on the way out in front of the pause frame, one on the way in behind
    it, the link is full both ways, and the sender takes its time to obey.  Source: IEEE
    802.1Qbb, annex O, and the formula of SONiC's buffer manager.

    Args:
        end: Of the link.
        mtu: Bytes of the largest packet.
        cell_bytes: A packet of one byte more than a cell occupies two.
    """
    nbytes = 2 * mtu + 2 * end.bytes_in(end.delay_ns)
    nbytes += _PEER_RESPONSE_QUANTA * _BYTES_PER_QUANTUM + 2 * _SONIC_FRAME_BYTES
    if cell_bytes > 1:
        # The worst packet is one that fills half of its last cell and one byte.
        nbytes = nbytes * 2 * cell_bytes // (cell_bytes + 1)
    return -(-nbytes // _KIB) * _KIB


def ns3_headroom_bytes(end: LinkEnd) -> int:
    """Return the headroom of the RDMA models for ns-3; they have no packets in it."""
    return 3 * end.bytes_in(end.delay_ns)


def ns3_overrun_bytes(end: LinkEnd, *, mtu: int) -> int:
    """Return by how much what comes in after a pause can exceed that headroom.

    One packet leaves in front of the pause frame and one comes in behind it; the link
    is full in both directions.
    """
    needed_bytes = 2 * mtu + 2 * end.bytes_in(end.delay_ns) + _NS3_FRAME_BYTES
    return max(0, needed_bytes - ns3_headroom_bytes(end))


def fifo(
    ends: Sequence[LinkEnd],
    *,
    queue_bytes: Sequence[int | None],
    wred: Sequence[WredSettings | None] | None = None,
) -> SwitchSettings:
    """Return a switch with one queue of limited bytes per port.

    Args:
        ends: Of its links.
        queue_bytes: Of each what may wait in front of it; None: no limit.
        wred: When packets are marked there.
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
    """Return what the one port of a host is set to.

    Args:
        queue_bytes: What may wait in front of its link; None: no limit.
        pause: Which classes it may be told to pause; their order is that of switches.
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

    Everything is limited where it comes in: per port and class 4 KiB of its own, then
    an eighth of what is free (more at ports faster than hosts: twice as much with every
    doubling), then headroom of three times what the link holds one way.

    Args:
        ends: Of its links.
        buffer_bytes: Memory of the switch.
        wred: By port, when packets are marked, on what they leave behind.
        classes: That are lossless; the model's are all but the first.
    """
    rates = [end.rate_bps for end in ends if end.rate_bps]
    slowest_bps = min(rates, default=1)
    headrooms = [ns3_headroom_bytes(end) for end in ends]
    shared_bytes = buffer_bytes - sum(headrooms) - len(ends) * _NS3_RESERVED_BYTES
    if shared_bytes <= 0:
        raise ValueError(
            f"a buffer of {buffer_bytes} bytes has no room beside the headroom of "
            f"{sum(headrooms)} bytes and {len(ends)} x {_NS3_RESERVED_BYTES}"
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
    """Return a switch with dynamic limits on both sides, as SONiC's templates have.

    Lossless classes are paused where they come in, at 2^0 times what is free of the
    pool, and have headroom for what is still under way; they go on 2,496 bytes below.
    Lossy ones are dropped where they go out, at 2^1 times what is free.

    Args:
        ends: Of its links.
        buffer_bytes: Memory of the switch.
        mtu: Bytes of the largest packet.
        cell_bytes: Of a cell of memory.
        classes: That are lossless.
        wred: By port, when packets of lossless classes are marked.
        watchdog: Of every port, or None.
        quanta: Of a pause, in 512 bit times.
        response_ns: How long who is paused takes to obey.
    """
    headrooms = [headroom_bytes(end, mtu=mtu, cell_bytes=cell_bytes) for end in ends]
    reserved_bytes = -(-mtu // cell_bytes) * cell_bytes
    shared_bytes = buffer_bytes - len(classes) * sum(headrooms)
    shared_bytes -= 2 * len(ends) * CLASSES * reserved_bytes
    if shared_bytes <= 0:
        raise ValueError(
            f"a buffer of {buffer_bytes} bytes has no room beside the headroom of "
            f"{len(classes)} x {sum(headrooms)} bytes and what {len(ends)} ports "
            "reserve"
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
"""Kmin and Kmax in bytes, and the share that is marked at Kmax."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What all switches of a fabric are like.

    Attributes:
        name: Of the switch that they are like.
        buffer_bytes: Memory of a switch; not of ``fifo``.
        mark_at: Where packets are marked; None: where switches like that do.
        balancing: How they choose among equal-cost next hops.
        cut_through: Whether packets may begin to leave before they are there whole.
        quanta: Of a pause, in 512 bit times; not of ``ns3``.
        watchdog: Of every port of ``sonic``, or None.
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
            ends: Of its links.
            queue_bytes: Of each what may wait for it, where there are no classes.
            thresholds: Of each when packets are marked; None: never.

        Raises:
            ValueError: If its memory does not suffice.
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
        """Return the settings of a host on such switches.

        Args:
            queue_bytes: What may wait for its link, where there are no classes.
        """
        settings = host(queue_bytes=queue_bytes if self.name == "fifo" else None)
        if self.name == "ns3":
            return replace(settings, time_per_packet="nearest")
        return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Switching:
    """How packets cross a fabric that is simulated.

    Attributes:
        ecmp: How its switches hash.
        profile: What else they are like.
    """

    ecmp: EcmpHash
    profile: Profile = Profile()
