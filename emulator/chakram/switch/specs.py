"""What a fabric of modelled switches consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.switch.settings import SwitchSettings


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
