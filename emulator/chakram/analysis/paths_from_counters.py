"""Paths of flows that agree with the bytes that switches counted.

The paths are unknown if the hash of the switches is unknown. The byte counters of the
links still restrict them. A search assigns each flow one of its equal-cost paths, so
that every link carries the bytes that its switch counted. Several assignments may agree
with the counters, so the result shows how uneven the links are, and not which flow
takes which link.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from chakram.foundation.grouping import grouped

_PASSES = 40
_MOST_SWAPS = 200_000


@dataclass(frozen=True, slots=True)
class FlowBytes:
    """A flow and its equal-cost paths.

    Attributes:
        nbytes: Number of bytes that the flow sends.
        paths: Equal-cost paths, each as the egress ports of switches toward other
            switches.
    """

    nbytes: float
    paths: tuple[tuple[str, ...], ...]


def assign_paths(
    flows: Sequence[FlowBytes], counted: Mapping[str, float], *, seed: int
) -> tuple[list[int], float]:
    """Return the path of each flow, and how far the links differ from the counters.

    The difference is the share of the bytes that take a different link than the
    counters show. This is the total variation distance, from 0 to 1.

    Args:
        flows: The flows.
        counted: Bytes that each port sent. Ports without a value are not compared.
        seed: Seed for the order in which the search tries flows.
    """
    search = _Search(flows, counted, seed)
    for _ in range(_PASSES):
        if not search.moved() and not search.swapped():
            break
    return search.chosen, search.misfit()


class _Search:
    def __init__(
        self, flows: Sequence[FlowBytes], counted: Mapping[str, float], seed: int
    ) -> None:
        self._flows = flows
        self._order = list(range(len(flows)))
        random.Random(seed).shuffle(self._order)
        # Assign large flows first, so that small flows can fill the remaining gaps.
        self._order.sort(key=lambda each: -flows[each].nbytes)
        self.chosen = [0] * len(flows)
        ports = {port for flow in flows for path in flow.paths for port in path}
        self._counted = {port: counted[port] for port in ports if port in counted}
        # All paths of a flow cross equally many links.
        crossing = sum(
            flow.nbytes * sum(port in self._counted for port in flow.paths[0])
            for flow in flows
        )
        total = sum(self._counted.values())
        scale = crossing / total if total else 0.0
        # Bytes that are still missing at each port.
        self._left = {port: scale * each for port, each in self._counted.items()}
        self._crossing = crossing
        for each in self._order:
            flow = flows[each]
            best = min(
                range(len(flow.paths)),
                key=lambda path: self._change((), flow.paths[path], flow.nbytes),
            )
            self._add(flow.paths[best], -flow.nbytes)
            self.chosen[each] = best

    def misfit(self) -> float:
        if not self._crossing:
            return 1.0
        return 0.5 * sum(map(abs, self._left.values())) / self._crossing

    def moved(self) -> bool:
        """Move single flows to better paths, and return whether any flow was moved."""
        found = False
        for each in self._order:
            flow, now = self._flows[each], self._path(each)
            best, change = self.chosen[each], -1e-6
            for number, path in enumerate(flow.paths):
                own = self._change(now, path, flow.nbytes)
                if own < change:
                    best, change = number, own
            if best != self.chosen[each]:
                self._move(each, best)
                found = True
        return found

    def swapped(self) -> bool:
        """Exchange the paths of two flows, and return whether any were exchanged."""
        alike = grouped((self._flows[each].paths, each) for each in self._order)
        found, tried = False, 0
        for members in alike.values():
            for one, two in combinations(members, 2):
                tried += 1
                if tried > _MOST_SWAPS:
                    return found
                excess = self._flows[one].nbytes - self._flows[two].nbytes
                if not excess or self.chosen[one] == self.chosen[two]:
                    continue
                now, then = self._path(one), self._path(two)
                if self._change(now, then, excess) < -1e-6:
                    first, second = self.chosen[one], self.chosen[two]
                    self._move(one, second)
                    self._move(two, first)
                    found = True
        return found

    def _path(self, flow: int) -> tuple[str, ...]:
        return self._flows[flow].paths[self.chosen[flow]]

    def _move(self, flow: int, path: int) -> None:
        nbytes = self._flows[flow].nbytes
        self._add(self._path(flow), nbytes)
        self.chosen[flow] = path
        self._add(self._path(flow), -nbytes)

    def _add(self, path: Sequence[str], nbytes: float) -> None:
        for port in path:
            if port in self._left:
                self._left[port] += nbytes

    def _change(self, now: Sequence[str], then: Sequence[str], nbytes: float) -> float:
        """Return the change of the squared missing bytes if bytes change paths."""
        change = 0.0
        for ports, others, sign in ((now, then, 1), (then, now, -1)):
            for port in ports:
                left = self._left.get(port)
                if left is not None and port not in others:
                    change += nbytes * (nbytes + 2 * sign * left)
        return change
