"""Conversion of experiment sections to a plan."""

from __future__ import annotations

import pytest

from chakram.config.experiment import Experiment, parse_experiment
from chakram.execution.run import psn_seed_of
from chakram.preparation.plan_settings import (
    queue_pair_layout,
    run_settings,
    transport_plan,
)
from chakram.preparation.resolved_run import resolve
from chakram.roce.payload import is_compiled
from tests.experiments import EXPERIMENT


def with_transport(text: str) -> Experiment:
    return parse_experiment(EXPERIMENT + f"transport: {{{text}}}\n")


def test_defaults_equal_those_of_a_queue_pair() -> None:
    transport = transport_plan(parse_experiment(EXPERIMENT))
    assert transport.congestion_control == "none"
    assert transport.congestion_parameters == ()
    assert transport.window_bytes == 65_536
    assert transport.path_mtu == 4096
    assert transport.ecn == 2
    assert (transport.dscp_data, transport.dscp_ack) == (26, 26)
    assert transport.max_burst_packets == 4  # 4 hosts of 1 Gbit/s


def test_fixed_rate_defaults_to_the_rate_of_the_ports() -> None:
    experiment = with_transport("congestion_control: fixed_rate")
    assert transport_plan(experiment).congestion_parameters == (("rate_bps", 10**9),)
    experiment = with_transport("congestion_control: {fixed_rate: {rate: 100Mbit}}")
    assert transport_plan(experiment).congestion_parameters == (("rate_bps", 10**8),)


def test_all_keys_of_the_transport_section_reach_the_plan() -> None:
    transport = transport_plan(
        with_transport(
            "window: 1MiB, path_mtu: 1024, verb: send, dscp: {data: 3, ack: 48}, "
            "ecn: ect1, ack_interval: 8, retransmit_timeout: 10ms, retry_limit: 3, "
            "burst: 7, rnr_retry_limit: 2, rnr_timer: 5, icrc: full, icrc_check: 64, "
            "adaptive_retransmission: {low: 50us, tries: 3}, source_ports: [5000]"
        )
    )
    assert transport.window_bytes == 2**20
    assert transport.path_mtu == 1024
    assert transport.verb == "send"
    assert (transport.dscp_data, transport.dscp_ack, transport.ecn) == (3, 48, 1)
    assert transport.ack_interval_packets == 8
    assert transport.retransmit_timeout_ns == 10**7
    assert transport.retry_limit == 3
    assert transport.max_burst_packets == 7
    assert (transport.rnr_retry_limit, transport.rnr_timer) == (2, 5)
    assert (transport.icrc, transport.verify_every) == ("full", 64)
    assert (transport.adaptive_low_ns, transport.adaptive_tries) == (50_000, 3)


def test_timeout_exponent_is_accepted() -> None:
    experiment = with_transport("local_ack_timeout: 4")
    assert transport_plan(experiment).retransmit_timeout_ns == 65_536


def test_exponent_zero_disables_the_timeout_and_warns() -> None:
    experiment = with_transport("local_ack_timeout: 0")
    assert transport_plan(experiment).retransmit_timeout_ns == 0
    assert resolve(experiment).warnings() == []

    text = EXPERIMENT + "transport: {local_ack_timeout: 0}\nfaults: "
    for faults in ("{drop: 0.01}", "{packets: [{action: drop, nth: 3}]}"):
        (warning,) = resolve(parse_experiment(text + faults)).warnings()
        assert warning.startswith("transport.local_ack_timeout: 0 disables")


def test_layout_of_queue_pairs_reaches_the_plan() -> None:
    experiment = with_transport(
        "queue_pairs: {count: 3, split: even, message_size: 1MiB}, "
        "source_ports: [5000, 5001]"
    )
    transport = transport_plan(experiment)
    assert (transport.split, transport.message_bytes) == ("even", 2**20)
    layout = queue_pair_layout(experiment)
    assert (layout.count, layout.source_ports) == (3, (5000, 5001))


def test_run_settings_come_from_the_experiment() -> None:
    settings = run_settings(
        parse_experiment(
            EXPERIMENT
            + "iterations: {warmup: 1, measured: 3, sync: gap, gap: 5ms}\n"
            + "faults: {drop: 0.01}\nseed: 9\nhang_timeout: 7s\n"
        )
    )
    assert (settings.warmup, settings.measured) == (1, 3)
    assert (settings.sync, settings.gap_ns) == ("gap", 5_000_000)
    assert settings.drop_ratio == 0.01
    assert settings.seed == 9
    assert settings.hang_timeout_ns == 7 * 10**9


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("verify: full", 1),
        ("verify: sample", 64),
        ("verify: sample, icrc_check: 9", 9),
        ("verify: off", 0),
        ("icrc_check: 9", 9),
        ("icrc_check: 0", 0),
        ("verb: write", 1 if is_compiled() else 64),
    ],
)
def test_icrc_check_samples_one_packet_in_n(text: str, every: int) -> None:
    assert transport_plan(with_transport(text)).verify_every == every


def test_first_psns_of_runs_are_drawn_unless_the_experiment_sets_their_seed() -> None:
    usual = parse_experiment(EXPERIMENT)
    drawn = {psn_seed_of(usual) for _ in range(9)}
    assert len(drawn) == 9
    assert all(0 <= seed < 2**53 for seed in drawn)
    assert psn_seed_of(with_transport("psn_seed: 12")) == 12


def test_timeout_below_the_time_of_a_window_causes_a_warning() -> None:
    # 64 KiB at 1 Gbit/s: 524 us.
    (warning,) = resolve(with_transport("retransmit_timeout: 500us")).warnings()
    assert warning.startswith(
        "transport.retransmit_timeout: 500us is less than the 524us that a window of "
        "64KiB takes at the rate of a port"
    )
    (warning,) = resolve(with_transport("local_ack_timeout: 4")).warnings()
    assert warning.startswith("transport.local_ack_timeout: ")
    for fits in (
        "retransmit_timeout: 600us",
        "retransmit_timeout: 500us, window: 32KiB",
        "retransmit_timeout: 500us, adaptive_retransmission: {low: 50us, tries: 3}",
    ):
        assert resolve(with_transport(fits)).warnings() == []


def test_window_check_of_a_dilated_fabric_uses_undilated_rates() -> None:
    dilated = EXPERIMENT.replace("fabric:\n", "fabric:\n  dilation: 10\n")
    text = "transport: {retransmit_timeout: %s}\n"
    (warning,) = resolve(parse_experiment(dilated + text % "500us")).warnings()
    assert "500us is less than the 524us that" in warning
    assert resolve(parse_experiment(dilated + text % "600us")).warnings() == []


@pytest.mark.parametrize(
    ("profile", "delay", "is_warned"),
    [("ns3", "100ns", True), ("ns3", "1us", False), ("sonic", "100ns", False)],
)
def test_links_too_short_for_ns3_headroom_cause_a_warning(
    profile: str, delay: str, is_warned: bool
) -> None:
    experiment = parse_experiment(
        f"""
version: 1
name: x
jobs: [{{name: j, trace: {{synth: incast, ranks: 8, fan_in: 7, receiver: 0}}}}]
fabric:
  kind: namespaces
  topology: {{single_switch: {{hosts: 8}}}}
  links: {{host: {{rate: 100Gbit, delay: {delay}}}}}
  switches: {{profile: {profile}}}
transport: {{window: 16MiB}}
"""
    )
    found = [each for each in resolve(experiment).warnings() if "headroom" in each]
    assert [each.split(":")[0] for each in found] == (
        ["fabric.switches.profile"] if is_warned else []
    )


def test_queues_smaller_than_a_packet_cause_a_warning() -> None:
    text = """
version: 1
name: short
jobs:
  - name: main
    trace: {synth: collectives, streams: [{op: gather, size: 1MB, count: 1}], ranks: 4}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 4}}
  links: {host: {rate: 100Mbit, queue: %s}}
transport: {path_mtu: 1024}
"""
    (warning,) = resolve(parse_experiment(text % "1KiB")).warnings()
    assert "the queue of 1KiB at h0-s0 cannot hold a packet" in warning
    assert resolve(parse_experiment(text % "2KiB")).warnings() == []
