"""Links that ought to have the same rate: those between the same tiers."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from statistics import median_high

from chakram.records.run_records import LinkRecord


def usual_rates_bps(
    hosts: Iterable[str],
    ends: Mapping[str, tuple[str, str]],
    rates_bps: Mapping[str, int],
) -> dict[str, int]:
    """Return the usual rate of links like each link.

    Links are comparable if their ends are as many links away from the nearest host. The
    usual rate is the median of their rates, the higher of two middle ones.

    Args:
        hosts: Names of the hosts.
        ends: The two nodes of each link, by its name.
        rates_bps: Rate of each link that has one, by its name.

    Returns:
        The usual rate by the name of a link, for the links in *rates_bps*.
    """
    neighbours: dict[str, list[str]] = defaultdict(list)
    for one, other in ends.values():
        neighbours[one].append(other)
        neighbours[other].append(one)
    tiers = dict.fromkeys(hosts, 0)
    reached = list(tiers)
    for node in reached:
        for other in neighbours[node]:
            if other not in tiers:
                tiers[other] = tiers[node] + 1
                reached.append(other)
    alike: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in rates_bps:
        alike[tuple(sorted(tiers.get(node, -1) for node in ends[name]))].append(name)
    usual: dict[str, int] = {}
    for names in alike.values():
        rate_bps = median_high(rates_bps[name] for name in names)
        usual |= dict.fromkeys(names, rate_bps)
    return usual


def usual_port_rates_bps(links: Collection[LinkRecord]) -> dict[str, int]:
    """Return the usual rate at each port that has a rate, from records of links."""
    known = [(link, link.port) for link in links if link.port is not None]
    nodes: dict[str, list[str]] = defaultdict(list)
    for link, port in known:
        nodes[link.link].append(port.rpartition(":")[0])
    hosts = [
        port.rpartition(":")[0]
        for link, port in known
        if link.kind == "host" and link.direction == "up"
    ]
    return usual_rates_bps(
        hosts,
        {port: (nodes[link.link][0], nodes[link.link][-1]) for link, port in known},
        {port: link.rate_bps for link, port in known if link.rate_bps},
    )
