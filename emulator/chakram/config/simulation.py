"""How an experiment is simulated: at which level, with which costs."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from annotated_types import Le
from pydantic import Field

from chakram.settings.located_errors import Mistake
from chakram.settings.quantities import ByteRate, Model, Ratio, Time, Whole

Level = Literal["packet", "message", "flow"]

CostModel = Literal["chakram", "astra-sim-aware", "astra-sim-unaware", "astra-sim-ns3"]

_LEVEL_OF: dict[CostModel, Level] = {
    "astra-sim-aware": "message",
    "astra-sim-unaware": "message",
    "astra-sim-ns3": "packet",
}


class Simulation(Model):
    """How `chakram simulate` simulates."""

    level: Level = "packet"
    """packet: queue pairs and packets, as in a run; message: whole messages, stored and
    forwarded over links that are queues; flow: messages share links fairly. The last
    two know no queue pairs, and are for thousands of ranks."""
    cost_model: CostModel = "chakram"
    """What messages cost. At level message, chakram: bytes with the headers of all
    packets; astra-sim-aware, astra-sim-unaware: what ASTRA-sim's analytical networks
    say, with its delays of endpoints and of local reduction. At level packet, chakram:
    what our queue pairs make of them; astra-sim-ns3: what its ns-3 network does, a
    queue pair for each message."""
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
    window: Literal["off", "fixed", "scaled"] = "scaled"
    """Of astra-sim-ns3: bytes of a message that may be unacknowledged. off: any; fixed:
    what the path holds; scaled: that times its current rate over line rate. In ns-3's
    configuration HAS_WIN 0; HAS_WIN 1 with VAR_WIN 0; and with VAR_WIN 1."""
    batch: Annotated[Ratio, Le(Fraction(1))] = Fraction(1, 100)
    """Of level flow: for which part of a message's time shares may be out of date;
    smaller is more exact, and slower."""


def check_simulation(simulation: Simulation) -> list[Mistake]:
    """Check that the cost model fits the level."""
    level = _LEVEL_OF.get(simulation.cost_model, simulation.level)
    if level == simulation.level:
        return []
    return [
        Mistake(
            ("simulation", "cost_model"),
            f"{simulation.cost_model} is of level {level}, and the level is "
            f"{simulation.level}",
            f"set simulation.level, or --level, to {level}",
        )
    ]
