"""Shared paths of messages, compared with counting every nanosecond."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from chakram.summary.message_summary import SentMessage
from chakram.summary.shared_paths import SHARED_PATHS_TOLD, SharedPaths

HOPS = ("a", "b", "c", "d")
WAYS = st.lists(st.permutations(HOPS).map(lambda hops: tuple(hops[:2])), max_size=2)
PAIRS = st.sampled_from([(0, 1), (0, 2), (2, 3), (3, 1), (4, 5), (5, 4)])


@st.composite
def messages(draw: st.DrawFn) -> SentMessage:
    src, dst = draw(PAIRS)
    posted_ns = draw(st.integers(0, 20))
    return SentMessage(
        job=draw(st.sampled_from("xy")),
        src=src,
        dst=dst,
        size_bytes=1,
        posted_ns=posted_ns,
        acked_ns=posted_ns + draw(st.integers(0, 15)),
        ways=tuple(draw(WAYS)) or None,
    )


def hops_of(message: SentMessage) -> list[str]:
    return [hop for way in message.ways or () for hop in way]


@given(st.lists(messages(), min_size=1, max_size=12))
def test_shares_are_weighted_by_time_in_flight(sent: list[SentMessage]) -> None:
    pairs: dict[tuple[str, int, int], list[SentMessage]] = defaultdict(list)
    for each in sent:
        pairs[each.job, each.src, each.dst].append(each)
    shared_paths = SharedPaths(pairs)
    for pair, own in pairs.items():
        job, src, dst = pair
        taken_ns = sum(each.fct_ns for each in own if each.ways)
        met_ns: Counter[tuple[str, tuple[str, int, int]]] = Counter()
        for each in own:
            for now_ns in range(each.posted_ns, each.acked_ns):
                # Once for each other pair and port, however many messages it has.
                met_ns.update(
                    {
                        (hop, (other.job, other.src, other.dst)): 1
                        for other in sent
                        if other.posted_ns <= now_ns < other.acked_ns
                        and not (other.job == job and other.src == src)
                        and not (other.job == job and other.dst == dst)
                        for hop in hops_of(each)
                        if hop in hops_of(other)
                        and hop == next(h for h in hops_of(each) if h in hops_of(other))
                    }
                )
        told = shared_paths.of(pair)
        assert len(told) == min(len(met_ns), SHARED_PATHS_TOLD)
        assert [each.share for each in told] == [
            count / taken_ns for _, count in met_ns.most_common(SHARED_PATHS_TOLD)
        ]
        for each in told:
            where = each.at, (each.job, each.src, each.dst)
            assert each.share == met_ns[where] / taken_ns
