"""Synthetic patterns of messages and collectives."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from chakram.chakra.sets.trace_set import TraceSet
from chakram.foundation.errors import ConfigError
from chakram.synth.patterns import derangement, drawn_size
from chakram.synth.settings.patterns import SIZE_DISTRIBUTIONS
from chakram.trace.node import NodeKind
from tests.random_traces import (
    mean_size,
)
from tests.unit.synth.making import graph, make, names_before, traffic


def messages(made: TraceSet) -> Counter[tuple[int, int | None, int]]:
    return Counter(
        (graph.rank, node.peer, node.comm_bytes)
        for graph in made.graphs.values()
        for node in graph.nodes()
        if node.kind is NodeKind.SEND
    )


def test_in_an_incast_all_senders_begin_together() -> None:
    made = make("incast", ranks=6, fan_in=3, receiver=4, size="8KiB", repeats=2)
    assert messages(made) == {(5, 4, 8192): 2, (0, 4, 8192): 2, (1, 4, 8192): 2}
    for rank in (5, 0, 1):
        before = names_before(made.graphs[rank], "repeat1.send4")
        assert before == {"repeat0.send4", "repeat1.barrier"}


def test_incast_receiver_can_rotate() -> None:
    made = make("incast", ranks=3, repeats=4, rotate=True, barrier=False)
    assert Counter(peer for _, peer, _ in messages(made).elements()) == {
        0: 4,
        1: 2,
        2: 2,
    }


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_in_a_permutation_all_send_and_all_receive(ranks: int) -> None:
    made = make("permutation", ranks=ranks, repeats=5, barrier=False)
    found = Counter(messages(made).elements())
    assert Counter(source for source, _, _ in found.elements()) == dict.fromkeys(
        range(ranks), 5
    )
    assert Counter(peer for _, peer, _ in found.elements()) == dict.fromkeys(
        range(ranks), 5
    )


def test_permutation_is_redrawn_or_kept() -> None:
    def repeats(**settings: Any) -> list[tuple[int | None, ...]]:
        made = make("permutation", ranks=8, repeats=6, barrier=False, **settings)
        rows = [
            [n.peer for n in made.graphs[rank].nodes() if n.kind is NodeKind.SEND]
            for rank in range(8)
        ]
        return [tuple(row[number] for row in rows) for number in range(6)]

    assert len(set(repeats())) > 1
    assert len(set(repeats(keep=True))) == 1
    assert repeats(seed=1) == repeats(seed=1)
    assert repeats(seed=1) != repeats(seed=2)
    assert set(repeats(order="shift", shift=3)) == {(3, 4, 5, 6, 7, 0, 1, 2)}


def test_every_derangement_is_as_likely() -> None:
    draw = random.Random(5)
    seen = Counter(tuple(derangement(4, draw)) for _ in range(9_000))
    assert len(seen) == 9
    assert all(850 < count < 1150 for count in seen.values())


def test_all_to_all_and_one_to_all_meet_everybody() -> None:
    made = make("all_to_all", ranks=4, size="4KiB")
    assert messages(made) == {
        (a, b, 4096): 1 for a in range(4) for b in range(4) if a != b
    }
    made = make("one_to_all", ranks=4, sender=2)
    assert {pair[:2] for pair in messages(made)} == {(2, 0), (2, 1), (2, 3)}


def test_messages_may_go_one_at_a_time() -> None:
    together = graph("all_to_all", ranks=3)
    assert names_before(together, "repeat0.send2") == set()
    in_turn = graph("all_to_all", ranks=3, one_at_a_time=True)
    assert names_before(in_turn, "repeat0.send2") == {"repeat0.send1"}


def test_random_pairs_send_as_many_messages_and_none_to_themselves() -> None:
    made = make("random_pairs", ranks=5, messages=20)
    found = Counter(messages(made).elements())
    assert Counter(source for source, _, _ in found.elements()) == dict.fromkeys(
        range(5), 20
    )
    assert all(source != peer for source, peer, _ in found)
    assert {size for _, _, size in found} == {1 << 20}


@pytest.mark.parametrize(
    ("settings", "mean"),
    [
        ({"sizes": "uniform", "size": "1MB"}, 1e6),
        ({"sizes": "log_normal", "size": "1MB", "sigma": 0.5}, 1e6),
        ({"sizes": "web_search"}, mean_size(SIZE_DISTRIBUTIONS["web_search"])),
        ({"sizes": "hadoop"}, mean_size(SIZE_DISTRIBUTIONS["hadoop"])),
    ],
)
def test_sizes_have_the_mean_of_their_distribution(
    settings: dict[str, Any], mean: float
) -> None:
    made = graph("random_pairs", ranks=2, messages=3_000, **settings)
    sizes = [node.comm_bytes for node in made.nodes()]
    assert sum(sizes) / len(sizes) == pytest.approx(mean, rel=0.1)
    assert min(sizes) >= 1


def test_a_distribution_has_its_points() -> None:
    draw = random.Random(1)
    points = SIZE_DISTRIBUTIONS["web_search"]
    sizes = [drawn_size(points, draw) for _ in range(20_000)]
    for limit, percent in points[1:]:
        share = sum(size <= limit for size in sizes) / len(sizes)
        assert share == pytest.approx(percent / 100, abs=0.02)


def test_gaps_between_messages_make_a_load() -> None:
    made = graph("random_pairs", ranks=2, messages=2_000, mean_gap="100us")
    gaps = [n.duration_ns for n in made.nodes() if n.name.endswith(".gap")]
    assert sum(gaps) / 2_000 == pytest.approx(100_000, rel=0.1)
    # A message goes when its time has come, whether or not the last one is done.
    sends = [n.position for n in made.nodes() if n.kind is NodeKind.SEND]
    kinds = {made.kind(d) for p in sends for d in made.dependencies(p)}
    assert kinds == {NodeKind.COMPUTE}


STREAMS = [
    {"op": "all_reduce", "size": "4MiB", "count": 3, "members": 4, "stride": 2},
    {"op": "all_to_all", "size": "1MiB", "count": 5, "gap": "1ms", "start": "2ms"},
]


def test_streams_overlap_on_separate_groups() -> None:
    made = make("collectives", ranks=8, streams=STREAMS)
    assert {name: group.ranks for name, group in made.groups.items()} == {
        "1": (0, 2, 4, 6),
        "2": (1, 3, 5, 7),
        "3": tuple(range(8)),
        "world": tuple(range(8)),
    }
    assert traffic("collectives", ranks=8, streams=STREAMS) == {
        ("all_reduce", 4 << 20, "stream 0"): 3,
        ("all_to_all", 1 << 20, "stream 1"): 5,
    }
    before = names_before(made.graphs[0], "stream1.all_to_all4")
    assert not any("stream0" in name for name in before)
    assert "stream1.all_to_all0.gap" in before


def test_one_stream_needs_no_list() -> None:
    (name,) = traffic("collectives", ranks=2, streams={"op": "broadcast"})
    assert name == ("broadcast", 1 << 20, "stream 0")


def test_sizes_of_a_stream_are_used_in_order() -> None:
    stream = {"op": "reduce", "sizes": ["1KiB", "4KiB"], "count": 2, "root": 2}
    made = make("collectives", ranks=4, streams=[{**stream, "barrier": True}])
    for each in made.graphs.values():
        nodes = list(each.nodes())
        assert [(str(node.op), node.comm_bytes, node.root) for node in nodes] == [
            ("barrier", 0, None),
            ("reduce", 1024, 2),
            ("barrier", 0, None),
            ("reduce", 1024, 2),
            ("barrier", 0, None),
            ("reduce", 4096, 2),
            ("barrier", 0, None),
            ("reduce", 4096, 2),
        ]
        assert [node.dependencies for node in nodes[1:]] == [
            (place,) for place in range(7)
        ]


def test_send_recv_goes_round_the_group() -> None:
    stream = {"op": "send_recv", "size": "1KiB", "count": 3, "members": 3}
    found = [traffic("collectives", rank=2, ranks=6, streams=stream)]
    found.append(traffic("collectives", rank=3, ranks=6, streams=stream))
    assert found == [
        {("send", 1024, "0"): 3, ("receive", 1024, "1"): 3},
        {("send", 1024, "4"): 3, ("receive", 1024, "5"): 3},
    ]


def test_a_root_is_in_its_group() -> None:
    stream = {"op": "gather", "members": 2, "root": 2}
    with pytest.raises(ConfigError, match="there is no position 2 in a group of 2"):
        make("collectives", ranks=4, streams=stream)
