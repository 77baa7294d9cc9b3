"""Choose which waiting connection to close in favor of a new one.

A client without a certificate takes a place among the waiting connections until it is
refused. With a single limit for all connections, such clients could lock out others.
The room limits waiting connections per source. It never drops a connection of a trusted
client to admit another connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from ipaddress import IPv6Address
from typing import Generic, TypeVar

from chakram.foundation.ip_addresses import is_ipv6

MOST_WAITING = 128
"""Limit on connections of clients that are not trusted yet."""
MOST_WAITING_PER_SOURCE = 64
"""Limit on such connections per source.

A controller waits for only a few milliseconds. Even if its address opens 200 other
connections per second, the room does not drop it for 320 ms.
"""
MOST_KNOWN = 256
"""Limit on remembered sources of trusted clients."""

_C = TypeVar("_C", bound=Hashable)


class WaitingRoom(Generic[_C]):
    """Connections of clients that are not trusted yet.

    If there are too many, the room selects a connection to drop. If the source of a new
    connection exceeds its limit, that source loses a connection. If only the total
    limit is exceeded, the source with the most connections loses a connection. Sources
    that were trusted before are the last to lose a connection. The room drops the
    source's oldest connection that has sent nothing, or else the oldest connection.

    Args:
        has_sent: Function that returns whether a connection has sent data. Honest
            clients send immediately.
        most: Limit on all connections.
        most_per_source: Limit on connections per source.
    """

    def __init__(
        self,
        has_sent: Callable[[_C], bool],
        *,
        most: int = MOST_WAITING,
        most_per_source: int = MOST_WAITING_PER_SOURCE,
    ) -> None:
        self._has_sent = has_sent
        self._most = most
        self._most_per_source = most_per_source
        self._sources: dict[_C, str] = {}
        self._known: dict[str, None] = {}

    def arrive(self, connection: _C, source: str) -> _C | None:
        """Admit a connection, and return the connection to drop for it, or None."""
        self._sources[connection] = source
        counts = Counter(self._sources.values())
        if counts[source] <= self._most_per_source:
            if len(self._sources) <= self._most:
                return None
            strangers = [each for each in counts if each not in self._known]
            source = max(strangers or counts, key=lambda each: counts[each])
        own = [each for each, of in self._sources.items() if of == source]
        leaving = next((each for each in own if not self._has_sent(each)), own[0])
        del self._sources[leaving]
        return leaving

    def leave(self, connection: _C, *, source: str, is_trusted: bool) -> None:
        """Remove a connection that no longer waits."""
        self._sources.pop(connection, None)
        if is_trusted:
            self._known.pop(source, None)
            self._known[source] = None
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]

    def is_waiting(self, connection: _C) -> bool:
        """Return whether a connection is still waiting."""
        return connection in self._sources

    def waiting(self) -> tuple[_C, ...]:
        """Return the waiting connections, oldest first."""
        return tuple(self._sources)


def source_of(address: str) -> str:
    """Return the source of an address, which is the IPv4 address or the IPv6 /64."""
    if not is_ipv6(address):
        return address
    parsed = IPv6Address(address.partition("%")[0])
    return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))
