"""The bound of one schedule, for tests."""

from __future__ import annotations

from typing import Any

from chakram.collectives.schedule import Algorithm
from chakram.predict.bound import ScheduleBounds
from chakram.predict.fabric_model import FabricModel


def bound_ns(
    algorithm: Algorithm,
    *,
    fabric: FabricModel,
    path_mtu: int,
    verb: str = "write",
    **collective: Any,
) -> int:
    bounds = ScheduleBounds(fabric, path_mtu=path_mtu, verb=verb)
    return bounds.collective_ns(algorithm, **collective)
