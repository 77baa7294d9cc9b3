"""Counters of switches are read through gNMI and OTLP, whatever the switches do."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from chakram.control.certificates import make_certificates
from chakram.foundation.errors import FabricError
from chakram.preparation.link_records import directions_of
from chakram.records.run_records import LinkRecord
from chakram.telemetry.collector import Collector
from chakram.telemetry.targets import Credentials, OtlpListener, TelemetryPlan
from chakram.topology.topology_helpers import single_switch
from tests.gnmi_targets import (
    ScriptedSwitch,
    quick_mapping,
    serving,
    target_at,
    update,
)
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio

TOPOLOGY = single_switch(2, host_rate_bps=10**9)
PORTS = ["s0:h0", "s0:h1", "h0:eth0", "h1:eth0"]
DAY_NS = 86_400 * 10**9


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - conditions have no event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def collecting(*targets: Any, **more: Any) -> AsyncIterator[Collector]:
    plan = TelemetryPlan(targets=targets, **more)
    async with Collector(plan, TOPOLOGY) as collector:
        yield collector


def links_of(collector: Collector) -> dict[str, LinkRecord]:
    return {each.port or "": each for each in collector.links(directions_of(TOPOLOGY))}


def banners_of(collector: Collector) -> list[str]:
    """Return its banners without those of gaps, which a busy machine causes."""
    return [each for each in collector.banners() if ": no samples of " not in each]


def history_of(collector: Collector) -> Any:
    (reader,) = collector._readers.values()
    return reader.history


def send(switch: ScriptedSwitch, packets: int = 10) -> None:
    """Let 1000-byte packets pass from h0 to h1, some of them marked."""
    nbytes = packets * 1004
    switch.add("Ethernet0", IF_IN_OCTETS=nbytes, IF_IN_UCAST_PKTS=packets)
    switch.add("Ethernet4", IF_OUT_OCTETS=nbytes, IF_OUT_UCAST_PKTS=packets)
    switch.add("Ethernet4:3", BYTES=nbytes, PACKETS=packets)
    switch.add("Ethernet4:3", WRED_ECN_MARKED_PACKETS=2)


async def test_links_have_what_the_switch_counted_during_the_run() -> None:
    switch = ScriptedSwitch()
    send(switch, 500)  # before the run
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        send(switch)
        switch.add("Ethernet4", PFC_3_RX_PKTS=3, IF_OUT_DISCARDS=4)
        switch.add("Ethernet0", PFC_3_TX_PKTS=5, IF_IN_DISCARDS=6)
        await collector.end()
        links = links_of(collector)
        samples = collector.samples(PORTS)
    assert [links[port].bytes for port in ("h0:eth0", "s0:h1")] == [10_000, 10_000]
    assert links["s0:h0"].bytes == links["h1:eth0"].bytes == 0
    assert links["s0:h1"].bytes_before == 500_000
    down, up = links["s0:h1"], links["h0:eth0"]
    assert (down.drops, down.marked, down.pauses, down.paused_ns) == (4, 2, 3, None)
    # The switch says of a host's direction what its own port saw.
    assert (up.drops, up.marked, up.pauses) == (6, None, 5)
    assert {each.observed for each in links.values()} == {"switch"}
    assert banners_of(collector) == []
    assert len(samples) > 0
    (described,) = collector.described().values()
    assert described["facts"]["DEVICE_METADATA/localhost"]["hwsku"] == "scripted"


async def test_ports_have_counters_of_drops_before_their_first_traffic() -> None:
    """A rate of drops needs a value before the first of them."""
    switch = ScriptedSwitch()
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        found = {
            (link, direction): counters.get("drops")
            for link, direction, traffic_class, counters in collector.classes()
            if traffic_class < 0
        }
    assert found == {("h0-s0", "down"): 0, ("h1-s0", "down"): 0}


async def test_pauses_of_hosts_are_those_that_the_switch_sent() -> None:
    switch = ScriptedSwitch()
    switch.add("Ethernet0", PFC_3_TX_PKTS=5, PFC_3_RX_PKTS=2)
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        found = {
            (link, direction): counters["pauses_received"]
            for link, direction, traffic_class, counters in collector.classes()
            if traffic_class == 3 and "pauses_received" in counters
        }
    assert found == {("h0-s0", "down"): 2, ("h0-s0", "up"): 5}


@pytest.mark.parametrize("ahead_ns", [DAY_NS, -DAY_NS])
async def test_samples_are_aligned_by_the_clock_of_the_switch(ahead_ns: int) -> None:
    switch = ScriptedSwitch()
    switch.ahead_ns = ahead_ns
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        start_ns = time.monotonic_ns()
        await asyncio.sleep(0.2)
        sent_ns = time.monotonic_ns()
        send(switch)
        await collector.end()
        end_ns = time.monotonic_ns()
        samples = collector.samples(PORTS)
    rows = [samples[at : at + 10].tolist() for at in range(0, len(samples), 10)]
    grown = [row for row in rows if row[1] == 1 and row[3] > 0]
    (described,) = collector.described().values()
    lead_ns = time.time_ns() + ahead_ns - time.monotonic_ns()
    bound_ns = described["clock_bound_ns"]
    assert abs(described["clock_ahead_ns"] - lead_ns) <= bound_ns + 10_000_000
    assert bound_ns < 500_000_000
    assert {row[3] for row in grown} == {10_000}
    assert min(row[0] for row in grown) >= sent_ns - bound_ns
    assert all(start_ns - bound_ns <= row[0] <= end_ns + bound_ns for row in rows)


async def test_a_clock_that_was_set_does_not_make_old_counters_current() -> None:
    switch = ScriptedSwitch()
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        history = history_of(collector)
        switch.ahead_ns = 10**9
        updates = history.updates
        await until(lambda: history.updates > updates + 100)
        switch.is_silent = True
        await asyncio.sleep(0.1)  # until the last samples have arrived
        send(switch)
        ended = asyncio.create_task(collector.end())
        await asyncio.sleep(0.5)
        switch.is_silent = False
        await ended
        assert links_of(collector)["s0:h1"].bytes == 10_000
    (described,) = collector.described().values()
    assert described["clock_bound_ns"] >= 500_000_000


async def test_samples_contain_what_the_totals_do_however_late_they_come() -> None:
    switch = ScriptedSwitch()
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        switch.is_silent = True
        await asyncio.sleep(0.1)  # until the last samples have arrived
        send(switch)
        ended = asyncio.create_task(collector.end())
        await asyncio.sleep(0.5)  # 25 intervals
        switch.is_silent = False
        await ended
        samples = collector.samples(PORTS)
        assert links_of(collector)["s0:h1"].bytes == 10_000
    rows = [samples[at : at + 10].tolist() for at in range(0, len(samples), 10)]
    assert max(row[3] for row in rows if row[1] == PORTS.index("s0:h1")) == 10_000


async def test_times_may_be_those_of_the_last_change() -> None:
    """Arista EOS repeats the time of a value until the value changes."""
    switch = ScriptedSwitch()
    switch.gives_changes = True
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        await asyncio.sleep(0.1)  # more than the error of the clock
        sent_ns = time.monotonic_ns()
        send(switch)
        await collector.end()
        links = links_of(collector)
        samples = collector.samples(PORTS)
    assert (links["s0:h1"].bytes, links["s0:h1"].drops) == (10_000, 0)
    assert links["s0:h0"].bytes == 0
    assert banners_of(collector) == []
    rows = [samples[at : at + 10].tolist() for at in range(0, len(samples), 10)]
    grown = [row for row in rows if row[1] == PORTS.index("s0:h1") and row[3] > 0]
    assert grown
    assert all(abs(row[0] - sent_ns) < 500_000_000 for row in grown)


async def test_a_switch_that_stalls_is_asked_again_and_the_gap_is_shown() -> None:
    switch = ScriptedSwitch()
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        streams = switch.streams
        switch.is_silent = True
        await until(lambda: switch.streams > streams)
        send(switch)
        switch.is_silent = False
        await collector.end()
        assert links_of(collector)["s0:h1"].bytes == 10_000
    assert any(
        each.startswith("switch s0: no samples of Ethernet")
        for each in collector.banners()
    )
    (described,) = collector.described().values()
    assert described["restarts"] >= 1
    gap = described["gaps"][0]
    assert gap["end_ns"] - gap["start_ns"] > 10**9


async def test_a_port_that_is_not_reported_any_more_is_asked_for_again() -> None:
    """Some versions of SONiC report a busy port only when a subscription begins."""
    switch = ScriptedSwitch()
    switch.starved = {"Ethernet4"}
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        send(switch)
        await collector.end()
        assert links_of(collector)["s0:h1"].bytes == 10_000
    (described,) = collector.described().values()
    assert described["restarts"] >= 2


async def test_totals_are_blank_if_the_switch_is_silent_at_the_end() -> None:
    switch = ScriptedSwitch()
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        send(switch)
        switch.is_silent = True
        await asyncio.sleep(0.2)  # until the last samples have arrived
        await collector.end()
        assert links_of(collector) == {}
    assert banners_of(collector)[0] == (
        "switch s0: counters after the run are missing, so totals of its links are "
        "blank"
    )


async def test_a_counter_that_is_reset_makes_the_totals_of_its_port_blank() -> None:
    switch = ScriptedSwitch()
    send(switch, 100)
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        for name in switch.counts["Ethernet4"]:
            switch.counts["Ethernet4"][name] = 0
        send(switch)
        await collector.end()
        links = links_of(collector)
    assert set(links) == {"h0:eth0", "s0:h0"}
    assert links["h0:eth0"].bytes == 10_000
    assert (
        "switch s0: counters of Ethernet4 were reset, so their totals are blank"
        in banners_of(collector)
    )


async def test_a_reset_before_the_run_does_not_matter() -> None:
    switch = ScriptedSwitch()
    send(switch, 100)
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        history = history_of(collector)
        for name in switch.counts["Ethernet4"]:
            switch.counts["Ethernet4"][name] = 0
        await until(lambda: bool(history.resets))
        await collector.begin()
        send(switch)
        await collector.end()
        assert links_of(collector)["s0:h1"].bytes == 10_000
    assert banners_of(collector) == []


async def test_counters_of_32_bits_wrap() -> None:
    switch = ScriptedSwitch()
    for port in ("Ethernet0", "Ethernet4"):
        switch.counts[port]["SAI_PORT_STAT_IF_OUT_OCTETS"] = (1 << 32) - 4000
    target = {"mapping": quick_mapping(bits=32)}
    async with (
        serving(switch) as address,
        collecting(target_at(address, **target)) as collector,
    ):
        await collector.begin()
        send(switch)
        switch.counts["Ethernet4"]["SAI_PORT_STAT_IF_OUT_OCTETS"] %= 1 << 32
        await collector.end()
        assert links_of(collector)["s0:h1"].bytes == 10_000
    assert banners_of(collector) == []


async def test_a_switch_that_restarts_is_read_on() -> None:
    switch = ScriptedSwitch()
    async with serving(switch) as address:
        context = collecting(target_at(address))
        collector = await context.__aenter__()
        await collector.begin()
    # Its server is gone.
    send(switch)
    await asyncio.sleep(0.3)
    async with serving(switch, address):
        await until(lambda: switch.streams > 1)
        await collector.end()
        assert links_of(collector)["s0:h1"].bytes == 10_000
        await context.__aexit__(None, None, None)


NONSENSE = (
    update("COUNTERS/Ethernet0/SAI_PORT_STAT_IF_OUT_OCTETS", "many"),
    update("COUNTERS/Ethernet0/SAI_PORT_STAT_IF_OUT_OCTETS", -5),
    update("COUNTERS/Ethernet0/SAI_PORT_STAT_IF_OUT_OCTETS", 1.5),
    update("COUNTERS/Ethernet0/SAI_PORT_STAT_IF_OUT_OCTETS", 1 << 70),
    update("COUNTERS/Ethernet0/SAI_PORT_STAT_IF_OUT_OCTETS", (1 << 64) - 1),
    update("COUNTERS/Ethernet0/SAI_PORT_STAT_IF_OUT_OCTETS", True),
    update("COUNTERS/Ethernet0/SAI_PORT_STAT_IF_OUT_OCTETS", None),
    update("COUNTERS/Ethernet0", b"{not json"),
    update("COUNTERS/Ethernet0", b"[" * 100_000),
    update("COUNTERS/Ethernet0", b'{"a": ' * 90 + b"1" + b"}" * 90),
    update("COUNTERS/Ethernet99/SAI_PORT_STAT_IF_OUT_OCTETS", 7),
    update("somewhere/else", {"\x1b[31m": "\ud83d"}),
    update("COUNTERS/Ethernet0/Queues", [[[]], {"Ethernet0:3": []}]),
    update("COUNTERS/Ethernet0/Queues", {"Ethernet0:9": {"SAI_QUEUE_STAT_BYTES": 4}}),
)


async def test_nonsense_is_counted_and_ignored() -> None:
    switch = ScriptedSwitch()
    switch.extra = lambda: list(NONSENSE)
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        send(switch)
        await collector.end()
        assert links_of(collector)["s0:h1"].bytes == 10_000
    (banner,) = banners_of(collector)
    assert "values were not counts, e.g. COUNTERS/Ethernet0" in banner


async def test_facts_that_are_nested_deeply_can_be_written() -> None:
    switch = ScriptedSwitch()
    switch.fact = b'{"a": ' * 450 + b"1" + b"}" * 450
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        (described,) = collector.described().values()
    assert set(described["facts"].values()) == {"nested too deeply"}


@pytest.mark.parametrize("frozen_ns", [1, 1_700_000_000])
async def test_timestamps_that_do_not_advance_are_not_used(frozen_ns: int) -> None:
    switch = ScriptedSwitch()
    switch.frozen_ns = frozen_ns
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        began_ns = time.monotonic_ns()
        await asyncio.sleep(0.5)
        send(switch)
        await collector.end()
        assert links_of(collector)["s0:h1"].bytes == 10_000
        samples = collector.samples(PORTS)
    rows = [samples[at : at + 10].tolist() for at in range(0, len(samples), 10)]
    (banner,) = banners_of(collector)
    assert "its timestamps do not advance" in banner
    # Samples have their times of arrival.
    sent = [row[0] for row in rows if row[1] == PORTS.index("s0:h1") and row[3] > 0]
    assert 0.5e9 < sent[0] - began_ns < 5e9
    (described,) = collector.described().values()
    assert described["clock_bound_ns"] is None


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT]
)
async def test_a_switch_that_only_streams_is_read_without_its_clock(
    code: grpc.StatusCode,
) -> None:
    switch = ScriptedSwitch()
    switch.refusal_of_values = code
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        send(switch)
        await collector.end()
        assert links_of(collector)["s0:h1"].bytes == 10_000
    (banner,) = banners_of(collector)
    assert "or it does not answer requests for them" in banner


async def test_a_switch_that_refuses_the_user_is_not_read() -> None:
    switch = ScriptedSwitch()
    switch.refusal_of_values = grpc.StatusCode.PERMISSION_DENIED
    async with serving(switch) as address:
        with pytest.raises(FabricError, match="refuses the user or certificate"):
            async with collecting(target_at(address)):
                pass


async def test_a_flood_of_updates_takes_little_memory() -> None:
    """At 1 ms, 50 copies of 4 subscriptions are 200,000 updates per second."""
    switch = ScriptedSwitch()
    switch.updates_at_once = 50
    target = {"interval_ns": 1_000_000}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with (
        serving(switch) as address,
        collecting(target_at(address, **target)) as collector,
    ):
        await collector.begin()
        history = history_of(collector)
        first = history.updates
        await until(lambda: history.updates > first + 100_000)
        send(switch)
        await collector.end()
        assert links_of(collector)["s0:h1"].bytes == 10_000
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 * 1024


async def test_a_port_that_was_down_is_told() -> None:
    switch = ScriptedSwitch()
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        history = history_of(collector)
        switch.down = {"Ethernet4"}
        await until(lambda: "Ethernet4" in history.down)
        await asyncio.sleep(0.1)
        switch.down = set()
        await until(lambda: history.outages)
        await collector.end()
        links = links_of(collector)
    assert (links["s0:h1"].down_ns or 0) > 50_000_000
    assert links["s0:h0"].down_ns is None
    (banner,) = banners_of(collector)
    assert banner.startswith("switch s0: port Ethernet4 was down for ")


async def test_states_do_not_end_the_stream_of_counters() -> None:
    switch = ScriptedSwitch()
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        history = history_of(collector)
        for down in ({"Ethernet4"}, set()):
            switch.down = down
            await until(lambda: set(history.down) == switch.down)
        await collector.end()
    assert switch.replaced == 0


async def test_states_are_asked_for_again_if_none_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chakram.telemetry.switch_reader._STATES_S", 0.1)
    switch = ScriptedSwitch()
    switch.tells_changes = False
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        history = history_of(collector)
        switch.down = {"Ethernet4"}
        await until(lambda: "Ethernet4" in history.down)
        await collector.end()


async def test_a_state_has_its_time_of_arrival_without_a_clock() -> None:
    switch = ScriptedSwitch()
    switch.frozen_ns, switch.wraps_states = 1, True
    async with serving(switch) as address, collecting(target_at(address)) as collector:
        await collector.begin()
        history = history_of(collector)
        switch.down = {"Ethernet4"}
        await until(lambda: "Ethernet4" in history.down)
        await asyncio.sleep(0.1)
        switch.down = set()
        await until(lambda: history.outages)
        await collector.end()
        links = links_of(collector)
    assert (links["s0:h1"].down_ns or 0) > 50_000_000


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "refuses the user or certificate"),
        (grpc.StatusCode.INVALID_ARGUMENT, "refuses the subscription (not for you)"),
    ],
)
async def test_a_refusal_is_told_before_the_run(
    code: grpc.StatusCode, words: str
) -> None:
    switch = ScriptedSwitch()
    switch.refusal = code
    async with serving(switch) as address:
        with pytest.raises(FabricError) as caught:
            async with collecting(target_at(address)):
                pass
    assert words in str(caught.value)


async def test_a_missing_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chakram.telemetry.switch_reader._FIRST_SAMPLES_S", 0.3)
    switch = ScriptedSwitch()
    ports = {"s0:h0": "Ethernet0", "s0:h1": "Ethernet8"}
    async with serving(switch) as address:
        with pytest.raises(FabricError, match="sent no counters of Ethernet8 within"):
            async with collecting(target_at(address, ports=ports)):
                pass


async def test_an_address_without_a_server_is_one_sentence() -> None:
    async with serving(ScriptedSwitch()) as address:
        pass
    with pytest.raises(FabricError, match=f"cannot reach {address}"):
        async with collecting(target_at(address)):
            pass


async def test_tls_and_the_password_reach_the_switch(tmp_path: Path) -> None:
    make_certificates(tmp_path, agents={"switch": ["127.0.0.1"]})
    switch = ScriptedSwitch()
    server = grpc.ssl_server_credentials(
        [tuple((tmp_path / f"switch.{end}").read_bytes() for end in ("key", "pem"))],
        root_certificates=(tmp_path / "ca.pem").read_bytes(),
        require_client_auth=True,
    )  # fmt: skip
    given = Credentials(
        ca=tmp_path / "ca.pem",
        cert=tmp_path / "controller.pem",
        key=tmp_path / "controller.key",
        username="monitor",
        password="secret",
    )
    async with serving(switch, credentials=server) as address:
        async with collecting(target_at(address, credentials=given)):
            assert switch.metadata["username"] == "monitor"
            assert switch.metadata["password"] == "secret"
        with pytest.raises(FabricError, match="cannot reach"):
            async with collecting(target_at(address)):
                pass
    assert "secret" not in repr(given)


# ---- OTLP ----------------------------------------------------------------------------


@asynccontextmanager
async def exporting(address: str, device: str) -> AsyncIterator[dict[str, Any]]:
    """Send gauges of both ports every 20 ms, as OpenTelemetry's exporter does."""
    exporter = OTLPMetricExporter(f"http://{address}", insecure=True, timeout=2)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=20)
    provider = MeterProvider([reader], resource=Resource({"host.name": device}))
    meter = provider.get_meter("switch")
    gauges = {
        name: meter.create_gauge(name)
        for name in (
            *("SAI_PORT_STAT_IF_OUT_OCTETS", "SAI_PORT_STAT_IF_OUT_UCAST_PKTS"),
            "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS",
        )
    }

    def report(octets: int, packets: int, marked: int) -> None:
        for port in ("Ethernet0", "Ethernet4"):
            name = {"object_name": port}
            gauges["SAI_PORT_STAT_IF_OUT_OCTETS"].set(octets, name)
            gauges["SAI_PORT_STAT_IF_OUT_UCAST_PKTS"].set(packets, name)
            queue = {"object_name": f"{port}|3"}
            gauges["SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS"].set(marked, queue)

    report(0, 0, 0)
    try:
        yield {"report": report}
    finally:
        await asyncio.to_thread(provider.shutdown)


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


async def test_metrics_of_opentelemetrys_exporter_arrive() -> None:
    address = free_address()
    plan = {"otlp": OtlpListener(address=address)}
    target = target_at(None, device="leaf0.example")
    async with (
        exporting(address, "leaf0.example") as switch,
        collecting(target, **plan) as collector,
    ):
        await collector.begin()
        switch["report"](5020, 5, 1)
        await collector.end()
        links = links_of(collector)
    assert (links["s0:h1"].bytes, links["s0:h1"].marked) == (5000, 1)
    assert "h0:eth0" not in links  # bytes that arrived are not among the metrics


async def test_metrics_of_other_switches_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chakram.telemetry.switch_reader._FIRST_SAMPLES_S", 1.0)
    address = free_address()
    plan = TelemetryPlan(
        targets=(target_at(None, device="leaf0"),), otlp=OtlpListener(address=address)
    )
    collector = Collector(plan, TOPOLOGY)
    async with exporting(address, "leaf1"):
        with pytest.raises(FabricError, match="it sent no counters of Ethernet0, "):
            async with collector:
                pass
    assert "values came from switches that no target names" in banners_of(collector)[-1]
