"""Which unauthenticated connection is closed for a new one."""

from __future__ import annotations

import pytest

from chakram.control.connection_eviction import (
    MOST_WAITING,
    MOST_WAITING_PER_SOURCE,
    WaitingRoom,
    source_of,
)


def test_source_over_its_limit_closes_its_own_connections() -> None:
    # A silent one before those that have sent something, the oldest first.
    room: WaitingRoom[int] = WaitingRoom({0, 2}.__contains__)
    assert room.arrive(-1, "other") is None
    for number in range(MOST_WAITING_PER_SOURCE):
        assert room.arrive(number, "flood") is None
    assert [room.arrive(1000 + turn, "flood") for turn in range(3)] == [1, 3, 4]
    assert len(room.waiting()) == MOST_WAITING_PER_SOURCE + 1


def test_oldest_connection_is_closed_if_all_have_sent() -> None:
    room: WaitingRoom[int] = WaitingRoom(lambda _: True)
    for number in range(MOST_WAITING_PER_SOURCE):
        room.arrive(number, "flood")
    room.leave(0, source="flood", is_trusted=False)
    assert room.arrive(1000, "flood") is None
    assert room.arrive(1001, "flood") == 1


def test_connections_of_known_sources_are_closed_last() -> None:
    room: WaitingRoom[tuple[str, int]] = WaitingRoom(lambda _: False)
    room.arrive(("h1", 0), "h1")
    room.leave(("h1", 0), source="h1", is_trusted=True)
    for number in range(3):
        assert room.arrive(("h1", number), "h1") is None
    for number in range(MOST_WAITING - 3):
        assert room.arrive(("flood", number), f"10.0.0.{number}") is None
    assert room.arrive(("h1", 4), "h1") == ("flood", 0)
    assert room.arrive(("flood", 999), "10.0.0.1") == ("flood", 1)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
    ],
)
def test_a_network_of_ipv6_is_one_source(address: str, source: str) -> None:
    assert source_of(address) == source
