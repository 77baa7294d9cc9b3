"""Warnings about settings that may have unexpected effects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from chakram.config.experiment import load_experiment, parse_experiment
from chakram.preparation.resolved_run import ResolvedRun, load_run, resolve
from chakram.preparation.run_description import manifest_of

if TYPE_CHECKING:
    from pathlib import Path


def load(folder: Path, *faults: dict[str, Any], dilation: int = 1) -> ResolvedRun:
    document = {
        "version": 1,
        "name": "some",
        "jobs": [
            {
                "name": "a",
                "trace": {
                    "synth": "collectives",
                    "ranks": 4,
                    "streams": [{"op": "all_reduce", "size": "64KiB"}],
                },
            }
        ],
        "fabric": {
            "kind": "namespaces",
            "topology": {"single_switch": {"hosts": 4}},
            "links": {"host": {"rate": "1Gbit"}},
            "dilation": dilation,
        },
        "faults": {"links": list(faults)},
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_run(load_experiment(path))


def warnings(folder: Path, *faults: dict[str, Any], dilation: int = 1) -> list[str]:
    return load(folder, *faults, dilation=dilation).warnings()


def test_a_degraded_link_that_is_no_slower_is_warned_about(tmp_path: Path) -> None:
    slower, equal, faster = (
        {"kind": "degrade", "link": f"h{at}-s0", "rate": rate}
        for at, rate in enumerate(("100Mbit", "1Gbit", "5Gbit"))
    )
    for dilation in (1, 10):
        found = warnings(tmp_path, slower, equal, faster, dilation=dilation)
        told = [each for each in found if "has no effect" in each]
        assert [each.partition(":")[0] for each in told] == [
            "faults.links[1]",
            "faults.links[2]",
        ]
        run = load(tmp_path, slower, equal, faster, dilation=dilation)
        banners = manifest_of(run, run_id="r", started=datetime.now(UTC)).banners
        faults = [each for each in banners if each.startswith("fault: ")]
        assert faults == ["fault: link h0-s0 has 100Mbit at 0ns"]


EXPERIMENT = """
version: 1
name: some
jobs:
  - name: a
    trace: {{synth: incast, ranks: 4}}
    compute: {{from: {compute}, peak: 1 TFLOPS, memory: 1 TB/s}}
    placement: {{same_host: {path}, local_rate: 1Gbit}}
fabric:
  kind: namespaces
  topology: {{single_switch: {{hosts: 4}}}}
  links: {{host: {{rate: 1Gbit, queue: {queue}B}}}}
  addressing: {addressing}
"""


def told(
    *,
    compute: str = "roofline",
    path: str = "skip",
    queue: int = 1 << 20,
    addressing: str = "ipv4",
) -> list[str]:
    text = EXPERIMENT.format(
        compute=compute, path=path, queue=queue, addressing=addressing
    )
    return resolve(parse_experiment(text)).warnings()


def test_keys_that_need_another_key_are_warned_about() -> None:
    assert told() == []
    assert told(compute="trace", path="fabric") == [
        "jobs[0].compute.peak: has no effect without from: roofline",
        "jobs[0].compute.memory: has no effect without from: roofline",
        "jobs[0].placement.local_rate: has no effect without same_host: skip",
    ]


@pytest.mark.parametrize(
    ("trace", "unused"),
    [
        ("synth: moe, ranks: 4, ep: 4, dp: 1, routing: {share: 0.4, target: 1}", 2),
        ("synth: moe, ranks: 4, ep: 4, dp: 1, routing: {law: balanced, target: 1}", 0),
        ("synth: collectives, ranks: 4, streams: [{op: reduce, root: 1}]", 0),
        ("synth: collectives, ranks: 4, streams: [{op: all_reduce, root: 1}]", 1),
        (
            "synth: collectives, ranks: 4, "
            "streams: [{op: all_reduce, size: 2KiB, sizes: [4KiB]}]",
            1,
        ),
    ],
)
def test_keys_of_synthetic_traces_without_effect_are_warned_about(
    trace: str, unused: int
) -> None:
    text = EXPERIMENT.format(
        compute="roofline", path="skip", queue=1 << 20, addressing="ipv4"
    ).replace("synth: incast, ranks: 4", trace)
    warnings = resolve(parse_experiment(text)).warnings()
    assert len(warnings) == unused
    assert all(each.startswith("jobs[0].trace.") for each in warnings)


def test_packets_of_ipv6_need_longer_queues() -> None:
    assert told(queue=4096 + 58) == []
    assert told(queue=4096 + 78, addressing="ipv6") == []
    (warning,) = told(queue=4096 + 77, addressing="ipv6")
    assert "cannot hold a packet of 4174 bytes" in warning


@pytest.mark.parametrize(
    ("faults", "loses"),
    [
        ("{drop: 0.1}", True),
        ("{packets: [{action: drop, nth: 1}]}", True),
        ("{packets: [{action: corrupt, nth: 1}]}", True),
        ("{packets: [{action: delay, nth: 1}]}", False),
        ("{links: [{kind: loss, link: h0-s0, probability: 0.1}]}", True),
        ("{links: [{kind: flap, link: h0-s0, period: 1ms}]}", True),
        ("{links: [{kind: degrade, link: h0-s0, rate: 1Mbit}]}", False),
    ],
)
def test_losses_without_a_timeout_are_warned_about(faults: str, loses: bool) -> None:
    text = EXPERIMENT.format(
        compute="roofline", path="skip", queue=1 << 20, addressing="ipv4"
    )
    text += f"transport: {{local_ack_timeout: 0}}\nfaults: {faults}\n"
    found = resolve(parse_experiment(text)).warnings()
    assert any("0 disables the timeout" in each for each in found) == loses


@pytest.mark.parametrize(
    ("topology", "has_paths"),
    [
        ("{single_switch: {hosts: 4}}", False),
        ("{clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}", True),
        ("{torus: {dimensions: [2, 2]}}", True),
    ],
)
def test_packets_of_several_paths_are_warned_about(
    topology: str, has_paths: bool
) -> None:
    text = EXPERIMENT.format(
        compute="roofline", path="skip", queue=1 << 20, addressing="ipv4"
    )
    overrides = {"fabric.topology": topology, "fabric.switches.balancing": "random"}
    found = resolve(parse_experiment(text, overrides=overrides)).warnings()
    assert any("over several paths" in each for each in found) == has_paths
