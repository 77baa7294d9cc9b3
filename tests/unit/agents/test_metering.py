from __future__ import annotations

from array import array

from chakram.collectives.ops import CollectiveOp
from chakram.records.counter_slots import fct_histograms, slot
from chakram.records.row_layout import FLOW_FIELDS, RecordRows
from chakram_agent.shared_counters import Metering, SharedCounters
from tests.made_plans import collective, compute, world_plan
from tests.plans import ring_plan


def flow(**values: int) -> list[int]:
    return [values.get(name, 0) for name in FLOW_FIELDS]


def test_completion_times_are_counted_per_collective() -> None:
    metering = Metering()
    metering.begin(ring_plan())
    rows = RecordRows(
        flows=array(
            "q",
            flow(size_bytes=100, posted_ns=5, last_acked_ns=1505)
            + flow(rank=1, size_bytes=50, posted_ns=0, last_acked_ns=900),
        )
    )
    metering.note(rows)
    totals = metering.totals()
    (histogram,) = fct_histograms(totals)
    assert histogram.op is CollectiveOp.ALL_REDUCE
    assert histogram.counts[:3] == (1, 1, 0)
    assert histogram.sum_ns == 2400
    assert totals[slot("delivered_bytes")] == 150


def test_every_flow_counts_for_the_collective_that_it_is_of() -> None:
    plan, _ = world_plan(
        [
            collective("all_reduce", 8),
            compute(5, after=[0]),
            collective("all_to_all", 8, number=1, after=[1]),
        ],
        nranks=2,
    )
    metering = Metering()
    metering.begin(plan.agents[0])
    rows = RecordRows(
        flows=array(
            "q",
            flow(operation=2, posted_ns=5, last_acked_ns=25)
            + flow(rank=1, posted_ns=0, last_acked_ns=7)
            + flow(rank=1, operation=2, posted_ns=0, last_acked_ns=30),
        )
    )
    metering.note(rows)

    assert {each.op: each.sum_ns for each in fct_histograms(metering.totals())} == {
        CollectiveOp.ALL_REDUCE: 7,
        CollectiveOp.ALL_TO_ALL: 50,
    }


def test_a_run_counts_from_nothing() -> None:
    metering = Metering()
    metering.begin(ring_plan())
    counters = SharedCounters.create("test")
    metering.add_shard(0, counters)
    counters.values[slot("tx_bytes")] = 7
    assert metering.of_run()[slot("tx_bytes")] == 7
    metering.remove_shard(0)
    assert metering.of_run()[slot("tx_bytes")] == 7
    metering.begin(ring_plan())
    assert not any(metering.of_run())
    counters = SharedCounters.create("test")
    metering.add_shard(0, counters)
    counters.values[slot("tx_bytes")] = 5
    assert metering.of_run()[slot("tx_bytes")] == 5
    assert metering.totals()[slot("tx_bytes")] == 12
    metering.remove_shard(0)


def test_counters_of_a_shard_survive_it() -> None:
    metering = Metering()
    counters = SharedCounters.create("test")
    metering.add_shard(0, counters)
    counters.values[slot("tx_bytes")] = 7
    assert metering.totals()[slot("tx_bytes")] == 7
    metering.remove_shard(0)
    metering.remove_shard(0)
    assert metering.totals()[slot("tx_bytes")] == 7
    assert list(metering.shards()) == []
