"""How an experiment is simulated: at which level, with which costs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chakram.settings.mistakes import Mistake
from chakram.settings.quantities import ByteRate, Model, Time, Whole

__all__ = ["Simulation", "check_simulation"]

Level = Literal["packet", "message"]

CostModel = Literal["chakram", "astra-sim-aware", "astra-sim-unaware"]


class Simulation(Model):
    """How `chakram simulate` simulates."""

    level: Level = "packet"
    """packet: queue pairs and packets, as in a run; message: whole messages, stored and
    forwarded over links that are queues: no queue pairs, and thousands of ranks."""
    cost_model: CostModel = "chakram"
    """What messages cost at level message. chakram: their bytes with the headers of all
    packets; astra-sim-aware, astra-sim-unaware: what ASTRA-sim's analytical networks
    say, with its delays of endpoints and of local reduction."""
    parts: Whole = Field(default=1, ge=1, le=1024)
    """Of ASTRA-sim's costs: parts that a collective is cut into, one after the other;
    ASTRA-sim calls it preferred-dataset-splits."""
    endpoint_delay_ns: Time = Field(default=10, alias="endpoint_delay")
    """Likewise: time before a rank first sends, and before it takes up what arrives."""
    local_memory_bytes_per_s: ByteRate = Field(
        default=1_600_000_000_000, alias="local_memory"
    )
    """Likewise: memory rate of a rank, which reads twice and writes once what it adds
    up."""


def check_simulation(simulation: Simulation) -> list[Mistake]:
    """Check that the cost model fits the level."""
    if simulation.cost_model == "chakram" or simulation.level == "message":
        return []
    return [
        Mistake(
            location=("simulation", "cost_model"),
            found=f"{simulation.cost_model} is of whole messages, and the level is "
            f"{simulation.level}",
            hint="set simulation.level, or --level, to message",
        )
    ]
