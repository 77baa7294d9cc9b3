from __future__ import annotations

from chakram.topology.topology import Link, PortRef

GBIT = 10**9


def port(text: str) -> PortRef:
    node, name = text.split(":")
    return PortRef(node=node, port=name)


def link(a: str, b: str, *, name: str | None = None) -> Link:
    return Link(
        a=port(a), b=port(b), rate_bps=GBIT, name=name or f"{a}-{b}".replace(":", ".")
    )


def names(path: tuple[Link, ...]) -> list[str]:
    return [each.name for each in path]
