"""Modelled switches and what they are set to, per port and class.

Settings are of buffers, marking, pausing and scheduling.  Rates are in bits per second
of layer-2 packets, sizes in bytes, times in nanoseconds.
``chakram.switch.profiles`` makes settings as known switches have them,
``chakram.switch.sonic`` reads those of a SONiC switch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CLASSES = 8
"""Traffic classes of a port."""

DSCPS = 64

NO_LIMIT_BYTES = 1 << 60
"""More than any buffer holds."""

MAX_ALPHA_SHIFT = 16

Balancing = Literal["hash", "random", "round_robin", "adaptive"]
BALANCINGS: tuple[Balancing, ...] = ("hash", "random", "round_robin", "adaptive")

WatchdogAction = Literal["drop", "forward", "alert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Memory that ports and classes share.

    Attributes:
        name: That limits refer to it by.
        shared_bytes: What is shared, beside what is reserved and beside headroom.
        headroom_bytes: What classes with headroom from the pool share for it; None:
            each has headroom of its own.
    """

    name: str
    shared_bytes: int = NO_LIMIT_BYTES
    headroom_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.shared_bytes < 0:
            raise ValueError(f"pool {self.name}: {self.shared_bytes} bytes to share")
        if self.headroom_bytes is not None and self.headroom_bytes < 0:
            raise ValueError(f"pool {self.name}: headroom of {self.headroom_bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimit:
    """What one class of a port may occupy, of packets coming in or going out.

    Attributes:
        pool: Name of its pool.
        reserved_bytes: What it has whatever others do.
        alpha_shift: It may have 2 to this power times what is free of the pool; None:
            a static limit holds.
        static_bytes: That limit, of what is shared.
        headroom_bytes: What it may take beyond, for packets under way while their
            sender is being paused.
        xon_bytes: Its sender goes on at or below this much ...
        xon_offset_bytes: ... or so far below its limit, whichever is more.
    """

    pool: str
    reserved_bytes: int = 0
    alpha_shift: int | None = None
    static_bytes: int = NO_LIMIT_BYTES
    headroom_bytes: int = 0
    xon_bytes: int = 0
    xon_offset_bytes: int = 0

    def __post_init__(self) -> None:
        for name in (
            "reserved_bytes",
            "static_bytes",
            "headroom_bytes",
            "xon_bytes",
            "xon_offset_bytes",
        ):
            if not 0 <= getattr(self, name) <= NO_LIMIT_BYTES:
                raise ValueError(f"{name} of {getattr(self, name)} is out of range")
        shift = self.alpha_shift
        if shift is not None and not -MAX_ALPHA_SHIFT <= shift <= MAX_ALPHA_SHIFT:
            raise ValueError(f"alpha of 2^{shift} is out of range")


@dataclass(frozen=True, slots=True, kw_only=True)
class WredSettings:
    """From which queue on packets are marked, or dropped if they cannot be.

    Attributes:
        kmin_bytes: Up to this queue none is.
        kmax_bytes: Beyond this queue all are.
        probability: Share of packets at *kmax_bytes*; it rises linearly from 0.
        average_shift: The queue counts as its moving average, of which the queue of
            every packet is 2 to the minus this power; 0: the queue as it is.
        at: ``enqueue``: what counts is what a packet finds; ``dequeue``: what it leaves
            behind. What cannot be marked is always dropped before it enters.
    """

    kmin_bytes: int
    kmax_bytes: int
    probability: float
    average_shift: int = 0
    at: Literal["enqueue", "dequeue"] = "dequeue"

    def __post_init__(self) -> None:
        if not 0 <= self.kmin_bytes <= self.kmax_bytes < 1 << 31:
            raise ValueError(
                f"thresholds {self.kmin_bytes}..{self.kmax_bytes} are no range"
            )
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"{self.probability} is not a probability")
        if not 0 <= self.average_shift <= 15:
            raise ValueError(f"average_shift {self.average_shift} is not in 0..15")


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSettings:
    """How a port uses priority flow control (IEEE 802.1Qbb).

    Attributes:
        classes: Which of them are paused instead of losing packets.
        quanta: How long a pause lasts if it is not refreshed, in 512 bit times of the
            port, 1 to 65,535; None: until it is ended.
        frame_bytes: Size of a pause frame.
        response_ns: How long who is paused takes to obey.
    """

    classes: tuple[int, ...] = ()
    quanta: int | None = 65_535
    frame_bytes: int = 60
    response_ns: int = 0

    def __post_init__(self) -> None:
        if any(not 0 <= each < CLASSES for each in self.classes):
            raise ValueError(f"classes {self.classes} are not all in 0..{CLASSES - 1}")
        if self.quanta is not None and not 1 <= self.quanta <= 65_535:
            raise ValueError(f"quanta of {self.quanta} are not in 1..65535")
        if self.frame_bytes < 1 or self.response_ns < 0:
            raise ValueError("a pause frame needs bytes, and a response no less than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogSettings:
    """What a port does about a class that stays paused.

    A queue is stormed once it has had packets, was paused and has sent nothing for
    *detection_ns*; it is as before after *restoration_ns* without a pause frame.

    Attributes:
        detection_ns: Likewise.
        restoration_ns: Likewise.
        action: With a stormed queue: ``drop`` what is in it and comes, ``forward`` in
            spite of the pause, or only ``alert``.
        poll_ns: How often it looks.
    """

    detection_ns: int
    restoration_ns: int
    action: WatchdogAction = "drop"
    poll_ns: int = 100_000_000

    def __post_init__(self) -> None:
        if min(self.detection_ns, self.restoration_ns, self.poll_ns) <= 0:
            raise ValueError("times of a watchdog are positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSettings:
    """What a port is set to; what is per class has ``CLASSES`` entries.

    Attributes:
        ingress: Limits of what comes in.
        egress: Limits of what goes out.
        weights: Shares of classes that take turns; 0: strict priority over those, the
            highest class first.
        wred: When packets are marked; None: never.
        pause: Priority flow control.
        watchdog: Its watchdog, or None.
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
class SwitchSettings:
    """What a switch is set to.

    Attributes:
        pools: All that limits of its ports refer to.
        ports: By port, in the order of its ports.
        class_of_dscp: By DSCP, the class of a packet.
        cell_bytes: Packets occupy whole cells of so many bytes; 1: just their bytes.
        cut_through: Whether a packet begins to leave before its last bit has come,
            where its egress is idle and no faster than the ingress.
        balancing: How it chooses among equal-cost next hops.
        time_per_packet: ``exact``, or ``nearest``: the time that a packet takes on a
            wire is rounded to whole nanoseconds, as ns-3 does.
    """

    pools: tuple[PoolSettings, ...]
    ports: tuple[PortSettings, ...]
    class_of_dscp: tuple[int, ...]
    cell_bytes: int = 1
    cut_through: bool = False
    balancing: Balancing = "hash"
    time_per_packet: Literal["exact", "nearest"] = "exact"

    def __post_init__(self) -> None:
        names = [pool.name for pool in self.pools]
        if len(set(names)) != len(names):
            raise ValueError(f"pools {names} do not all have names of their own")
        for port in self.ports:
            for limit in (*port.ingress, *port.egress):
                if limit.pool not in names:
                    raise ValueError(f"there is no pool {limit.pool!r}")
        if len(self.class_of_dscp) != DSCPS or any(
            not 0 <= each < CLASSES for each in self.class_of_dscp
        ):
            raise ValueError(f"class_of_dscp needs {DSCPS} classes of 0..{CLASSES - 1}")
        if not 1 <= self.cell_bytes <= 4096:
            raise ValueError(f"cells of {self.cell_bytes} bytes are not in 1..4096")
        if self.balancing not in BALANCINGS:
            raise ValueError(f"balancing {self.balancing!r} is not {BALANCINGS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSpec:
    """A port.

    Attributes:
        name: For reports.
        rate_bps: None: no limit.
        bucket_bytes: None: a wire, which packets leave when their last bit has. Else a
            token bucket holds the rate: they leave when their time begins, and what the
            port did not send for lack of packets, so much of it at most, it may send
            sooner afterwards.
        jitter_ns: By how much, at most, what a token bucket lets pass leaves later.
        peer: Number of the port at the other end of the link; None: that is not of this
            fabric.
    """

    name: str
    rate_bps: int | None
    bucket_bytes: int | None = None
    jitter_ns: int = 0
    peer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSpec:
    """A switch: its settings have an entry for each of its ports."""

    name: str
    settings: SwitchSettings
    ports: tuple[PortSpec, ...]

    def __post_init__(self) -> None:
        if len(self.settings.ports) != len(self.ports):
            raise ValueError(
                f"{self.name}: settings of {len(self.settings.ports)} ports for "
                f"{len(self.ports)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """A host: a port, from which packets leave like from those of a switch."""

    port: PortSpec
    settings: SwitchSettings

    def __post_init__(self) -> None:
        if len(self.settings.ports) != 1:
            raise ValueError(f"{self.port.name}: a host has one port")
