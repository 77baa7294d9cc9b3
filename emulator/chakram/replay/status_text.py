"""What a rank is doing, in words for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from chakram.program.operations import (
    CollectiveOperation,
    Operation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
)
from chakram.roce.retries import FOR_NAK, FOR_RNR, FOR_TIMEOUT

if TYPE_CHECKING:
    from chakram.replay.rank_progress import ActiveOperation


_LOOK_AT = {
    FOR_TIMEOUT: "packets or their ACKs were lost so often: see drops of ports "
    "and switches; or transport.retransmit_timeout is below the time that packets wait "
    "in queues, up to a window of every sender to a port; transport.retry_limit is how "
    "often it tries",
    FOR_NAK: "a packet was lost so often: see drops of ports and switches; "
    "transport.retry_limit is how often it tries",
    FOR_RNR: "transport.rnr_retry_limit is how often it tries; 7: without end",
}
"""By what a queue pair retried for in vain: where to look."""

_NAMED_MESSAGES = 3
"""How many missing messages a sentence names; of the others it gives the number."""


def operation_words(operation: Operation, iteration: int) -> str:
    """Return what *operation* is, and in which iteration."""
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
    """Return why a rank's queue pair is in error, and what to look at."""
    text = f"job {job} rank {rank}: the queue pair to rank {peer} is in error: {reason}"
    return text if retried_for is None else f"{text} ({_LOOK_AT[retried_for]})"


def foreign_words(
    job: str, rank: int, peer: int, *, packets: int, expected: str, seen: str
) -> str:
    """Return that a queue pair got packets, but none from its peer's address."""
    return (
        f"job {job} rank {rank}: nothing came from {expected}, where rank {peer} is, "
        f"but {packets} packet(s) to its queue pair from {seen}, which were dropped "
        "(does something between them translate addresses? they must arrive as they "
        "were sent)"
    )


def missing_words(missing: Sequence[tuple[int, int]]) -> str:
    """Return which messages are missing, given (step, rank) of each.

    The lowest steps come first: what is missing there is what holds up the rest.
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
    """Return what the operations under way wait for, a clause each.

    Args:
        program: The program.
        iteration: Which one runs.
        active: Operations that have started and not ended.
        rank_of: The rank of the job that has a number in the plan.
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
                each.arrived,
                strict=True,
            )
            if not arrived
        ]
        if missing:
            name = operation_words(program.operation(each.index), iteration)
            clauses.append(f"{name} waits for {missing_words(missing)}")
        unacknowledged.update(
            (each.index, peer)
            for peer, is_posted in zip(expansion.send_peers, each.posted, strict=True)
            if is_posted
        )
    for (index, peer), count in unacknowledged.items():
        name = operation_words(program.operation(index), iteration)
        clauses.append(
            f"{name} has {count} message(s) that rank {rank_of[peer]} does not "
            "acknowledge"
        )
    return clauses
