"""Counters of ports: idle choices, missing packets and queues that overflow."""

from __future__ import annotations

from dataclasses import replace

from chakram.analysis.counter_evidence import PortCounters
from chakram.records.run_records import LinkRecord


def counters(wrong: int = 0, **ports: tuple[str, int, int]) -> PortCounters:
    """Return counters of h0, h1 at two leaves with two spines between them.

    Args:
        wrong: Packets of 1,000 B that arrived wrong.
        ports: By link and direction, bytes and drops; all others have 10,000 and 0.
    """
    ends = {
        "h0-l0": ("h0:eth0", "l0:p0"),
        "h1-l1": ("h1:eth0", "l1:p0"),
        **{
            f"l{leaf}-s{spine}": (f"l{leaf}:up{spine}", f"s{spine}:down{leaf}")
            for leaf in (0, 1)
            for spine in (0, 1)
        },
    }
    links = {}
    for name, both in ends.items():
        kind = "host" if name.startswith("h") else "uplink"
        for direction, port in zip(("up", "down"), both, strict=True):
            usual = 10_000 if kind == "host" else 5_000
            sent, drops = ports.get(port.replace(":", "_"), (usual, 0))
            links[port] = LinkRecord(
                link=name,
                kind=kind,
                direction=direction,
                bytes_before=7,
                bytes_after=7 + sent,
                drops=drops,
                port=port,
                rate_bps=10**9,
                equal_cost=f"{port[:2]}#0" if ":up" in port else None,
            )
    return PortCounters(links=links, packets=20, wrong=wrong)


def test_switches_that_forward_everything_have_no_loss() -> None:
    assert counters().missing == {"l0": 0, "l1": 0, "s0": 0, "s1": 0}
    assert counters().overflowing == frozenset()


def test_packets_are_not_missing_at_switches_with_uncounted_links() -> None:
    whole = counters(s0_down1=(9_000, 0), s0_down0=(1_000, 0))
    near = {port: each for port, each in whole.links.items() if "l1" not in each.link}
    some = replace(whole, links=near, uncounted={"l1", "s0", "s1"})
    assert replace(some, uncounted=()).missing["s0"] == 8
    assert some.missing.keys() == {"l0"}


def test_packets_lost_on_a_link_are_missing_at_the_next_switch() -> None:
    lossy = counters(s0_down1=(3_000, 0), l0_up0=(5_000, 2), l1_p0=(8_000, 0))
    assert lossy.missing == {"l0": 0, "l1": 0, "s0": 2, "s1": 0}
    assert lossy.overflowing == frozenset(), "l0 counts what its link drops"


def test_packets_dropped_by_a_queue_are_missing_at_its_switch() -> None:
    full = counters(l0_up0=(3_000, 2), s0_down1=(3_000, 0), l1_p0=(8_000, 0))
    assert full.missing["l0"] == 2
    assert full.overflowing == {"l0:up0"}
    named = [sorted(each.packets) for each in full.through_switches(lost=2)]
    assert ["h0:eth0", "s0:down0", "s1:down0"] not in named
    assert len(named) == 3


def test_packets_missing_at_a_switch_may_be_lost_on_its_own_links() -> None:
    """A filter dropped them before the counter of what is forwarded."""
    found = counters(l1_p0=(3_000, 0))
    assert found.missing["l1"] > 0
    (at_l1,) = (each for each in found.through_switches(lost=5) if each.lost)
    assert {"l1:p0", "s0:down1", "s1:down1"} <= set(at_l1.packets)
    # Nothing was lost elsewhere, so links to the others lost nothing after counting.
    assert all(
        "l0:p0" not in each.packets
        for each in found.through_switches(lost=5)
        if "h0:eth0" in each.packets
    )


def test_corrupted_packets_are_not_visible_at_switches() -> None:
    assert list(counters(wrong=5).through_switches(lost=5)) == []
    assert len(list(counters(wrong=0).through_switches(lost=5))) == 4


def test_idle_ports_among_hash_choices_are_found() -> None:
    idle = counters(l0_up0=(0, 0))
    assert idle.idle({"l0:up0": 5_000, "l0:up1": 5_000}) == ["l0:up0"]
    assert idle.idle({"l0:up0": 100, "l0:up1": 5_000}) == []
    assert idle.avoided("l0#0") == ["l0:up0"]
    assert idle.names_of(["l0:up0", "s0:down0", "l1:up1"]) == "l0-s0, l1-s1"


def test_link_that_carries_data_back_is_not_dead() -> None:
    expected = dict.fromkeys(counters().links, 5_000)
    idle = counters(l0_up0=(0, 0))
    assert idle.dead(["l0:up0"], expected) == []
    idle = counters(l0_up0=(0, 0), s0_down0=(0, 0))
    assert idle.dead(["l0:up0"], expected) == ["l0:up0"]
    # A packet that was sent before the link went down proves nothing.
    idle = counters(l0_up0=(0, 0), s0_down0=(60, 0))
    assert idle.dead(["l0:up0"], expected) == ["l0:up0"]


def test_changed_routes_of_a_switch_explain_all_its_idle_ports() -> None:
    both = ["l0:up0", "l0:up1"]
    idle = counters(l0_up0=(0, 0), l0_up1=(0, 0), s0_down0=(0, 0))
    expected = dict.fromkeys(idle.links, 5_000)
    assert idle.dead(both, expected) == ["l0:up0"], "data should come back, too"
    assert idle.dead(both, expected | {"s0:down0": 0}) == []
    # If no other port proves changed routes, the link may be down.
    assert idle.dead(["l0:up0"], expected | {"s0:down0": 0}) == ["l0:up0"]


def test_a_queue_that_dropped_little_does_not_explain_many_losses() -> None:
    full = counters(l0_up0=(3_000, 2), s0_down1=(3_000, 0), l1_p0=(8_000, 0))
    assert full.overflowing_instead({"l0:up0": 2}) == {"l0:up0"}
    assert full.overflowing_instead({"l0:up0": 100}) == frozenset()


def test_misfit_of_bytes_is_the_share_that_took_other_links() -> None:
    measured = counters(l0_up0=(0, 0), l0_up1=(10_000, 0))
    same = {port: 3 * link.bytes for port, link in measured.links.items()}
    assert measured.misfit_of_bytes(same) == 0
    even = {port: link.bytes for port, link in counters().links.items()}
    assert measured.misfit_of_bytes(even) == 5_000 / 40_000
    assert measured.misfit_of_bytes({}) == 1
