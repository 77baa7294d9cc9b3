"""Traffic of others on a link that looks slow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.diagnosis.counterfactual import Assumption
from chakram.diagnosis.fault_proposals import Hypothesis
from chakram.diagnosis.foreign_traffic import foreign_rates_bps, with_foreign_traffic
from chakram.records.run_records import LinkRecord

SECOND_NS = 10**9


def link(name: str, nbytes: int) -> LinkRecord:
    return LinkRecord(
        link=name,
        kind="host",
        direction="up",
        bytes_before=0,
        bytes_after=nbytes,
        port=f"{name}:eth0",
        rate_bps=1000,
    )


def slow(name: str, rate_bps: int) -> Hypothesis:
    return Hypothesis(
        cause="slow link",
        place=f"{name} up",
        assumed=(Assumption(kind="degrade", port=f"{name}:eth0", rate_bps=rate_bps),),
    )


LINKS = {each.port or "": each for each in (link("a", 150), link("b", 100))}
OWN = {"a:eth0": 100.0, "b:eth0": 100.0}


def test_bytes_that_the_run_did_not_send_are_those_of_others() -> None:
    assert foreign_rates_bps(LINKS.values(), OWN, SECOND_NS) == {"a:eth0": 400.0}


@pytest.mark.parametrize(
    ("own", "time_ns"),
    [
        ({"a:eth0": 140.0, "b:eth0": 95.0}, SECOND_NS),  # headers and the like
        ({"a:eth0": 100.0, "b:eth0": 150.0}, SECOND_NS),  # other paths than assumed
        (OWN, 0),
        ({}, SECOND_NS),
    ],
)
def test_other_bytes_are_unknown(own: dict[str, float], time_ns: int) -> None:
    assert foreign_rates_bps(LINKS.values(), own, time_ns) == {}


def test_traffic_that_takes_the_missing_rate_replaces_a_slow_link() -> None:
    rates = {"a:eth0": 400.0}
    best, rivals = with_foreign_traffic(slow("a", 500), [slow("b", 500)], rates, LINKS)
    assert (best.cause, best.place) == ("other traffic", "a up")
    assert "400bit/s" in best.evidence
    assert rivals == ()
    _, (rival,) = with_foreign_traffic(slow("a", 500), [slow("a", 600)], rates, LINKS)
    assert rival.cause == "other traffic"


def test_a_link_that_is_slower_than_the_traffic_explains_remains_slow() -> None:
    rival = slow("b", 500)
    found = with_foreign_traffic(slow("a", 100), [rival], {"a:eth0": 400.0}, LINKS)
    assert found == (slow("a", 100), (rival,))
    late = replace(slow("a", 500), cause="generator slow")
    assert with_foreign_traffic(late, [], {"a:eth0": 400.0}, LINKS) == (late, ())
