"""Execution of a plan at the message or flow level, without queue pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.groups import POINT_TO_POINT
from chakram.foundation.errors import PlanError, RunFailed
from chakram.predict.levels.collective_messages import (
    MessageColumns,
    message_columns,
    uneven_columns,
)
from chakram.predict.levels.program_walk import RankWalk
from chakram.predict.levels.row_offsets import NONE
from chakram.program.columns import COLLECTIVE, SEND
from chakram.program.operations import split_matrices
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
    """Result of a run at a coarser level.

    Attributes:
        end_ns: Time at which the last rank finished. The run starts at 0.
        link_bytes: Number of bytes that each link carried, by link number.
        messages: Number of messages that arrived.
        events: Number of events.
    """

    end_ns: int
    link_bytes: Sequence[int]
    messages: int
    events: int


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """Handling of a rank's messages within its server.

    Attributes:
        server: Number of the server. ``NONE`` means that only messages within one host
            stay off the network.
        line: Line for these messages (``add_local_line``). ``NONE`` means that they
            take no time.
    """

    server: int = NONE
    line: int = NONE


@dataclass(slots=True, kw_only=True)
class _Opened:
    """A running collective, or one of the parts into which it is divided."""

    first: int
    left: int


@dataclass(frozen=True, slots=True)
class _Share:
    """The operation and part to which a share of the traffic belongs."""

    walk: RankWalk
    operation: int
    key: tuple[object, ...]
    part: int


class LevelRun:
    """One run of a plan.

    Args:
        plan: Ranks with their programs and ports.
        traffic: Traffic model of the level, with the hosts in *host_of*.
        host_of: For each port, the number of its host.
        division: Division of collectives into parts, which run one after another.
        places: For each rank number, the handling of its messages within its server.
        warmup: Number of iterations before the measured ones, if different from the
            plan.
        measured: Number of measured iterations, if different from the plan.

    Raises:
        PlanError: If a program is invalid.
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
        self._walks: list[RankWalk] = []
        like: dict[tuple[str, int], RankWalk] = {}
        for rank in ranks:
            key = rank.program.job, id(rank.program.columns)
            settings = settings_of[rank.number]
            walk = RankWalk(rank, settings, self.records, self._begin, like.get(key))
            like.setdefault(key, walk)
            self._walks.append(walk)
        self._matrices: Mapping[tuple[str, str, int], Matrix] = split_matrices(
            rank.program for rank in ranks
        )
        self._timers: list[tuple[int, int]] = []
        # For each rank, the time of its valid entry among the timers.
        self._noted: dict[int, int] = {}
        self._opened: dict[tuple[object, ...], _Opened] = {}
        self._shares: dict[int, _Share] = {}
        self._carried: dict[tuple[int, int], list[int]] = {}

    def record_flows(self, wanted: bool) -> None:
        """Set whether every message gets a flow row."""
        self._traffic.record = wanted

    def messages(self) -> int:
        """Return the number of messages of all iterations, without background jobs."""
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
            report: Function called with the number of iterations that all ranks have
                completed.
            flush: Function called with the records collected so far, whenever there are
                many.

        Raises:
            RunFailed: If the run does not end. The error lists the stuck operations.
        """
        walks, traffic = self._walks, self._traffic
        for walk in walks:
            walk.arm()
            self._note_timer(walk)
        wanted = [walk for walk in walks if not walk.is_background]
        # These indices advance one by one, so that each walk is checked once.
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
        """Pass all records so far to *flush*. No flow comes later than its share."""
        rows = self.records.take()
        rows.flows = self._traffic.take_flows()
        flush(rows)

    def _step(self) -> bool:
        """Process the next event, or return False if there is none."""
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
                    f"rank {rank} takes part but is not in the plan",
                    "use the plan of this program",
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
        """Complete a share, then continue its operation or the program."""
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
        """Return the error for a run that does not end."""
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
            f"no operation can proceed, but the job is not done: {named}",
            "check that the programs of the ranks belong together",
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
