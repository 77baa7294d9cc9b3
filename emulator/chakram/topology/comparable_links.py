"""Groups of links that should have the same rate, because they join the same tiers."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from statistics import median_high

from chakram.foundation.grouping import grouped
from chakram.records.run_records import LinkRecord


def usual_rates_bps(
    hosts: Iterable[str],
    ends: Mapping[str, tuple[str, str]],
    rates_bps: Mapping[str, int],
) -> dict[str, int]:
    """Return the usual rate among the links that are comparable to each link.

    Links are comparable if their ends have the same distances from the nearest host,
    counted in links. The usual rate is the median of the rates, or the higher one of
    two middle rates. For links that are slower by design, it is their actual rate (see
    ``slower_by_design``).

    Args:
        hosts: Names of the hosts.
        ends: The two nodes of each link, by link name.
        rates_bps: Rate of each link that has a rate, by link name.

    Returns:
        The usual rate by link name, for the links in *rates_bps*.
    """
    known = set(hosts)
    usual = _medians(known, ends, rates_bps)
    for names, _ in slower_by_design(known, ends, rates_bps):
        usual |= {name: rates_bps[name] for name in names}
    return usual


def _medians(
    hosts: Iterable[str],
    ends: Mapping[str, tuple[str, str]],
    rates_bps: Mapping[str, int],
) -> dict[str, int]:
    usual: dict[str, int] = {}
    for names in comparable(hosts, ends, rates_bps):
        usual |= dict.fromkeys(names, median_high(rates_bps[name] for name in names))
    return usual


def slower_by_design(
    hosts: Iterable[str],
    ends: Mapping[str, tuple[str, str]],
    rates_bps: Mapping[str, int],
) -> list[tuple[list[str], int]]:
    """Return groups of links with the same low rate, each with the usual rate.

    The rate is below the usual rate of comparable links. A group contains at least half
    of the comparable links (and at least two), or at least a quarter (and at least
    three). A smaller group counts if each of its links ends at a switch whose
    comparable links, at least two, all belong to the group. See ``usual_rates_bps`` for
    the arguments.
    """
    known = set(hosts)
    found = []
    for names in comparable(known, ends, rates_bps):
        usual_bps = median_high(rates_bps[name] for name in names)
        at_node: dict[str, list[str]] = defaultdict(list)
        for name in names:
            for node in ends[name]:
                at_node[node].append(name)
        by_rate = grouped((rates_bps[name], name) for name in names)
        for rate_bps, alike in sorted(by_rate.items()):
            if rate_bps >= usual_bps:
                break
            switches = {
                node
                for node, own in at_node.items()
                if node not in known
                and len(own) > 1
                and all(rates_bps[name] == rate_bps for name in own)
            }
            is_whole = all(not switches.isdisjoint(ends[name]) for name in alike)
            is_many = len(alike) >= min(max(2, len(names) / 2), max(3, len(names) / 4))
            if is_many or is_whole:
                found.append((alike, usual_bps))
    return found


def comparable(
    hosts: Iterable[str], ends: Mapping[str, tuple[str, str]], names: Iterable[str]
) -> list[list[str]]:
    """Group the links *names* by the tiers that they join."""
    neighbors: dict[str, list[str]] = defaultdict(list)
    for one, other in ends.values():
        neighbors[one].append(other)
        neighbors[other].append(one)
    tiers = dict.fromkeys(hosts, 0)
    reached = list(tiers)
    for node in reached:
        for other in neighbors[node]:
            if other not in tiers:
                tiers[other] = tiers[node] + 1
                reached.append(other)
    alike: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in names:
        alike[tuple(sorted(tiers.get(node, -1) for node in ends[name]))].append(name)
    return list(alike.values())


def usual_port_rates_bps(links: Collection[LinkRecord]) -> dict[str, int]:
    """Return the usual rate of each port that has a rate, from link records."""
    known = [(link, link.port) for link in links if link.port is not None]
    nodes: dict[str, list[str]] = defaultdict(list)
    for link, port in known:
        nodes[link.link].append(port.rpartition(":")[0])
    hosts = [
        port.rpartition(":")[0]
        for link, port in known
        if link.kind == "host" and link.direction == "up"
    ]
    rates_bps = {port: link.rate_bps for link, port in known if link.rate_bps}
    ends = {port: (nodes[link.link][0], nodes[link.link][-1]) for link, port in known}
    usual = _medians(hosts, ends, rates_bps)
    # Count both directions of a link as one link.
    ports: dict[str, list[str]] = defaultdict(list)
    for link, port in known:
        if port in rates_bps:
            ports[link.link].append(port)
    by_design = slower_by_design(
        hosts,
        {name: (nodes[name][0], nodes[name][-1]) for name in ports},
        {name: max(rates_bps[port] for port in own) for name, own in ports.items()},
    )
    for names, _ in by_design:
        usual |= {port: rates_bps[port] for name in names for port in ports[name]}
    return usual
