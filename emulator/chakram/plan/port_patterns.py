"""Patterns of placement: which ports of a fabric a job takes, and in which order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chakram.errors import PlanError

if TYPE_CHECKING:
    from chakram.plan.plan import PortPlan


PATTERNS = ("packed", "striped", "random")
"""``packed``: one after the other; ``striped``: in turns from every switch (or host);
``random``: any, as the seed has it."""


def patterned(
    pattern: str,
    candidates: Sequence[int],
    ports: Sequence[PortPlan],
    *,
    near: Callable[[PortPlan], str],
    seed: str,
) -> list[int]:
    """Return *candidates* in the order in which a pattern takes them.

    Args:
        pattern: One of ``PATTERNS``.
        candidates: Indices of ports, in the order of the fabric.
        ports: All ports.
        near: What a port hangs on: ports of one answer are near each other.
        seed: Of ``random``: the same seed gives the same order.
    """
    if pattern == "random":
        return sorted(
            candidates,
            key=lambda index: hashlib.sha256(f"{seed} {index}".encode()).digest(),
        )
    if pattern == "packed":
        return list(candidates)
    seen: dict[str, int] = {}
    turns: list[tuple[int, int]] = []
    for index in candidates:
        place = near(ports[index])
        turn = seen.get(place, 0)
        seen[place] = turn + 1
        turns.append((turn, index))
    return [index for _, index in sorted(turns)]


def named_ports(
    names: Sequence[int | str], ports: Sequence[PortPlan], *, where: str
) -> list[int]:
    """Return the indices of ports that are given by number or by name.

    A name is that of a host of the topology, or of a host with an agent, which stands
    for all of its ports.

    Raises:
        PlanError: If there is no such port, or one is named twice.
    """
    found: dict[int, None] = {}
    for name in names:
        if isinstance(name, int):
            indices = [name] if name < len(ports) else []
        else:
            indices = [
                index
                for index, port in enumerate(ports)
                if name in (port.host, port.agent)
            ]
        if not indices:
            hosts = ", ".join(port.host for port in ports[:4])
            raise PlanError(
                where,
                f"there is no port {name}",
                f"the fabric has ports 0 to {len(ports) - 1}: {hosts}"
                f"{', ...' if len(ports) > 4 else ''}",
            )
        for index in indices:
            if index in found:
                raise PlanError(
                    where, f"names port {index} twice", "name every port once"
                )
            found[index] = None
    return list(found)
