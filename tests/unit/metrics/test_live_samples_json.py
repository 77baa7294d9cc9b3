"""Pages of queue pairs and ports during a run."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest

from chakram.metrics import live_samples_json
from chakram.metrics.catalog import MOST_HOSTS, host_labels
from chakram.metrics.live_samples_json import LiveRows
from chakram.plan.plan import Plan
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS, RecordRows
from chakram.run_directory.queue_pair_names import COUNTED, PORT_SUMS
from tests.made_plans import collective, world_plan

SECOND_NS = 10**9


def made(nranks: int = 3) -> tuple[LiveRows, Plan]:
    plan, _ = world_plan([collective("all_to_all", 64)], nranks=nranks)
    rows = LiveRows()
    rows.begin(plan.agents)
    return rows, plan


def qpn_of(plan: Plan, rank: int, peer: int) -> int:
    pairs = plan.ranks()[rank].queue_pairs
    return next(pair.qpn for pair in pairs if pair.peer_rank == peer)


def sample(plan: Plan, rank: int, peer: int, **values: int) -> RecordRows:
    row = dict.fromkeys(QUEUE_PAIR_FIELDS, 0) | values
    row |= {"rank": rank, "peer": peer, "qpn": qpn_of(plan, rank, peer)}
    return RecordRows(queue_pairs=array("q", row.values()))


def port_sample(port: int, shard: int = 0, **values: int) -> RecordRows:
    row = dict.fromkeys(PORT_FIELDS, 0) | values | {"port": port, "shard": shard}
    return RecordRows(ports=array("q", row.values()))


def queue_pairs(rows: LiveRows) -> list[dict[str, Any]]:
    page: Any = rows.queue_pairs({})
    found: list[dict[str, Any]] = page["queue_pairs"]
    return found


def test_queue_pair_row_names_both_ends() -> None:
    rows, plan = made()
    rows.take(sample(plan, 0, 2, tx_bytes=5))
    (row,) = queue_pairs(rows)
    ports = plan.ports()

    assert row["flow_name"] == "job/world/0.0/0>2"
    assert (row["port_tx"], row["port_rx"]) == (ports[0].host, ports[2].host)
    assert (row["src_ipv4"], row["dest_ipv4"]) == (ports[0].address, ports[2].address)
    assert (row["src_qp"], row["dest_qp"]) == (qpn_of(plan, 0, 2), qpn_of(plan, 2, 0))
    assert row["tx_bytes"] == 5


def test_queue_pair_row_shows_data_in_flight() -> None:
    rows, plan = made()
    rows.take(sample(plan, 0, 1, data_frames_tx=10, data_frames_rx=4))
    assert queue_pairs(rows)[0]["frame_delta"] is None
    rows.take(sample(plan, 1, 0, data_frames_tx=4, data_frames_rx=7))

    assert [row["frame_delta"] for row in queue_pairs(rows)] == [3, 0]


def test_rates_cover_the_last_seconds() -> None:
    rows, plan = made()
    sent = 0
    for tenth in range(100):
        # 1 Gbit/s for five seconds, then 3 Gbit/s; received is a tenth of that.
        sent += 12_500_000 if tenth < 50 else 37_500_000
        rows.take(
            sample(
                plan,
                0,
                1,
                time_ns=tenth * SECOND_NS // 10,
                tx_bytes=sent,
                rx_bytes=sent // 10,
            )
        )
        (row,) = queue_pairs(rows)
        if tenth == 0:
            assert row["data_tx_rate"] is None
        elif tenth < 50:
            assert row["data_tx_rate"] == pytest.approx(1.0)
        elif tenth > 70:
            assert row["data_tx_rate"] == pytest.approx(3.0)
            assert row["data_rx_rate"] == pytest.approx(0.3)


def test_a_port_has_the_sums_of_its_queue_pairs() -> None:
    rows, plan = made()
    rows.take(port_sample(0, tx_bytes=1000, rx_bytes=2000, tx_packets=3))
    rows.take(port_sample(1))
    counts = {name: 1 << index for index, name in enumerate(COUNTED)}
    rows.take(sample(plan, 0, 1, **counts))
    rows.take(sample(plan, 0, 2, **counts))
    later = {name: 3 * count for name, count in counts.items()}
    rows.take(sample(plan, 0, 2, **later))
    page: Any = rows.ports({})
    first, second, *others = page["ports"]

    assert not others
    assert (first["tx_bytes"], first["rx_bytes"], first["tx_packets"]) == (
        1000,
        2000,
        3,
    )
    assert {name: first[column] for name, column in PORT_SUMS.items()} == {
        name: 4 * count for name, count in counts.items()
    }
    assert not any(second[column] for column in PORT_SUMS.values())


def test_new_run_starts_without_rows() -> None:
    rows, plan = made()
    rows.take(sample(plan, 0, 1, tx_bytes=5))
    rows.take(port_sample(0))
    rows.begin(plan.agents)

    assert rows.queue_pairs({}) == {
        "total": 0,
        "first": 0,
        "left_out": 0,
        "queue_pairs": [],
    }
    assert rows.ports({}) == {"total": 0, "first": 0, "ports": []}


def test_pages_and_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_samples_json, "MOST_ROWS", 2)
    monkeypatch.setattr(live_samples_json, "MOST_QUEUE_PAIRS", 5)
    rows, plan = made()
    for rank in range(3):
        for peer in {0, 1, 2} - {rank}:
            rows.take(sample(plan, rank, peer))
    page: Any = rows.queue_pairs({"first": "4"})
    assert (page["total"], len(page["queue_pairs"])) == (5, 1)
    assert page["left_out"] == 1
    page = rows.queue_pairs({"first": "x"})
    assert (page["first"], len(page["queue_pairs"])) == (0, 2)


def test_sums_include_rows_that_pages_leave_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_samples_json, "MOST_QUEUE_PAIRS", 1)
    rows, plan = made()
    rows.take(port_sample(0))
    for time_ns, sent in ((1, 10), (2, 30), (3, 70)):
        for peer in (1, 2):
            rows.take(sample(plan, 0, peer, time_ns=time_ns, tx_bytes=sent))
    (port,) = rows.ports({})["ports"]  # type: ignore[misc] # a list
    assert port["payload_tx_bytes"] == 140


def test_repeated_sample_counts_once() -> None:
    rows, plan = made()
    rows.take(port_sample(0))
    for _ in range(2):
        rows.take(sample(plan, 0, 1, time_ns=1, tx_bytes=10))
    (port,) = rows.ports({})["ports"]  # type: ignore[misc] # a list
    assert port["payload_tx_bytes"] == 10


def test_agent_shows_only_its_own_ends() -> None:
    rows, plan = made()
    (agent,) = plan.agents
    rows.begin([replace(agent, ports=agent.ports[:1], ranks=agent.ranks[:1])])
    rows.take(sample(plan, 0, 1))
    (row,) = queue_pairs(rows)

    assert row["port_tx"] == plan.ports()[0].host
    assert row["port_rx"] is None
    assert row["dest_ipv4"] == plan.ports()[1].address


class Shown:
    """Records the metrics that live rows set."""

    def __init__(self, rows: LiveRows) -> None:
        self.hosts: dict[str, dict[str, int]] = {}
        self.rates: list[float] = []
        rows.show(self)  # type: ignore[arg-type] # it has what is called

    def set_hosts(self, hosts: dict[str, dict[str, int]]) -> None:
        self.hosts = hosts

    def set_queue_pair_rates(self, rates: list[float]) -> None:
        self.rates = rates


def test_hosts_have_the_sums_of_their_ports_and_queue_pairs() -> None:
    rows, plan = made()
    host = plan.ports()[0].host
    rows.take(port_sample(0, tx_bytes=10, paused_ns=3))
    rows.take(port_sample(0, shard=1, tx_bytes=20))
    rows.take(sample(plan, 0, 1, cnp_rx=1, tx_bytes=1000))
    rows.take(sample(plan, 0, 2, cnp_rx=2, data_frames_retransmitted=5))
    found = Shown(rows).hosts[host]
    assert (found["tx_bytes"], found["paused_ns"]) == (30, 3)
    assert (found["cnp_rx"], found["data_frames_retransmitted"]) == (3, 5)


def test_rate_of_an_idle_queue_pair_is_0() -> None:
    rows, plan = made()
    for second in range(3):
        rows.take(sample(plan, 0, 1, time_ns=second * SECOND_NS, tx_bytes=100 * second))
        rows.take(sample(plan, 0, 2, time_ns=second * SECOND_NS, tx_bytes=300 * second))
    assert sorted(Shown(rows).rates) == [100.0, 300.0]
    for second in range(3, 6):
        rows.take(sample(plan, 0, 1, time_ns=second * SECOND_NS, tx_bytes=100 * second))
    assert sorted(Shown(rows).rates) == [0.0, 100.0]
    busy, idle = queue_pairs(rows)
    assert busy["data_tx_rate"] == pytest.approx(800e-9)
    assert (idle["data_tx_rate"], idle["data_rx_rate"]) == (0.0, 0.0)


def test_hosts_beyond_the_limit_are_summed() -> None:
    labels = host_labels(f"h{n}" for n in range(70))
    assert (labels["h0"], labels["h62"]) == ("h0", "h62")
    assert {labels[f"h{n}"] for n in range(63, 70)} == {"others"}
    assert len(set(labels.values())) == MOST_HOSTS
    assert host_labels(["a", "b", "a"]) == {"a": "a", "b": "b"}
