"""How switches choose among equal-cost next hops: hashes of what makes a flow.

A switch hashes addresses and ports of a packet, so a flow stays on its path, and which
flows meet is decided before they are sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from chakram.switch.kernel_hash import hash_seed, kernel_hash, next_hop, upper_bounds
from chakram.switch.keyed_random import flow_hash

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DrawnPaths", "EcmpHash", "Flow", "KernelPaths", "NarrowedPaths"]


class Flow(NamedTuple):
    """What a flow is told from others by.

    Attributes:
        sender: Index of the port that sends it.
        receiver: Of the port that gets it.
        source: Address of the sender.
        destination: Of the receiver.
        source_port: UDP port of the sender.
        destination_port: Of the receiver.
    """

    sender: int
    receiver: int
    source: str
    destination: str
    source_port: int
    destination_port: int


class EcmpHash(Protocol):
    """Chooses next hops; equal objects choose alike."""

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return what chooses for a flow at the switches of its path, in their order.

        It takes the number of a switch in its topology and how many next hops that
        has, and returns the index of one.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPaths:
    """What the switches of a lab do, whose kernel forwards.

    Attributes:
        seed: Of the lab.
    """

    seed: int

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return what chooses for a flow; see ``EcmpHash``."""

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
    """A draw for switches whose hash nobody knows.

    It stands for a hash, not for that of a particular switch: which flows meet is as
    random as there, and the same for the same seed.

    Attributes:
        seed: Of the draw.
    """

    seed: int

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return what chooses for a flow; see ``EcmpHash``."""
        rest = flow_hash(self.seed, flow.sender, flow.receiver, flow.source_port)

        def choose(_switch: int, count: int) -> int:
            nonlocal rest
            rest, index = divmod(rest, count)
            return index

        return choose


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowedPaths:
    """A hash of switches some of which avoid some of their next hops.

    Attributes:
        inner: The hash.
        kept: By number of a switch, and of its next hops, the indices of those that it
            chooses among.
    """

    inner: EcmpHash
    kept: tuple[tuple[tuple[int, int], tuple[int, ...]], ...]

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return what chooses for a flow; see ``EcmpHash``."""
        choose, kept_of = self.inner.chooser(flow), dict(self.kept)

        def narrowed(switch: int, count: int) -> int:
            kept = kept_of.get((switch, count))
            if kept is None:
                return choose(switch, count)
            return kept[choose(switch, len(kept))]

        return narrowed


@lru_cache(maxsize=256)
def _equal_bounds(count: int) -> tuple[int, ...]:
    return tuple(upper_bounds([1] * count))
