"""Data points of OTLP become samples of the switch that they name."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.telemetry.mapping import ALL_CLASSES, read_mapping
from chakram.telemetry.otlp_receiver import OtlpReceiver
from chakram.telemetry.switch_reader import SwitchReader
from chakram.telemetry.targets import OtlpListener, Target

pb = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
MS = 10**6
BEGIN_NS = 10**18


def reader_of(device: str | None = None) -> SwitchReader:
    return SwitchReader(
        Target(
            switch="s0",
            address=None,
            mapping_name="sonic",
            mapping=read_mapping("sonic"),
            ports={"s0:h0": "Ethernet0"},
            interval_ns=10 * MS,
            device=device,
        )
    )


def add(metrics: Any, name: str, place: str, values: list[int]) -> None:
    """Add a gauge with a value every 10 ms."""
    gauge = metrics.add(name=name).gauge
    for number, value in enumerate(values):
        point = gauge.data_points.add(
            time_unix_nano=BEGIN_NS + 10 * MS * number, as_int=value
        )
        point.attributes.add(key="object_name").value.string_value = place


def test_points_of_one_time_are_one_sample_in_whichever_order_they_arrive() -> None:
    reader = reader_of()
    receiver = OtlpReceiver(OtlpListener(address="127.0.0.1:0"), [reader])
    request = pb.ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    octets = [10_040, 20_080, 30_120, 40_160]
    add(metrics, "SAI_PORT_STAT_IF_OUT_OCTETS", "Ethernet0", octets)
    add(metrics, "SAI_PORT_STAT_IF_OUT_UCAST_PKTS", "Ethernet0", [10, 20, 30, 40])
    add(metrics, "SAI_PORT_STAT_IF_OUT_DISCARDS", "Ethernet0", [0, 3, 3, 5])
    receiver.take(request)
    found = [
        (time_ns - BEGIN_NS, values["sent_bytes"], values["sent_packets"])
        for time_ns, _, _, values in reader.history.samples()
    ]
    assert found == [
        (10 * MS * number, 10_040 * (number + 1), 10 * (number + 1))
        for number in range(4)
    ]
    drops = [values["drops"] for *_, values in reader.history.samples()]
    assert drops == [0, 3, 3, 5]


@pytest.mark.parametrize(
    ("metric", "place", "key"),
    [
        ("sai_counter_type_1_stat_0", "Ethernet0", (ALL_CLASSES, "received_bytes")),
        ("sai_counter_type_1_stat_9", "Ethernet0", (ALL_CLASSES, "sent_bytes")),
        ("sai_counter_type_1_stat_109", "Ethernet0", (3, "pauses_received")),
        ("sai_counter_type_1_stat_118", "Ethernet0", (7, "pauses_sent")),
        ("sai_counter_type_21_stat_34", "Ethernet0|3", (3, "marked")),
        ("sai_queue_stat_bytes", "Ethernet0|4", (4, "sent_bytes")),
    ],
)
def test_metrics_may_be_named_by_numbers(
    metric: str, place: str, key: tuple[int, str]
) -> None:
    """SONiC's high-frequency telemetry did so first."""
    reader = reader_of()
    receiver = OtlpReceiver(OtlpListener(address="127.0.0.1:0"), [reader])
    request = pb.ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    add(metrics, metric, place, [7])
    add(metrics, "sai_counter_type_24_stat_1", "pool", [8])
    receiver.take(request)
    assert dict(reader.history.mark(0).totals) == {("Ethernet0", *key): 7}


def test_points_of_another_switch_are_counted_and_left_out() -> None:
    reader = reader_of(device="leaf0")
    receiver = OtlpReceiver(OtlpListener(address="127.0.0.1:0"), [reader])
    request = pb.ExportMetricsServiceRequest()
    for device in ("leaf0", "leaf1"):
        resource = request.resource_metrics.add()
        resource.resource.attributes.add(key="host").value.string_value = device
        metrics = resource.scope_metrics.add().metrics
        add(metrics, "SAI_PORT_STAT_IF_OUT_OCTETS", "Ethernet0", [5])
    receiver.take(request)
    assert receiver.strangers == 1
    assert reader.history.updates == 1
