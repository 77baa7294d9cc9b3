"""Samples of the lines of a data plane, for the record of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.replay import samples
from chakram.replay.samples import port_values

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan
    from chakram_agent.dataplane.loop import DataPlane, Line


LOOKED_AT_PER_BIN = 512
ROWS_PER_BIN = 64
TURNS_PER_BIN = 8
"""A snapshot takes a few microseconds, and while it is taken no packet moves."""


class Sampler(samples.Sampler):
    """Samples the lines of one data plane.

    Args:
        plane: The data plane.
        plan: What it executes: the part of one shard.
        bin_ns: Time between two samples; 0: none are taken before the end.
    """

    def __init__(self, plane: DataPlane, plan: AgentPlan, *, bin_ns: int) -> None:
        (shard,) = plan.shard_numbers()
        lines = plane.lines
        super().__init__(
            [line.endpoint for line in lines],
            [plan],
            port_row=lambda at, *sampled: port_row(lines[at], shard, *sampled),
            bin_ns=bin_ns,
            most_looked_at=LOOKED_AT_PER_BIN,
            most_rows=ROWS_PER_BIN,
            turns_per_bin=TURNS_PER_BIN,
        )


def port_row(
    line: Line, shard: int, counted: tuple[int, ...], disturbances: int
) -> tuple[int, ...]:
    """Return the values of ``PORT_FIELDS`` behind time and number."""
    port = line.port
    return port_values(
        counted,
        disturbances,
        shard=shard,
        rx_bytes=line.received_bytes,
        socket_drops=port.socket_drops,
        send_retries=port.send_retries,
    )
