"""Runs a plan at the message or flow level: the same programs, no queue pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import algorithm_of
from chakram.foundation.errors import PlanError, RunFailed
from chakram.predict.levels.collective_messages import (
    MessageColumns,
    message_columns,
    uneven_columns,
)
from chakram.predict.levels.program_walk import RankWalk
from chakram.predict.levels.row_offsets import NONE
from chakram.program.columns import COLLECTIVE, SEND
from chakram.program.operations import POINT_TO_POINT, split_matrices
from chakram.records.row_layout import RecordRows

if TYPE_CHECKING:
    from chakram.collectives.split_sizes import Matrix
    from chakram.plan.plan import Plan, RunSettings
    from chakram.predict.levels.cost_models import Division
    from chakram.predict.levels.messages import MessageLevel


_NAMED_WAITS = 3
_FLOWS_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelResult:
    """What a run at a coarser level gives.

    Attributes:
        end_ns: When the last rank had finished; the run begins at 0.
        link_bytes: By number of a link of the network.
        messages: How many messages have arrived.
        events: How many events there were.
    """

    end_ns: int
    link_bytes: Sequence[int]
    messages: int
    events: int


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """What the messages of a rank within its server do.

    Attributes:
        server: Its number; ``NONE``: only those within one host stay off the network.
        line: What they go through (``add_local_line``); ``NONE``: they take no time.
    """

    server: int = NONE
    line: int = NONE


@dataclass(slots=True, kw_only=True)
class _Opened:
    """A collective under way, or one of the parts that it is divided into."""

    first: int
    left: int


@dataclass(frozen=True, slots=True)
class _Share:
    """What a share of the traffic stands for."""

    walk: RankWalk
    operation: int
    key: tuple[object, ...]
    part: int


class LevelRun:
    """One run of a plan.

    Args:
        plan: Ranks with their programs and ports.
        traffic: The level; its hosts are those of *host_of*.
        host_of: By port, the number of its host.
        division: Into what collectives are divided, one part after another.
        places: By number of a rank, what its messages within its server do.
        warmup: Iterations before the measured ones, if not those of the plan.
        measured: Measured iterations, likewise.

    Raises:
        PlanError: If a program is wrong.
    """

    def __init__(
        self,
        plan: Plan,
        traffic: MessageLevel,
        *,
        host_of: Mapping[int, int],
        division: Division,
        places: Mapping[int, LocalPlace] | None = None,
        warmup: int | None = None,
        measured: int | None = None,
    ) -> None:
        if not plan.agents:
            raise PlanError("plan", "it has no agent", "place at least one rank")
        self._traffic = traffic
        self._division = division
        self.records = RecordRows()
        ranks = plan.ranks()
        self._host_of = [host_of[rank.port] for rank in ranks]
        local = places or {}
        self._local = [local.get(rank.number, LocalPlace()) for rank in ranks]
        self._number_of = {
            (rank.program.job, rank.program.rank): rank.number for rank in ranks
        }
        settings_of = {
            rank.number: _settings(agent.settings, warmup, measured)
            for agent in plan.agents
            for rank in agent.ranks
        }
        self._walks = [
            RankWalk(rank, settings_of[rank.number], self.records, self._begin)
            for rank in ranks
        ]
        self._matrices: Mapping[tuple[str, str, int], Matrix] = split_matrices(
            rank.program for rank in ranks
        )
        self._timers: list[tuple[int, int]] = []
        # By rank, the one of its entries among the timers that counts.
        self._noted: dict[int, int] = {}
        self._opened: dict[tuple[object, ...], _Opened] = {}
        self._shares: dict[int, _Share] = {}
        self._carried: dict[tuple[int, int], list[int]] = {}

    def record_flows(self, wanted: bool) -> None:
        """Say whether every message gets a row."""
        self._traffic.record = wanted

    def messages(self) -> int:
        """Return how many messages all iterations have, background jobs left out."""
        count = 0
        for walk in self._walks:
            if walk.is_background:
                continue
            columns = walk.program.columns
            own = len(columns.rows_of(SEND))
            for row in columns.rows_of(COLLECTIVE):
                group = walk.program.groups[columns.targets[row]]
                if group.ranks[0] == walk.program.rank:
                    shape = self._collective(walk, row, 0)
                    own += self._traffic.messages_of(shape) * self._division.parts
            count += own * walk.iterations
        return count

    def run(
        self,
        *,
        report: Callable[[int], None] | None = None,
        flush: Callable[[RecordRows], object] | None = None,
    ) -> LevelResult:
        """Run all iterations.

        Args:
            report: Called with the iterations that all ranks have done.
            flush: Called with the records so far, whenever there are many.

        Raises:
            RunFailed: If the run does not end; it names who waits for whom.
        """
        walks, traffic = self._walks, self._traffic
        for walk in walks:
            walk.arm()
            self._note_timer(walk)
        wanted = [walk for walk in walks if not walk.is_background]
        # One after the other, so that each is looked at once.
        finished = done = ahead = 0
        while True:
            while finished < len(wanted) and wanted[finished].is_finished:
                finished += 1
            if finished == len(wanted):
                break
            if not self._step():
                raise self._stuck()
            if traffic.flow_rows() >= _FLOWS_AT_ONCE and flush is not None:
                self._flush(flush)
            while ahead < len(wanted) and wanted[ahead].iteration > done:
                ahead += 1
            if ahead == len(wanted):
                ahead, done = 0, min(walk.iteration for walk in wanted)
                if report is not None:
                    report(done)
        if flush is not None:
            self._flush(flush)
        return LevelResult(
            end_ns=traffic.now_ns,
            link_bytes=traffic.link_bytes(),
            messages=traffic.messages,
            events=traffic.events,
        )

    def _flush(self, flush: Callable[[RecordRows], object]) -> None:
        """Hand on flows before the shares that they belong to."""
        rows = self.records.take()
        rows.flows = self._traffic.take_flows()
        flush(rows)

    def _step(self) -> bool:
        """Let the next thing happen; False: there is nothing."""
        traffic, timers = self._traffic, self._timers
        until_ns = timers[0][0] if timers else _NEVER
        if traffic.run(until_ns, _FLOWS_AT_ONCE):
            done, traffic.done = traffic.done, []
            for share in done:
                self._end(share)
            return True
        if not timers:
            return False
        traffic.advance(until_ns)
        while timers and timers[0][0] == until_ns:
            at_ns, number = heappop(timers)
            if self._noted.get(number) == at_ns:
                del self._noted[number]
                walk = self._walks[number]
                walk.handle_timers(until_ns)
                self._note_timer(walk)
        return True

    def _note_timer(self, walk: RankWalk) -> None:
        timer_ns = walk.next_timer_ns()
        if timer_ns is not None and timer_ns < self._noted.get(walk.number, _NEVER):
            self._noted[walk.number] = timer_ns
            heappush(self._timers, (timer_ns, walk.number))

    # ---- operations ------------------------------------------------------------------

    def _begin(self, walk: RankWalk, row: int, released: int, now_ns: int) -> None:
        self._begin_part(walk, row, released, 0)

    def _begin_part(self, walk: RankWalk, row: int, released: int, part: int) -> None:
        program, columns = walk.program, walk.program.columns
        target, number = columns.targets[row], columns.numbers[row]
        kind = columns.kinds[row]
        if kind == COLLECTIVE:
            group = program.groups[target]
            ranks: Sequence[int] = group.ranks
            name = group.name
            position = group.position(program.rank)
        else:
            ends = program.rank, program.peers[target]
            ranks = ends if kind == SEND else ends[::-1]
            name = f"{POINT_TO_POINT}:{ranks[0]}>{ranks[1]}"
            position = 0 if kind == SEND else 1
        key = (program.job, name, number, walk.iteration, part)
        opened = self._opened.get(key)
        if opened is None:
            shape = (
                self._collective(walk, row, part)
                if kind == COLLECTIVE
                else self._message(columns.amounts[row])
            )
            opened = self._open(key, shape, program.job, ranks)
        share = opened.first + position
        self._shares[share] = _Share(walk, row, key, part)
        self._traffic.begin(share, row, walk.iteration, released)

    def _open(
        self, key: tuple[object, ...], shape: int, job: str, ranks: Sequence[int]
    ) -> _Opened:
        first = self._traffic.open(shape)
        for position, rank in enumerate(ranks):
            number = self._number_of.get((job, rank))
            if number is None:
                raise PlanError(
                    f"job {job}",
                    f"rank {rank} takes part, and is not in the plan",
                    "the plan does not belong to this program",
                )
            local = self._local[number]
            self._traffic.place(
                first + position,
                self._host_of[number],
                number,
                local.server,
                local.line,
            )
        opened = self._opened[key] = _Opened(first=first, left=len(ranks))
        return opened

    def _message(self, size_bytes: int) -> int:
        return self._traffic.shape(
            (POINT_TO_POINT, size_bytes), lambda: message_columns(size_bytes)
        )

    def _collective(self, walk: RankWalk, row: int, part: int) -> int:
        program, columns = walk.program, walk.program.columns
        group = program.groups[columns.targets[row]]
        op, name = columns.all_algorithms[columns.algorithms[row]]
        nranks, root = len(group.ranks), columns.details[row]
        how = algorithm_of(
            op, name, nranks=nranks, root=root, listed=program.algorithms
        )
        how = self._division.algorithm(how, part)
        input_bytes = self._division.part_bytes(
            op, columns.amounts[row], nranks=nranks, part=part
        )
        matrix = self._matrices.get((program.job, group.name, columns.numbers[row]))

        def make() -> MessageColumns:
            if matrix is not None:
                return uneven_columns(how, matrix)
            return self._division.columns(
                how, nranks=nranks, root=root, input_bytes=input_bytes
            )

        return self._traffic.shape((how, nranks, root, input_bytes, matrix), make)

    def _end(self, share: int) -> None:
        """Go on with what a share was part of."""
        traffic = self._traffic
        of = self._shares.pop(share)
        walk, row = of.walk, of.operation
        sent, received = traffic.sent_bytes(share), traffic.received_bytes(share)
        opened = self._opened[of.key]
        opened.left -= 1
        if opened.left == 0:
            traffic.close(opened.first)
            del self._opened[of.key]
        parts = (
            self._division.parts if walk.program.columns.kinds[row] == COLLECTIVE else 1
        )
        if parts > 1:
            carried = self._carried.setdefault((walk.number, row), [0, 0])
            carried[0] += sent
            carried[1] += received
            if of.part + 1 < parts:
                self._begin_part(walk, row, NONE, of.part + 1)
                return
            sent, received = self._carried.pop((walk.number, row))
        walk.ended(row, traffic.now_ns, sent=sent, received=received)
        self._note_timer(walk)

    def _stuck(self) -> RunFailed:
        """Return why a run did not end."""
        waits = [
            f"job {walk.program.job} rank {walk.program.rank}: "
            f"{walk.program.columns.name(row) or 'a message'} does not end"
            for walk in self._walks
            if not walk.is_background
            for row in walk.under_way()
        ]
        named = "; ".join(waits[:_NAMED_WAITS])
        if len(waits) > _NAMED_WAITS:
            named += f"; and {len(waits) - _NAMED_WAITS} more"
        return RunFailed(
            "simulation",
            f"nothing goes on any more, but the job is not done: {named}",
            "the programs of its ranks do not fit together",
        )


_NEVER = 1 << 62


def _settings(
    settings: RunSettings, warmup: int | None, measured: int | None
) -> RunSettings:
    if warmup is None and measured is None:
        return settings
    return replace(
        settings,
        warmup=settings.warmup if warmup is None else warmup,
        measured=settings.measured if measured is None else measured,
        jobs=tuple(replace(job, iterations=None) for job in settings.jobs),
    )
