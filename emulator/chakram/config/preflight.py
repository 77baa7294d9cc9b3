"""The preflight of an experiment: what the fabric must show before a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from chakram.config.transport import largest_path_mtu
from chakram.fabric.fabric_types.base import FabricKind
from chakram.settings.located_errors import Mistake
from chakram.settings.quantities import Model, Number, Time, Whole

ACTIONS = ("off", "warn", "require")


class Preflight(Model):
    """Tests of every pair of ports before a run."""

    action: Literal["off", "warn", "require"] = "require"
    """What a run does. off: no test; warn: a warning in its results if one fails;
    require: no run if one fails."""
    pairs: Literal["rate", "latency", "none"] = "rate"
    """What is measured with messages. rate: latency and rate; latency: latency only;
    none: nothing."""
    mtu: bool = True
    """Whether packets of all path MTUs are sent, unfragmented."""
    dscp_ecn_echo: bool = True
    """Whether DSCP and ECN have to arrive as they were sent."""
    permutation: bool = True
    """Whether the rate is measured while all ports send, too."""
    path_mtu: Literal[256, 512, 1024, 2048, 4096] | None = None
    """The path MTU that must pass; without it that of transport."""
    min_rate: Number = Field(default=0.9, ge=0.0, le=1.0)
    """Part of what the links state that a pair must reach."""
    min_permutation_rate: Number | None = Field(
        default=None, ge=0.0, le=1.0, examples=[0.8]
    )
    """Likewise while all ports send; without it the rate is told, and nothing is
    demanded."""
    max_latency_ns: Time | None = Field(
        default=None, alias="max_latency", examples=["50us"]
    )
    """The longest median round trip; without it any is accepted."""
    max_loss: Number = Field(default=0.001, ge=0.0, le=1.0)
    """Part of the packets of a pair that may have to be sent again."""
    duration_ns: Time = Field(
        default=100_000_000, alias="duration", ge=10**6, le=60 * 10**9
    )
    """How long each pair sends to measure its rate; real time, not stretched."""
    paths: Whole | None = Field(default=None, ge=1, le=64, examples=[8])
    """UDP source ports that are probed; without it 8, or 1 where there is one way."""
    rounds: Whole | None = Field(default=None, ge=1, examples=[16])
    """Rounds of disjoint pairs, spread over all; without it every pair is tested."""


def preflight_section(value: object) -> object:
    """Turn ``off``, ``warn`` and ``require`` into sections."""
    return {"action": value} if value in ACTIONS else value


def check_preflight(preflight: Preflight, fabric: FabricKind) -> Iterator[Mistake]:
    """Refuse to demand a path MTU that the ports themselves do not have."""
    mtu = fabric.smallest_mtu
    fitting = largest_path_mtu(mtu, fabric.family)
    if preflight.path_mtu is not None and preflight.path_mtu > fitting:
        yield Mistake(
            ("preflight", "path_mtu"),
            f"{preflight.path_mtu} does not fit into the fabric's MTU of {mtu}",
            f"at most {fitting} fits, or raise the MTU of the ports",
        )
