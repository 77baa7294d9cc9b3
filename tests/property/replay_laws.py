"""Laws of every run of a plan, checked on its records."""

from __future__ import annotations

from collections import Counter, defaultdict

from chakram.collectives.algorithms import algorithm
from chakram.collectives.schedule import rank_schedule, transfer_bytes
from chakram.collectives.uneven_messages import uneven_schedule
from chakram.plan.plan import Plan
from chakram.program.operations import (
    CollectiveOperation,
    ComputeOperation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
)
from chakram.records.row_layout import (
    CAUSE_MESSAGE,
    CAUSE_OPERATION,
    CAUSE_START,
    RecordRows,
)
from tests.made_plans import (
    FlowRow,
    ShareRow,
    flow_rows,
    iteration_rows,
    share_rows,
)


def identity(program: RankProgram, operation: int) -> tuple[object, ...]:
    """Identity of an operation and its counterparts on other ranks."""
    row = program.operations[operation]
    if isinstance(row, CollectiveOperation):
        return ("collective", program.job, row.group, row.number)
    if isinstance(row, SendOperation):
        return ("message", program.job, program.rank, row.peer, row.number)
    assert isinstance(row, ReceiveOperation)
    return ("message", program.job, row.peer, program.rank, row.number)


def expected_sends(
    program: RankProgram, operation: int
) -> list[tuple[int, int, int, int]]:
    """(step, channel, peer rank, size) of the messages of an operation."""
    row = program.operations[operation]
    if isinstance(row, SendOperation):
        return [(0, 0, row.peer, row.size_bytes)]
    if not isinstance(row, CollectiveOperation):
        return []
    group = next(each for each in program.groups if each.name == row.group)
    how = algorithm(row.op, row.algorithm)
    n = len(group.ranks)
    position = group.position(program.rank)
    if row.splits is not None:
        return [
            (step, 0, group.ranks[peer], row.splits.sent_bytes[peer])
            for step, peer in _partners(row.algorithm, position, n)
            if row.splits.sent_bytes[peer]
        ]
    share = rank_schedule(how, position=position, nranks=n, root=row.root)
    return [
        (
            send.step,
            send.channel,
            group.ranks[send.peer],
            transfer_bytes(how, send, nranks=n, input_bytes=row.input_bytes),
        )
        for send in share.sends
    ]


def _partners(name: str, position: int, n: int) -> list[tuple[int, int]]:
    """(step, peer) of an all_to_all_v, in the order of its algorithm."""
    if name == "direct":
        return [(0, (position + distance) % n) for distance in range(1, n)]
    if n & n - 1:
        return [(step, (position + step + 1) % n) for step in range(n - 1)]
    return [(step, position ^ (step + 1)) for step in range(n - 1)]


class Ran:
    """Records of a run, by their operation."""

    def __init__(self, plan: Plan, records: RecordRows) -> None:
        self.plan = plan
        self.programs = [rank.program for rank in plan.ranks()]
        self.settings = plan.agents[0].settings
        self.iterations = iteration_rows(records)
        self.shares: dict[tuple[int, int, int], ShareRow] = {}
        for share in share_rows(records):
            key = (share.iteration, share.rank, share.operation)
            assert key not in self.shares
            self.shares[key] = share
        self.flows: dict[tuple[int, int, int], list[FlowRow]] = defaultdict(list)
        for flow in flow_rows(records):
            self.flows[flow.iteration, flow.rank, flow.operation].append(flow)

    def communications(self) -> list[tuple[int, int, int]]:
        return [
            (iteration, rank, index)
            for iteration in range(self.settings.iterations)
            for rank, program in enumerate(self.programs)
            for index, row in enumerate(program.operations)
            if not isinstance(row, ComputeOperation)
        ]


def assert_every_operation_ran_once(ran: Ran) -> None:
    assert sorted(ran.shares) == ran.communications()
    assert sorted((row.iteration, row.rank) for row in ran.iterations) == [
        (iteration, rank)
        for iteration in range(ran.settings.iterations)
        for rank in range(len(ran.programs))
    ]


def assert_exactly_the_messages_of_the_schedules(ran: Ran) -> None:
    number_of = {
        (each.job, each.rank): number for number, each in enumerate(ran.programs)
    }
    received: Counter[tuple[object, ...]] = Counter()
    for iteration, rank, index in ran.communications():
        program = ran.programs[rank]
        flows = ran.flows[iteration, rank, index]
        sent = Counter((f.step, f.channel, f.peer, f.size_bytes) for f in flows)
        assert sent == Counter(
            (step, channel, number_of[program.job, peer], size_bytes)
            for step, channel, peer, size_bytes in expected_sends(program, index)
        )
        share = ran.shares[iteration, rank, index]
        assert share.sent_bytes == sum(flow.size_bytes for flow in flows)
        for flow in flows:
            what = identity(program, index)
            received[iteration, flow.peer, *what] += flow.size_bytes
    for iteration, rank, index in ran.communications():
        share = ran.shares[iteration, rank, index]
        program = ran.programs[rank]
        if isinstance(program.operations[index], SendOperation):
            assert share.received_bytes == 0
        else:
            key = (iteration, rank, *identity(program, index))
            assert share.received_bytes == received[key]


def earliest_ends_ns(ran: Ran, iteration: int, rank: int, start_ns: int) -> list[int]:
    """When operations ended: communication as recorded, compute at the earliest."""
    rows = ran.programs[rank].operations
    ends: dict[int, int] = {}

    def end(index: int) -> int:
        if index not in ends:
            row = rows[index]
            if isinstance(row, ComputeOperation):
                ready_ns = max([start_ns, *map(end, row.dependencies)])
                ends[index] = ready_ns + row.duration_ns
            else:
                ends[index] = ran.shares[iteration, rank, index].end_ns
        return ends[index]

    return [end(index) for index in range(len(rows))]


def assert_dependencies_hold(ran: Ran) -> None:
    for row in ran.iterations:
        program = ran.programs[row.rank]
        ends_ns = earliest_ends_ns(ran, row.iteration, row.rank, row.start_ns)
        # A compute operation that nothing waits for ends with the iteration at most.
        assert row.end_ns >= max([row.start_ns, *ends_ns])
        for index, operation in enumerate(program.operations):
            if isinstance(operation, ComputeOperation):
                continue
            share = ran.shares[row.iteration, row.rank, index]
            dependencies = [ends_ns[each] for each in operation.dependencies]
            assert share.ready_ns >= max([row.start_ns, *dependencies])
            computes = any(
                isinstance(program.operations[each], ComputeOperation)
                for each in operation.dependencies
            )
            if not computes:
                assert share.ready_ns == max([row.start_ns, *dependencies])
            assert share.ready_ns <= share.start_ns <= share.end_ns <= row.end_ns
            for flow in ran.flows[row.iteration, row.rank, index]:
                assert share.ready_ns <= flow.ready_ns <= flow.posted_ns
                assert flow.posted_ns <= flow.first_sent_ns <= flow.last_acked_ns
                assert flow.last_acked_ns <= share.end_ns
                assert_cause_holds(ran, flow)


def assert_cause_holds(ran: Ran, flow: FlowRow) -> None:
    program = ran.programs[flow.rank]
    share = ran.shares[flow.iteration, flow.rank, flow.operation]
    if flow.cause_kind == CAUSE_MESSAGE:
        what = identity(program, flow.operation)
        causes = [
            each
            for (iteration, rank, index), flows in ran.flows.items()
            if iteration == flow.iteration and rank == flow.cause_rank
            if identity(ran.programs[rank], index) == what
            for each in flows
            if each.peer == flow.rank and each.step < flow.step
        ]
        assert any(each.posted_ns <= flow.ready_ns for each in causes)
    else:
        assert flow.ready_ns == share.ready_ns
        assert flow.cause_rank == flow.rank
        releasers, is_root = _releasers(program, flow.operation)
        if flow.cause_kind == CAUSE_OPERATION:
            assert flow.cause_number in releasers
        else:
            assert flow.cause_kind == CAUSE_START
            assert is_root


def _releasers(program: RankProgram, operation: int) -> tuple[set[int], bool]:
    """What may release an operation; computations of no time never do by themselves.

    Also whether nothing but the start of the iteration may.
    """
    found: set[int] = set()
    dependencies = program.operations[operation].dependencies
    is_root = not dependencies
    for each in dependencies:
        row = program.operations[each]
        if isinstance(row, ComputeOperation) and row.duration_ns == 0:
            others, may_start = _releasers(program, each)
            found |= others
            is_root |= may_start
        else:
            found.add(each)
    return found, is_root


def assert_messages_wait_for_those_they_carry_on(ran: Ran) -> None:
    """No rank passes on a chunk before the one that has it could have sent it.

    Flows of one step between the same ranks are not told apart.
    """
    posted: dict[tuple[object, ...], int] = {}
    for (iteration, rank, index), flows in ran.flows.items():
        for flow in flows:
            what = identity(ran.programs[rank], index)
            key = (iteration, *what, rank, flow.peer, flow.channel, flow.step)
            posted[key] = min(posted.get(key, flow.posted_ns), flow.posted_ns)
    number_of = {
        (each.job, each.rank): number for number, each in enumerate(ran.programs)
    }
    for (iteration, rank, index), flows in ran.flows.items():
        program = ran.programs[rank]
        row = program.operations[index]
        if not isinstance(row, CollectiveOperation):
            continue
        group = next(each for each in program.groups if each.name == row.group)
        how = algorithm(row.op, row.algorithm)
        position = group.position(program.rank)
        share = (
            rank_schedule(
                how, position=position, nranks=len(group.ranks), root=row.root
            )
            if row.splits is None
            else uneven_schedule(how, row.splits, position=position)
        )
        ready: dict[tuple[int, int, int], int] = {}
        for flow in flows:
            sent = (flow.step, flow.peer, flow.channel)
            ready[sent] = max(ready.get(sent, 0), flow.ready_ns)
        for send in share.sends:
            peer = number_of[program.job, group.ranks[send.peer]]
            for need in (share.receives[each] for each in send.needs):
                source = number_of[program.job, group.ranks[need.peer]]
                what = identity(program, index)
                key = (iteration, *what, source, rank, need.channel, need.step)
                assert posted[key] <= ready[send.step, peer, send.channel]


def assert_iterations_follow_each_other(ran: Ran) -> None:
    gap_ns = ran.settings.gap_ns if ran.settings.sync == "gap" else 0
    ends_ns: dict[int, int] = {}
    for row in sorted(ran.iterations):
        if row.iteration:
            assert row.start_ns == ends_ns[row.rank] + gap_ns
        else:
            assert row.start_ns == 0
        ends_ns[row.rank] = row.end_ns


def assert_time_is_accounted_for(ran: Ran) -> None:
    for row in ran.iterations:
        spent_ns = row.compute_ns + row.exposed_ns + row.idle_ns
        assert spent_ns == row.end_ns - row.start_ns
        hidden_ns = row.communication_ns - row.exposed_ns
        assert 0 <= hidden_ns <= row.compute_ns


def assert_laws(plan: Plan, records: RecordRows) -> None:
    ran = Ran(plan, records)
    assert_every_operation_ran_once(ran)
    assert_exactly_the_messages_of_the_schedules(ran)
    assert_dependencies_hold(ran)
    assert_messages_wait_for_those_they_carry_on(ran)
    assert_iterations_follow_each_other(ran)
    assert_time_is_accounted_for(ran)
