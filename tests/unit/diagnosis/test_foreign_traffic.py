"""Traffic of others, found from counted bytes."""

from __future__ import annotations

import pytest

from chakram.diagnosis.foreign_traffic import (
    evidence_of,
    foreign_rates_bps,
    place_of,
    rates_left_bps,
)
from chakram.records.run_records import LinkRecord

SECOND_NS = 10**9


def link(
    name: str, nbytes: int, kind: str = "host", direction: str = "up"
) -> LinkRecord:
    return LinkRecord(
        link=name,
        kind=kind,
        direction=direction,
        bytes_before=0,
        bytes_after=nbytes,
        port=name,
        rate_bps=1000,
    )


LINKS = {
    "a": link("a", 150),
    "b": link("b", 100),
    "c": link("c", 160, "uplink"),
    "d": link("d", 150, direction="down"),
}
OWN = dict.fromkeys("abcd", 100.0)


def test_bytes_that_the_run_did_not_send_are_those_of_others() -> None:
    found = foreign_rates_bps(LINKS, OWN, SECOND_NS)
    assert found == {"a": 400, "c": 480, "d": 400}


@pytest.mark.parametrize(
    ("own", "time_ns"),
    [
        ({"a": 146.0, "b": 98.0, "c": 154.0, "d": 146.0}, SECOND_NS),  # headers etc.
        (OWN | {"b": 150.0}, SECOND_NS),  # other paths than assumed
        (OWN, 10**12),  # so slow that it costs nothing
        (OWN, 0),
        ({}, SECOND_NS),
    ],
)
def test_other_bytes_are_unknown(own: dict[str, float], time_ns: int) -> None:
    assert foreign_rates_bps(LINKS, own, time_ns) == {}


def test_other_traffic_leaves_the_rest_of_the_rate() -> None:
    found = {"a": 400, "c": 2000}
    assert rates_left_bps(found, LINKS, 1.0) == {"a": 600, "c": 50}
    assert rates_left_bps(found, LINKS, 0.5) == {"a": 800, "c": 50}


def test_other_traffic_is_at_the_link_of_its_sender() -> None:
    found = {"a": 400, "c": 480, "d": 400}
    assert place_of(found, LINKS) == "a up"
    assert place_of({"c": 480, "d": 400}, LINKS) == "c up"
    told = evidence_of({"a": 8_000_000, "c": 16_000_000}, LINKS, SECOND_NS)
    assert told == "counters show 2 MB that this run did not send, over a up, c up"
