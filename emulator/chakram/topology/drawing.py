"""Layout of a fabric drawing, and its rendering for a terminal.

Hosts are at the bottom. Each switch is one tier above the lowest node that it connects
to. If there are many hosts, one host per switch represents all hosts of that switch.
The terminal draws lines with Braille characters, which are two dots wide and four high.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from chakram.foundation.units import format_rate
from chakram.topology.topology import Link, Topology

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Braille dots of a character, by row and column."""
_GAP = 4
"""Lines of text between two tiers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Positions of nodes, and the lines between them.

    Attributes:
        tiers: Nodes of each tier from left to right. Hosts are the first tier.
        labels: Label of each node.
        places: Horizontal position of each node, from 0 to 1, and its tier.
        lines: Links that each line represents, by the two nodes that the line connects.
    """

    tiers: tuple[tuple[str, ...], ...]
    labels: dict[str, str]
    places: dict[str, tuple[float, int]]
    lines: dict[tuple[str, str], list[Link]]


def laid_out(topology: Topology, *, most_hosts: int) -> Drawing:
    """Return a drawing of *topology*.

    Args:
        topology: Topology to draw. Switches that no host can reach are omitted.
        most_hosts: Maximum number of hosts to draw individually. If there are more
            hosts, one host represents all hosts of its switch.
    """
    tier_of: dict[str, int] = {}
    switches = frozenset(topology.switches)
    waiting = list(dict.fromkeys(topology.switch_of(host) for host in topology.hosts))
    ntiers = 1
    while waiting:
        tier_of |= dict.fromkeys(waiting, ntiers)
        waiting = list(
            dict.fromkeys(
                other
                for switch in waiting
                for link in topology.links_of(switch)
                if (other := link.other_end(switch).node) in switches
                and other not in tier_of
            )
        )
        ntiers += 1
    shown = {host: host for host in topology.hosts}
    labels = {node: node for node in (*topology.hosts, *tier_of)}
    if len(topology.hosts) > most_hosts:
        hosts_of: defaultdict[str, list[str]] = defaultdict(list)
        for host in topology.hosts:
            hosts_of[topology.switch_of(host)].append(host)
        for hosts in hosts_of.values():
            shown |= dict.fromkeys(hosts, hosts[0])
            labels[hosts[0]] = f"x{len(hosts)}"
    tiers = [tuple(dict.fromkeys(shown.values()))]
    tiers += [
        tuple(switch for switch in topology.switches if tier_of.get(switch) == tier)
        for tier in range(1, ntiers)
    ]
    tiers = [own for own in tiers if own]
    places = {
        node: ((number + 0.5) / len(own), tier)
        for tier, own in enumerate(tiers)
        for number, node in enumerate(own)
    }
    lines: dict[tuple[str, str], list[Link]] = {}
    for link in topology.links:
        a, b = (shown.get(end.node, end.node) for end in (link.a, link.b))
        if a in places and b in places:
            lines.setdefault((a, b), []).append(link)
    return Drawing(
        tiers=tuple(tiers),
        labels={node: labels[node] for node in places},
        places=places,
        lines=lines,
    )


def terminal_lines(topology: Topology, *, width: int, lines: bool = True) -> list[str]:
    """Return a drawing of a topology as lines of text, at most *width* characters wide.

    If a tier does not fit, one line of text describes the tier, and no lines lead to
    it. No lines are drawn at all if *lines* is false.
    """
    nhosts = len(topology.hosts)
    drawing = laid_out(topology, most_hosts=nhosts)
    if not _fits(drawing, 0, width):
        drawing = laid_out(topology, most_hosts=0)
    fits = [_fits(drawing, tier, width) for tier in range(len(drawing.tiers))]
    widest = max(
        (len(own) * (_longest(drawing, tier) + 2))
        for tier, own in enumerate(drawing.tiers)
        if fits[tier] or len(own) == 1
    ) if any(fits) else width  # fmt: skip
    width = min(width, max(widest, 40))
    made: list[str] = []
    for tier in reversed(range(len(drawing.tiers))):
        made.append(_names(drawing, tier, width if fits[tier] else None))
        if tier:
            if lines and fits[tier] and fits[tier - 1]:
                made += _between(drawing, tier, width)
            made.append(f"  {_links_between(drawing, tier)}")
    flat = [
        links
        for (a, b), links in drawing.lines.items()
        if drawing.places[a][1] == drawing.places[b][1]
    ]
    if flat:
        count = sum(map(len, flat))
        made.append(f"  {count} links join nodes of one tier; they are in the table")
    return made


def _longest(drawing: Drawing, tier: int) -> int:
    return max(len(drawing.labels[node]) for node in drawing.tiers[tier])


def _fits(drawing: Drawing, tier: int, width: int) -> bool:
    return len(drawing.tiers[tier]) * (_longest(drawing, tier) + 2) <= width


def _column(drawing: Drawing, node: str, width: int) -> int:
    return int(drawing.places[node][0] * width)


def _names(drawing: Drawing, tier: int, width: int | None) -> str:
    own = drawing.tiers[tier]
    if width is None:
        first, last = drawing.labels[own[0]], drawing.labels[own[-1]]
        return f"  {len(own)} nodes: {first} to {last}"
    text = [" "] * width
    for node in own:
        label = drawing.labels[node]
        start = max(
            0, min(_column(drawing, node, width) - len(label) // 2, width - len(label))
        )
        text[start : start + len(label)] = label
    return "".join(text).rstrip()


def _links_between(drawing: Drawing, tier: int) -> str:
    """Describe the links between a tier and the tier below it."""
    kinds: defaultdict[str, int] = defaultdict(int)
    for (a, b), links in drawing.lines.items():
        if sorted((drawing.places[a][1], drawing.places[b][1])) == [tier - 1, tier]:
            for link in links:
                rate = (
                    "no rate" if link.rate_bps is None else format_rate(link.rate_bps)
                )
                kinds[rate] += 1
    return ", ".join(f"{n} links of {rate}" for rate, n in kinds.items())


def _between(drawing: Drawing, tier: int, width: int) -> list[str]:
    """Return the lines between a tier and the tier below it."""
    dots = [[0] * width for _ in range(_GAP)]
    for a, b in drawing.lines:
        places = drawing.places
        if sorted((places[a][1], places[b][1])) != [tier - 1, tier]:
            continue
        upper, lower = (a, b) if places[a][1] == tier else (b, a)
        x0, x1 = (2 * _column(drawing, node, width) + 1 for node in (upper, lower))
        steps = max(abs(x1 - x0), 4 * _GAP - 1)
        for step in range(steps + 1):
            x = x0 + round((x1 - x0) * step / steps)
            y = round((4 * _GAP - 1) * step / steps)
            dots[y // 4][min(x // 2, width - 1)] |= _DOTS[y % 4][x % 2]
    return [
        "".join(chr(_BRAILLE + each) if each else " " for each in row).rstrip()
        for row in dots
    ]
