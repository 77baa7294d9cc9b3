from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chakram.collectives.groups import world_group
from chakram.plan.plan import RunSettings
from chakram.program.operations import Operation, RankProgram
from chakram.records.row_layout import RecordRows
from chakram.replay.rank import Replay
from chakram.replay.rank_progress import Flow
from chakram.replay.rank_queue_pair import Pair
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import (
    FlowRow,
    ShareRow,
    flow_rows,
    make_plan,
    program,
    share_rows,
)
from tests.replay_checks import acknowledged, received

Post = tuple[int, int, int]


class Driven:
    """One rank's replay, with the network played by the test."""

    def __init__(
        self,
        programs: Sequence[RankProgram],
        *,
        rank: int = 0,
        settings: RunSettings | None = None,
        has_arrivals: bool = False,
    ) -> None:
        plan = make_plan(
            programs, single_switch(len(programs), None), settings=settings
        )
        self.plan = plan.ranks()[rank]
        self.records = RecordRows()
        self._flows: dict[Post, Flow] = {}
        self.replay = Replay(
            plan=self.plan,
            settings=plan.agents[0].settings,
            rank_numbers=plan.agents[0].numbers(),
            records=self.records,
            has_arrivals=has_arrivals,
        )

    def start(self, start_ns: int = 0, now_ns: int | None = None) -> None:
        self.replay.arm(start_ns)
        self.replay.handle_timers(start_ns if now_ns is None else now_ns)

    def posts(self) -> list[Post]:
        posts = []
        while (flow := self.replay.next_post()) is not None:
            posts.append((flow.pair.qpn, flow.immediate, flow.size_bytes))
            self._flows[posts[-1]] = flow
        return posts

    def flow(self, post: Post) -> Flow:
        return self._flows[post]

    def qpn(self, peer: int, group: str = "world") -> int:
        return next(
            pair.qpn
            for pair in self.plan.queue_pairs
            if (pair.group, pair.peer_rank) == (group, peer)
        )

    def pair(self, peer: int, group: str = "world") -> Pair:
        return self.replay.pairs[self.qpn(peer, group)]

    def receive(
        self,
        peer: int,
        immediate: int | None,
        at_ns: int,
        *,
        size_bytes: int = 0,
        group: str = "world",
        now_ns: int | None = None,
    ) -> None:
        event = received(immediate, size_bytes, at_ns)
        now_ns = at_ns if now_ns is None else now_ns
        self.replay.message_received(self.pair(peer, group), event, now_ns)

    def acknowledge(
        self, post: Post, at_ns: int, *, posted_ns: int = 0, wait_ns: int = 0
    ) -> None:
        _, immediate, size_bytes = post
        event = acknowledged(immediate, size_bytes, posted_ns, at_ns, wait_ns)
        self.replay.message_acknowledged(self._flows[post], event, at_ns)

    def flows(self) -> list[FlowRow]:
        return flow_rows(self.records)

    def shares(self) -> list[ShareRow]:
        return share_rows(self.records)


def alike(rows: Sequence[Operation], nranks: int = 2) -> list[RankProgram]:
    world = world_group(nranks)
    return [program(rank, world, rows) for rank in range(nranks)]


def alone(rows: Sequence[Operation], **kwargs: Any) -> Driven:
    settings = RunSettings(**{"warmup": 0, "measured": 1, **kwargs})
    return Driven(alike(rows, nranks=1), settings=settings)


def point_to_point(
    rows: Sequence[Operation], others: Sequence[Operation], **kwargs: Any
) -> Driven:
    world = world_group(2)
    settings = RunSettings(warmup=0, **{"measured": 1, **kwargs})
    return Driven(
        [program(0, world, rows), program(1, world, others)], settings=settings
    )
