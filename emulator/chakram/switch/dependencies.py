"""Cyclic buffer dependencies: where pauses can wait for one another for ever.

A link depends on another if packets that come by it may go on by the other: while that
is paused, they fill the memory of the first, which is paused in turn.  If links depend
on one another in a circle, lossless traffic can come to a stop that never ends.

Source: S. Hu et al., "Deadlocks in datacenter networks: why do they form, and how to
avoid them" (HotNets 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.switch.model import SwitchModel


def buffer_cycle(
    model: SwitchModel,
    *,
    next_hops: Callable[[int, int], Sequence[int]],
    destinations: Iterable[int],
) -> tuple[str, ...]:
    """Return the names of ports that depend on one another in a circle, or none.

    Each of them sends to the switch of the next one, and the last to that of the first.

    Args:
        model: The fabric.
        next_hops: As the model has them.
        destinations: Nodes that traffic is for.
    """
    ports = model.ports()
    switches = {port.node for port in ports if not port.is_host}
    depends: dict[int, set[int]] = {port.number: set() for port in ports}
    for destination in destinations:
        out = {
            node: list(next_hops(node, destination))
            for node in switches
            if node != destination
        }
        # What may hold packets for it: from hosts on, wherever next hops lead.
        reached = [port.number for port in ports if port.is_host]
        seen = set(reached)
        while reached:
            number = reached.pop()
            peer = ports[number].peer
            if peer < 0:
                continue
            for after in out.get(ports[peer].node, ()):
                depends[number].add(after)
                if after not in seen:
                    seen.add(after)
                    reached.append(after)
    return tuple(ports[number].name for number in _cycle(depends))


def deadlock(model: SwitchModel, klass: int) -> tuple[str, ...]:
    """Return the names of ports that wait for one another now; none if none do.

    Each is paused by the switch behind it, where what has come from it waits for the
    next one.
    """
    ports = model.ports()
    waits: dict[int, set[int]] = {port.number: set() for port in ports}
    for port in ports:
        if port.is_paused(klass) and port.peer >= 0:
            waits[port.number] = {
                other.number
                for other in ports
                if other.is_paused(klass)
                and any(
                    model.ingress_of(slot) == port.peer for slot in other.slots(klass)
                )
            }
    return tuple(ports[number].name for number in _cycle(waits))


def _cycle(edges: dict[int, set[int]]) -> list[int]:
    """Return nodes on a circle, in its order; none if there is no circle."""
    done: set[int] = set()
    for start in edges:
        if start in done:
            continue
        path: list[int] = []
        on_path: set[int] = set()
        stack: list[tuple[int, bool]] = [(start, False)]
        while stack:
            node, is_left = stack.pop()
            if is_left:
                path.pop()
                on_path.discard(node)
                done.add(node)
                continue
            if node in on_path:
                return path[path.index(node) :]
            if node in done:
                continue
            path.append(node)
            on_path.add(node)
            stack.append((node, True))
            stack.extend((after, False) for after in sorted(edges[node]))
    return []
