"""Networks of the message level without a fabric."""

from __future__ import annotations

from collections.abc import Sequence

from chakram.predict.levels.level_network import Attachment, LevelLink, LevelNetwork

__all__ = ["fully_connected", "ring", "star"]


def star(hosts: int, *, rate_bps: int | None, delay_ns: int) -> LevelNetwork:
    """Return hosts on one switch, with an up and a down link each."""
    links = [
        LevelLink(name=f"h{host}", rate_bps=rate_bps, delay_ns=delay_ns, to=0)
        for host in range(hosts)
    ]
    links += [
        LevelLink(name=f"sw:h{host}", rate_bps=rate_bps, delay_ns=delay_ns)
        for host in range(hosts)
    ]
    return LevelNetwork(
        hosts=tuple(
            Attachment(router=0, up=host, down=hosts + host) for host in range(hosts)
        ),
        routers=1,
        links=tuple(links),
        leaving=((),),
    )


def ring(hosts: int, *, rate_bps: int | None, delay_ns: int) -> LevelNetwork:
    """Return hosts that are joined to their two neighbors and pass on.

    The links upwards come first: of two ways of one length they are taken.
    """
    neighbors = [
        ((host + 1) % hosts, (host - 1) % hosts)
        if hosts > 2
        else tuple({(host + 1) % hosts} - {host})
        for host in range(hosts)
    ]
    return _of_neighbors(neighbors, rate_bps=rate_bps, delay_ns=delay_ns)


def fully_connected(hosts: int, *, rate_bps: int | None, delay_ns: int) -> LevelNetwork:
    """Return hosts of which every two are joined by their own link."""
    neighbors = [
        tuple(peer for peer in range(hosts) if peer != host) for host in range(hosts)
    ]
    return _of_neighbors(neighbors, rate_bps=rate_bps, delay_ns=delay_ns)


def _of_neighbors(
    neighbors: Sequence[Sequence[int]], *, rate_bps: int | None, delay_ns: int
) -> LevelNetwork:
    links: list[LevelLink] = []
    leaving: list[tuple[int, ...]] = []
    for host, peers in enumerate(neighbors):
        leaving.append(tuple(range(len(links), len(links) + len(peers))))
        links += [
            LevelLink(
                name=f"h{host}:h{peer}", rate_bps=rate_bps, delay_ns=delay_ns, to=peer
            )
            for peer in peers
        ]
    return LevelNetwork(
        hosts=tuple(Attachment(router=host) for host in range(len(neighbors))),
        routers=len(neighbors),
        links=tuple(links),
        leaving=tuple(leaving),
    )
