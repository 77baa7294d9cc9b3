"""Reports of links and modeled switches."""

from __future__ import annotations

from chakram.execution.fabric_counters import link_records, switch_banners
from chakram.fabric.labs.link_counters import LabCounters, LinkCounters
from chakram.topology.topology_helpers import single_switch
from tests.unit.fabric.live_frames import RATE, incast_counters

NOTHING = LinkCounters(
    tx_bytes=0, tx_packets=0, tx_drops=0, rx_bytes=0, rx_packets=0, rx_drops=0
)


def test_links_of_modeled_switches_report_pauses_at_both_ends() -> None:
    before, after = incast_counters(steps=0), incast_counters(steps=60)
    records = link_records(single_switch(8, RATE), before, after)
    up = {each.link: each for each in records if each.direction == "up"}
    down = {each.link: each for each in records if each.direction == "down"}
    for host in range(1, 8):
        record = up[f"h{host}-s0"]
        told = after.ports[f"s0:h{host}"]["pfc_sent"]
        assert record.pauses == sum(told) > 0
        assert record.paused_ns is not None
        assert record.paused_ns > 0
        assert (record.drops, record.marked) == (0, 0)
    assert up["h0-s0"].pauses == 0
    # No host pauses the switch, and marked packets go to the congested host.
    assert {each.pauses for each in down.values()} == {0}
    assert [name for name, each in down.items() if each.marked] == ["h0-s0"]


def test_kernel_switches_report_no_pauses() -> None:
    counted = LabCounters(links={"h0-s0": NOTHING, "h1-s0": NOTHING})
    for record in link_records(single_switch(2, RATE), counted, counted):
        assert (record.drops, record.marked, record.pauses) == (0, None, None)


def test_links_added_or_removed_during_a_run_are_skipped() -> None:
    both = LabCounters(links={"h0-s0": NOTHING, "h1-s0": NOTHING})
    one = LabCounters(links={"h1-s0": NOTHING})
    for before, after in ((both, one), (one, both)):
        records = link_records(single_switch(2, RATE), before, after)
        assert [each.link for each in records] == ["h1-s0", "h1-s0"]


def test_overloaded_switch_process_has_a_banner() -> None:
    before = {"lost": 3, "refused": 1}
    assert switch_banners({}, {}, 10**9) == []
    assert switch_banners(before, before, 9_000_000) == []
    (lost,) = switch_banners(before, {"lost": 5, "refused": 2}, 0)
    assert "COULD NOT KEEP UP: their process lost 3 packets" in lost
    (late,) = switch_banners(before, before, 12_345_678)
    assert "late by up to 12.3 ms" in late
