"""Preflight settings of an experiment: tests of the fabric before a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from chakram.config.transport import largest_path_mtu
from chakram.fabric.fabric_types.base import FabricKind
from chakram.settings.field_types import Model, Number, Time, Whole
from chakram.settings.located_errors import Mistake

ACTIONS = ("off", "warn", "require")


class Preflight(Model):
    """Tests of every pair of ports before a run."""

    action: Literal["off", "warn", "require"] = "require"
    """off: no tests; warn: a failed test adds a warning to the results; require: a
    failed test prevents the run."""
    pairs: Literal["rate", "latency", "none"] = "rate"
    """Measurements of each pair. rate: latency and rate; latency: only latency; none:
    neither."""
    mtu: bool = True
    """Whether to test path MTUs with unfragmented packets."""
    dscp_ecn_echo: bool = True
    """Whether to check that DSCP and ECN arrive unchanged."""
    permutation: bool = True
    """Whether to also measure rates while all ports send."""
    path_mtu: Literal[256, 512, 1024, 2048, 4096] | None = None
    """Path MTU that must pass. Default: that of the transport."""
    min_rate: Number = Field(default=0.9, ge=0.0, le=1.0)
    """Minimum rate of a pair, as a fraction of the link rate."""
    min_permutation_rate: Number | None = Field(
        default=None, ge=0.0, le=1.0, examples=[0.8]
    )
    """Minimum rate of a pair while all ports send, as a fraction of the link rate.
    Default: no minimum."""
    max_latency_ns: Time | None = Field(
        default=None, alias="max_latency", examples=["50us"]
    )
    """Maximum median round-trip time. Default: no limit."""
    max_loss: Number = Field(default=0.001, ge=0.0, le=1.0)
    """Maximum fraction of a pair's packets that are retransmitted."""
    duration_ns: Time = Field(
        default=100_000_000, alias="duration", ge=10**6, le=60 * 10**9
    )
    """Time that each pair sends, in real time even with dilation."""
    paths: Whole | None = Field(default=None, ge=1, le=64, examples=[8])
    """Number of UDP source ports to probe. Default: 8, or 1 if there is one path."""
    rounds: Whole | None = Field(default=None, ge=1, examples=[16])
    """Number of rounds of disjoint pairs to test. Default: all rounds, which together
    test every pair."""


def preflight_section(value: object) -> object:
    """Convert ``off``, ``warn`` and ``require`` to a section."""
    return {"action": value} if value in ACTIONS else value


def check_preflight(preflight: Preflight, fabric: FabricKind) -> Iterator[Mistake]:
    """Check that the ports support the required path MTU."""
    mtu = fabric.smallest_mtu
    fitting = largest_path_mtu(mtu, fabric.family)
    if preflight.path_mtu is not None and preflight.path_mtu > fitting:
        yield Mistake(
            ("preflight", "path_mtu"),
            f"{preflight.path_mtu} does not fit into the fabric's MTU of {mtu}",
            f"use at most {fitting}, or raise the MTU of the ports",
        )
