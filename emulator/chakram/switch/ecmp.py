"""ECMP: the choice among equal-cost next hops by a hash of flow identifiers.

A switch hashes the addresses and ports of a packet, so that a flow stays on its path.
The hash therefore determines in advance which flows share a link.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from chakram.switch.kernel_hash import hash_seed, kernel_hash, next_hop, upper_bounds
from chakram.switch.keyed_random import flow_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "AssignedPaths",
    "DrawnPaths",
    "EcmpHash",
    "Flow",
    "KernelPaths",
    "RestrictedPaths",
]


class Flow(NamedTuple):
    """Identity of a flow.

    Attributes:
        sender: Number of the sending port in the plan.
        receiver: Number of the receiving port.
        source: Address of the sender.
        destination: Address of the receiver.
        source_port: UDP port of the sender.
        destination_port: UDP port of the receiver.
    """

    sender: int
    receiver: int
    source: str
    destination: str
    source_port: int
    destination_port: int


class EcmpHash(Protocol):
    """A method of choosing next hops. Equal objects make equal choices."""

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return a function that chooses the next hops of a flow.

        Call the function for each switch of the path, in order. Its arguments are the
        number of the switch in the topology, and the number of next hops. It returns
        the index of one next hop.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPaths:
    """ECMP choice of the kernel switches in a lab.

    Attributes:
        seed: Seed of the lab.
    """

    seed: int

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return the function that chooses a flow's next hops (see ``EcmpHash``)."""

        def choose(switch: int, count: int) -> int:
            if count == 1:
                return 0
            value = kernel_hash(
                hash_seed(self.seed, switch),
                source=flow.source,
                destination=flow.destination,
                source_port=flow.source_port,
                destination_port=flow.destination_port,
            )
            return next_hop(value, _equal_bounds(count))

        return choose


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPaths:
    """Random choice per flow, for switches with an unknown hash.

    The choice represents a typical hash, not the hash of a particular switch. Flows
    share links as randomly as with a real hash. The same seed results in the same
    paths.

    Attributes:
        seed: Seed of the draws.
    """

    seed: int

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return the function that chooses a flow's next hops (see ``EcmpHash``)."""
        rest = flow_hash(self.seed, flow.sender, flow.receiver, flow.source_port)

        def choose(_switch: int, count: int) -> int:
            nonlocal rest
            rest, index = divmod(rest, count)
            return index

        return choose


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictedPaths:
    """A hash for fabrics in which some switches avoid some of their next hops.

    Attributes:
        inner: Hash that chooses among the remaining next hops.
        kept: Indices of the next hops to choose among, by switch number and number of
            next hops.
    """

    inner: EcmpHash
    kept: tuple[tuple[tuple[int, int], tuple[int, ...]], ...]

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return the function that chooses a flow's next hops (see ``EcmpHash``)."""
        choose, kept_of = self.inner.chooser(flow), dict(self.kept)

        def narrowed(switch: int, count: int) -> int:
            kept = kept_of.get((switch, count))
            if kept is None:
                return choose(switch, count)
            return kept[choose(switch, len(kept))]

        return narrowed


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPaths:
    """Next hops that the caller assigns to each flow.

    Attributes:
        next_hops: Index of the next hop by switch number, for each flow. The key of a
            flow consists of its sending port number, receiving port number and UDP
            source port.
    """

    next_hops: Mapping[tuple[int, int, int], Mapping[int, int]] = field(hash=False)

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return the function that chooses a flow's next hops (see ``EcmpHash``)."""
        key = flow.sender, flow.receiver, flow.source_port
        chosen = self.next_hops.get(key, {})

        def choose(switch: int, count: int) -> int:
            # A link that is down leaves fewer next hops.
            return chosen.get(switch, 0) % count

        return choose


@lru_cache(maxsize=256)
def _equal_bounds(count: int) -> tuple[int, ...]:
    return tuple(upper_bounds([1] * count))
