"""Laws of receiver credits."""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm_names
from chakram.collectives.groups import world_group
from chakram.collectives.ops import CollectiveOp
from chakram.plan.plan import RunSettings
from chakram.plan.queue_pairs import CREDIT_CHANNELS
from chakram.records.row_layout import RecordRows
from chakram.replay.rank import Replay
from chakram.replay.rank_progress import Flow
from chakram.roce.events import MessageReceived, SendCompleted
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import collective, compute, make_plan, program

if TYPE_CHECKING:
    from chakram.plan.plan import Plan
    from chakram.program.operations import Operation

EVERY = [
    (op, name)
    for op in CollectiveOp
    if op != CollectiveOp.ALL_TO_ALL_V
    for name in algorithm_names(op)
]


class World:
    """Replays with queue pairs that deliver in order, and in any order among them.

    Attributes:
        most_under_way: Messages of one queue pair that were not granted, at most.
        grants: How many grants there were.
    """

    def __init__(self, plan: Plan, seed: int) -> None:
        self._random = random.Random(seed)
        self._ends = {
            (rank.port, pair.qpn): (rank.number, pair)
            for rank in plan.ranks()
            for pair in rank.queue_pairs
        }
        agent = plan.agents[0]
        self._replays = [
            Replay(
                plan=rank,
                settings=agent.settings,
                rank_numbers=agent.numbers(),
                records=RecordRows(),
            )
            for rank in plan.ranks()
        ]
        self._port_of = {rank.number: rank.port for rank in plan.ranks()}
        self._under_way: dict[tuple[int, int], deque[Flow]] = {}
        self._not_granted: Counter[tuple[int, str, int, int]] = Counter()
        self.most_under_way = 0
        self.grants = 0

    def run(self) -> bool:
        """Run until nothing happens any more; return whether all ranks are done."""
        now_ns = 0
        for replay in self._replays:
            replay.arm(0)
        while True:
            now_ns += 1
            for number, replay in enumerate(self._replays):
                if replay.next_timer_ns() <= now_ns:
                    replay.handle_timers(now_ns)
                self._take_posts(number)
            waiting = [link for link, queue in self._under_way.items() if queue]
            timers = [replay.next_timer_ns() for replay in self._replays]
            if waiting:
                self._deliver(self._random.choice(waiting), now_ns)
            elif min(timers) < 1 << 62:
                now_ns = max(now_ns, min(timers))
            else:
                return all(replay.finished() for replay in self._replays)

    def _take_posts(self, number: int) -> None:
        while (post := self._replays[number].next_post()) is not None:
            link = (self._port_of[number], post.pair.qpn)
            self._under_way.setdefault(link, deque()).append(post)
            _, pair = self._ends[link]
            if pair.channel < CREDIT_CHANNELS:
                key = (number, pair.group, pair.channel, pair.peer_rank)
                self._not_granted[key] += 1
                self.most_under_way = max(self.most_under_way, self._not_granted[key])

    def _deliver(self, link: tuple[int, int], now_ns: int) -> None:
        flow = self._under_way[link].popleft()
        immediate, size = flow.immediate, flow.size_bytes
        number, pair = self._ends[link]
        other, _ = self._ends[pair.remote_port, pair.remote_qpn]
        if pair.channel >= CREDIT_CHANNELS:
            self.grants += 1
            channel = pair.channel - CREDIT_CHANNELS
            self._not_granted[other, pair.group, channel, number] -= 1
        self._replays[other].message_received(
            self._replays[other].pairs[pair.remote_qpn],
            MessageReceived(immediate, size, 1, 0, now_ns, now_ns),
            now_ns,
        )
        self._take_posts(other)
        self._replays[number].message_acknowledged(
            flow,
            SendCompleted(immediate, size, now_ns, now_ns, now_ns, 1, 0, 0, None, 0),
            now_ns,
        )


@given(
    chosen=st.lists(st.sampled_from(EVERY), min_size=1, max_size=3),
    nranks=st.integers(2, 6),
    credits=st.integers(1, 8),
    late=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
def test_credits_never_deadlock_and_are_never_overdrawn(
    chosen: list[tuple[CollectiveOp, str]],
    nranks: int,
    credits: int,
    late: int,
    seed: int,
) -> None:
    world = world_group(nranks)
    settings = RunSettings(warmup=0, measured=2, sync="free", credits=credits)

    def rows(rank: int) -> list[Operation]:
        # Ranks reach the first collective at different times.
        made: list[Operation] = [compute(1 + 50 * ((rank * 7 + late) % nranks))]
        for number, (op, name) in enumerate(chosen):
            made.append(
                collective(op, 4096, number=number, algorithm=name, after=[number])
            )
        return made

    plan = make_plan(
        [program(rank, world, rows(rank)) for rank in range(nranks)],
        single_switch(nranks, 10**9),
        settings=settings,
    )
    run = World(plan, seed)
    assert run.run()
    assert 0 < run.most_under_way <= credits
    assert run.grants > 0


def test_late_receiver_delays_its_sender() -> None:
    # A ring in 8 chunks: without credits all of them leave before rank 1 is there.
    def most(credits: int) -> int:
        world = world_group(2)
        how = "ring(chunks=8)"
        plan = make_plan(
            [
                program(
                    rank,
                    world,
                    [
                        compute(1 + 10_000 * rank),
                        collective("broadcast", 4096, algorithm=how, after=[0]),
                    ],
                )
                for rank in range(2)
            ],
            single_switch(2, 10**9),
            settings=RunSettings(warmup=0, measured=1, credits=credits),
        )
        run = World(plan, 1)
        assert run.run()
        return run.most_under_way

    assert [most(0), most(1), most(3)] == [8, 1, 3]
