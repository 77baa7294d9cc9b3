"""What counters show of the paths of queue pairs that gave up."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.diagnosis.early_end import (
    Delivery,
    EarlyEnd,
    Suspicion,
    _losing,
    _suspicions,
)
from chakram.records.run_records import LinkRecord


def link(name: str, **counted: Any) -> LinkRecord:
    values: dict[str, Any] = {
        "kind": "uplink",
        "direction": "up",
        "bytes_before": 0,
        "bytes_after": 1000,
        "observed": "kernel",
    }
    return LinkRecord(link=name, port=name, **(values | counted))


def test_drops_come_before_pauses_and_idle_links() -> None:
    links = [
        link("idle", bytes_after=0),
        link("uncounted", bytes_after=0, observed=None),
        link("paused", paused_ns=600_000_000),
        link("few", drops=3),
        link("many", drops=107),
        link("fine", drops=0, paused_ns=0),
        link("elsewhere", drops=1000),
    ]
    by_port = {each.port or "": each for each in links}
    votes = dict.fromkeys(by_port, 1) | {"few": 2}
    del votes["elsewhere"]
    assert list(_suspicions(votes, by_port, 10)) == [
        Suspicion("few up", "dropped 3 packets"),
        Suspicion("many up", "dropped 107 packets"),
        Suspicion("paused up", "was paused for 60ms"),
        Suspicion("idle up", "carried no packet"),
    ]


def test_an_end_without_suspicions_names_the_path() -> None:
    pairs = (("job", 2, 5), ("job", 5, 2))
    end = EarlyEnd(pairs=pairs, path=("a-b up", "b-c down"), suspicions=())
    assert str(end) == (
        "the queue pair of job job, rank 2, to rank 5 gave up, as did 1 more. Counters "
        "of the links on its path show nothing unusual: a-b up, b-c down"
    )
    unknown = EarlyEnd(pairs=pairs[:1], path=(), suspicions=())
    assert str(unknown).endswith("to rank 5 gave up. Its path is unknown")


def delivery(rank: int, ports: str, sent: int, arrived: int) -> Delivery:
    return Delivery(("job", rank, 64), frozenset(ports.split()), sent, arrived)


@pytest.mark.parametrize(
    ("arrived", "expected"),
    [
        (0, ["a-s up was crossed by 160 packets of which 0 arrived"]),
        # What only some packets survive is no loss that ends a run.
        (79, []),
    ],
)
def test_a_link_that_only_lost_packets_cross_is_named(
    arrived: int, expected: list[str]
) -> None:
    links = {name: link(name) for name in ("a-s", "s-b", "s-c", "s-a")}
    deliveries = [
        delivery(0, "a-s s-b", 80, arrived),
        delivery(1, "a-s s-c", 80, arrived),
        delivery(2, "b-s s-a", 80, 80),
        delivery(3, "b-s s-c", 100, 99),
        delivery(4, "c-s s-b", 50, 50),
        delivery(5, "a-s s-c", 80, 0),  # it has not given up
    ]
    failed = {("job", rank, 64) for rank in range(4)}
    found = [
        f"{each.place} {each.evidence}" for each in _losing(deliveries, failed, links)
    ]
    assert found == expected
