# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Execution of a plan at the message or flow level, without queue pairs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.groups import POINT_TO_POINT
from chakram.foundation.errors import PlanError, RunFailed
from chakram.predict.levels import row_offsets
from chakram.predict.levels.collective_messages import (
    MessageColumns,
    message_columns,
    uneven_columns,
)
from chakram.predict.levels.message_level import MessageLevel
from chakram.predict.levels.pending_messages import Traffic
from chakram.predict.levels.program_walk import TIMER_BITS, RankWalk
from chakram.predict.levels.row_offsets import grown
from chakram.predict.simulator.event_queue import Events
from chakram.predict.simulator.signal_checks import EVENTS_PER_SIGNALS, let_signals_in
from chakram.program.columns import COLLECTIVE, RECEIVE, SEND
from chakram.program.operations import split_matrices
from chakram.records.row_layout import ITERATION_FIELDS, SHARE_FIELDS, RecordRows

if TYPE_CHECKING:
    from chakram.collectives.split_sizes import Matrix
    from chakram.plan.plan import Plan
    from chakram.predict.levels.cost_models import Division
    from chakram.program.columns import OperationColumns
    from chakram.program.operations import RankProgram

__all__ = ["LevelResult", "LevelRun", "LocalPlace"]

_NONE = row_offsets.NONE
_NAMED_WAITS = 3
_FLOWS_AT_ONCE = 100_000
_SHARES_AT_ONCE = 100_000
_REPORT_AFTER = 100_000
"""Number of messages between two reports."""
# Columns of a share: its rank, operation and part, and the share of position 0. Columns
# of the share of position 0: the group, the collective within the group, and the number
# of shares that have not ended.
_WALK = 0
_OPERATION = 1
_PART = 2
_GROUP = 3
_KEY = 4
_OPEN = 5
_FIRST = 6
_COLUMNS = 7


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

    server: int = row_offsets.NONE
    line: int = row_offsets.NONE


class _Group:
    """The ranks that take part in the same collectives or messages.

    Attributes:
        number: Index among all groups.
        numbers: Numbers of its ranks in the plan, in the order of their positions.
        opened: Share of position 0 of each running collective, by its key.
    """

    __slots__ = ("number", "numbers", "opened")

    def __init__(self, number: int, numbers: array[int]) -> None:
        self.number = number
        self.numbers = numbers
        self.opened: dict[int, int] = {}


class _Communication:
    """One communication of ranks that have the same program.

    Attributes:
        is_collective: Whether it is a collective, not a message.
        target: Index of its group, or of the peer.
        number: Number of the collective in the group, or of the message of the pair.
        parts: Number of parts.
        shapes: Shape of each part, or ``NONE`` while unknown.
    """

    __slots__ = ("is_collective", "is_send", "number", "parts", "shapes", "target")

    def __init__(self, *, kind: int, target: int, number: int, parts: int) -> None:
        self.is_collective = kind == COLLECTIVE
        self.is_send = kind == SEND
        self.target = target
        self.number = number
        self.parts = parts
        self.shapes = [row_offsets.NONE] * parts


class LevelRun:
    """One run of a plan.

    Args:
        plan: Ranks with their programs and ports.
        traffic: Traffic model of the level, with the hosts in *host_of*.
        host_of: For each port, the number of its host.
        division: Division of collectives into parts, which run one after another.
        places: For each rank number, the handling of its messages within its server.
        recorded: Numbers of the ranks whose communications have rows. None means all
            ranks.
        fold: Whether to simulate the first rank only, because all ranks do the same at
            the same times (``chakram.predict.levels.symmetry``).

    Attributes:
        is_folded: Whether the first rank represents all ranks.
        is_stepped: Whether rings are simulated in steps of all ranks.

    Raises:
        PlanError: If a program is invalid.
    """

    def __init__(
        self,
        plan: Plan,
        traffic: Traffic,
        *,
        host_of: Mapping[int, int],
        division: Division,
        places: Mapping[int, LocalPlace] | None = None,
        recorded: Container[int] | None = None,
        fold: bool = False,
    ) -> None:
        if not plan.agents:
            raise PlanError("plan", "it has no agent", "place at least one rank")
        self._traffic = traffic
        self._division = division
        self.records = RecordRows()
        ranks = plan.ranks()
        self._recorded = [
            rank.number for rank in ranks if recorded is None or rank.number in recorded
        ]
        self._numbers = [rank.number for rank in ranks]
        self.is_folded = fold
        self.is_stepped = False
        # Number of ranks that each walk represents.
        self._alike = len(ranks) if fold else 1
        traffic.is_folded = fold
        if fold:
            ranks = ranks[:1]
        self._host_of = array("q", (host_of[rank.port] for rank in ranks))
        local = places or {}
        places_of = [local.get(rank.number, LocalPlace()) for rank in ranks]
        self._server_of = array("q", (each.server for each in places_of))
        self._line_of = array("q", (each.line for each in places_of))
        self._number_of = {
            (rank.program.job, rank.program.rank): rank.number for rank in ranks
        }
        settings_of = {
            rank.number: agent.settings for agent in plan.agents for rank in agent.ranks
        }
        self._timers = Events()
        self._walks: list[RankWalk] = []
        like: dict[tuple[str, int], RankWalk] = {}
        for rank in ranks:
            key = rank.program.job, id(rank.program.columns)
            walk = RankWalk(
                rank,
                settings_of[rank.number],
                self.records,
                self._begin,
                self._timers,
                like.get(key),
            )
            walk.is_recorded = fold or recorded is None or rank.number in recorded
            like.setdefault(key, walk)
            self._walks.append(walk)
        self._matrices: Mapping[tuple[str, str, int], Matrix] = split_matrices(
            rank.program for rank in ranks
        )
        self._communications: dict[object, list[_Communication | None]] = {}
        for walk in self._walks:
            walk.communications = self._communications_of(walk.program)
        self._groups: list[_Group] = []
        self._group_of: dict[tuple[str, object], _Group] = {}
        self._shares = array("q", bytes(8 * _COLUMNS * 64))
        self._unwritten = 0
        self._report: Callable[[int], None] | None = None
        # Number of messages at which the next report is due.
        self._report_at = _REPORT_AFTER
        # Number of timers since the last signal check.
        self._timed = 0
        self._carried: dict[tuple[int, int], list[int]] = {}

    def _communications_of(self, program: RankProgram) -> list[_Communication | None]:
        """Return the communications of a program, by operation."""
        columns = program.columns
        sizes = tuple(len(group.ranks) for group in program.groups)
        key = program.job, id(columns), sizes
        found = self._communications.get(key)
        if found is None:
            found = self._communications[key] = [None] * len(columns)
            for row in columns.rows_of(COLLECTIVE, SEND, RECEIVE):
                kind = columns.kinds[row]
                found[row] = _Communication(
                    kind=kind,
                    target=columns.targets[row],
                    number=columns.numbers[row],
                    parts=self._division.parts if kind == COLLECTIVE else 1,
                )
        return found

    def record_flows(self, wanted: bool) -> None:
        """Set whether every message gets a flow row."""
        self._traffic.record = wanted

    def messages(self) -> int:
        """Return the number of messages of all iterations, without background jobs."""
        known: dict[int, tuple[int, dict[int, int]]] = {}
        count = 0
        for walk in self._walks:
            if walk.is_background:
                continue
            key = id(walk.communications)
            if key not in known or self._matrices:
                known[key] = self._messages_of(walk)
            own, of_groups = known[key]
            for place, messages in of_groups.items():
                ranks = walk.program.groups[place].ranks
                if self.is_folded or ranks[0] == walk.program.rank:
                    own += messages
            count += own * walk.iterations
        return count

    def most_at_once(self) -> int:
        """Return the approximate maximum number of messages in flight at the same time.

        This number counts the messages that wait for no other message in one collective
        of each group. If ranks are in several groups, only the groups with the most
        messages count.
        """
        known: dict[int, dict[int, int]] = {}
        of_job: dict[str, dict[int, int]] = {}
        for walk in self._walks:
            key = id(walk.communications)
            if key not in known or self._matrices:
                known[key] = self._first_messages_of(walk)
            counts = of_job.setdefault(walk.program.job, {})
            for place, messages in known[key].items():
                if walk.program.groups[place].ranks[0] == walk.program.rank:
                    counts[place] = counts.get(place, 0) + messages
        return sum(max(counts.values(), default=0) for counts in of_job.values())

    def _first_messages_of(self, walk: RankWalk) -> dict[int, int]:
        """Return the most independent messages of any collective, by group."""
        columns = walk.program.columns
        most: dict[int, int] = {}
        for row in columns.rows_of(COLLECTIVE):
            place = columns.targets[row]
            shape = self._collective(walk, row, 0)
            messages = self._traffic.messages_of(shape, first=True)
            most[place] = max(most.get(place, 0), messages)
        return most

    def is_alike(self) -> bool:
        """Return whether all ranks send the same sizes in every collective."""
        for walk in self._walks:
            for row in walk.program.columns.rows_of(COLLECTIVE):
                for part in range(self._division.parts):
                    if not self._traffic.is_alike(self._collective(walk, row, part)):
                        return False
        return True

    def use_steps(self) -> bool:
        """Simulate rings in steps of all ranks if this is exact.

        Steps are exact under these conditions:

        - Every rank takes part in the collectives of one group, one after another.
        - All collectives are rings (``Kinds.ring_distance``).
        - Each host has one rank. No link carries messages of two pairs of hosts.

        Returns:
            Whether the rings are simulated in steps.
        """
        known: dict[int, tuple[int, frozenset[int]] | None] = {}
        pairs: dict[int, tuple[int, int]] = {}
        hosts = {self._host_of[walk.number] for walk in self._walks}
        traffic = self._traffic
        if (
            not isinstance(traffic, MessageLevel)
            or len(hosts) < len(self._walks)
            or self._matrices
            or self.is_folded
        ):
            return False
        for walk in self._walks:
            key = id(walk.communications)
            if key not in known:
                known[key] = self._rings_of(walk)
            rings = known[key]
            if rings is None:
                return False
            place, distances = rings
            program = walk.program
            members = program.groups[place].ranks
            position = program.groups[place].position(program.rank)
            source = self._host_of[walk.number]
            for distance in distances:
                peer = members[(position + distance) % len(members)]
                target = self._host_of[self._number_of[program.job, peer]]
                for link in traffic.path(source, target):
                    if pairs.setdefault(link, (source, target)) != (source, target):
                        return False
        self.is_stepped = traffic.is_stepped = True
        return True

    def _rings_of(self, walk: RankWalk) -> tuple[int, frozenset[int]] | None:
        """Return the group of a rank and the distances of its rings.

        None means that communications may overlap, or are not all rings of one group.
        """
        columns = walk.program.columns
        rows = columns.rows_of(COLLECTIVE)
        places = {columns.targets[row] for row in rows}
        if (
            len(places) != 1
            or columns.rows_of(SEND, RECEIVE)
            or self._division.parts > 1
            or not is_serial(columns)
        ):
            return None
        distances = {
            self._traffic.ring_distance(self._collective(walk, row, 0)) for row in rows
        }
        return None if 0 in distances else (places.pop(), frozenset(distances))

    def _messages_of(self, walk: RankWalk) -> tuple[int, dict[int, int]]:
        """Return a rank's number of sends, and the messages of collectives by group."""
        columns = walk.program.columns
        of_groups: dict[int, int] = {}
        for row in columns.rows_of(COLLECTIVE):
            place = columns.targets[row]
            messages = self._traffic.messages_of(self._collective(walk, row, 0))
            messages *= self._division.parts
            of_groups[place] = of_groups.get(place, 0) + messages
        return len(columns.rows_of(SEND)), of_groups

    def run(
        self,
        *,
        report: Callable[[int], None] | None = None,
        flush: Callable[[RecordRows], object] | None = None,
    ) -> LevelResult:
        """Run all iterations.

        Args:
            report: Function called with the number of arrived messages, or an estimate,
                whenever many more have arrived.
            flush: Function called with the records collected so far, whenever there are
                many records.

        Raises:
            RunFailed: If the run does not end. The error lists the stuck operations.
        """
        walks, traffic = self._walks, self._traffic
        traffic.is_alone = all(
            walk.iterations * sum(each.parts for each in walk.communications if each)
            == 1
            for walk in walks
        )
        self._report = report
        traffic.report = self._progressed
        for walk in walks:
            walk.arm()
        wanted = [walk for walk in walks if not walk.is_background]
        # The index advances one by one, so that each walk is checked once.
        finished = 0
        while True:
            while finished < len(wanted) and wanted[finished].is_finished:
                finished += 1
            if finished == len(wanted):
                break
            if not self._step():
                raise self._stuck()
            if flush is not None and (
                traffic.flow_rows() >= _FLOWS_AT_ONCE
                or self._unwritten >= _SHARES_AT_ONCE
            ):
                self._flush(flush)
            self._progressed(traffic.messages)
        traffic.report = None
        if flush is not None:
            self._flush(flush)
        return LevelResult(
            end_ns=traffic.now_ns,
            link_bytes=traffic.link_bytes(),
            messages=traffic.messages * self._alike,
            events=traffic.events,
        )

    def _progressed(self, messages: int) -> None:
        """Report the number of messages if it has grown much since the last report."""
        if messages >= self._report_at and self._report is not None:
            self._report_at = messages + _REPORT_AFTER
            self._report(messages * self._alike)

    def _flush(self, flush: Callable[[RecordRows], object]) -> None:
        """Pass all records so far to *flush*.

        A share's flows are passed with the share or earlier.
        """
        self._unwritten = 0
        rows = self.records.take()
        if self.is_folded:
            rows.shares = _repeated(rows.shares, len(SHARE_FIELDS), self._recorded)
            rows.iterations = _repeated(
                rows.iterations, len(ITERATION_FIELDS), self._numbers
            )
        rows.flows = self._traffic.take_flows()
        flush(rows)

    def _step(self) -> bool:
        """Process the next event, or return False if there is none."""
        traffic, timers = self._traffic, self._timers
        until_ns = timers.first_ns()
        if traffic.run(until_ns, _FLOWS_AT_ONCE):
            done = traffic.done
            traffic.done = []
            for share in done:
                self._end(share)
            return True
        if timers.count == 0:
            return False
        traffic.advance(until_ns)
        while timers.first_ns() == until_ns:
            self._timed += 1
            if self._timed >= EVENTS_PER_SIGNALS:
                self._timed = 0
                let_signals_in()
            number = timers.take()
            walk = self._walks[number >> TIMER_BITS]
            walk.handle_timer(number, until_ns)
        return True

    # ---- operations ------------------------------------------------------------------

    def _begin(self, walk: RankWalk, row: int, released: int, now_ns: int) -> None:
        self._begin_part(walk, row, released, 0)

    def _begin_part(self, walk: RankWalk, row: int, released: int, part: int) -> None:
        communication = walk.communications[row]
        way = 4 * communication.target
        if not communication.is_collective:
            way += 1 if communication.is_send else 2
        place = walk.places.get(way)
        if place is None:
            place = walk.places[way] = self._join(walk, communication)
        group: _Group = place[0]
        key = walk.iteration << 32 | communication.number << 10 | part
        first = group.opened.get(key, _NONE)
        if first == _NONE:
            first = self._open(walk, row, part, communication, group)
            group.opened[key] = first
            at = first * _COLUMNS
            self._shares[at + _GROUP] = group.number
            self._shares[at + _KEY] = key
            self._shares[at + _OPEN] = len(group.numbers)
        share = first + place[1]
        at = share * _COLUMNS
        self._shares[at + _WALK] = walk.number
        self._shares[at + _OPERATION] = row
        self._shares[at + _PART] = part
        self._shares[at + _FIRST] = first
        self._traffic.begin(share, row, walk.iteration, released)

    def _join(
        self, walk: RankWalk, communication: _Communication
    ) -> tuple[_Group, int]:
        """Return the group of a communication, and the position of the rank in it."""
        program = walk.program
        ranks: tuple[int, ...]
        name: object
        if communication.is_collective:
            members = program.groups[communication.target]
            ranks, name = members.ranks, members.name
            position = members.position(program.rank)
        else:
            peer = program.peers[communication.target]
            is_send = communication.is_send
            ranks = (program.rank, peer) if is_send else (peer, program.rank)
            name = ranks
            position = 0 if is_send else 1
        if self.is_folded:
            position = 0
            ranks = (program.rank,)
        group = self._group_of.get((program.job, name))
        if group is None:
            numbers = array("q")
            for rank in ranks:
                number = self._number_of.get((program.job, rank))
                if number is None:
                    raise PlanError(
                        f"job {program.job}",
                        f"rank {rank} takes part but is not in the plan",
                        "use the plan of this program",
                    )
                numbers.append(number)
            group = _Group(len(self._groups), numbers)
            self._groups.append(group)
            self._group_of[program.job, name] = group
        return group, position

    def _open(
        self,
        walk: RankWalk,
        row: int,
        part: int,
        communication: _Communication,
        group: _Group,
    ) -> int:
        """Open a collective, or a part of it, and return the share of position 0."""
        shape = communication.shapes[part]
        if shape == _NONE:
            shape = (
                self._collective(walk, row, part)
                if communication.is_collective
                else self._message(walk.program.columns.amounts[row])
            )
            # Uneven splits differ between groups.
            if not self._matrices:
                communication.shapes[part] = shape
        first = self._traffic.open(shape)
        numbers = group.numbers
        share = first
        for number in numbers:
            self._traffic.place(
                share,
                self._host_of[number],
                number,
                self._server_of[number],
                self._line_of[number],
            )
            share += 1
        if share * _COLUMNS > len(self._shares):
            self._shares = grown(self._shares, share * _COLUMNS)
        return first

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
        at = share * _COLUMNS
        walk = self._walks[self._shares[at + _WALK]]
        row = self._shares[at + _OPERATION]
        part = self._shares[at + _PART]
        sent = traffic.sent_bytes(share)
        received = traffic.received_bytes(share)
        first = self._shares[at + _FIRST]
        at = first * _COLUMNS
        self._shares[at + _OPEN] -= 1
        if self._shares[at + _OPEN] == 0:
            traffic.close(first)
            group: _Group = self._groups[self._shares[at + _GROUP]]
            del group.opened[self._shares[at + _KEY]]
        communication = walk.communications[row]
        if communication.parts > 1:
            carried = self._carried.setdefault((walk.number, row), [0, 0])
            carried[0] += sent
            carried[1] += received
            if part + 1 < communication.parts:
                self._begin_part(walk, row, _NONE, part + 1)
                return
            sent, received = self._carried.pop((walk.number, row))
        if walk.is_recorded:
            self._unwritten += 1
        walk.ended(row, traffic.now_ns, sent, received)

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


def is_serial(columns: OperationColumns) -> bool:
    """Return whether every collective of a program depends on the previous one."""
    # For each operation, the number of collectives up to the last collective that it
    # needs.
    before: list[int] = []
    collectives = 0
    for row in range(len(columns)):
        dependencies = columns.dependencies_of(row)
        if max(dependencies, default=-1) >= row:
            return False
        before.append(max((before[each] for each in dependencies), default=0))
        if columns.kinds[row] == COLLECTIVE:
            if before[row] != collectives:
                return False
            collectives += 1
            before[row] = collectives
    return True


def _repeated(rows: array[int], width: int, numbers: Sequence[int]) -> array[int]:
    """Repeat the rows of a rank for the ranks *numbers*, which do the same."""
    found = array("q")
    for at in range(0, len(rows), width):
        block = rows[at : at + width] * len(numbers)
        block[1::width] = array("q", numbers)
        found.extend(block)
    return found
