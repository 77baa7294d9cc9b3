"""Counters of a run by the names of the Open Traffic Generator."""

from __future__ import annotations

from array import array
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest

from chakram.collectives.groups import world_group
from chakram.plan.plan import Plan
from chakram.plan.queue_pairs import QueuePairLayout
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS
from chakram.run_directory.otg_metrics import port_metrics, queue_pair_metrics
from chakram.run_directory.queue_pair_names import COUNTED, PORT_SUMS
from chakram.run_directory.schemas import FLOWS, SampleTables, queue_pair_ends_table
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import collective, make_plan, program

COUNTS = {name: 1 << index for index, name in enumerate(COUNTED)}


def made(nranks: int = 3, **placement: object) -> Plan:
    world = world_group(nranks)
    return make_plan(
        [
            program(rank, world, [collective("all_to_all", 64)])
            for rank in range(nranks)
        ],
        single_switch(nranks, 10**9),
        **placement,  # type: ignore[arg-type] # any of its arguments
    )


def qpn_of(plan: Plan, rank: int, peer: int, index: int = 0) -> int:
    pairs = plan.ranks()[rank].queue_pairs
    return next(
        pair.qpn for pair in pairs if (pair.peer_rank, pair.index) == (peer, index)
    )


def samples(plan: Plan, *rows: dict[str, int]) -> pa.Table:
    values = array("q")
    for row in rows:
        index = row.pop("index", 0)
        whole = dict.fromkeys(QUEUE_PAIR_FIELDS, 0) | row
        whole["qpn"] = qpn_of(plan, row["rank"], row["peer"], index)
        values.extend(whole.values())
    return SampleTables(plan).queue_pairs(values)


def flows(
    plan: Plan, *rows: tuple[int, int, int, int, int], index: int = 0
) -> pa.Table:
    """Return flows from (source, destination, first sent, last acked, FCT) in ns."""
    names = ["job", "src", "qpn", "first_sent_ns", "last_acked_ns", "fct_ns"]
    schema = pa.schema([FLOWS.field(name) for name in names])
    found = [
        ("job", src, qpn_of(plan, src, dst, index), first, last, fct)
        for src, dst, first, last, fct in rows
    ]
    columns = list(zip(*found, strict=True)) or [[]] * len(names)
    plain = [pa.array(column) for column in columns]
    return pa.table(plain, names=names).cast(schema)


def metrics(
    plan: Plan, sampled: pa.Table, sent: pa.Table, **how: Any
) -> dict[str, dict[str, object]]:
    table = queue_pair_metrics(
        queue_pair_ends_table(plan.ranks()),
        sampled,
        sent,
        ports={port.number: asdict(port) for port in plan.ports()},
        family="ipv4",
        **how,
    )
    return {row["flow_name"]: row for row in table.to_pylist()}


def test_every_queue_pair_has_its_ends() -> None:
    plan = made()
    found = metrics(plan, samples(plan), flows(plan))
    ports = plan.ports()

    assert len(found) == 6
    row = found["job/world/0.0/0>2"]
    assert (row["port_tx"], row["port_rx"]) == (ports[0].host, ports[2].host)
    assert (row["src_ipv4"], row["dest_ipv4"]) == (ports[0].address, ports[2].address)
    assert (row["src_qp"], row["dest_qp"]) == (qpn_of(plan, 0, 2), qpn_of(plan, 2, 0))
    # Nothing was sampled of it: that is not the same as nought.
    assert row["data_frames_tx"] is row["frame_delta"] is row["data_tx_rate"] is None


def test_counters_equal_the_last_sample() -> None:
    plan = made()
    later = {name: 3 * count for name, count in COUNTS.items()}
    sampled = samples(
        plan,
        {"time_ns": 1, "rank": 0, "peer": 1, **COUNTS},
        {"time_ns": 2, "rank": 0, "peer": 1, **later},
        {"time_ns": 1, "rank": 1, "peer": 0, "data_frames_rx": 2},
    )
    found = metrics(plan, sampled, flows(plan))
    row = found["job/world/0.0/0>1"]

    assert {name: row[name] for name in COUNTED} == later
    assert row["frame_delta"] == later["data_frames_tx"] - 2
    assert found["job/world/0.0/1>0"]["frame_delta"] == -later["data_frames_rx"]


def test_times_and_rates_come_from_messages() -> None:
    plan = made()
    sampled = samples(
        plan, {"rank": 0, "peer": 1, "tx_bytes": 125_000, "rx_bytes": 250_000}
    )
    sent = flows(
        plan,
        (0, 1, 1_000_000, 1_400_000, 500_000),
        (0, 1, 1_600_000, 2_000_000, 600_000),
        (0, 2, 0, 0, 0),
        (1, 0, 3_000_000, 5_000_000, 2_000_000),
    )
    found = metrics(plan, sampled, sent)
    row = found["job/world/0.0/0>1"]

    assert (row["first_timestamp"], row["last_timestamp"]) == (1_000_000, 2_000_000)
    assert row["flow_completion_time_ns"] == 550_000
    assert row["flow_completion_time"] == pytest.approx(0.55)
    assert row["data_tx_rate"] == pytest.approx(1.0)
    # While the other end was sending, not while this one was.
    assert row["data_rx_rate"] == pytest.approx(1.0)
    assert found["job/world/0.0/0>2"]["data_tx_rate"] is None


def test_rate_of_an_unfinished_message_comes_from_samples() -> None:
    plan = made()
    counted = [(10, 0), (20, 1_000), (30, 2_000), (40, 4_000), (50, 4_000)]
    sampled = samples(
        plan,
        *(
            {"time_ns": time, "rank": rank, "peer": peer, column: nbytes}
            for rank, peer, column in (
                (0, 1, "tx_bytes"),
                (1, 0, "rx_bytes"),
                (0, 2, "tx_bytes"),
            )
            for time, nbytes in counted
        ),
    )
    # The message from 0 to 2 ends between two samples, and no other follows.
    for last_acked in ((), ((0, 1, 12, 22, 10), (0, 2, 12, 32, 20))):
        found = metrics(plan, sampled, flows(plan, *last_acked))
        for name, column in (("0>1", "tx"), ("1>0", "rx")):
            row = found[f"job/world/0.0/{name}"]
            # 3000 bytes in 20 ns
            assert row[f"data_{column}_rate"] == pytest.approx(1200)
    assert found["job/world/0.0/0>2"]["data_tx_rate"] == pytest.approx(1600)


def test_a_job_that_starts_again_is_counted_from_then_on() -> None:
    plan = made()
    times = [(10, 1_000), (20, 2_000), (100, 2_000), (120, 2_500), (140, 3_000)]
    sampled = samples(
        plan,
        *(
            {"time_ns": time, "rank": rank, "peer": peer, "tx_bytes": nbytes}
            for rank, peer in ((0, 1), (0, 2))
            for time, nbytes in times[: 5 - 3 * (peer == 2)]
        ),
        *(
            {"time_ns": time, "rank": 1, "peer": 0, "data_frames_rx": nbytes // 100}
            for time, nbytes in times
        ),
    )
    sent = flows(plan, (0, 1, 0, 20, 20), (0, 1, 100, 140, 40), (0, 2, 0, 20, 20))
    before = metrics(plan, sampled, sent, since_ns={"other": 100})
    assert before == metrics(plan, sampled, sent)
    found = metrics(plan, sampled, sent, since_ns={"job": 90})
    row = found["job/world/0.0/0>1"]
    assert (row["tx_bytes"], row["frame_delta"]) == (1_000, -10)
    assert tuple(row[name] for name in TIMES) == (100, 140, 40)
    assert row["data_tx_rate"] == pytest.approx(8 * 1_000 / 40)
    assert found["job/world/0.0/1>0"]["data_frames_rx"] == 10
    # It has not sent since then.
    other = found["job/world/0.0/0>2"]
    assert (other["tx_bytes"], other["data_tx_rate"]) == (0, None)


TIMES = ("first_timestamp", "last_timestamp", "flow_completion_time_ns")


def test_each_of_several_queue_pairs_has_the_times_of_its_own_messages() -> None:
    plan = made(2, layout=QueuePairLayout(count=2))
    sent = pa.concat_tables(
        [
            flows(plan, (0, 1, 1_000, 3_000, 2_500)),
            flows(plan, (0, 1, 2_000, 9_000, 8_000), index=1),
        ]
    )
    found = metrics(plan, samples(plan), sent)
    times = {
        name: tuple(row[each] for each in TIMES)
        for name, row in found.items()
        if name.endswith("0>1")
    }
    assert times == {
        "job/world/0.0/0>1": (1_000, 3_000, 2_500),
        "job/world/0.1/0>1": (2_000, 9_000, 8_000),
    }


def test_queue_pairs_that_share_each_message_have_the_times_of_all() -> None:
    plan = made(3, layout=QueuePairLayout(count=2))
    sampled = samples(
        plan,
        {"rank": 0, "peer": 1, "index": 0, "tx_bytes": 500},
        {"rank": 0, "peer": 1, "index": 1, "tx_bytes": 250},
        {"rank": 1, "peer": 0, "index": 1, "rx_bytes": 250},
    )
    sent = flows(plan, (0, 1, 1_000, 3_000, 2_500), (2, 1, 5, 6, 7))
    found = metrics(plan, sampled, sent, are_divided=True)
    for index, rate in ((0, 2.0), (1, 1.0)):
        row = found[f"job/world/0.{index}/0>1"]
        assert tuple(row[name] for name in TIMES) == (1_000, 3_000, 2_500)
        assert row["data_tx_rate"] == pytest.approx(rate)
    assert found["job/world/0.1/1>0"]["data_rx_rate"] == pytest.approx(1.0)
    assert found["job/world/0.1/1>0"]["first_timestamp"] is None
    assert found["job/world/0.1/2>1"]["first_timestamp"] == 5


def test_a_port_is_the_sum_of_its_queue_pairs_and_of_its_parts() -> None:
    plan = made(4, ranks_per_port=2)
    later = {name: 3 * count for name, count in COUNTS.items()}
    sampled = samples(
        plan,
        {"rank": 0, "peer": 2, **COUNTS},
        {"rank": 0, "peer": 2, **later},
        {"rank": 1, "peer": 2, **COUNTS},
        {"rank": 2, "peer": 0, **COUNTS},
    )
    values = array("q")
    for shard, tx_bytes in ((0, 5), (0, 7), (1, 10)):
        row = dict.fromkeys(PORT_FIELDS, 0) | {"shard": shard, "tx_bytes": tx_bytes}
        row |= {"verified_packets": tx_bytes, "wrong_payloads": 1, "paused_ns": 2}
        values.extend(row.values())
    table = port_metrics(
        queue_pair_ends_table(plan.ranks()),
        sampled,
        SampleTables(plan).ports(values),
        ports={port.number: asdict(port) for port in plan.ports()},
    )
    first, second, *_ = table.to_pylist()

    assert (first["port"], first["name"]) == (0, plan.ports()[0].host)
    assert first["tx_bytes"] == first["verified_packets"] == 17
    assert (first["wrong_payloads"], first["paused_ns"]) == (2, 4)
    assert {*PORT_FIELDS} - {"time_ns", "shard"} <= {*table.column_names}
    assert {name: first[column] for name, column in PORT_SUMS.items()} == {
        name: 4 * count for name, count in COUNTS.items()
    }
    assert {name: second[column] for name, column in PORT_SUMS.items()} == COUNTS


def test_messages_within_a_host_have_no_queue_pair() -> None:
    plan = made(4, ranks_per_port=2, local_rate_bps=0)
    ends = queue_pair_ends_table(plan.ranks())
    pairs = zip(ends["rank"].to_pylist(), ends["peer"].to_pylist(), strict=True)

    assert {(rank // 2, peer // 2) for rank, peer in pairs} == {(0, 1), (1, 0)}


def test_a_run_without_a_plan_has_no_queue_pairs() -> None:
    ends = queue_pair_ends_table(())
    nothing = flows(made())
    table = queue_pair_metrics(ends, samples(made()), nothing, ports={}, family="ipv4")
    assert (table.num_rows, table.num_columns) == (0, 0)
