"""Bound and ceiling equal hand-computed closed forms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.collectives.algorithms import AUTO, algorithm
from chakram.collectives.ops import CollectiveOp
from chakram.predict.any_algorithm_bound import ceiling_ns
from chakram.predict.bound import ScheduleBounds
from chakram.predict.fabric_model import FabricModel
from chakram.predict.topology_to_fabric_model import fabric_model
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.single_bounds import bound_ns

GBPS = 10**9
DELAY_NS = 1_000
ACK_NS = 62 * 8  # at 1 Gbit/s, per link
MTU = 4096


def star(nranks: int, *, rate: int | None = GBPS, ranks_per_port: int = 1):
    """Return ports on one switch, two links of 1 us between any two."""
    return fabric_model(
        single_switch(nranks, rate, host_delay_ns=DELAY_NS),
        {rank: f"h{rank // ranks_per_port}" for rank in range(nranks)},
    )


def leaves(*, hosts_per_leaf: int, spines: int, uplink: int | None):
    """Return two leaves of 1 Gbit/s ports; *uplink* is the rate of each uplink."""
    return fabric_model(
        clos(2, spines, hosts_per_leaf, GBPS, uplink),
        {rank: f"h{rank}" for rank in range(2 * hosts_per_leaf)},
    )


def bound(op: CollectiveOp, size: int, fabric: FabricModel, **more) -> int:
    nranks = len(fabric.port_of)
    name = more.pop("name", AUTO)
    ranks = more.pop("ranks", range(nranks))
    return bound_ns(
        algorithm(op, name),
        ranks=tuple(ranks),
        root=more.pop("root", 0),
        input_bytes=size,
        fabric=fabric,
        path_mtu=MTU,
        **more,
    )


def ceiling(op: CollectiveOp, size: int, fabric: FabricModel, **more) -> int | None:
    nranks = len(fabric.port_of)
    return ceiling_ns(
        op,
        ranks=tuple(range(nranks)),
        root=more.pop("root", 0),
        input_bytes=size,
        fabric=fabric,
        path_mtu=MTU,
        **more,
    )


def test_ring_all_reduce_of_16_mib() -> None:
    # 2 MiB a step: 512 packets of 58 bytes of headers, RETH and immediate once; the
    # first packet is stored at the switch: 4096 + 58 + 16 bytes.
    step = 8 * (2**21 + 512 * 58 + 20) + 8 * (4096 + 58 + 16) + 2 * DELAY_NS
    way_back = 2 * DELAY_NS + 2 * ACK_NS
    assert bound(CollectiveOp.ALL_REDUCE, 2**24, star(8)) == 14 * step + way_back


def test_ring_all_reduce_of_16_mib_has_a_ceiling_just_below() -> None:
    payload = 2 * 7 * 2**24
    packets = payload // MTU
    bytes_of_eight_ports = payload + packets * 58 + 20
    found = ceiling(CollectiveOp.ALL_REDUCE, 2**24, star(8))
    assert found == bytes_of_eight_ports  # 8 bits a byte, 8 ports of 1 bit/ns
    assert found < bound(CollectiveOp.ALL_REDUCE, 2**24, star(8)) < 1.01 * found


def test_direct_all_to_all_is_bound_by_the_port_and_has_one_latency() -> None:
    part = 2**20 // 4
    packet = 4096 + 58 + 16
    wire = part + part // 4096 * 58 + 20
    assert bound(CollectiveOp.ALL_TO_ALL, 2**20, star(4)) == (
        3 * 8 * wire + 8 * packet + 2 * DELAY_NS + 2 * DELAY_NS + 2 * ACK_NS
    )


def test_a_gather_is_bound_by_the_port_of_its_root() -> None:
    wire = 4096 + 58 + 20
    assert bound(CollectiveOp.GATHER, 4096, star(5), root=2) == (
        4 * 8 * wire + 8 * wire + 4 * DELAY_NS + 2 * ACK_NS
    )


def test_a_broadcast_takes_the_longest_chain_of_its_tree() -> None:
    wire = 1000 + 58 + 20
    hop = 2 * 8 * wire + 2 * DELAY_NS
    # Of 4 ranks: 0 -> 1, then 1 -> 3 while 0 -> 2.
    assert bound(CollectiveOp.BROADCAST, 1000, star(4)) == (
        2 * hop + 2 * DELAY_NS + 2 * ACK_NS
    )


def test_a_barrier_costs_latency() -> None:
    hop = 2 * 8 * 78 + 2 * DELAY_NS
    assert bound(CollectiveOp.BARRIER, 0, star(8)) == (
        3 * hop + 2 * DELAY_NS + 2 * ACK_NS
    )


def test_sends_save_the_rdma_header() -> None:
    fabric = star(2)
    write = bound(CollectiveOp.SEND_RECV, 100, fabric)
    send = bound(CollectiveOp.SEND_RECV, 100, fabric, verb="send")
    assert write - send == 2 * 8 * 16


def test_ranks_of_one_port_share_its_rate_without_latency() -> None:
    wire = 4096 + 58 + 20
    shared = star(4, ranks_per_port=2)
    # Ranks 0, 1 | 2, 3: each port carries four of the messages across.
    assert bound(CollectiveOp.ALL_TO_ALL, 4 * 4096, shared) == (
        4 * 8 * wire + 8 * wire + 4 * DELAY_NS + 2 * ACK_NS
    )
    assert bound(CollectiveOp.ALL_TO_ALL, 4096, star(4, ranks_per_port=4)) == 0


def test_uplinks_bound_their_total_traffic() -> None:
    size = 4 * 2**20
    balanced = leaves(hosts_per_leaf=2, spines=2, uplink=GBPS)
    narrow = leaves(hosts_per_leaf=2, spines=1, uplink=GBPS // 2)
    part = 2**20 + 256 * 58 + 20
    # Four of the messages of a leaf's two ranks leave it, at half a bit per ns.
    found = bound(CollectiveOp.ALL_TO_ALL, size, narrow)
    assert 4 * 8 * part * 2 < found < 1.2 * 4 * 8 * part * 2
    assert bound(CollectiveOp.ALL_TO_ALL, size, balanced) < 1.02 * 3 * 8 * part


def test_a_slow_link_on_the_path_bounds_a_single_message() -> None:
    fabric = leaves(hosts_per_leaf=1, spines=1, uplink=GBPS // 10)
    wire = 1000 + 58 + 20
    bounds = ScheduleBounds(fabric, path_mtu=MTU)
    assert bounds.message_ns(src=0, dst=1, size_bytes=1000) == (
        2 * 8 * wire + 2 * 80 * wire + 2 * 8 * 62 + 2 * 80 * 62
    )


def test_a_message_to_a_rank_of_the_same_port_takes_no_time() -> None:
    fabric = star(2, ranks_per_port=2)
    assert (
        ScheduleBounds(fabric, path_mtu=MTU).message_ns(src=0, dst=1, size_bytes=9) == 0
    )


def test_without_rates_there_is_only_latency() -> None:
    fabric = star(4, rate=None)
    assert bound(CollectiveOp.ALL_REDUCE, 2**20, fabric) == 6 * 2_000 + 2_000
    for op in CollectiveOp:
        assert ceiling(op, 2**20, fabric) is None


@pytest.mark.parametrize(
    ("op", "payload"),
    [
        (CollectiveOp.ALL_GATHER, 3 * 4096),
        (CollectiveOp.REDUCE_SCATTER, 3 * 1024),
        (CollectiveOp.ALL_TO_ALL, 3 * 1024),
        (CollectiveOp.BROADCAST, 4096),
        (CollectiveOp.REDUCE, 4096),
        (CollectiveOp.GATHER, 3 * 4096),
        (CollectiveOp.SCATTER, 3 * 1024),
        (CollectiveOp.SEND_RECV, 4096),
    ],
)
def test_ceilings_of_four_ranks_on_four_ports(op: CollectiveOp, payload: int) -> None:
    packets = -(-payload // MTU)
    assert ceiling(op, 4096, star(4)) == 8 * (payload + packets * 58 + 20)


@pytest.mark.parametrize(
    ("op", "payload"),
    [
        (CollectiveOp.ALL_REDUCE, 4096),
        (CollectiveOp.ALL_GATHER, 2 * 4096),
        (CollectiveOp.ALL_TO_ALL, 4096),
        (CollectiveOp.GATHER, 2 * 4096),
        (CollectiveOp.SCATTER, 2 * 1024),
        (CollectiveOp.SEND_RECV, 4096),
    ],
)
def test_ceilings_of_four_ranks_on_two_ports(op: CollectiveOp, payload: int) -> None:
    packets = -(-payload // MTU)
    fabric = star(4, ranks_per_port=2)
    assert ceiling(op, 4096, fabric) == 8 * (payload + packets * 58 + 20)


def test_nothing_has_no_ceiling() -> None:
    assert ceiling(CollectiveOp.BARRIER, 0, star(4)) is None
    assert ceiling(CollectiveOp.ALL_REDUCE, 0, star(4)) is None
    assert ceiling(CollectiveOp.ALL_REDUCE, 9, star(4, ranks_per_port=4)) is None


@pytest.mark.parametrize("op", CollectiveOp)
@pytest.mark.parametrize("nranks", [2, 3, 8])
@pytest.mark.parametrize("ranks_per_port", [1, 2])
@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_no_bound_is_below_its_ceiling(
    op: CollectiveOp, nranks: int, ranks_per_port: int, size: int
) -> None:
    fabric = star(nranks, ranks_per_port=ranks_per_port)
    assert (ceiling(op, size, fabric) or 0) <= bound(op, size, fabric)


def test_an_uneven_all_to_all_is_bounded_by_its_busiest_port() -> None:
    fabric = star(3)
    # Position 1 sends most; what position 2 keeps crosses no port.
    matrix = ((7, 1_000, 0), (50_000, 9, 50_000), (0, 0, 900_000))
    least = ceiling(CollectiveOp.ALL_TO_ALL_V, 0, fabric, matrix=matrix)
    assert least == 8 * (100_000 + -(-100_000 // MTU) * 58 + 20)
    for name in ("direct", "pairwise"):
        found = bound(CollectiveOp.ALL_TO_ALL_V, 0, fabric, name=name, matrix=matrix)
        assert least < found < 1.1 * least


def test_even_splits_have_the_times_of_an_all_to_all() -> None:
    fabric = star(4)
    matrix = ((2**18,) * 4,) * 4
    for name in ("direct", "pairwise"):
        uneven = bound(CollectiveOp.ALL_TO_ALL_V, 0, fabric, name=name, matrix=matrix)
        assert uneven == bound(CollectiveOp.ALL_TO_ALL, 2**20, fabric, name=name)
    assert ceiling(CollectiveOp.ALL_TO_ALL_V, 0, fabric, matrix=matrix) == ceiling(
        CollectiveOp.ALL_TO_ALL, 2**20, fabric
    )


def test_forwarded_data_waits_for_all_arrivals_through_the_port() -> None:
    # A tree of 4: ranks 1 and 2 send to 0, which has them one after the other, or 3 to
    # 1 and then 1 to 0 beside 2; then the same back.
    wire = 8 * (4096 + 58 + 20)
    found = bound(CollectiveOp.REDUCE, 4096, star(4), name="tree")
    assert found == 2 * (2 * wire + 2 * DELAY_NS) + 2 * DELAY_NS + 2 * ACK_NS


def test_messages_within_a_host_take_their_bytes_one_after_the_other() -> None:
    fabric = replace(star(2, ranks_per_port=2), local_bps={(0, 1): GBPS, (1, 0): GBPS})
    how = "ring(chunks=8)"
    assert bound(CollectiveOp.BROADCAST, 8000, fabric, name=how) == 8 * 8000


def test_of_several_paths_the_shortest_and_the_fastest_bound() -> None:
    # Parts of a message may go along any of four uplinks: together they are no limit.
    fabric = leaves(hosts_per_leaf=1, spines=4, uplink=GBPS // 4)
    wire = 2**20 + 256 * 58 + 20
    whole = ScheduleBounds(fabric, path_mtu=MTU)
    parts = ScheduleBounds(fabric, path_mtu=MTU, parts=4)
    assert whole.message_ns(src=0, dst=1, size_bytes=2**20) > 4 * 8 * wire
    assert 8 * wire < parts.message_ns(src=0, dst=1, size_bytes=2**20) < 8.1 * wire


@pytest.mark.parametrize(
    ("op", "payload"),
    [
        # Hosts of two ports each: two ranks of four to either side.
        (CollectiveOp.ALL_TO_ALL, 2 * 2 * 1024),
        (CollectiveOp.ALL_GATHER, 2 * 4096),
        (CollectiveOp.BROADCAST, 4096),
        (CollectiveOp.SEND_RECV, 4096),
    ],
)
def test_ports_of_a_host_whose_messages_stay_within_it_share_its_ceiling(
    op: CollectiveOp, payload: int
) -> None:
    pairs = [(0, 1), (1, 0), (2, 3), (3, 2)]
    fabric = replace(star(4), local_bps=dict.fromkeys(pairs, 0))
    packets = -(-payload // MTU)
    found = ceiling(op, 4096, fabric)
    assert found == 8 * (payload + packets * 58 + 20) // 2
    assert found <= bound(op, 4096, fabric)
    alone = replace(star(4), local_bps=dict.fromkeys([(0, 1), (1, 2), (2, 3)], 0))
    assert ceiling(op, 4096, alone) is None


def test_groups_on_equal_paths_share_a_computation() -> None:
    bounds = ScheduleBounds(
        leaves(hosts_per_leaf=4, spines=2, uplink=GBPS), path_mtu=MTU
    )
    how = algorithm(CollectiveOp.ALL_REDUCE, "ring")

    def time_ns(ranks: tuple[int, ...]) -> int:
        return bounds.collective_ns(how, ranks=ranks, root=0, input_bytes=10**6)

    near, far = time_ns((0, 1)), time_ns((0, 4))
    assert near < far
    assert (time_ns((6, 5)), time_ns((3, 7))) == (near, far)
    assert len(bounds._shapes) == 2
