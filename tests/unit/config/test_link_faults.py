"""Faults of links as experiments say them, right and wrong."""

from __future__ import annotations

import pytest

from chakram.config.experiment import parse_experiment
from chakram.config.link_faults import LinkFaultSettings
from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.switch.faults import FAULT_KINDS
from tests.unit.config.texts import EXTERNAL, QUICKSTART, mistakes_of


def with_faults(*faults: str, base: str = QUICKSTART) -> str:
    return base + f"faults: {{links: [{', '.join(faults)}]}}\n"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (
            "{kind: down, link: nowhere}",
            "[0].link: there is no link 'nowhere' (e.g. h0-",
        ),
        *(
            (f"{{kind: down, link: {link}}}", f"(did you mean {nearest}?)")
            for link, nearest in (
                ("spine0-leaf1", "leaf1-spine0"),
                ("leaf7-spine0", "leaf1-spine0"),
                ("spine0-leaf7", "leaf1-spine0"),
                ("leaf0-h1", "h1-leaf0"),
            )
        ),
        (
            "{kind: down, link: h0-leaf0, direction: up}",
            "kind down affects both directions",
        ),
        (
            "{kind: flap, link: h0-leaf0}",
            "[0].period: is missing, but kind flap requires it",
        ),
        ("{kind: loss, link: h0-leaf0}", "[0].probability: is missing"),
        ("{kind: degrade, link: h0-leaf0}", "[0].rate: is missing"),
        ("{kind: pause_storm, link: h0-leaf0}", "[0].classes: is missing"),
        (
            "{kind: down, link: h0-leaf0, rate: 1Gbit}",
            "[0].rate: has no effect for kind down (remove it)",
        ),
        (
            "{kind: down, link: h0-leaf0, at: 1ms, when: {iteration: 1}}",
            "[0].when: cannot be combined with at",
        ),
        (
            "{kind: down, link: h0-leaf0, when: {job: moe}}",
            "[0].when: selects neither an iteration nor messages",
        ),
    ],
)
def test_mistakes_are_told_with_their_place(fault: str, expected: str) -> None:
    assert expected in mistakes_of(with_faults(fault))


def test_each_moment_is_a_simulation_more() -> None:
    fault = "{kind: down, link: h0-leaf0, for: 1ms, when: {iteration: 1}}"
    parse_experiment(with_faults(*[fault] * 8))
    assert "more than 8 link faults have a when" in mistakes_of(
        with_faults(*[fault] * 9)
    )


def test_links_must_be_known_and_made_of_packets() -> None:
    down = "{kind: down, link: h0-leaf0, at: 1ms, for: 1ms}"
    told = mistakes_of(with_faults(down, base=EXTERNAL))
    assert "the links of this fabric are not known" in told
    loopback = """
version: 1
name: t
jobs: [{name: j, trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}}]
fabric: {kind: loopback, ports: 4}
"""
    told = mistakes_of(with_faults(down, base=loopback))
    assert told.endswith(
        "faults.links: fabric loopback has no links (remove it, or use a fabric with "
        "switches)"
    )
    told = mistakes_of(with_faults(down) + "simulation: {level: message}\n")
    assert "level message has only links that are down or degraded" in told
    slow = "{kind: degrade, link: h0-leaf0, rate: 1Mbit}"
    parse_experiment(with_faults(slow) + "simulation: {level: flow}\n")
    foreign = "simulation: {level: message, cost_model: astra-sim-aware}\n"
    told = mistakes_of(with_faults(slow) + foreign)
    assert "cost model astra-sim-aware has no link faults" in told


def test_times_and_rates_of_faults_are_stretched_with_all_others() -> None:
    text = QUICKSTART.replace("  mtu: 4200", "  mtu: 4200\n  dilation: 10")
    experiment = parse_experiment(
        with_faults(
            "{kind: degrade, link: h0-leaf0, at: 1ms, for: 2ms, rate: 100Mbit}",
            base=text,
        )
    )
    (fault,) = experiment.faults.links
    assert (fault.at_ns, fault.duration_ns) == (10**7, 2 * 10**7)
    assert fault.rate_bps == 10**7
    (written,) = experiment.written.faults.links
    assert written.describe() == "link h0-leaf0 has 100Mbit at 1ms for 2ms"


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_every_kind_is_said_in_words(kind: str) -> None:
    fault = LinkFaultSettings.model_validate(
        {
            "kind": kind,
            "link": "a",
            "when": {"k": 1, "step": 0},
            "period": "1ms",
            "rate": "1Gbit",
            "probability": 0.5,
            "classes": [3],
        }
    )
    assert fault.describe().startswith("link a ")
    assert fault.describe().endswith("with k 1, step 0")


def test_rare_faults_are_not_described_as_none() -> None:
    loss = LinkFaultSettings.model_validate(
        {"kind": "loss", "link": "a", "probability": 1e-5}
    )
    assert loss.describe() == "link a loses 0.001% at 0ns"
    drop = PacketFault(action=FaultAction.DROP, probability=2e-6)
    assert drop.describe().startswith("drop 0.0002% at random of the data packets")


def test_watchdog_and_quanta_are_of_switches_that_pause() -> None:
    keys = "switches: {quanta: 100, watchdog: {detection: 1ms, action: forward}"
    text = QUICKSTART.replace("  mtu: 4200", f"  mtu: 4200\n  {keys}, profile: sonic}}")
    profile = parse_experiment(text).fabric.switching(1).profile
    assert profile.quanta == 100
    assert profile.watchdog is not None
    assert (profile.watchdog.detection_ns, profile.watchdog.action) == (
        10**6,
        "forward",
    )
    told = mistakes_of(text.replace("sonic", "ns3"))
    assert "fabric.switches.quanta: has no effect for switches of profile ns3" in told
    assert "fabric.switches.watchdog: has no effect" in told
