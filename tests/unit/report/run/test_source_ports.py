"""Source ports that would have balanced a run's uplinks, of pairs made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from chakram.diagnosis import source_port_advice as advice_module
from chakram.diagnosis.source_port_advice import Advice, source_port_advice
from chakram.plan.plan import CREDIT_CHANNELS
from chakram.plan.queue_pairs import SHARD_BITS
from chakram.report.blocks import Facts, Table
from chakram.report.run.data import RunData
from chakram.report.run.source_ports import source_ports
from chakram.run_directory.schemas import SCHEMAS
from tests.made_runs import EXPERIMENT, made_run

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.run_directory.reader import RunResults

SAME_PORT = 50_000


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return made_run(tmp_path_factory.mktemp("runs"), iterations=())


def end(rank: int, peer: int, number: int, source_port: int, **more: Any) -> Any:
    """Return a queue pair, the *number*-th of both of its ports."""
    return {
        "job": "moe", "rank": rank, "peer": peer, "port": rank, "peer_port": peer,
        "qpn": number << SHARD_BITS, "peer_qpn": number << SHARD_BITS,
        "udp_source_port": source_port, "group": "world", "channel": 0, "index": 0,
        **more,
    }  # fmt: skip


def in_turn(*pairs: tuple[int, int]) -> list[Any]:
    """Return queue pairs with the numbers that they get in this order."""
    counts = dict.fromkeys(range(4), 0)
    ends = []
    for rank, peer in pairs:
        for each in (rank, peer):
            counts[each] += 1
        ends.append(
            end(
                rank, peer, 0, SAME_PORT, qpn=counts[rank] << SHARD_BITS,
                peer_qpn=counts[peer] << SHARD_BITS,
            )
        )  # fmt: skip
    return ends


def with_pairs(
    results: RunResults, patch: pytest.MonkeyPatch, ends: list[Any], **sent: int
) -> RunData:
    """Return a run with these queue pairs, 1 MB on each unless *sent* says.

    ``r0q1=5``: 5 bytes of rank 0 on its queue pair 1.
    """
    real = results.table
    flows = []
    for row in ends:
        for side, qpn in ((row["rank"], row["qpn"]), (row["peer"], row["peer_qpn"])):
            size = sent.get(f"r{side}q{qpn >> SHARD_BITS}", 10**6)
            flow = {"job": "moe", "src": side, "qpn": qpn, "packets": 0, "bytes": size}
            flows.append(flow)

    def table(name: str, *columns: str) -> Any:
        if name == "queue_pair_ends":
            empty = dict.fromkeys(SCHEMAS[name].names)
            return pa.Table.from_pylist([{**empty, **row} for row in ends])
        return pa.Table.from_pylist(flows) if name == "flows" else real(name, *columns)

    patch.setattr(results, "table", table)
    return RunData(results)


def found_in(data: RunData) -> Advice | str:
    assert not isinstance(data.topology, str)
    assert not isinstance(data.fabric, str)
    return source_port_advice(data.results, data.fabric, data.topology, data.transport)


def advice_of(data: RunData) -> Advice:
    found = found_in(data)
    assert isinstance(found, Advice), found
    return found


def test_pairs_that_share_an_uplink_get_ports_that_divide_them(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Four pairs from leaf to leaf, by one port.
    ends = in_turn((0, 2), (0, 3), (1, 2), (1, 3))
    advice = advice_of(with_pairs(results, monkeypatch, ends))
    assert advice.after == {"up": 1, "down": 1}
    assert max(advice.before.values()) >= 1.5
    assert [pair[:3] for pair in advice.pairs] == [
        (f"moe: {rank} - {peer}", "world, channel 0.0", SAME_PORT)
        for rank, peer in ((0, 2), (0, 3), (1, 2), (1, 3))
    ]
    ports = advice.source_ports
    assert [new for *_, new in advice.pairs] == [
        ports[turn % len(ports)] for turn in range(4)
    ]
    # With these there is nothing to do.
    again = [
        {**row, "udp_source_port": ports[turn % len(ports)]}
        for turn, row in enumerate(ends)
    ]
    even = found_in(with_pairs(results, monkeypatch, again))
    assert even == "the uplinks are already balanced"


def test_one_pair_cannot_be_divided(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = with_pairs(results, monkeypatch, in_turn((0, 2)))
    found = found_in(data)
    assert isinstance(found, str)
    assert found.startswith("no other ports are better; single flows are this large")
    section = source_ports(data)
    assert (section.text, section.blocks) == (f"none are proposed: {found}.", ())


def test_what_remains_uneven_is_told(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One pair has 4 MB, three have 1: of 7 MB on two uplinks 4 are the least.
    ends = in_turn((0, 2), (0, 3), (1, 2), (1, 3))
    data = with_pairs(results, monkeypatch, ends, r0q1=4 * 10**6, r2q1=4 * 10**6)
    advice = advice_of(data)
    assert advice.after["up"] == pytest.approx(4 / 3.5)
    facts, table = source_ports(data).blocks
    assert isinstance(facts, Facts)
    assert isinstance(table, Table)
    told = dict(facts.rows)
    before = advice.before
    assert told["busiest uplink over the mean (MMR)"] == (
        f"up {before['up']:.3f} now, 1.143 with the proposal; "
        f"down {before['down']:.3f} now, "
        "1.143 with the proposal"
    )
    listed = ", ".join(map(str, advice.source_ports))
    assert told["for the experiment"] == f"transport: {{source_ports: [{listed}]}}"
    assert told["remaining imbalance"].startswith("single flows are this large")
    assert [row[:3] for row in table.rows] == [
        (f"moe: {rank} - {peer}", "world, channel 0.0", str(SAME_PORT))
        for rank, peer in ((0, 2), (0, 3), (1, 2), (1, 3))
    ]
    assert [int(row[3]) for row in table.rows] == [pair[3] for pair in advice.pairs]


def test_an_even_proposal_leaves_nothing(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = in_turn((0, 2), (0, 3), (1, 2), (1, 3))
    facts, _ = source_ports(with_pairs(results, monkeypatch, ends)).blocks
    assert isinstance(facts, Facts)
    assert "remaining imbalance" not in dict(facts.rows)


@pytest.mark.parametrize(
    "change",
    [
        # The second of a port has no larger number than the first.
        {"qpn": 1 << SHARD_BITS},
        # A port whose queue pairs are at two processes.
        {"qpn": 2 << SHARD_BITS | 1},
    ],
)
def test_an_order_that_is_not_known_has_no_advice(
    results: RunResults, monkeypatch: pytest.MonkeyPatch, change: dict[str, int]
) -> None:
    first, second = in_turn((0, 2), (0, 3))
    data = with_pairs(results, monkeypatch, [first, {**second, **change}])
    assert found_in(data) == (
        "ports are divided among processes, or their order is unknown"
    )


def test_pairs_take_ports_in_the_order_of_groups_channels_and_ranks(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As they were made: by group, channel and ranks, each followed by that for its
    # grants, messages last.
    made = [
        ("world", 0, 0, 2), ("world", CREDIT_CHANNELS, 0, 2), ("world", 0, 1, 3),
        ("world", 1, 0, 2), ("ep", 0, 0, 2), ("p2p", 0, 0, 2),
    ]  # fmt: skip
    counts = dict.fromkeys(range(4), 0)
    ends = []
    for group, channel, rank, peer in made:
        (row,) = in_turn((rank, peer))
        for each, key in ((rank, "qpn"), (peer, "peer_qpn")):
            counts[each] += 1
            row[key] = counts[each] << SHARD_BITS
        ends.append({**row, "group": group, "channel": channel})
    shuffled = [ends[at] for at in (0, 5, 3, 2, 4, 1)]
    data = with_pairs(results, monkeypatch, shuffled)
    assert [pair[1] for pair in advice_of(data).pairs] == [
        f"{group}, channel {channel}.0" for group, channel, *_ in made
    ]


def test_bytes_of_pairs_that_share_messages_are_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = {**EXPERIMENT, "transport": {"queue_pairs": {"split": "even"}}}
    results = made_run(tmp_path, iterations=(), experiment=experiment)
    ends = [
        {**row, "index": index} for index, row in enumerate(in_turn((0, 2), (0, 2)))
    ]
    # All are recorded with the first.
    sent = {"r0q1": 2 * 10**6, "r2q1": 2 * 10**6, "r0q2": 0, "r2q2": 0}
    advice = advice_of(with_pairs(results, monkeypatch, ends, **sent))
    # One uplink of two at each leaf, and then both.
    assert advice.before == {"up": 2, "down": 2}
    assert advice.after == {"up": 1, "down": 1}


@pytest.mark.parametrize(
    ("count", "limit", "text"),
    [
        (0, 2048, "it has 0 queue pairs, but at most 2048 are supported"),
        (2, 1, "it has 2 queue pairs, but at most 1 are supported"),
    ],
)
def test_too_many_pairs_are_not_tried(
    results: RunResults,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    limit: int,
    text: str,
) -> None:
    monkeypatch.setattr(advice_module, "_MOST_PAIRS", limit)
    ends = in_turn((0, 2), (0, 3))[:count]
    # Each pair stands there twice, once for each of its ends.
    mirrored = [{**row, "rank": row["peer"], "peer": row["rank"]} for row in ends]
    data = with_pairs(results, monkeypatch, [*ends, *mirrored])
    assert found_in(data) == text


def test_a_limit_of_pairs_is_inclusive(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice_module, "_MOST_PAIRS", 4)
    ends = in_turn((0, 2), (0, 3), (1, 2), (1, 3))
    advice_of(with_pairs(results, monkeypatch, ends))


def test_without_a_topology_there_is_no_advice(tmp_path: Path) -> None:
    data = RunData(made_run(tmp_path, iterations=(), experiment={}))
    section = source_ports(data)
    assert section.text == "none are proposed: the topology is unknown."
