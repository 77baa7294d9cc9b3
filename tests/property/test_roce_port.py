"""Laws of the port: rate, fairness, priority of answers, accounting of delays."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.roce.burst import Burst
from chakram.roce.congestion.base import CongestionControl
from chakram.roce.congestion.fixed_rate import FixedRate
from chakram.roce.constants import NEVER, BurstKind
from chakram.roce.pacing import MADE_UP_NS, Line
from chakram.roce.port import PortEngine
from tests.virtual_wire import Pair, make_queue_pair

rates = st.integers(10**6, 4 * 10**11)


def busy_port(
    *,
    rate_bps: int | None,
    burst_bound_ns: int,
    max_burst_packets: int = 15,
    queue_pairs: int = 3,
    path_mtu: int = 1024,
    size_bytes: int = 10**7,
    saves_up: bool = False,
) -> PortEngine:
    """A port whose queue pairs always have more to send."""
    port = PortEngine(
        rate_bps=rate_bps,
        burst_bound_ns=burst_bound_ns,
        max_burst_packets=max_burst_packets,
        line=Line(
            rate_bps=rate_bps or 0, burst_bound_ns=burst_bound_ns, saves_up=saves_up
        ),
    )
    for qpn in range(queue_pairs):
        port.add_queue_pair(
            make_queue_pair(
                qpn,
                100 + qpn,
                path_mtu=path_mtu,
                window_bytes=10**12,
                retransmit_timeout_ns=0,
            )
        )
        port.post_send(qpn, 0, size_bytes, 0)
    return port


def departures(port: PortEngine, lags_ns: list[int]) -> list[tuple[int, Burst]]:
    """Drive a port that is served *lags_ns* later than it asks for."""
    now_ns, left = 0, []
    for lag_ns in lags_ns:
        now_ns = max(now_ns, port.next_wakeup_ns()) + lag_ns
        while (burst := port.next_burst(now_ns)) is not None:
            left.append((now_ns, burst))
            if len(left) > 4 * len(lags_ns):
                return left
    return left


@given(
    rate_bps=rates,
    burst_bound_ns=st.integers(0, 100_000),
    lags_ns=st.lists(st.integers(0, 200_000), min_size=1, max_size=60),
    saves_up=st.booleans(),
)
def test_a_port_never_exceeds_its_rate(
    rate_bps: int, burst_bound_ns: int, lags_ns: list[int], saves_up: bool
) -> None:
    port = busy_port(
        rate_bps=rate_bps, burst_bound_ns=burst_bound_ns, saves_up=saves_up
    )
    sent = departures(port, lags_ns)

    for start in range(len(sent)):
        total_bytes = 0
        for time_ns, burst in sent[start:]:
            # What left before this burst fits the time, the bound and the first burst.
            elapsed_ns = time_ns - sent[start][0] + burst_bound_ns
            allowed_bits = elapsed_ns * rate_bps / 1e9
            assert (total_bytes - sent[start][1].wire_bytes) * 8 <= allowed_bits + 8
            total_bytes += burst.wire_bytes


@given(
    rate_bps=rates,
    burst_bound_ns=st.integers(0, 100_000),
    lags_ns=st.lists(st.integers(0, 400_000), min_size=1, max_size=40),
)
def test_time_is_either_used_or_accounted_for(
    rate_bps: int, burst_bound_ns: int, lags_ns: list[int]
) -> None:
    port = busy_port(rate_bps=rate_bps, burst_bound_ns=burst_bound_ns)
    sent = departures(port, lags_ns)

    if not sent:
        return
    statistics = port.statistics()
    # The line is busy from the start on, but for what the generator lost.
    bits = statistics.bytes_sent * 8
    free_ns = bits * 10**9 // rate_bps + statistics.generator_wait_ns
    wakeup_ns = port.next_wakeup_ns()
    assert abs(wakeup_ns - free_ns) <= 1
    if max(lags_ns) <= burst_bound_ns and all(
        later - earlier <= burst_bound_ns for (earlier, _), (later, _) in pairwise(sent)
    ):
        assert statistics.generator_wait_ns == 0


@given(
    queue_pairs=st.integers(2, 8),
    max_burst_packets=st.integers(1, 15),
    bursts=st.integers(1, 150),
    path_mtu=st.sampled_from([256, 1024, 4096]),
    first_sizes=st.lists(st.integers(0, 9_000), max_size=8),
)
def test_backlogged_queue_pairs_get_equal_shares(
    queue_pairs: int,
    max_burst_packets: int,
    bursts: int,
    path_mtu: int,
    first_sizes: list[int],
) -> None:
    port = busy_port(
        rate_bps=None,
        burst_bound_ns=0,
        max_burst_packets=max_burst_packets,
        queue_pairs=queue_pairs,
        path_mtu=path_mtu,
        size_bytes=0,
    )
    for qpn in range(queue_pairs):
        for size_bytes in [*first_sizes[qpn:], 10**8]:
            port.post_send(qpn, 1, size_bytes, 0)
    shares = dict.fromkeys(range(queue_pairs), 0)
    quantum_bytes = max_burst_packets * (path_mtu + 58 + 20)

    for _ in range(bursts):
        burst = port.next_burst(0)
        assert burst is not None
        shares[burst.source_qpn] += burst.wire_bytes
        assert max(shares.values()) - min(shares.values()) <= 2 * quantum_bytes


@given(
    rate_bps=st.one_of(st.integers(10**6, 10**9), st.integers(10**9, 10**11)),
    burst_ns=st.integers(0, 50_000),
    burst_bound_ns=st.integers(0, 50_000),
    size_bytes=st.integers(10_000, 200_000),
    lags_ns=st.lists(st.integers(0, 400_000), max_size=20),
)
def test_a_queue_pair_never_exceeds_its_rate(
    rate_bps: int,
    burst_ns: int,
    burst_bound_ns: int,
    size_bytes: int,
    lags_ns: list[int],
) -> None:
    """However late it is served, it makes up for its bound, and no more."""
    port = PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=15)
    port.add_queue_pair(
        make_queue_pair(
            congestion_control=FixedRate(rate_bps=rate_bps),
            burst_ns=burst_ns,
            burst_bound_ns=burst_bound_ns,
            window_bytes=10**9,
            retransmit_timeout_ns=0,
        )
    )
    port.post_send(0x11, 0, size_bytes, 0)
    lags = iter(lags_ns)
    # What has left drains at the rate from here: rate x (T + bound) and one burst in
    # every time T means that each burst finds no more in it than the bound.
    level_ns, now_ns, last_ns = 0.0, 0, 0
    while (wakeup_ns := port.next_wakeup_ns()) != NEVER:
        now_ns = max(now_ns, wakeup_ns) + next(lags, 0)
        while (burst := port.next_burst(now_ns)) is not None:
            bound_bits = rate_bps * burst_ns / 1e9
            # RETH, immediate and pad come on top.
            assert burst.count == 1 or (burst.wire_bytes - 23) * 8 <= bound_bits
            level_ns = max(0.0, level_ns - (now_ns - last_ns))
            assert level_ns <= burst_bound_ns + 1
            level_ns += burst.wire_bytes * 8e9 / rate_bps
            last_ns = now_ns


@given(
    rate_bps=st.integers(10**6, 10**10),
    window_bytes=st.sampled_from((16 << 10, 10**9)),
    messages=st.lists(
        st.tuples(st.integers(0, 5_000_000), st.integers(1, 60_000)), max_size=12
    ),
)
def test_idle_queue_pair_accumulates_no_credit(
    rate_bps: int, window_bytes: int, messages: list[tuple[int, int]]
) -> None:
    """A port makes up for a delay of a millisecond, but not for a pause of one."""
    left, right = (
        PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=4)
        for _ in range(2)
    )
    left.add_queue_pair(
        make_queue_pair(
            congestion_control=FixedRate(rate_bps=rate_bps),
            burst_bound_ns=1_000_000,
            window_bytes=window_bytes,
            retransmit_timeout_ns=0,
        )
    )
    right.add_queue_pair(make_queue_pair(0x12, 0x11))
    pair = Pair(left, right, delay_ns=20_000)
    for pause_ns, size_bytes in messages:
        pair.clock.advance_to(pair.now_ns + pause_ns)
        pair.post(0, size_bytes)
        pair.run()

    sent = [
        (departure.time_ns, departure.burst.wire_bytes)
        for departure in pair.left.departures
        if departure.burst.kind == BurstKind.DATA
    ]
    for start, (began_ns, _) in enumerate(sent):
        total_bytes = 0
        for time_ns, wire_bytes in sent[start:]:
            total_bytes += wire_bytes
            allowed_bits = (time_ns - began_ns) * rate_bps / 1e9
            assert (total_bytes - wire_bytes) * 8 <= allowed_bits + 8


@given(
    arrivals=st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=40
    ),
    lags_ns=st.lists(st.integers(0, 30_000), max_size=40),
    max_burst_packets=st.integers(1, 4),
)
def test_no_data_leaves_while_an_answer_is_due(
    arrivals: list[tuple[int, bool, bool]], lags_ns: list[int], max_burst_packets: int
) -> None:
    """Answers of queue pairs without data, and of those that are far from their turn.

    An arrival is for a queue pair, comes in or out of order, and is marked or not.
    """
    port = PortEngine(
        rate_bps=10**9, burst_bound_ns=5_000, max_burst_packets=max_burst_packets
    )
    peers = []
    for qpn in range(4):
        pairs = [
            make_queue_pair(
                *((qpn, 100 + qpn) if end else (100 + qpn, qpn)),
                window_bytes=10**9,
                ack_interval_packets=1,
                cnp_interval_ns=0,
                retransmit_timeout_ns=0,
            )
            for end in (1, 0)
        ]
        port.add_queue_pair(pairs[0])
        peers.append(pairs[1])
        peers[qpn].post_send(0, 10**7, 0)
        if qpn:
            port.post_send(qpn, 0, 10**7, 0)
    lags = iter(lags_ns)
    now_ns = 0
    for qpn, is_in_order, is_marked in arrivals:
        now_ns = max(now_ns, port.next_wakeup_ns()) + next(lags, 0)
        if not is_in_order:
            peers[qpn].next_burst(now_ns, 1)  # lost on the way
        arriving = peers[qpn].next_burst(now_ns, 1)
        assert arriving is not None
        port.receive_burst(arriving, now_ns, ce=int(is_marked))
        pairs = [port.queue_pair(each) for each in range(4)]
        owed = {pair.qpn for pair in pairs if pair.make_answer() is not None}
        while (burst := port.next_burst(now_ns)) is not None:
            assert (burst.kind == BurstKind.DATA) == (not owed)
            owed = {pair.qpn for pair in pairs if pair.make_answer() is not None}


class Cut(CongestionControl):
    """A rate that the network has forced on a queue pair."""

    def __init__(self, rate_bps: int) -> None:
        super().__init__()
        self.rate_bps = rate_bps


@given(
    rates_bps=st.lists(st.integers(10**7, 2 * 10**9), min_size=1, max_size=6),
    port_bps=st.sampled_from([None, 10**9, 10**10]),
    packets=st.integers(1, 8),
    lags_ns=st.lists(st.integers(0, 400_000), max_size=30),
)
@settings(deadline=None)
def test_a_slowed_queue_pair_makes_up_only_for_the_data_plane(
    rates_bps: list[int], port_bps: int | None, packets: int, lags_ns: list[int]
) -> None:
    """Waiting for its own port is not being late, and in virtual time nothing is."""
    port = PortEngine(
        rate_bps=port_bps, burst_bound_ns=1_000_000, max_burst_packets=packets
    )
    for number, rate_bps in enumerate(rates_bps):
        port.add_queue_pair(
            make_queue_pair(
                0x100 + number,
                0x200 + number,
                congestion_control=Cut(rate_bps),
                burst_ns=15_000,
                burst_bound_ns=1_000_000,
                window_bytes=10**9,
                retransmit_timeout_ns=0,
            )
        )
        port.post_send(0x100 + number, number, 100_000, 0)
    lags = iter(lags_ns)
    most_ns = MADE_UP_NS if any(lags_ns) else 0
    # By queue pair: what drains at its rate, and since when.
    levels: dict[int, tuple[float, int]] = {}
    now_ns = 0
    while (wakeup_ns := port.next_wakeup_ns()) != NEVER:
        now_ns = max(now_ns, wakeup_ns) + next(lags, 0)
        while (burst := port.next_burst(now_ns)) is not None:
            rate_bps = rates_bps[burst.source_qpn - 0x100]
            level_ns, last_ns = levels.get(burst.source_qpn, (0.0, now_ns))
            level_ns = max(0.0, level_ns - (now_ns - last_ns))
            assert level_ns <= most_ns + 2
            level_ns += burst.wire_bytes * 8e9 / rate_bps
            levels[burst.source_qpn] = level_ns, now_ns
