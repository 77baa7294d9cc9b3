"""Definitions of link faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chakram.switch.settings import CLASSES

FaultKind = Literal["down", "flap", "degrade", "loss", "corruption", "pause_storm"]
FAULT_KINDS: tuple[FaultKind, ...] = (
    "down",
    "flap",
    "degrade",
    "loss",
    "corruption",
    "pause_storm",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """A fault of a link from *at_ns* until *until_ns*.

    Attributes:
        kind: ``down``: the link carries nothing in either direction, and packets that
            are queued or in flight are lost. ``flap``: down for the first half of every
            *period_ns*. ``degrade``: the port sends at *rate_bps*. ``loss`` and
            ``corruption``: packets that the port sends are lost, or arrive with flipped
            bits, with *probability*. ``pause_storm``: the peer pauses *classes* of the
            port continuously.
        port: Number of the port.
        at_ns: Start time.
        until_ns: End time.
        rate_bps: See ``degrade``.
        probability: See ``loss``.
        period_ns: See ``flap``.
        classes: See ``pause_storm``.
    """

    kind: FaultKind
    port: int
    at_ns: int
    until_ns: int
    rate_bps: int | None = None
    probability: float | None = None
    period_ns: int | None = None
    classes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in FAULT_KINDS:
            raise ValueError(f"{self.kind!r} is not a fault of a link: {FAULT_KINDS}")
        if not 0 <= self.at_ns < self.until_ns:
            raise ValueError(f"{self.at_ns}..{self.until_ns} ns is not a time interval")
        needs = {
            "degrade": ("rate_bps", self.rate_bps),
            "loss": ("probability", self.probability),
            "corruption": ("probability", self.probability),
            "flap": ("period_ns", self.period_ns),
            "pause_storm": ("classes", self.classes or None),
        }
        name, value = needs.get(self.kind, ("", 0))
        if value is None:
            raise ValueError(f"a fault of kind {self.kind} needs {name}")
        if self.rate_bps is not None and self.rate_bps < 1:
            raise ValueError(f"a rate of {self.rate_bps} bit/s is not positive")
        if self.probability is not None and not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"{self.probability} is not a probability")
        if self.period_ns is not None and self.period_ns < 2:
            raise ValueError(
                f"a period of {self.period_ns} ns is too short to be halved"
            )
        if any(not 0 <= each < CLASSES for each in self.classes):
            raise ValueError(f"classes {self.classes} are not all in 0..{CLASSES - 1}")
