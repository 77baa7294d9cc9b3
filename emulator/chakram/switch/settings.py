"""Settings of modeled switches, per port and class.

The settings cover buffers, marking, pauses and scheduling. Rates are in bits per second
of layer-2 packets, sizes in bytes, times in nanoseconds. ``chakram.switch.profiles``
has the settings of known switches. ``chakram.switch.sonic_config`` reads the settings
of a SONiC switch.

A ``Setting`` declares a key of ``fabric.switches`` in the experiment file. The
docstring below the field is the help of the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from chakram.foundation.declared_settings import Setting
from chakram.foundation.field_bounds import (
    MAX_TIME_NS,
    OneOf,
    TimeNs,
    Within,
    check_fields,
)

CLASSES = 8
"""Number of traffic classes of a port."""

DSCPS = 64

NO_LIMIT_BYTES = 1 << 60
"""A size that no buffer reaches."""

MAX_ALPHA_SHIFT = 16

FULL_QUANTA = 65_535

Quanta = Annotated[int, Within(1, FULL_QUANTA)]
"""Duration of a pause, in 512 bit times of the port."""

MarkAt = Literal["enqueue", "dequeue"]

Balancing = Literal["hash", "random", "round_robin", "adaptive"]
BALANCINGS: tuple[Balancing, ...] = get_args(Balancing)

WatchdogAction = Literal["drop", "forward", "alert"]

_Bytes = Annotated[int, Within(0, NO_LIMIT_BYTES)]
_Alpha = Annotated[int, Within(-MAX_ALPHA_SHIFT, MAX_ALPHA_SHIFT)]
_Threshold = Annotated[int, Within(0, (1 << 31) - 1)]
_Interval = Annotated[int, Within(1, MAX_TIME_NS), Setting(above=0)]


class _Checked:
    """Base class of settings. It raises a ``ValueError`` for values out of bounds."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings(_Checked):
    """Memory that ports and classes share.

    Attributes:
        name: Name that limits refer to.
        shared_bytes: Shared bytes, in addition to reserved bytes and headroom.
        headroom_bytes: Headroom shared by the classes of the pool that have headroom;
            None if each has separate headroom.
    """

    name: str
    shared_bytes: _Bytes = NO_LIMIT_BYTES
    headroom_bytes: _Bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimit(_Checked):
    """Limit on the memory that one class of a port occupies, at ingress or egress.

    Attributes:
        pool: Name of the pool that the limit refers to.
        reserved_bytes: Bytes reserved for the class, in addition to its share of the
            pool.
        alpha_shift: Dynamic limit: 2 to this power times the free bytes of the pool;
            None for a static limit.
        static_bytes: Static limit of the shared bytes of the class.
        headroom_bytes: Bytes beyond the limit for packets in flight while their sender
            is being paused.
        xon_bytes: Minimum value of the threshold below which the sender resumes.
        xon_offset_bytes: The sender resumes this many bytes below the limit, or at
            *xon_bytes* if that is higher.
    """

    pool: str
    reserved_bytes: _Bytes = 0
    alpha_shift: _Alpha | None = None
    static_bytes: _Bytes = NO_LIMIT_BYTES
    headroom_bytes: _Bytes = 0
    xon_bytes: _Bytes = 0
    xon_offset_bytes: _Bytes = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WredSettings:
    """Queue lengths at which packets are marked, or dropped if they cannot be marked.

    Attributes:
        kmin_bytes: Queue length up to which no packet is chosen.
        kmax_bytes: Queue length above which every packet is chosen.
        probability: Fraction of packets chosen at *kmax_bytes*. The fraction rises
            linearly from 0 at *kmin_bytes*.
        average_shift: The decision uses a moving average of the queue length. Each
            packet has the weight 1 / 2^average_shift. The value 0 means the
            instantaneous queue length.
        at: When the queue length is read: when a packet arrives (``enqueue``) or leaves
            (``dequeue``). Packets that cannot be marked are always dropped on arrival.
    """

    kmin_bytes: _Threshold
    kmax_bytes: _Threshold
    probability: Annotated[float, Within(0.0, 1.0)]
    average_shift: Annotated[int, Within(0, 15)] = 0
    at: MarkAt = "dequeue"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kmin_bytes > self.kmax_bytes:
            raise ValueError(
                f"thresholds {self.kmin_bytes}..{self.kmax_bytes} are not a range"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSettings:
    """How a port uses priority flow control (IEEE 802.1Qbb).

    Attributes:
        classes: Lossless classes. The port pauses their senders instead of dropping
            packets.
        quanta: Duration of a pause that is not refreshed; None for a pause that lasts
            until it is ended.
        frame_bytes: Size of a pause frame.
        response_ns: Time until a paused sender stops sending.
    """

    classes: tuple[int, ...] = ()
    quanta: Quanta | None = FULL_QUANTA
    frame_bytes: Annotated[int, Within(1, 1 << 16)] = 60
    response_ns: TimeNs = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if any(not 0 <= each < CLASSES for each in self.classes):
            raise ValueError(f"classes {self.classes} are not all in 0..{CLASSES - 1}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogSettings(_Checked):
    """Watchdog of a switch for queues that stay paused."""

    detection_ns: _Interval = 200_000_000
    """Time after which the watchdog acts on a nonempty queue that is paused and sends
    nothing."""
    restoration_ns: _Interval = 200_000_000
    """Time without a pause frame after which the queue returns to normal."""
    action: Annotated[WatchdogAction, Setting()] = "drop"
    """Action on such a queue. drop: drop queued and new packets; forward: send despite
    the pause; alert: only count."""
    poll_ns: _Interval = 100_000_000
    """Interval between checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSettings:
    """Settings of a port, in tuples with one entry for each of the ``CLASSES``.

    Attributes:
        ingress: Limits at ingress.
        egress: Limits at egress.
        weights: Weights of the classes in deficit round robin. Classes of weight 0 have
            strict priority over the others, the highest class first.
        wred: Marking of packets; None for no marks.
        pause: Priority flow control.
        watchdog: Watchdog of the port's queues, or None.
    """

    ingress: tuple[BufferLimit, ...]
    egress: tuple[BufferLimit, ...]
    weights: tuple[int, ...] = (1,) * CLASSES
    wred: tuple[WredSettings | None, ...] = (None,) * CLASSES
    pause: PauseSettings = PauseSettings()
    watchdog: WatchdogSettings | None = None

    def __post_init__(self) -> None:
        for name in ("ingress", "egress", "weights", "wred"):
            if len(getattr(self, name)) != CLASSES:
                raise ValueError(f"{name} needs {CLASSES} entries, one per class")
        if any(not 0 <= weight <= 1000 for weight in self.weights):
            raise ValueError(f"weights {self.weights} are not all in 0..1000")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingSettings:
    """How a switch forwards packets."""

    balancing: Annotated[Balancing, OneOf(BALANCINGS), Setting()] = "hash"
    """Choice among equal-cost next hops. hash: by a hash of the flow; random,
    round_robin: independently for each packet; adaptive: the shortest queue."""
    cut_through: Annotated[
        bool,
        Setting(key="latency", words={"store_and_forward": False, "cut_through": True}),
    ] = False
    """When a packet starts to leave. store_and_forward: after the whole packet has
    arrived; cut_through: with its first bits, if the egress port is idle and no faster
    than the ingress port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings(ForwardingSettings):
    """Settings of a switch.

    Attributes:
        pools: All pools that the limits of the ports refer to.
        ports: Settings of each port, in order.
        class_of_dscp: Class of a packet, by DSCP.
        cell_bytes: Size of the cells of memory that packets occupy; 1 for exact sizes.
        time_per_packet: ``exact``, or ``nearest`` to round serialization delays to
            whole nanoseconds, as ns-3 does.
    """

    pools: tuple[PoolSettings, ...]
    ports: tuple[PortSettings, ...]
    class_of_dscp: tuple[int, ...]
    cell_bytes: Annotated[int, Within(1, 4096)] = 1
    time_per_packet: Literal["exact", "nearest"] = "exact"

    def __post_init__(self) -> None:
        check_fields(self)
        names = [pool.name for pool in self.pools]
        if len(set(names)) != len(names):
            raise ValueError(f"the names of pools must differ, but are {names}")
        for port in self.ports:
            for limit in (*port.ingress, *port.egress):
                if limit.pool not in names:
                    raise ValueError(f"there is no pool {limit.pool!r}")
        if len(self.class_of_dscp) != DSCPS or any(
            not 0 <= each < CLASSES for each in self.class_of_dscp
        ):
            raise ValueError(f"class_of_dscp needs {DSCPS} classes of 0..{CLASSES - 1}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSpec:
    """A port of a switch or host, with its link.

    Attributes:
        name: Name for reports.
        rate_bps: Rate; None for no limit.
        bucket_bytes: Size of a token bucket that enforces the rate. Packets then leave
            at the start of their serialization delay, and an idle port accumulates at
            most this many bytes. None for a physical link, on which packets arrive with
            their last bit.
        jitter_ns: Maximum additional delay of a packet that the token bucket passes.
        peer: Number of the port at the other end of the link; None if it is outside the
            fabric.
    """

    name: str
    rate_bps: int | None
    bucket_bytes: int | None = None
    jitter_ns: int = 0
    peer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSpec:
    """A switch, whose settings have one entry for each port."""

    name: str
    settings: SwitchSettings
    ports: tuple[PortSpec, ...]

    def __post_init__(self) -> None:
        if len(self.settings.ports) != len(self.ports):
            raise ValueError(
                f"{self.name}: has settings of {len(self.settings.ports)} ports, but "
                f"{len(self.ports)} ports"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """A host: one port, which sends packets like the port of a switch."""

    port: PortSpec
    settings: SwitchSettings

    def __post_init__(self) -> None:
        if len(self.settings.ports) != 1:
            raise ValueError(f"{self.port.name}: a host must have one port")
