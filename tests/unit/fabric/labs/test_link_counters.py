"""Requests for link counters to the holder of a lab, and its answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chakram.fabric.labs import link_counters
from chakram.fabric.labs.link_counters import (
    LabCounters,
    LinkCounters,
    disturb_links,
    link_samples,
    read_counters,
    sample_links,
)
from chakram.foundation.errors import FabricError
from chakram.switch.faults import LinkFault

LAB: Any = SimpleNamespace(name="lab", directory="/run/chakram/lab")
LINK = {
    "tx_bytes": 1,
    "tx_packets": 2,
    "tx_drops": 3,
    "rx_bytes": 4,
    "rx_packets": 5,
    "rx_drops": 6,
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any]]:
    """Return the requests to the holder; it gives these answers in order."""
    requests: list[Any] = []
    answers: list[Any] = []

    def ask_holder(directory: str, request: str, **fields: Any) -> Any:
        assert directory == LAB.directory
        requests.append((request, fields))
        return answers.pop(0) if answers else {}

    monkeypatch.setattr(link_counters, "ask_holder", ask_holder)
    return requests, answers


def test_counters_cover_links_ports_and_the_process(
    asked: tuple[list[Any], list[Any]],
) -> None:
    requests, answers = asked
    answers += [
        {"links": {"l": LINK}},
        {"links": {}, "ports": {"s0:p0": {"x": [1]}}, "process": {"lost": 7}},
    ]

    assert read_counters(LAB) == LabCounters(links={"l": LinkCounters(**LINK)})
    assert read_counters(LAB) == LabCounters(
        ports={"s0:p0": {"x": [1]}}, process={"lost": 7}
    )
    assert requests == [("counters", {})] * 2


@pytest.mark.parametrize(
    "answer",
    [{}, {"links": 7}, {"links": {"l": {}}}, {"links": {"l": {**LINK, "x": 1}}}],
)
def test_counters_of_another_version_are_refused(
    answer: Any, asked: tuple[list[Any], list[Any]]
) -> None:
    asked[1].append(answer)

    with pytest.raises(FabricError, match="lab lab: its holder sent invalid counters"):
        read_counters(LAB)


def test_requests_for_faults_and_samples_have_their_format(
    asked: tuple[list[Any], list[Any]],
) -> None:
    fault = LinkFault(kind="down", port=3, at_ns=1, until_ns=9)

    disturb_links(LAB, [fault])
    disturb_links(LAB, [])
    sample_links(LAB, 1000)

    (first, fields), *others = asked[0]
    assert first == "faults"
    assert [LinkFault(**each) for each in fields["faults"]] == [fault]
    assert others == [("faults", {"faults": []}), ("sample", {"bin_ns": 1000})]


def test_samples_arrive_in_parts(
    asked: tuple[list[Any], list[Any]],
) -> None:
    requests, answers = asked
    answers += [{"rows": [1, 2]}, {"rows": [3]}, {"rows": []}, {"rows": [4]}]

    assert list(link_samples(LAB)) == [1, 2, 3]
    assert requests == [("samples", {})] * 3
