"""Time dilation: what of an experiment is stretched, what is not, what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from chakram.config.dilation import KEPT, rnr_timer, stretches
from chakram.config.experiment import Experiment, parse_experiment
from chakram.foundation.errors import ConfigError
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.plan_settings import transport_plan
from chakram.preparation.resolved_run import resolve
from chakram.program.operations import ComputeOperation
from chakram.settings.field_types import Stretches

GIGABIT = 10**9

OTHERWISE = {
    ("Transport", "local_ack_timeout"): "becomes a stretched retransmit_timeout",
    ("Transport", "rnr_timer"): "becomes the code of the closest time",
}
"""Codes of times."""

NO_TIME = {
    ("Preflight", "min_rate"): "a share of a rate",
    ("Preflight", "min_permutation_rate"): "likewise",
}
"""What sounds like a time or a rate."""

SOUNDS = re.compile(
    r"(_ns|_bps|_flops|_per_s|_rate|rate|_timeout|_timer|_period|_interval|_time|gap)$"
)
COUNTS = {("Transport", "ack_interval_packets"): "packets"}


def text_of(dilation: int, **more: str) -> str:
    sections = {
        "fabric": "{kind: namespaces, topology: {single_switch: {hosts: 4}}, "
        "links: {host: {rate: 400Gbit, delay: 1us, queue: 4MiB, "
        f"ecn: 400KB/1600KB/0.2}}}}, dilation: {dilation}}}",
        "jobs": "[{name: a, trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}}]",
        **more,
    }
    return "version: 1\nname: d\n" + "".join(
        f"{name}: {text}\n" for name, text in sections.items()
    )


def experiment_of(dilation: int = 1000, **more: str) -> Experiment:
    return parse_experiment(text_of(dilation, **more))


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from models(each)


def sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield every section that dilation comes to."""
    yield model
    for name, field in model.model_fields.items():
        if (model.__name__, name) in KEPT:
            continue
        for inner in models(field.annotation):
            yield from sections(inner)


def test_every_time_and_rate_is_stretched_or_there_is_a_reason() -> None:
    reasons = {**KEPT, **OTHERWISE, **NO_TIME, **COUNTS}
    unexplained, used, count = set(), set(), 0
    for section in sections(Experiment):
        for name, field in section.model_fields.items():
            key = (section.__name__, name)
            if key in reasons:
                used.add(key)
            elif stretches(field) is not None:
                count += 1
            elif SOUNDS.search(name) and not list(models(field.annotation)):
                unexplained.add(key)

    assert unexplained == set()
    # No reason without a field, and the walk has been everywhere.
    assert used == set(reasons)
    assert count >= 15


@pytest.mark.parametrize("key", sorted(KEPT))
def test_what_is_kept_has_a_reason_in_words(key: tuple[str, str]) -> None:
    assert KEPT[key]


def test_all_of_an_experiment_that_takes_time_takes_longer() -> None:
    experiment = experiment_of(
        jobs="[{name: a, start: 2ms, compute: {from: roofline, peak: 1 TFLOPS, "
        "memory: 1 TB/s, scale: 1/2}, placement: {same_host: skip, "
        "local_rate: 900Gbit}, "
        "trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}}]",
        arrivals="{gap: 3ms}",
        iterations="{sync: gap, gap: 10ms}",
        transport="{congestion_control: {fixed_rate: {rate: 100Gbit}}, "
        "retransmit_timeout: 1ms, adaptive_retransmission: {low: 100us}, "
        "window: 64KiB, rnr_timer: 1}",
        faults="{packets: [{action: delay, nth: 1, by: 5us}]}",
        preflight="{max_latency: 20us, duration: 50ms}",
        records="{sample_bin: 1ms}",
        stop_if="{duration: 1s}",
        hang_timeout="40s",
    )

    assert experiment.dilation == 1000
    fabric: Any = experiment.fabric
    host = fabric.links.host
    assert (host.rate_bps, host.delay_ns) == (400_000_000, 10**6)
    (job,) = experiment.jobs
    assert job.start_ns == 2 * 10**9
    assert job.compute.scale == 500
    assert job.placement.local_rate_bps == 900_000_000
    assert experiment.arrivals is not None
    assert experiment.arrivals.gap_ns == 3 * 10**9
    assert experiment.iterations.gap_ns == 10 * 10**9
    transport = experiment.transport
    plan = transport_plan(experiment)
    assert plan.congestion_parameters == (("rate_bps", 100_000_000),)
    assert transport.retransmit_timeout_ns == 10**9
    assert transport.adaptive_retransmission is not None
    assert transport.adaptive_retransmission.adaptive_low_ns == 10**8
    (fault,) = experiment.faults.packets
    assert fault.delay_ns == 5 * 10**6
    assert experiment.preflight.max_latency_ns == 20 * 10**6
    assert experiment.records.sample_bin_ns == 10**9
    # Bytes are not stretched, and neither is what people wait for.
    assert (host.queue_bytes, host.ecn.kmin_bytes) == (4 << 20, 400_000)
    assert transport.window_bytes == 64 * 1024
    assert job.compute.peak_flops == 10**12
    assert experiment.preflight.duration_ns == 50 * 10**6
    assert experiment.stop_if.duration_ns == 10**9
    assert experiment.hang_timeout_ns == 40 * 10**9


def test_time_is_stretched_once_and_the_file_is_remembered() -> None:
    experiment = experiment_of(1000)

    assert experiment.stretched() is experiment
    fabric: Any = experiment.written.fabric
    assert fabric.links.host.rate_bps == 400 * GIGABIT
    dumped = experiment.written.model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    again = parse_experiment(yaml.safe_dump(dumped))
    assert transport_plan(again) == transport_plan(experiment)
    assert experiment.written.fabric.describe() == (
        "namespaces, single switch, 4 hosts, hosts 400Gbit/s, MTU 4200, dilated by 1000"
    )


def test_without_dilation_nothing_changes() -> None:
    experiment = experiment_of(1)

    assert experiment.written is experiment
    assert experiment.dilation == 1
    assert experiment.hang_timeout_ns == 30 * 10**9


def test_a_run_is_patient_enough_for_stretched_timeouts() -> None:
    experiment = experiment_of(1000)

    assert experiment.transport.retransmit_timeout_ns == 67_108_864_000
    assert experiment.hang_timeout_ns == 4 * 67_108_864_000


def test_default_sampling_interval_is_real_time() -> None:
    assert experiment_of(1000).records.sample_bin_ns == 10**7
    written = experiment_of(1000, records="{sample_bin: 10ms}")
    assert written.records.sample_bin_ns == 10**10


def test_timeouts_by_their_exponent_are_stretched_exactly() -> None:
    experiment = experiment_of(1000, transport="{local_ack_timeout: 4}")

    assert transport_plan(experiment).retransmit_timeout_ns == 65_536 * 1000


def test_no_timeout_stays_none() -> None:
    experiment = experiment_of(1000, transport="{local_ack_timeout: 0}")

    assert transport_plan(experiment).retransmit_timeout_ns == 0


def test_timer_codes_become_those_of_the_closest_time() -> None:
    assert rnr_timer(12, 1) == 12
    # 10 us: 10 ms are closest to 10.24 ms.
    assert rnr_timer(1, 1000) == 20
    # 0.64 ms: 640 ms are closest to 655.36 ms, the longest.
    assert rnr_timer(12, 1000) == 0
    assert rnr_timer(12, 100_000) == 0


def test_a_time_that_no_timer_code_says_is_told() -> None:
    faults = "{packets: [{action: not_ready, nth: 1}]}"
    (said,) = [
        each
        for each in resolve(experiment_of(10_000, faults=faults)).warnings()
        if "rnr_timer" in each
    ]
    assert "more than any timer code can represent" in said
    assert not any(
        "rnr_timer" in each
        for each in resolve(experiment_of(100, faults=faults)).warnings()
    )


@pytest.mark.parametrize(
    "settings", ["{profile: dcqcn-nvidia, vendor: {rpg_ai_rate: 10}}", "{}"]
)
def test_all_of_dcqcn_is_stretched_profile_and_vendors_numbers(settings: str) -> None:
    control = f"{{congestion_control: {{dcqcn: {settings}}}}}"
    plain = transport_plan(experiment_of(1, transport=control))
    dilated = transport_plan(experiment_of(1000, transport=control))

    parameters = dict(dilated.congestion_parameters)
    for name, value in plain.congestion_parameters:
        if name.endswith("_ns"):
            assert parameters[name] == 1000 * value, name
        elif name.endswith("_bps"):
            assert parameters[name] == value // 1000, name
        else:
            assert parameters[name] == value, name
    # Bytes are what they would be at 400 Gbit/s; bursts fit the rate of this machine.
    assert dilated.window_bytes == plain.window_bytes
    assert dilated.max_burst_packets < plain.max_burst_packets


def test_a_rate_of_a_link_fault_that_dilation_makes_too_slow_is_refused() -> None:
    faults = "{{links: [{{kind: degrade, link: h0-s0, rate: {}}}]}}"
    with pytest.raises(ConfigError) as caught:
        experiment_of(100_000, faults=faults.format("1kbit"))
    assert "faults.links[0].rate: 1kbit/s divided by the dilation" in str(caught.value)

    experiment = experiment_of(100_000, faults=faults.format("100Mbit"))
    assert experiment.faults.links[0].rate_bps == 1000


def test_a_rate_of_dcqcn_that_is_not_zero_does_not_become_zero() -> None:
    control = "{congestion_control: {dcqcn: {overrides: {min_rate: 1kbit}}}}"
    parameters = dict(
        transport_plan(experiment_of(100_000, transport=control)).congestion_parameters
    )
    assert parameters["min_rate_bps"] == 1
    assert parameters["first_cnp_rate_bps"] == 0


def test_computation_of_programs_takes_longer() -> None:
    def durations(dilation: int) -> list[int]:
        (job,) = load_jobs(experiment_of(dilation))
        return [
            each.duration_ns
            for program in job.programs
            for each in program.operations
            if isinstance(each, ComputeOperation)
        ]

    plain = durations(1)
    assert sum(plain) > 0
    assert durations(1000) == [1000 * each for each in plain]


LOOPBACK = "{kind: loopback, ports: 4, dilation: 10}"
EXTERNAL = (
    "{kind: external, dilation: 10, hosts: [{name: h, agent: 'unix:/x', "
    "ports: [{open: 'udp:eth0', address: 198.18.0.1/24}]}]}"
)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"fabric": EXTERNAL}, "an external fabric cannot be dilated"),
        ({"fabric": LOOPBACK}, "fabric.rate: is not set"),
        (
            {
                "transport": "{congestion_control: {fixed_rate: {rate: 50kbit}}}",
            },
            "50kbit/s divided by the dilation of 1000 is less than 1 kbit/s "
            "(use a dilation of at most 50)",
        ),
        (
            {"transport": "{adaptive_retransmission: {low: 10s}}"},
            "times the dilation of 1000 is more than 1000s",
        ),
        (
            {
                "transport": "{congestion_control: "
                "{dcqcn: {overrides: {increase_period: 2s}}}}"
            },
            "congestion_control.dcqcn.overrides.increase_period: increase_period of 2s "
            "times the dilation of 1000 is more than 1000s (at most 1s)",
        ),
    ],
)
def test_what_cannot_be_stretched_is_refused(
    changes: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment_of(1000, **changes)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("timeout", "found"),
    [
        (
            "retransmit_timeout: 600s",
            "retransmit_timeout: 10min times the dilation of 10000 is more than",
        ),
        (
            "local_ack_timeout: 27",
            "local_ack_timeout: 549.755813888s times the dilation of 10000 is more",
        ),
    ],
)
def test_timeouts_are_limited_as_they_are_stretched(timeout: str, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment_of(10_000, transport=f"{{{timeout}}}")
    assert found in str(caught.value)


def test_kinds_of_quantities_are_found_beside_none() -> None:
    fields = {
        name: stretches(field)
        for section in sections(Experiment)
        for name, field in section.model_fields.items()
        if section.__name__ in ("LinkSettings", "Preflight")
    }
    assert fields["rate_bps"] is Stretches.RATE
    assert fields["delay_ns"] is Stretches.TIME
    assert fields["max_latency_ns"] is Stretches.TIME
    assert fields["queue_bytes"] is None
