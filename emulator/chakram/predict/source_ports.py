"""UDP source ports that spread flows evenly over equal-cost paths.

Where the hash of switches is known, so is the path that a source port would give a
flow.  Ports are given to queue pairs in turn, so a port that is chosen moves every
queue pair whose turn it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from chakram.plan.queue_pairs import SOURCE_PORT_BASE, SOURCE_PORT_POOL

if TYPE_CHECKING:
    from chakram.plan.plan import PortPlan
    from chakram.predict.routing import Router
    from chakram.topology.topology import PortRef


_PASSES = 3
_TRIALS = 4000
"""Paths that are looked at, of all queue pairs together."""
_MOST_PORTS = 48
"""Source ports that are tried for a turn."""

Loads = dict["PortRef", int]
"""Bytes by the port of a switch that they leave through."""


class LoadedPair(NamedTuple):
    """A queue pair, and what it sent.

    Attributes:
        ends: Indices of its two ports.
        sent_bytes: On the wire, from each of them.
    """

    ends: tuple[int, int]
    sent_bytes: tuple[int, int]


def loads_of(
    pairs: Iterable[tuple[LoadedPair, int]],
    *,
    router: Router,
    ports: Sequence[PortPlan],
) -> Loads:
    """Return what queue pairs, each with its source port, send between switches."""
    found: defaultdict[PortRef, int] = defaultdict(int)
    for pair, source_port in pairs:
        for near, far, sent in zip(
            pair.ends, reversed(pair.ends), pair.sent_bytes, strict=True
        ):
            to = ports[far]
            ends, _ = router(near, to.address, to.udp_port, source_port)
            # The first one leaves the host, the last one the switch of the other.
            for end in ends[1:-1]:
                found[end] += sent
    return dict(found)


def balanced_source_ports(
    pairs: Sequence[LoadedPair], *, router: Router, ports: Sequence[PortPlan]
) -> list[int]:
    """Return different source ports to be used in turn, as many as are of use.

    The sum of squares of what the ports between switches carry is made small: one turn
    after the other, the heaviest first, takes the port that is best beside all others.

    Args:
        pairs: In the order in which they take source ports.
        router: Says their paths.
        ports: Those that the pairs are between.
    """
    turns = min(len(pairs), SOURCE_PORT_POOL)
    tried = max(2, min(_MOST_PORTS, _TRIALS // max(1, len(pairs))))
    choices = [
        {
            port: loads_of(
                ((pair, port) for pair in pairs[turn::turns]),
                router=router,
                ports=ports,
            )
            for port in range(
                SOURCE_PORT_BASE + turn, SOURCE_PORT_BASE + turn + turns * tried, turns
            )
        }
        for turn in range(turns)
    ]
    total: defaultdict[PortRef, int] = defaultdict(int)
    chosen: dict[int, int] = {}

    def add(loads: Loads, sign: int) -> None:
        for end, sent in loads.items():
            total[end] += sign * sent

    def badness(loads: Loads) -> int:
        return sum(sent * (2 * total[end] + sent) for end, sent in loads.items())

    heaviest_first = sorted(
        range(turns), key=lambda turn: -sum(next(iter(choices[turn].values())).values())
    )
    for _ in range(_PASSES):
        for turn in heaviest_first:
            own = choices[turn]
            if turn in chosen:
                add(own[chosen[turn]], -1)
            chosen[turn] = min(own, key=lambda port: badness(own[port]))
            add(own[chosen[turn]], 1)
    return [chosen[turn] for turn in range(turns)]
