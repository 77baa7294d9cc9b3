"""Exported values of a run."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from chakram.analysis.critical_path import Part
from chakram.analysis.lost_time_causes import Cause, Why
from chakram.collectives.ops import CollectiveOp
from chakram.control.events import ShardLoad
from chakram.metrics.catalog import (
    HOST_COUNTERS,
    MESSAGE_PARTS,
    METRICS,
    SERIES,
)
from chakram.metrics.exporter import SnapshotCollector
from chakram.metrics.state import MetricsState
from chakram.plan.plan import AgentPlan
from chakram.preflight.report import FAILED, Finding
from chakram.records.collective_assembly import CollectiveJoiner
from chakram.records.counter_slots import (
    COUNTER_NAMES,
    FCT_BUCKETS,
    OPS,
    TOTAL_SLOTS,
    distribution_slot,
    fct_bucket,
    fct_slot,
    fct_sum_slot,
    slot,
)
from chakram.records.named_rows import OperationTable, rank_records
from chakram.records.row_layout import FLOW_FIELDS, RecordRows
from chakram.records.run_records import CollectiveKey
from chakram.switch.packet_outcomes import DROP_REASONS, EGRESS_LIMIT
from chakram.topology.topology_helpers import single_switch
from tests.plans import ring_plan
from tests.prometheus import (
    MAX_SERIES_PER_AGENT,
    MAX_SERIES_PER_RUN,
)
from tests.small_run import (
    ALL_REDUCE_NS,
    ALL_TO_ALL_NS,
    COMPUTE_NS,
    MESSAGE_NS,
    small_plan,
    small_rows,
)
from tests.unit.fabric.live_frames import RATE, incast_counters

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def load(
    lag_ns: int,
    *,
    rounds: int,
    late: int,
    busy_ns: int,
    pairs: tuple[int, int, int],
    shard: int = 0,
) -> ShardLoad:
    """Return a load; *pairs*: all queue pairs, those limited, those failed."""
    return ShardLoad(
        shard=shard,
        wall_ns=10**9,
        cpu_ns=10**9,
        max_lag_ns=lag_ns,
        late_rounds=late,
        rounds=rounds,
        busy_ns=busy_ns,
        queue_pairs=pairs[0],
        queue_pairs_limited=pairs[1],
        queue_pairs_failed=pairs[2],
    )


def exposition(state: MetricsState, accept: str = "") -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(state))
    encode, _ = choose_encoder(accept)
    return encode(registry).decode()


def samples(state: MetricsState) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the values by name and own labels: those of the scope left out."""
    found = {}
    for family in parse_text(exposition(state)):
        for sample in family.samples:
            labels = {**sample.labels}
            assert labels.pop("run_id", "r1") == "r1"
            found[sample.name, tuple(labels.values())] = sample.value
    return found


def counters(**values: int) -> array[int]:
    found = array("q", bytes(8 * TOTAL_SLOTS))
    for name, value in values.items():
        found[slot(name)] = value
    return found


def state_after(rows: RecordRows, state: MetricsState | None = None) -> MetricsState:
    operations = OperationTable(small_plan())
    state = state or MetricsState("r1")
    state.set_plan(small_plan())
    state.add_collectives(CollectiveJoiner(operations, warmup=1).add(rows))
    state.add_ranks(rank_records(rows.iterations, operations, warmup=1))
    return state


def two_iterations() -> RecordRows:
    rows = small_rows(0)
    rows.extend(small_rows(1))
    return rows


def test_collectives_give_time_bytes_and_last_bandwidth() -> None:
    found = samples(state_after(two_iterations()))
    size = ("all_reduce", "1MiB")
    assert found["chakram_collectives_total", size] == 2
    busy = found["chakram_collective_busy_seconds_total", size]
    assert busy == pytest.approx(2 * ALL_REDUCE_NS * 1e-9)
    bus_bytes = found["chakram_collective_bus_bytes_total", size]
    assert bus_bytes == 2 * 2**20 * 1.5
    gauge = found["chakram_collective_bus_bandwidth_bytes_per_second", size]
    assert gauge == pytest.approx(bus_bytes / busy)
    assert found["chakram_collectives_total", ("all_to_all", "256KiB")] == 4


def test_histograms_are_cumulative_and_in_seconds() -> None:
    found = samples(state_after(two_iterations()))
    name = "chakram_collective_duration_seconds"
    assert found[f"{name}_count", ("all_to_all",)] == 4
    total = found[f"{name}_sum", ("all_to_all",)]
    assert total == pytest.approx(4 * ALL_TO_ALL_NS * 1e-9)
    # 100 us lies between the bounds 64 us and 128 us.
    assert found[f"{name}_bucket", ("all_to_all", "6.4e-05")] == 0
    assert found[f"{name}_bucket", ("all_to_all", "0.000128")] == 4
    assert found[f"{name}_bucket", ("all_to_all", "+Inf")] == 4


def test_an_iteration_counts_when_all_ranks_have_done_it() -> None:
    rows = small_rows(0)
    rows.extend(small_rows(1, ranks=[0, 1, 2]))
    state = state_after(rows)
    found = samples(state)
    assert found["chakram_iterations_total", ("moe",)] == 1
    assert found["chakram_iterations_planned", ("moe",)] == 4
    assert found["chakram_iteration_duration_seconds_count", ("moe",)] == 1
    duration_ns = COMPUTE_NS + ALL_REDUCE_NS + ALL_TO_ALL_NS + MESSAGE_NS
    assert found["chakram_iteration_duration_seconds_sum", ("moe",)] == pytest.approx(
        duration_ns * 1e-9
    )
    late = small_rows(1, ranks=[3])
    operations = OperationTable(small_plan())
    state.add_ranks(rank_records(late.iterations, operations, warmup=1))
    assert samples(state)["chakram_iterations_total", ("moe",)] == 2


def test_activities_of_ranks_add_up() -> None:
    found = samples(state_after(small_rows(0)))
    compute = found["chakram_rank_seconds_total", ("compute", "moe")]
    assert compute == pytest.approx(4 * COMPUTE_NS * 1e-9)
    assert ("chakram_rank_seconds_total", ("exposed", "moe")) in found


def test_exactly_one_state_is_1() -> None:
    state = MetricsState("r1")
    state.set_state("running")
    found = {
        labels: value
        for (name, labels), value in samples(state).items()
        if name == "chakram_run_state"
    }
    assert [labels for labels, value in found.items() if value] == [("running",)]
    assert len(found) == 6
    with pytest.raises(ValueError, match="'sleeping' is not one of"):
        state.set_state("sleeping")


def test_generator_bound_ignores_warm_up() -> None:
    found = samples(state_after(small_rows(0, generator_wait_ns=10_000)))
    assert found["chakram_generator_bound", ()] == 0
    found = samples(state_after(small_rows(1, generator_wait_ns=10_000)))
    assert found["chakram_generator_bound", ()] == 1
    name = "chakram_generator_bound_collectives_total"
    assert found[name, ("all_reduce",)] == 1


def test_single_wait_is_counted_but_does_not_set_generator_bound() -> None:
    rows = small_rows(1, generator_wait_ns=8_000)
    for iteration in (2, 3):
        rows.extend(small_rows(iteration))
    found = samples(state_after(rows))
    assert found["chakram_generator_bound_collectives_total", ("all_reduce",)] == 1
    assert found["chakram_generator_bound", ()] == 0


def test_predictions_are_means_per_collective_and_size() -> None:
    state = MetricsState("r1")
    times_ns = {
        CollectiveKey("moe", "ep0", 0): 90_000,
        CollectiveKey("moe", "ep1", 0): 110_000,
    }
    identities = OperationTable(small_plan()).identities
    state.set_predictions("simulate", times_ns, identities)
    name = "chakram_predicted_collective_duration_seconds"
    assert samples(state)[name, ("all_to_all", "256KiB", "simulate")] == pytest.approx(
        100e-6
    )


def test_counters_of_agents_have_metric_names_and_units() -> None:
    state = MetricsState("r1")
    state.set_counters(
        "a",
        counters(
            flows_started=5,
            flows_completed=3,
            flows_failed=1,
            tx_bytes=900,
            retransmitted_packets_nak=7,
            retransmitted_packets_timeout=2,
            generator_wait_ns=1_500_000_000,
        ),
    )
    state.set_loads(
        "a",
        [
            load(
                1_000_000, rounds=60, late=4, busy_ns=200_000_000, pairs=(9_000, 30, 0)
            ),
            load(
                2_000_000,
                rounds=40,
                late=0,
                busy_ns=300_000_000,
                pairs=(1_000, 0, 2),
                shard=1,
            ),
        ],
    )
    state.set_clock("a", offset_ns=-3000, uncertainty_ns=500, drift_ppm=2.5)
    state.set_agent_up("a", True)
    found = samples(state)
    assert found["chakram_flows_active", ("a",)] == 1
    assert found["chakram_flows_completed_total", ("a", "acknowledged")] == 3
    assert found["chakram_flows_completed_total", ("a", "failed")] == 1
    assert found["chakram_tx_bytes_total", ("a",)] == 900
    assert found["chakram_retransmitted_packets_total", ("a", "nak")] == 7
    assert found["chakram_retransmitted_packets_total", ("a", "timeout")] == 2
    assert found["chakram_generator_wait_seconds_total", ("a",)] == 1.5
    assert found["chakram_generator_lag_max_seconds", ("a",)] == 0.002
    assert found["chakram_generator_busy_seconds_total", ("a",)] == 0.5
    assert found["chakram_queue_pairs", ("a", "at_line")] == 9_968
    assert found["chakram_queue_pairs", ("a", "limited")] == 30
    assert found["chakram_queue_pairs", ("a", "failed")] == 2
    assert found["chakram_agent_clock_offset_seconds", ("a",)] == pytest.approx(-3e-6)
    drift = found["chakram_agent_clock_drift_ratio", ("a",)]
    assert drift == pytest.approx(2.5e-6)
    assert found["chakram_agent_up", ("a",)] == 1


def test_rounds_of_a_shard_that_has_ended_count() -> None:
    """A sum that decreased would be a reset for Prometheus."""
    state = MetricsState("r1")
    some = {"late": 0, "busy_ns": 10**9, "pairs": (10, 0, 0)}
    loads = [load(1000, rounds=50, shard=shard, **some) for shard in range(2)]
    state.set_loads("a", loads)
    state.set_loads("a", [load(1000, rounds=60, shard=1, **some)])
    found = samples(state)
    assert found["chakram_generator_rounds_total", ("a",)] == 110
    assert found["chakram_generator_busy_seconds_total", ("a",)] == 2
    assert found["chakram_queue_pairs", ("a", "at_line")] == 20
    state.set_loads("a", [])
    assert samples(state)["chakram_queue_pairs", ("a", "at_line")] == 0


def test_counters_in_another_layout_are_refused() -> None:
    with pytest.raises(ValueError, match="3 counters of a instead of"):
        MetricsState("r1").set_counters("a", [1, 2, 3])


def test_completion_times_of_agents_add_up() -> None:
    state = MetricsState("r1")
    for agent, fct_ns in (("a", 1500), ("b", 3000)):
        values = counters()
        values[fct_slot(CollectiveOp.ALL_TO_ALL, fct_bucket(fct_ns))] = 1
        values[fct_sum_slot(CollectiveOp.ALL_TO_ALL)] = fct_ns
        state.set_counters(agent, values)
    found = samples(state)
    name = "chakram_flow_completion_seconds"
    assert found[f"{name}_count", ("all_to_all",)] == 2
    assert found[f"{name}_sum", ("all_to_all",)] == pytest.approx(4.5e-6)
    assert found[f"{name}_bucket", ("all_to_all", "2e-06")] == 1


def test_a_preflight_counts_pairs_once_for_each_check() -> None:
    def finding(check: str, *pairs: tuple[str, str]) -> Finding:
        return Finding(
            check=check, verdict=FAILED, where="", found="", hint=None, pairs=pairs
        )

    state = MetricsState("r1")
    state.set_preflight(
        [
            finding("dscp", ("h0", "h1"), ("h0", "h2")),
            finding("dscp", ("h0", "h1")),
            finding("mtu", ("h1", "h0")),
        ]
    )

    found = samples(state)
    name = "chakram_preflight_pairs"
    assert found[name, ("dscp", "failed")] == 2
    assert found[name, ("mtu", "failed")] == 1
    assert found[name, ("rate", "failed")] == found[name, ("dscp", "unproven")] == 0


RUN_LABELS = {
    "name": "quickstart",
    "case": "",
    "world": "namespaces",
    "congestion_control": "dcqcn",
    "size_scale": "1/64",
    "dilation": "100",
}


def test_properties_of_a_run_are_labels() -> None:
    state = MetricsState("r1", info=RUN_LABELS)
    name = "chakram_run_info"
    (labels,) = (
        sample.labels
        for family in parse_text(exposition(state))
        for sample in family.samples
        if sample.name == name
    )
    assert labels == {"run_id": "r1", **RUN_LABELS}
    assert all(found != "chakram_build_info" for found, _ in samples(state))


@pytest.mark.parametrize(
    "labels",
    [
        {name: text for name, text in RUN_LABELS.items() if name != "dilation"},
        {**RUN_LABELS, "transport": "RC"},
        {},
    ],
    ids=["missing", "unknown", "none"],
)
def test_labels_that_are_missing_or_unknown_are_refused(labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="chakram_run_info has the labels name, case"):
        MetricsState("r1", info=labels)
    with pytest.raises(ValueError, match="chakram_build_info has the labels version"):
        MetricsState("r1", build=labels)


def message_columns(**columns: list[int]) -> dict[str, np.ndarray]:
    """Return the columns of flows, of two messages with zeros by default."""
    zeros = {name: [0, 0] for name in FLOW_FIELDS if name.endswith("_ns")}
    return {name: np.array(each, np.int64) for name, each in (zeros | columns).items()}


def test_time_of_messages_is_exported_by_part() -> None:
    state = MetricsState("r1")
    state.add_messages(
        message_columns(
            ready_ns=[100, 100],
            posted_ns=[110, 100],
            departed_ns=[200, 300],
            last_acked_ns=[250, 330],
            own_port_ns=[40, 100],
            window_ns=[50, -1],
            transfer_ns=[0, 70],
            repair_ns=[0, 30],
            # Of the second 20 ns are the data plane's, and not its port's.
            generator_wait_ns=[10, 20],
        )
    )
    found = {
        labels[0]: round(value * 1e9)
        for (name, labels), value in samples(state).items()
        if name == "chakram_message_seconds_total"
    }
    assert found == {
        "generator": 30,
        "own port": 120,
        "window": 50,
        "pace": 0,
        "pause": 0,
        "transfer": 70,
        "repair": 30,
        "network": 80,
    }


def test_job_counters_are_sums() -> None:
    found = samples(state_after(two_iterations()))
    of_job = {
        name: value
        for (name, labels), value in found.items()
        if name.startswith("chakram_job_") and labels == ("moe",)
    }
    # An all-reduce, two all-to-alls and a message, twice.
    assert of_job["chakram_job_collectives_total"] == 8
    busy_ns = 2 * (ALL_REDUCE_NS + 2 * ALL_TO_ALL_NS + MESSAGE_NS)
    assert of_job["chakram_job_collective_seconds_total"] == pytest.approx(
        busy_ns * 1e-9
    )
    assert of_job["chakram_job_bus_bytes_total"] == sum(
        value
        for (name, _), value in found.items()
        if name == "chakram_collective_bus_bytes_total"
    )


def test_the_end_of_an_iteration_is_in_unix_time() -> None:
    state = MetricsState("r1")
    state.set_epoch(1e9)
    state_after(small_rows(0), state)
    rows = rank_records(
        small_rows(0).iterations, OperationTable(small_plan()), warmup=1
    )
    end_s = max(row.end_ns for row in rows) * 1e-9
    name = "chakram_iteration_end_time_seconds"
    assert samples(state)[name, ("moe",)] == pytest.approx(1e9 + end_s, abs=1e-6)


def test_only_the_largest_causes_have_series() -> None:
    state = MetricsState("r1")
    causes = [
        Cause(cause="contention", place=f"l{n} up", lost_ns=100 - n, share=0.01)
        for n in range(40)
    ]
    state.set_why(
        Why(
            iterations=1,
            time_ns=10**4,
            parts_ns={},
            causes=tuple(causes),
            by_rank=(),
            by_collective=(),
            path=None,
        )
    )
    found = [
        labels for name, labels in samples(state) if name == "chakram_lost_seconds"
    ]
    assert found == [("contention", f"l{n} up") for n in range(16)]


def test_rates_of_queue_pairs_are_quantiles() -> None:
    state = MetricsState("r1")
    state.set_queue_pair_rates([float(n) for n in range(101)])
    name = "chakram_queue_pair_sent_bytes_per_second"
    assert {
        labels[0]: value
        for (each, labels), value in samples(state).items()
        if each == name
    } == {"0": 0, "0.5": 50, "0.99": 99, "1": 100}


def on_nics(agent: str, **changes: Any) -> AgentPlan:
    """Return a plan whose ports are on RDMA NICs."""
    return ring_plan(agent=agent, open_spec="verbs:mlx5_0", **changes)


def test_packets_of_nics_are_not_counted_and_their_counters_are() -> None:
    state = MetricsState("r1")
    sockets = [replace(port, number=7) for port in ring_plan(agent="s0").ports[:1]]
    state.set_nics([*on_nics("n0").ports, *sockets])
    state.set_nic(1, {"cnp_rx": 3, "ack_timeout": 0, "unknown": 4})
    state.set_nic(7, {"cnp_rx": 5})
    values = counters(**dict.fromkeys(COUNTER_NAMES, 1))
    for agent in ("n0", "s0"):
        state.set_counters(agent, values)
    joiner = CollectiveJoiner(OperationTable(small_plan()), warmup=1)
    state.add_collectives(joiner.add(small_rows(1, generator_wait_ns=10)))
    found = state.snapshot().values
    assert found["chakram_nic_events_total"] == {
        ("r1", "h1", "cnp_rx"): 3,
        ("r1", "h1", "ack_timeout"): 0,
    }
    assert found["chakram_flows_started_total"] == {("r1", "n0"): 1, ("r1", "s0"): 1}
    assert found["chakram_tx_packets_total"] == {("r1", "s0"): 1}
    assert not found.get("chakram_job_packets_total")
    assert found["chakram_job_collectives_total"]


def test_time_of_messages_on_nics_is_generator_or_network() -> None:
    state = MetricsState("r1")
    row = {
        "ready_ns": 100,
        "posted_ns": 110,
        "last_acked_ns": 200,
        "generator_wait_ns": 15,
        "departed_ns": -1,
        **dict.fromkeys((f"{part.replace(' ', '_')}_ns" for part in MESSAGE_PARTS), -1),
    }
    state.add_messages({name: np.array([value]) for name, value in row.items()})
    seconds = state.snapshot().values["chakram_message_seconds_total"]
    assert {
        part: round(value * 1e9) for (*_, part), value in seconds.items() if value
    } == {
        "generator": 15,
        "network": 85,
    }


def full_state(agents: int) -> MetricsState:
    """Return a state with every metric that a run can have."""
    build = {"version": "1", "python": "3", "compiled": "true"}
    state = MetricsState("r1", info=RUN_LABELS, build=build)
    state.set_epoch(1e9)
    state_after(two_iterations(), state)
    state.add_messages(message_columns())
    state.set_why(
        Why(
            iterations=1,
            time_ns=10,
            parts_ns={Part.COMPUTE: 6, Part.QUEUE: 4},
            causes=(Cause(cause="contention", place="l up", lost_ns=4, share=0.4),),
            by_rank=(),
            by_collective=(),
            path=None,
        )
    )
    state.set_hosts({"h0": dict.fromkeys(HOST_COUNTERS, 1)})
    state.set_nics(on_nics("n0").ports)
    state.set_nic(0, {"cnp_rx": 3})
    state.set_nics([])
    state.set_queue_pair_rates([1.0, 2.0])
    state.set_start_time(1.0)
    state.set_end_time(2.0)
    state.set_link_bytes("leaf1-spine1", "up", 10)
    switches = incast_counters(steps=60)
    dropped = list(switches.ports["s0:h0"]["drops_by_reason"])
    dropped[EGRESS_LIMIT] = 1
    ports = {**switches.ports["s0:h0"], "drops_by_reason": dropped}
    switches = replace(switches, ports={**switches.ports, "s0:h0": ports})
    state.set_switches(single_switch(8, RATE), switches)
    state.set_preflight([])
    state.set_predictions(
        "bound",
        {CollectiveKey("moe", "world", 0): 1000},
        OperationTable(small_plan()).identities,
    )
    generator_bound = small_rows(1, generator_wait_ns=10**6)
    joiner = CollectiveJoiner(OperationTable(small_plan()), warmup=1)
    state.add_collectives(joiner.add(generator_bound))
    values = counters(**dict.fromkeys(COUNTER_NAMES, 1))
    for op in OPS:
        values[fct_slot(op, 3)] = 1
    for number in range(agents):
        agent = f"a{number}"
        state.set_counters(agent, values)
        state.set_loads(agent, [load(1, rounds=1, late=1, busy_ns=1, pairs=(3, 1, 1))])
        state.set_clock(agent, offset_ns=1, uncertainty_ns=1, drift_ppm=0.0)
        state.set_agent_up(agent, True)
    return state


def test_everything_exported_is_in_the_catalog_and_all_of_it_is_exported() -> None:
    seen = set()
    for family in parse_text(exposition(full_state(1))):
        for sample in family.samples:
            metric = SERIES[sample.name]
            labels = set(sample.labels) - {"le"}
            assert labels == set(metric.label_names), sample.name
            seen.add(metric.name)
    assert seen == {metric.name for metric in METRICS}


def test_openmetrics_has_the_same_values() -> None:
    state = full_state(2)
    text = sum(len(family.samples) for family in parse_text(exposition(state)))
    openmetrics = exposition(state, OPENMETRICS)
    assert openmetrics.endswith("# EOF\n")
    parsed = parse_openmetrics(openmetrics)
    assert sum(len(family.samples) for family in parsed) == text


def test_series_grow_with_agents_within_their_budget() -> None:
    def count(agents: int) -> int:
        return sum(len(f.samples) for f in parse_text(exposition(full_state(agents))))

    per_agent = count(11) - count(10)
    assert 0 < per_agent <= MAX_SERIES_PER_AGENT
    assert count(0) <= MAX_SERIES_PER_RUN


def test_distributions_are_exported_per_agent() -> None:
    state = MetricsState("r")
    values = array("q", bytes(8 * TOTAL_SLOTS))
    first = distribution_slot("round_trip")
    values[first + 3] = 7
    values[first + FCT_BUCKETS] = 5_000_000
    state.set_counters("h1", values)

    found = state.snapshot().histograms["chakram_round_trip_seconds"]["r", "h1"]
    assert found.counts[3] == sum(found.counts) == 7
    assert found.sum_seconds == pytest.approx(0.005)


def test_times_of_hosts_are_seconds() -> None:
    found = {
        name: value
        for (name, labels), value in samples(full_state(1)).items()
        if "h0" in labels
    }
    for column, (name, _) in HOST_COUNTERS.items():
        expected = 1e-9 if column.endswith("_ns") else 1.0
        assert found[f"chakram_host_{name}"] == pytest.approx(expected)


def test_counters_begin_at_0_because_rates_need_their_first_value() -> None:
    state = MetricsState("r1")
    state.set_plan(small_plan())
    state.begin_collectives(OperationTable(small_plan()).identities)
    state.begin_messages()
    before = samples(state)
    state_after(two_iterations(), state)
    state.add_messages(message_columns())
    late = {
        name
        for name, _ in samples(state).keys() - before.keys()
        if not name.startswith("chakram_generator_bound")
    }
    # Gauges have no value before.
    assert late == {"chakram_collective_bus_bandwidth_bytes_per_second"}
    assert not any(
        value
        for (name, _), value in before.items()
        if name.endswith(("_total", "_count", "_sum", "_bucket"))
    )


def test_drops_of_modeled_switches_begin_at_0() -> None:
    state = MetricsState("r1")
    state.set_switches(single_switch(8, RATE), incast_counters(steps=0))
    name = "chakram_switch_dropped_packets_total"
    found = samples(state)
    for reason in DROP_REASONS.values():
        assert found[name, ("down", "h0-s0", reason)] == 0


def test_frames_that_earlier_runs_of_a_lab_lost_are_not_counted() -> None:
    state = MetricsState("r1")
    counted = incast_counters(steps=0)
    before = replace(counted, process={**counted.process, "lost": 7, "refused": 2})
    after = replace(counted, process={**counted.process, "lost": 10, "refused": 3})
    state.set_switches(single_switch(8, RATE), after, before)
    assert samples(state)["chakram_switch_lost_frames_total", ()] == 4


def test_bytes_of_links_do_not_decrease() -> None:
    state = MetricsState("r1")
    for nbytes in (0, 100, 60, 120):
        state.set_link_bytes("l", "up", nbytes)
        found = samples(state)["chakram_link_bytes_total", ("up", "l")]
        assert found == {0: 0, 60: 100}.get(nbytes, nbytes)


@pytest.mark.parametrize(
    ("port", "classes", "expected"),
    [
        ({"drops": 5, "ingress_drops": 2}, {3: {"drops": 4}}, 7),
        ({"drops": 0}, {3: {"drops": 0}}, 0),
        ({"ingress_drops": 2}, {3: {"drops": 4}, 4: {"drops": 1}}, 7),
        ({}, {3: {"drops": 4}}, 4),
        ({"sent_bytes": 1}, {3: {"marked": 4}}, None),
    ],
)
def test_drops_that_switches_report_are_those_of_the_port(
    port: dict[str, int], classes: dict[int, dict[str, int]], expected: int | None
) -> None:
    state = MetricsState("r1")
    reported = [("l", "up", klass, counted) for klass, counted in classes.items()]
    state.set_reported([("l", "up", -1, port), *reported])
    name = "chakram_switch_dropped_packets_total"
    assert samples(state).get((name, ("up", "l", "not reported"))) == expected


def test_a_lab_that_counts_itself_does_not_count_what_its_switches_report() -> None:
    state = MetricsState("r1")
    state.set_switches(single_switch(8, RATE), incast_counters(steps=60))
    before = samples(state)
    counted = {"drops": 9, "marked": 0, "pauses_received": 0, "queue_bytes": 1}
    state.set_reported([("h0-s0", "down", 3, counted), ("h0-s0", "down", -1, counted)])
    assert samples(state) == before
