"""Messages that explain what a rank waits for and why it failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from chakram.program.operations import (
    CollectiveOperation,
    Operation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
)
from chakram.replay.rank_progress import ActiveOperation
from chakram.roce.retries import FOR_NAK, FOR_RNR, FOR_TIMEOUT

_LOOK_AT = {
    FOR_TIMEOUT: (
        "check the drops of ports and switches: packets or their ACKs were lost "
        "repeatedly; or raise transport.retransmit_timeout, which may be below the "
        "time that packets wait in queues, up to a window of every sender to a port; "
        "transport.retry_limit sets the number of retries"
    ),
    FOR_NAK: (
        "check the drops of ports and switches: a packet was lost repeatedly; "
        "transport.retry_limit sets the number of retries"
    ),
    FOR_RNR: (
        "check why the peer is not ready, or raise transport.rnr_retry_limit; 7: no "
        "limit"
    ),
}
"""What to check, by the kind of retry whose limit was reached."""

_NAMED_MESSAGES = 3
"""Maximum number of missing messages to list. Further messages are only counted."""


def operation_words(operation: Operation, iteration: int) -> str:
    """Describe an operation and its iteration."""
    when = f"in iteration {iteration}"
    if isinstance(operation, CollectiveOperation):
        what = f"{operation.op} {operation.number} of group {operation.group!r}"
        return f"{what} {when}"
    if isinstance(operation, SendOperation):
        return f"send {operation.number} to rank {operation.peer} {when}"
    if isinstance(operation, ReceiveOperation):
        return f"receive {operation.number} from rank {operation.peer} {when}"
    return f"compute {operation.name!r} {when}"


def failure_words(
    job: str, rank: int, peer: int, reason: str, retried_for: int | None = None
) -> str:
    """Describe why a queue pair is in error, and what to check."""
    text = f"job {job} rank {rank}: the queue pair to rank {peer} is in error: {reason}"
    return text if retried_for is None else f"{text} ({_LOOK_AT[retried_for]})"


def foreign_words(
    job: str, rank: int, peer: int, *, packets: int, expected: str, seen: str
) -> str:
    """Describe a queue pair that received packets, but none from its peer's address."""
    return (
        f"job {job} rank {rank}: no packets came from {expected}, the address of rank "
        f"{peer}; {packets} packet(s) for its queue pair came from {seen} and were "
        "dropped (check that nothing between the hosts translates addresses or changes "
        "packets)"
    )


def missing_words(missing: Sequence[tuple[int, int]]) -> str:
    """Describe the missing messages, given the step and rank of each.

    The lowest steps come first, because later steps depend on them.
    """
    named = [
        f"step {step} from rank {rank}"
        for step, rank in sorted(missing)[:_NAMED_MESSAGES]
    ]
    more = len(missing) - len(named)
    if more:
        named.append(f"{more} more")
    if len(missing) == 1:
        return f"the message of {named[0]}"
    return f"{len(missing)} messages: {', '.join(named)}"


def waiting_words(
    *,
    program: RankProgram,
    iteration: int,
    active: Iterable[ActiveOperation],
    rank_of: Mapping[int, int],
) -> list[str]:
    """Describe what the active operations wait for, one clause each.

    Args:
        program: The program.
        iteration: Number of the current iteration.
        active: Operations that have started and not ended.
        rank_of: Rank in the job, by plan number.
    """
    clauses = []
    unacknowledged: Counter[tuple[int, int]] = Counter()
    for each in active:
        expansion = each.expansion
        missing = [
            (step, rank_of[peer])
            for step, peer, arrived in zip(
                expansion.receive_steps,
                expansion.receive_peers,
                each.marks[: each.first_send],
                strict=True,
            )
            if not arrived
        ]
        if missing:
            name = operation_words(program.operation(each.index), iteration)
            clauses.append(f"{name} waits for {missing_words(missing)}")
        unacknowledged.update(
            (each.index, peer)
            for peer, is_posted in zip(
                expansion.send_peers, each.marks[each.first_send :], strict=True
            )
            if is_posted
        )
    for (index, peer), count in unacknowledged.items():
        name = operation_words(program.operation(index), iteration)
        clauses.append(
            f"{name} has {count} message(s) that rank {rank_of[peer]} does not "
            "acknowledge"
        )
    return clauses
