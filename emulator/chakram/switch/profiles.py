"""Settings of known switches.

- ``ns3``: the switch of the RDMA models for ns-3 that ASTRA-sim uses (HPCC's)
- ``sonic``: a data-center switch that runs SONiC with two lossless classes, as in
  SONiC's buffer and QoS templates
- ``fifo``: a Linux kernel with one byte-limited queue in front of each link, without
  classes, shared memory or pauses
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from chakram.foundation.declared_settings import Setting
from chakram.switch.headroom import LinkEnd, headroom_bytes, ns3_headroom_bytes
from chakram.switch.settings import (
    CLASSES,
    FULL_QUANTA,
    NO_LIMIT_BYTES,
    BufferLimit,
    ForwardingSettings,
    MarkAt,
    PauseSettings,
    PoolSettings,
    PortSettings,
    Quanta,
    SwitchSettings,
    WatchdogSettings,
    WredSettings,
)
from chakram.switch.sonic_config import CONFIG_DB, NO_LIMIT_POOL, read_sonic

if TYPE_CHECKING:
    from chakram.switch.ecmp import EcmpHash


DSCP_IS_CLASS = tuple(dscp // 8 for dscp in range(64))
"""Class of each DSCP: its class selector, e.g. 3 for DSCP 26 and 6 for DSCP 48."""

_BUFFER_BYTES = 32 * 1024 * 1024

_NS3_RESERVED_BYTES = 4096
_NS3_XON_OFFSET_BYTES = 3072
_NS3_FRAME_BYTES = 43
_NS3_ALPHA_SHIFT = -3

_SONIC_LOSSLESS = (3, 4)


def fifo(
    ends: Sequence[LinkEnd],
    *,
    queue_bytes: Sequence[int | None],
    wred: Sequence[WredSettings | None] | None = None,
) -> SwitchSettings:
    """Return a switch with one byte-limited queue per port.

    Args:
        ends: Ends of the switch's links.
        queue_bytes: Queue limit of each link; None for no limit.
        wred: Marking at each link; None for no marks.
    """
    marks = wred if wred is not None else [None] * len(ends)
    free = BufferLimit(pool="memory")
    limits = [
        free if nbytes is None else replace(free, static_bytes=nbytes)
        for nbytes in queue_bytes
    ]
    return SwitchSettings(
        pools=(PoolSettings(name="memory"),),
        ports=tuple(
            PortSettings(
                ingress=(free,) * CLASSES,
                egress=(limit,) * CLASSES,
                wred=(mark,) * CLASSES,
            )
            for limit, mark in zip(limits, marks, strict=True)
        ),
        class_of_dscp=(0,) * 64,
    )


def host(
    *, queue_bytes: int | None = None, pause: PauseSettings | None = None
) -> SwitchSettings:
    """Return the settings of a host's only port.

    Args:
        queue_bytes: Queue limit of the host's link; None for no limit.
        pause: Priority flow control of the port; None for the default. Traffic classes
            are the same as at switches.
    """
    link = LinkEnd(rate_bps=None, delay_ns=0)
    settings = fifo([link], queue_bytes=[queue_bytes])
    port = replace(settings.ports[0], pause=pause or PauseSettings())
    return replace(settings, ports=(port,), class_of_dscp=DSCP_IS_CLASS)


def ns3(
    ends: Sequence[LinkEnd],
    *,
    buffer_bytes: int = _BUFFER_BYTES,
    wred: Sequence[WredSettings | None] | None = None,
    classes: tuple[int, ...] = (3,),
) -> SwitchSettings:
    """Return the switch of the RDMA models for ns-3.

    All limits apply at ingress. Each port and class has 4 KiB reserved, then a share of
    the free memory, then headroom. The headroom is three times the number of bytes in
    flight on a full link in one direction. The share is 1/8 at the slowest port of the
    switch, and doubles with every doubling of the rate.

    Args:
        ends: Ends of the switch's links.
        buffer_bytes: Memory of the switch.
        wred: Marking at each port, by the queue length when a packet leaves.
        classes: Lossless classes. In the original model, these are all but the first.
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
    buffer_bytes: int = _BUFFER_BYTES,
    mtu: int = 9216,
    cell_bytes: int = 1,
    classes: tuple[int, ...] = _SONIC_LOSSLESS,
    wred: Sequence[WredSettings | None] | None = None,
    watchdog: WatchdogSettings | None = None,
    quanta: int = FULL_QUANTA,
    response_ns: int = 0,
) -> SwitchSettings:
    """Return a switch with dynamic ingress and egress limits, as in SONiC's templates.

    The ingress limit of a lossless class is 2^0 times the free bytes of the pool. At
    that limit, the switch pauses the senders, which resume 2,496 bytes below it.
    Headroom stores the packets in flight. The egress limit of lossy classes, which drop
    packets, is 2^1 times the free bytes.

    Args:
        ends: Ends of the switch's links.
        buffer_bytes: Memory of the switch.
        mtu: Size of the largest packet, in bytes.
        cell_bytes: Size of a memory cell.
        classes: Lossless classes.
        wred: Marking of lossless classes at each port.
        watchdog: Watchdog of every port, or None.
        quanta: Duration of a pause, in 512 bit times.
        response_ns: Time until a paused sender stops sending.
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
class Profile(ForwardingSettings):
    """Common properties of all switches of a fabric.

    Attributes:
        mtu: Bytes of the largest packet, for headroom.
        config_db: Tables of a SONiC switch, as JSON, which contain all other settings;
            see ``chakram.switch.sonic_config``.
    """

    name: Annotated[ProfileName, Setting(key="profile")] = "fifo"
    """fifo: one queue per port, limited by its link; ns3: the RDMA switch model of
    ns-3; sonic: a switch with two lossless classes that pauses its senders."""
    buffer_bytes: Annotated[
        int | None, Setting(default=_BUFFER_BYTES, example="32MiB")
    ] = None
    """Packet memory of a switch, shared by all ports. Not used by fifo. With sonic:
    size of the largest pool, with the others in proportion; null: sizes of sonic."""
    mark_at: Annotated[MarkAt | None, Setting()] = None
    """Queue length that determines ECN marks: the length when a packet arrives
    (enqueue), or the length that remains when it leaves (dequeue). Default: enqueue for
    fifo, else dequeue."""
    quanta: Annotated[Quanta, Setting()] = FULL_QUANTA
    """sonic only: duration of a pause that is not refreshed, in units of 512 bit times
    of the port."""
    watchdog: Annotated[
        WatchdogSettings | None,
        Setting(example={"detection": "200ms", "action": "drop"}),
    ] = None
    """sonic only: watchdog that ends pause storms. Default: none, or that of the
    file in sonic."""
    mtu: int = 9216
    config_db: str | None = None

    def switch(
        self,
        ends: Sequence[LinkEnd],
        *,
        queue_bytes: Sequence[int | None],
        thresholds: Sequence[Thresholds | None],
    ) -> SwitchSettings:
        """Return the settings of a switch with these links.

        Args:
            ends: Ends of the switch's links.
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
        buffer_bytes = self.buffer_bytes or _BUFFER_BYTES
        if self.config_db is not None:
            settings = self._configured(json.loads(self.config_db), ends, wred)
        elif self.name == "ns3":
            settings = ns3(ends, buffer_bytes=buffer_bytes, wred=wred)
        elif self.name == "sonic":
            settings = sonic(
                ends,
                buffer_bytes=buffer_bytes,
                mtu=self.mtu,
                wred=wred,
                watchdog=self.watchdog,
                quanta=self.quanta,
            )
        else:
            settings = fifo(ends, queue_bytes=queue_bytes, wred=wred)
        return replace(settings, balancing=self.balancing, cut_through=self.cut_through)

    def host(self, *, queue_bytes: int | None) -> SwitchSettings:
        """Return the settings of a host that is connected to these switches.

        Args:
            queue_bytes: Queue limit of the host's link, for switches without classes.
        """
        settings = host(queue_bytes=queue_bytes if self.name == "fifo" else None)
        if self.config_db is not None:
            return replace(settings, class_of_dscp=_classes_in(self.config_db))
        if self.name == "ns3":
            return replace(settings, time_per_packet="nearest")
        return settings

    def _configured(
        self,
        tables: Mapping[str, Any],
        ends: Sequence[LinkEnd],
        wred: Sequence[WredSettings | None],
    ) -> SwitchSettings:
        """Return the settings in the tables, with the settings of this profile applied.

        The ECN thresholds of a link replace those of its lossless classes.
        """
        settings = read_sonic(tables, ends, where=CONFIG_DB)
        pools = settings.pools
        if self.buffer_bytes is not None:
            sizes = [each.shared_bytes for each in pools]
            finite = [each for each in sizes if each < NO_LIMIT_BYTES]
            largest = max(finite, default=0) or NO_LIMIT_BYTES
            pools = tuple(
                each
                if each.name == NO_LIMIT_POOL
                else replace(
                    each,
                    shared_bytes=min(each.shared_bytes, largest)
                    * self.buffer_bytes
                    // largest,
                )
                for each in pools
            )
        ports = zip(settings.ports, wred, strict=True)
        return replace(
            settings,
            pools=pools,
            ports=tuple(self._configured_port(port, own) for port, own in ports),
        )

    def _configured_port(
        self, port: PortSettings, own: WredSettings | None
    ) -> PortSettings:
        marks = [
            own if own is not None and klass in port.pause.classes else mark
            for klass, mark in enumerate(port.wred)
        ]
        if self.mark_at is not None:
            marks = [each and replace(each, at=self.mark_at) for each in marks]
        is_watched = self.watchdog is not None and port.pause.classes
        return replace(
            port,
            wred=tuple(marks),
            pause=replace(port.pause, quanta=self.quanta),
            watchdog=self.watchdog if is_watched else port.watchdog,
        )


@lru_cache(maxsize=1)
def _classes_in(config_db: str) -> tuple[int, ...]:
    """Return the class of each DSCP in the tables of a SONiC switch."""
    return read_sonic(json.loads(config_db), (), where=CONFIG_DB).class_of_dscp


@dataclass(frozen=True, slots=True, kw_only=True)
class Switching:
    """Settings of the switches of a simulated fabric.

    Attributes:
        ecmp: ECMP hash of the fabric's switches.
        profile: Other properties of the fabric's switches.
    """

    ecmp: EcmpHash
    profile: Profile = Profile()
