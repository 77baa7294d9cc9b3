"""Which host, or all of them, a fault of late hosts is attributed to."""

from __future__ import annotations

from dataclasses import replace

from chakram.diagnosis.counterfactual import Assumption
from chakram.diagnosis.fault_proposals import Hypothesis
from chakram.diagnosis.late_host_attribution import (
    attributed,
    late_receiver,
    latest_on_paths,
    merged,
)

DELAY = Hypothesis(
    cause="generator slow",
    place="all hosts",
    assumed=(Assumption(kind="host delay", port="", delay_ns=1000),),
)
LINK = Hypothesis(
    cause="slow link",
    place="h3-s0 up",
    assumed=(Assumption(kind="degrade", port="h3:eth0", rate_bps=1000),),
)


def named(slow: Hypothesis, *waits: float) -> str:
    hosts = {f"h{number}": share for number, share in enumerate(waits)}
    return attributed(slow, {"h3", "s0"}, hosts).place


def test_a_slow_link_is_that_of_a_late_host_or_of_all_hosts() -> None:
    assert named(LINK, 0.1, 0.1, 0.1, 0.3) == "h3"
    assert named(LINK, 0.28, 0.27, 0.29, 0.3) == "all hosts"
    assert named(LINK, 0.1, 0.5, 0.1, 0.3) == LINK.place
    assert named(LINK, 0.01, 0.01, 0.01, 0.05) == LINK.place
    assert attributed(LINK, {"h3", "s0"}, {}) == LINK


def rivals(
    ends: set[str], waits: dict[str, float], coreless: dict[str, float], saved: float
) -> list[tuple[str, str]]:
    found = late_receiver(LINK, ends, waits, coreless, saved)
    assert {each.cause for each in found} <= {"generator slow"}
    return [(each.place, each.evidence) for each in found]


def test_a_host_may_be_late_to_receive_if_others_were_late_to_send() -> None:
    waits, ends = {"h1": 0.05, "h2": 0.01, "h3": 0.0}, {"h3", "s0"}
    late = "data planes late to send for up to 5% of the time"
    assert rivals(ends, waits, {}, 0.1) == [("h3", late)]
    # It saves more than late hosts could, or has no host at its ends.
    assert rivals(ends, waits, {}, 0.2) == []
    assert rivals({"s1", "s0"}, waits, {}, 0.1) == []
    assert rivals(ends, {}, {}, 0.1) == []


def test_a_host_without_a_core_may_be_late_to_receive() -> None:
    ends = {"h3", "s0"}
    found = [("h3", "process without a core for 30% of the time")]
    assert rivals(ends, {}, {"h1": 0.1, "h2": 0.1, "h3": 0.3}, 0.2) == found
    # All hosts lack cores alike, or for less time than the link would save.
    assert rivals(ends, {}, {"h1": 0.3, "h2": 0.3, "h3": 0.3}, 0.2) == []
    assert rivals(ends, {}, {"h1": 0.0, "h2": 0.0, "h3": 0.1}, 0.5) == []


def test_a_late_host_replaces_all_hosts_once() -> None:
    others = (LINK, ())
    assert merged([others, (DELAY, ())], {}, {}) == [others, (DELAY, ())]
    ((best, rivals), after) = merged([(DELAY, (LINK,)), others], {"h3": 0.4}, {})
    assert (best.cause, best.place) == ("generator slow", "h3")
    assert rivals == (DELAY, LINK)
    assert after == others
    # Another fault names the host already.
    known = (replace(LINK, cause="generator slow", place="h3"), ())
    assert merged([known, (DELAY, ())], {"h3": 0.4}, {}) == [known, (DELAY, ())]
    assert merged([known, (DELAY, ())], {}, {"h3": 0.4}) == [known, (DELAY, ())]


def test_a_host_that_delayed_the_critical_paths_replaces_all_hosts() -> None:
    charges = {"h1": 0.1, "h2": 0.02, "h3": 0.2}
    assert latest_on_paths(charges) == "h3"
    ((best, rivals),) = merged([(DELAY, (LINK,))], {}, charges)
    assert (best.place, rivals) == ("h3", (DELAY, LINK))
    assert "20% of the time on the critical paths" in best.evidence
    # The host that was late for longer is named first.
    ((best, _),) = merged([(DELAY, (LINK,))], {"h1": 0.4}, charges)
    assert best.place == "h1"


def test_no_host_stands_out_on_the_critical_paths() -> None:
    assert latest_on_paths({}) is None
    assert latest_on_paths({"h1": 0.11, "h3": 0.2}) is None
    assert latest_on_paths({"h3": 0.05}) is None
    assert latest_on_paths({"h3": 0.2}) == "h3"


def test_all_hosts_are_named_once() -> None:
    late = replace(LINK, cause="generator slow", place="all hosts")
    ((best, _),) = merged([(DELAY, ()), (late, ())], {}, {})
    assert best.assumed == (*DELAY.assumed, *LINK.assumed)
