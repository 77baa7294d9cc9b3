"""Labs: their parts, and the traffic that they carry."""

from __future__ import annotations

import asyncio
import os
import resource
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import pytest

from chakram.fabric.labs.lab import start_lab, status
from chakram.fabric.labs.lab_spec import LabState
from chakram.fabric.labs.link_counters import LinkCounters, read_counters
from chakram.fabric.labs.user_namespace import has_net_admin
from chakram.topology.topology_helpers import single_switch
from tests.leaks import own_lab
from tests.netns.labs import GBIT, HEADER_BYTES, leaf_spine, star, traffic
from tests.waiting import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable
from tests.netns.labs import NETNS, names_of

FAMILIES = pytest.mark.parametrize("family", ["ipv4", "ipv6"])
ATTEMPTS = 5
"""Something else may keep the machine busy for a while."""


def uplink_bytes(lab: LabState) -> dict[str, int]:
    """Return the bytes that went up from leaf0, by uplink, for 64 flows."""
    before = read_counters(lab).links
    assert traffic(lab, "flows", "h0", "h4", "64", "1000") == 64
    after = read_counters(lab).links
    return {
        name: after[name].tx_bytes - before[name].tx_bytes
        for name in ("leaf0-spine0", "leaf0-spine1")
    }


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("family", "address"), [("ipv4", "198.18.0.4"), ("ipv6", "2001:2::4")]
)
async def test_single_switch_carries_packets_between_all_hosts(
    state_root: Path, family: str, address: str
) -> None:
    async with await start_lab(
        star(8), lab_name=own_lab("star"), addressing=family, mtu=4200
    ) as handle:
        lab = handle.state

        assert traffic(lab, "pairs") == 8 * 7
        assert traffic(lab, "addresses_seen") == [host.address for host in lab.hosts]
        assert lab.host("h3").address == address
        assert lab.host("h3").mac == "02:ca:00:00:00:03"
        assert {host.mtu for host in lab.hosts} == {4200}
        assert [switch.name for switch in lab.switches] == ["s0"]
        assert [port.interface for port in lab.switches[0].ports] == [
            f"h{number}" for number in range(8)
        ]
        assert lab.directory == str(state_root / own_lab("star"))
        assert lab.rootless is not has_net_admin()
        assert [each.state for each in status()] == [lab]
    assert status() == []
    assert names_of(own_lab("star")) == []


@pytest.mark.asyncio
async def test_a_lab_needs_no_higher_limit_of_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 40, hard))
    try:
        async with await start_lab(star(opened + 40), lab_name=own_lab("limit")):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@FAMILIES
@pytest.mark.asyncio
async def test_leaf_spine_carries_packets_between_all_hosts(family: str) -> None:
    async with await start_lab(
        leaf_spine(), lab_name=own_lab("clos"), addressing=family
    ) as handle:
        assert traffic(handle.state, "pairs") == 8 * 7


@pytest.mark.asyncio
async def test_namespaces_have_names_only_where_root_made_them() -> None:
    name = own_lab("named")
    async with await start_lab(star(2), lab_name=name) as handle:
        hosts = handle.state.hosts
        if has_net_admin():
            assert names_of(name) == [f"{name}-h0", f"{name}-h1", f"{name}-s0"]
            assert [host.netns_name for host in hosts] == [f"{name}-h0", f"{name}-h1"]
            same = os.stat(NETNS / f"{name}-h1").st_ino
            assert same == os.stat(hosts[1].netns).st_ino
        else:
            assert names_of(name) == []
            assert [host.netns_name for host in hosts] == [None, None]


@pytest.mark.parametrize(
    "family", ["ipv4", pytest.param("ipv6", marks=pytest.mark.soak)]
)
@pytest.mark.asyncio
async def test_ecmp_uses_all_uplinks_and_the_seed_decides_how(family: str) -> None:
    found: dict[tuple[str, int], dict[str, int]] = {}
    for lab_name, seed in (("one", 7), ("two", 7), ("three", 8)):
        handle = await start_lab(
            leaf_spine(), lab_name=own_lab(lab_name), seed=seed, addressing=family
        )
        async with handle:
            found[lab_name, seed] = uplink_bytes(handle.state)

    for by_uplink in found.values():
        assert sum(by_uplink.values()) == 64 * (1000 + HEADER_BYTES[family])
        assert max(by_uplink.values()) < 1.5 * mean(by_uplink.values())
    assert found["one", 7] == found["two", 7]
    assert found["one", 7] != found["three", 8]


@pytest.mark.asyncio
async def test_a_host_reaches_its_peer_at_the_rate_of_the_link() -> None:
    rate_bps = 100 * 10**6
    found = []
    async with await start_lab(star(2, rate_bps), lab_name=own_lab("rate")) as handle:
        for _ in range(ATTEMPTS):
            found_bps = traffic(handle.state, "rate", "h0", "h1", "600", "4000")
            # 42 bytes of headers count as well; the burst of an idle port is under 1 %.
            found.append(found_bps / (rate_bps * 4000 / 4042))
            if found[-1] == pytest.approx(1, abs=0.08):
                return
    raise AssertionError(f"{found} of the rate")


@pytest.mark.asyncio
async def test_full_queue_counts_its_drops() -> None:
    topology = star(2)
    slow = replace(topology.links[1], rate_bps=10**6, queue_bytes=20_000)
    topology = replace(topology, links=(topology.links[0], slow))
    for _ in range(ATTEMPTS):
        async with await start_lab(topology, lab_name=own_lab("full")) as handle:
            lab = handle.state
            arrived = traffic(lab, "flows", "h0", "h1", "64", "1000")
            # 64 packets of 1042 bytes meet room for 19, and 15 KB that leave at once;
            # unless who sends them has to wait for a core for a quarter of a second.
            counters = read_counters(lab).links["h1-s0"]
        if counters.rx_drops:
            break

    assert counters.rx_drops > 0 == counters.tx_drops
    assert counters.rx_packets + counters.rx_drops == 64
    assert arrived == counters.rx_packets


@FAMILIES
@pytest.mark.asyncio
async def test_only_the_packet_crosses_the_links(family: str) -> None:
    """No ARP, no flooding, no neighbor or router discovery, no reports of groups."""
    size_bytes = 1000 + HEADER_BYTES[family]
    async with await start_lab(
        star(4), lab_name=own_lab("quiet"), addressing=family
    ) as handle:
        assert traffic(handle.state, "flows", "h0", "h1", "1", "1000") == 1
        counters = read_counters(handle.state).links

    silent = LinkCounters(
        tx_bytes=0, tx_packets=0, tx_drops=0, rx_bytes=0, rx_packets=0, rx_drops=0
    )
    assert counters == {
        "h0-s0": replace(silent, tx_bytes=size_bytes, tx_packets=1),
        "h1-s0": replace(silent, rx_bytes=size_bytes, rx_packets=1),
        "h2-s0": silent,
        "h3-s0": silent,
    }


@pytest.mark.asyncio
async def test_links_without_a_rate_are_counted_too() -> None:
    async with await start_lab(star(2, None), lab_name=own_lab("open")) as handle:
        assert traffic(handle.state, "flows", "h0", "h1", "3", "100") == 3
        counters = read_counters(handle.state).links

    assert (counters["h0-s0"].tx_packets, counters["h0-s0"].tx_bytes) == (3, 3 * 142)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("rate_bps", "family"),
    [
        pytest.param(GBIT, "ipv4", marks=pytest.mark.soak),
        (None, "ipv4"),
        (GBIT, "ipv6"),
    ],
)
async def test_bursts_cross_whole_except_on_links_that_are_captured(
    rate_bps: int | None, family: str
) -> None:
    whole = [8000 + HEADER_BYTES[family]]
    single = [1000 + HEADER_BYTES[family]] * 8
    handle = await start_lab(
        star(3, rate_bps),
        lab_name=own_lab("burst"),
        addressing=family,
        capture_hosts=["h1"],
    )
    async with handle:
        lab = handle.state
        assert traffic(lab, "burst", "h0", "h2") == whole
        assert traffic(lab, "burst", "h0", "h2", "h2") == whole
        for at in "switch", "h1", "h2":
            assert traffic(lab, "burst", "h1", "h2", at) == single, at
        assert traffic(lab, "burst", "h0", "h1") == whole
        assert traffic(lab, "burst", "h0", "h1", "h1") == single
        assert ["h1" in note for note in lab.notes if "captured" in note] == [True]


@pytest.mark.asyncio
async def test_missing_delay_is_reported() -> None:
    topology = single_switch(2, GBIT, host_delay_ns=5000)
    async with await start_lab(topology, lab_name=own_lab("late")) as handle:
        assert any("delays" in note for note in handle.state.notes)
    async with await start_lab(star(2), lab_name=own_lab("late")) as handle:
        assert not any("delays" in note for note in handle.state.notes)


@pytest.mark.asyncio
async def test_lab_of_64_hosts_starts_within_seconds(
    record_property: Callable[[str, object], None],
) -> None:
    starting = asyncio.ensure_future(start_lab(star(64), lab_name=own_lab("many")))
    elapsed_s = await seconds_of(starting)
    async with starting.result() as handle:
        record_property("seconds", round(elapsed_s, 3))
        assert len(handle.state.hosts) == 64
        assert traffic(handle.state, "flows", "h0", "h63", "1", "1000") == 1
    assert elapsed_s < 10


@pytest.mark.asyncio
async def test_temporary_entry_returns_or_is_refused_first() -> None:
    async with await start_lab(star(2), lab_name=own_lab("back")) as handle:
        found = traffic(handle.state, "coming_back")

    if has_net_admin():
        assert found == "came back"
    else:
        assert found == "refused: this process could enter it but could not return"
