"""Labs with modeled switches: frames, rates and lifetime."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.fabric.labs.lab import LabHandle, down, start_lab
from chakram.fabric.labs.lab_spec import LabState
from chakram.fabric.labs.link_counters import read_counters
from chakram.fabric.process_control import is_alive, process_start_ticks
from chakram.foundation.errors import FabricError
from chakram.switch.packet_outcomes import WATCHDOG
from chakram.switch.profiles import Profile
from chakram.switch.settings import WatchdogSettings
from chakram.topology.topology import Topology
from tests.leaks import own_lab
from tests.netns.labs import leaf_spine, star, traffic
from tests.waiting import wait_until

ATTEMPTS = 5
MBIT = 10**6


async def model_lab(topology: Topology, name: str, **options: object) -> LabHandle:
    """Return a lab whose switches are the model."""
    return await start_lab(
        topology,
        lab_name=own_lab(name),
        forwarding="model",
        **options,  # type: ignore[arg-type] # any of its own
    )


def switch_process(lab: LabState) -> int:
    """Return the process of a lab's switches: the child of its holder."""
    (found,) = (
        Path(f"/proc/{lab.holder_pid}/task/{lab.holder_pid}/children")
        .read_text("ascii")
        .split()
    )
    return int(found)


@pytest.mark.asyncio
@pytest.mark.parametrize("compiled", ["auto", "off"])
async def test_every_host_reaches_every_other_one(
    compiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAKRAM_COMPILED", compiled)
    async with await model_lab(leaf_spine(), "model") as handle:
        lab = handle.state
        (switch,) = lab.switches
        assert switch.name == "switch"
        assert [port.interface for port in switch.ports] == list(lab.topology.hosts)

        assert traffic(lab, "pairs") == 56
        # A burst is cut into packets before it comes to the switch.
        assert traffic(lab, "burst", "h0", "h7", "h7") == [1042] * 8

        counters = read_counters(lab).links
        # Seven packets each way, and the burst.
        assert counters["h0-leaf0"].tx_packets == 7 + 8
        assert counters["h7-leaf1"].rx_packets == 7 + 8
        up = [counters[f"leaf0-spine{number}"].tx_packets for number in (0, 1)]
        assert sum(up) == 16 + 8
        assert min(up) > 0


@pytest.mark.asyncio
async def test_a_link_has_the_rate_of_the_topology() -> None:
    rate_bps = 100 * MBIT
    found = []
    async with await model_lab(star(2, rate_bps), "modelrate") as handle:
        for _ in range(ATTEMPTS):
            found_bps = traffic(handle.state, "rate", "h0", "h1", "600", "4000")
            found.append(found_bps / (rate_bps * 4000 / 4042))
            # The model keeps it exactly; who looks at the clock here may have to wait.
            if found[-1] == pytest.approx(1, abs=0.15):
                return
    raise AssertionError(f"{found} of the rate")


@pytest.mark.asyncio
async def test_packets_without_buffer_space_are_counted_at_their_egress() -> None:
    topology = star(2)
    slow = replace(topology.links[1], rate_bps=200_000, queue_bytes=20_000)
    topology = replace(topology, links=(topology.links[0], slow))
    async with await model_lab(topology, "modelfull") as handle:
        arrived = traffic(handle.state, "flows", "h0", "h1", "64", "1000")
        counters = read_counters(handle.state).links
    # Room for 19, and one leaves every 42 ms.
    assert 19 <= arrived < 64
    assert counters["h1-s0"].rx_packets == arrived
    assert counters["h1-s0"].rx_drops == 64 - arrived
    assert (counters["h0-s0"].tx_packets, counters["h0-s0"].tx_drops) == (64, 0)


@pytest.mark.asyncio
async def test_watchdog_ignores_a_host_that_pauses_permanently() -> None:
    watchdog = WatchdogSettings(
        detection_ns=100_000_000, restoration_ns=10**9, poll_ns=20_000_000
    )
    profile = Profile(name="sonic", mtu=4214, watchdog=watchdog)
    async with await model_lab(star(2), "modelstorm", profile=profile) as handle:
        assert traffic(handle.state, "storm", "h0", "h1", "2") == 0
        port = read_counters(handle.state).ports["s0:h1"]
    assert port["storms"][3] == 1
    assert port["pfc_received"][3] > 10
    # What came for it was dropped instead of filling the switch.
    assert port["drops_by_reason"][WATCHDOG] > 10
    assert port["queue_packets"][3] == 0


@pytest.mark.asyncio
async def test_request_after_the_end_of_the_switches_is_refused() -> None:
    async with await model_lab(star(2), "modeldead") as handle:
        lab = handle.state
        process = switch_process(lab)
        os.kill(process, signal.SIGKILL)
        with pytest.raises(FabricError, match="the process of its switches has ended"):
            await asyncio.to_thread(_ask_until_refused, lab)
        assert is_alive(lab.holder_pid, lab.holder_start_ticks)


def _ask_until_refused(lab: LabState) -> None:
    # The kernel takes a moment to end it.
    wait_until(lambda: not read_counters(lab).links, "a refusal")


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_switches_end_with_their_holder(number: signal.Signals) -> None:
    handle = await model_lab(star(2), "modelend", lifetime="up")
    lab = handle.state
    process = switch_process(lab)
    ticks = process_start_ticks(process)
    assert ticks is not None
    os.kill(lab.holder_pid, number)
    wait_until(lambda: not is_alive(process, ticks), "the end of the switches")
    await down(lab.name)


@pytest.mark.asyncio
async def test_impossible_switches_are_refused_before_the_lab_is_built() -> None:
    small = Profile(name="sonic", buffer_bytes=10_000)
    with pytest.raises(FabricError, match="switch s0: a buffer of 10000 bytes"):
        await model_lab(star(2), "modelsmall", profile=small)
