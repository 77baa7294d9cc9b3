"""UDP source ports that spread flows evenly over equal-cost paths.

If the hash of the switches is known, each source port determines the path of a flow.
Queue pairs take n source ports in round-robin order, so every n-th queue pair has the
same source port. These queue pairs form a *turn*.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from chakram.plan.port_plan import PortPlan
from chakram.plan.queue_pairs import SOURCE_PORT_BASE, SOURCE_PORT_POOL
from chakram.predict.routing import Router
from chakram.topology.topology import PortRef

_PASSES = 3
_TRIALS = 4000
"""Target number of evaluated paths over all queue pairs."""
_MOST_PORTS = 48
"""Maximum number of candidate source ports per turn."""

Loads = dict["PortRef", int]
"""Number of bytes that leave through each inter-switch egress port."""


class LoadedPair(NamedTuple):
    """A queue pair and the bytes it sent.

    Attributes:
        ends: Indices of the two ports that the pair connects.
        sent_bytes: Number of bytes on the wire from each of the two ports.
    """

    ends: tuple[int, int]
    sent_bytes: tuple[int, int]


def loads_of(
    pairs: Iterable[tuple[LoadedPair, int]],
    *,
    router: Router,
    ports: Sequence[PortPlan],
) -> Loads:
    """Return the bytes that queue pairs send through each inter-switch port."""
    found: defaultdict[PortRef, int] = defaultdict(int)
    for pair, source_port in pairs:
        for near, far, sent in zip(
            pair.ends, reversed(pair.ends), pair.sent_bytes, strict=True
        ):
            to = ports[far]
            ends, _ = router(near, to.address, to.udp_port, source_port)
            # The first port belongs to the host, and the last port to the receiver's
            # switch.
            for end in ends[1:-1]:
                found[end] += sent
    return dict(found)


def balanced_source_ports(
    pairs: Sequence[LoadedPair], *, router: Router, ports: Sequence[PortPlan]
) -> list[int]:
    """Return distinct source ports to use in round-robin order, at most one per pair.

    The search minimizes the sum of squared loads of the ports between switches. It
    visits the turns from the heaviest to the lightest. Each turn takes the port that is
    best given the choices of all other turns.

    Args:
        pairs: Queue pairs in the order in which they take source ports.
        router: Router that determines the paths.
        ports: The ports that the pairs connect.
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
