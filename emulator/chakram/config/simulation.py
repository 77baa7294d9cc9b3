"""Simulation settings of an experiment: level of detail and cost model."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Literal

from annotated_types import Le
from pydantic import Field

from chakram.settings.field_types import ByteRate, Model, Ratio, Time, Whole
from chakram.settings.located_errors import Mistake

Level = Literal["packet", "message", "flow"]

CostModel = Literal["chakram", "astra-sim-aware", "astra-sim-unaware", "astra-sim-ns3"]

_LEVEL_OF: dict[CostModel, Level] = {
    "astra-sim-aware": "message",
    "astra-sim-unaware": "message",
    "astra-sim-ns3": "packet",
}


class Simulation(Model):
    """Settings of `chakram simulate`."""

    level: Level = "packet"
    """Level of detail. packet: queue pairs and packets, as in a run; message: whole
    messages, stored and forwarded over links with queues; flow: messages share links
    with max-min fairness. message and flow scale to thousands of ranks."""
    cost_model: CostModel = "chakram"
    """Cost of messages. chakram: as in a run, with the headers of all packets;
    astra-sim-aware, astra-sim-unaware: ASTRA-sim's analytical networks (level message);
    astra-sim-ns3: ASTRA-sim's ns-3 network (level packet)."""
    parts: Whole = Field(default=1, ge=1, le=1024)
    """For ASTRA-sim: number of parts of a collective, which are sent one after another
    (preferred-dataset-splits)."""
    endpoint_delay_ns: Time = Field(default=10, alias="endpoint_delay")
    """For ASTRA-sim: delay before a rank first sends, and before it processes arriving
    data."""
    local_memory_bytes_per_s: ByteRate = Field(
        default=1_600_000_000_000, alias="local_memory"
    )
    """For ASTRA-sim: memory bandwidth of a rank for local reduction."""
    window: Literal["off", "fixed", "scaled"] = "scaled"
    """For astra-sim-ns3: limit on unacknowledged bytes of a message. off: none (HAS_WIN
    0); fixed: the path's bandwidth-delay product (VAR_WIN 0); scaled: that product
    times current rate divided by line rate (VAR_WIN 1)."""
    batch: Annotated[Ratio, Le(Fraction(1))] = Fraction(1, 100)
    """For level flow: fraction of a message's duration for which its rate may be
    outdated. Smaller values are more accurate, but slower."""


def check_simulation(simulation: Simulation) -> Iterator[Mistake]:
    """Check that the cost model fits the level."""
    level = _LEVEL_OF.get(simulation.cost_model, simulation.level)
    if level != simulation.level:
        yield Mistake(
            ("simulation", "cost_model"),
            f"{simulation.cost_model} is a cost model of level {level}, but the level "
            f"is {simulation.level}",
            f"set simulation.level, or --level, to {level}",
        )
