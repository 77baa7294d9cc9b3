# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Writes records of a rank as rows of integers: see ``chakram.records.row_layout``.

Each row is filled in a fixed buffer and appended as bytes. In compiled code, the
numbers of a row never become Python objects.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.native.append_rows import append_row
from chakram.records.row_layout import (
    ARRIVAL_FIELDS,
    COMPUTATION_FIELDS,
    FLOW_FIELDS,
    ITERATION_FIELDS,
    SHARE_FIELDS,
    UNKNOWN,
)

if TYPE_CHECKING:
    from chakram.records.row_layout import RecordRows
    from chakram.replay.rank_progress import ActiveOperation, Activity, Flow
    from chakram.roce.events import SendCompleted

__all__ = ["RowWriter"]

_UNKNOWN = UNKNOWN


def _row(fields: tuple[str, ...]) -> array[int]:
    return array("q", (0 for _ in fields))


class RowWriter:
    """Writes the rows of one rank.

    Args:
        records: Destination of the rows.
        number: Number of the rank in the plan.
    """

    __slots__ = (
        "_arrival",
        "_arrival_row",
        "_computation",
        "_computation_row",
        "_flow",
        "_flow_row",
        "_iteration",
        "_iteration_row",
        "_number",
        "_records",
        "_share",
        "_share_row",
    )

    def __init__(self, records: RecordRows, number: int) -> None:
        self._records = records
        self._number = number
        # Compiled code fills each row through a memory view, and appends the array of
        # the row.
        self._flow = self._flow_row = _row(FLOW_FIELDS)
        self._share = self._share_row = _row(SHARE_FIELDS)
        self._arrival = self._arrival_row = _row(ARRIVAL_FIELDS)
        self._computation = self._computation_row = _row(COMPUTATION_FIELDS)
        self._iteration = self._iteration_row = _row(ITERATION_FIELDS)

    def flow(
        self,
        iteration: int,
        qpn: int,
        active: ActiveOperation,
        flow: Flow,
        event: SendCompleted,
        wait_ns: int,
    ) -> None:
        """Write one message of an operation.

        *wait_ns* is the time that the message waited for the generator.
        """
        expansion = active.expansion
        send = flow.send
        row = self._flow
        row[0] = iteration
        row[1] = self._number
        row[2] = active.index
        row[3] = expansion.send_steps[send]
        row[4] = expansion.send_channels[send]
        row[5] = expansion.send_peers[send]
        row[6] = qpn
        row[7] = event.size_bytes
        row[8] = flow.ready_ns
        row[9] = event.posted_ns
        row[10] = event.first_sent_ns
        row[11] = event.last_acked_ns
        row[12] = event.rate_at_start_bps or 0
        row[13] = event.packets
        row[14] = event.retransmitted
        row[15] = event.cnps
        row[16] = wait_ns
        row[17] = flow.cause_kind
        row[18] = flow.cause_rank
        row[19] = flow.cause_number
        row[20] = row[4] << 32 | event.message_id
        parts = event.parts
        if parts is None:
            for at in range(21, len(row)):
                row[at] = _UNKNOWN
        else:
            row[21] = parts.departed_ns
            row[22] = parts.received_ns
            row[23] = parts.own_port_ns
            row[24] = parts.window_ns
            row[25] = parts.pace_ns
            row[26] = parts.pause_ns
            row[27] = parts.transfer_ns
            row[28] = parts.repair_ns
            row[29] = parts.queue_ns
            row[30] = parts.switch_pause_ns
            row[31] = parts.serialise_ns
            row[32] = parts.queue_port
            row[33] = parts.pause_port
            row[34] = parts.slow_ns
            row[35] = parts.slow_port
        append_row(self._records.flows, self._flow_row)

    def share(self, iteration: int, active: ActiveOperation) -> None:
        """Write the rank's share of an operation that has ended."""
        row = self._share
        row[0] = iteration
        row[1] = self._number
        row[2] = active.index
        row[3] = active.ready_ns
        row[4] = active.start_ns
        row[5] = active.end_ns
        row[6] = active.sent_bytes
        row[7] = active.received_bytes
        row[8] = active.generator_wait_ns
        row[9] = active.retransmitted
        row[10] = active.ce
        row[11] = active.slip_ns
        row[12] = active.wrong
        row[13] = active.released_by
        row[14] = active.end_kind
        row[15] = active.end_rank
        row[16] = active.end_number
        append_row(self._records.shares, self._share_row)

    def arrival(
        self, iteration: int, operation: int, peer: int, number: int, received_ns: int
    ) -> None:
        """Write the arrival of a complete message: see ``ArrivalRow``."""
        row = self._arrival
        row[0] = iteration
        row[1] = self._number
        row[2] = operation
        row[3] = peer
        row[4] = number
        row[5] = received_ns
        append_row(self._records.arrivals, self._arrival_row)

    def computation(
        self,
        iteration: int,
        index: int,
        ready_ns: int,
        start_ns: int,
        end_ns: int,
        released_by: int,
        held_by: int,
    ) -> None:
        """Write one computation: see ``ComputationRow``."""
        row = self._computation
        row[0] = iteration
        row[1] = self._number
        row[2] = index
        row[3] = ready_ns
        row[4] = start_ns
        row[5] = end_ns
        row[6] = released_by
        row[7] = held_by
        append_row(self._records.computations, self._computation_row)

    def iteration(
        self, iteration: int, start_ns: int, end_ns: int, activity: Activity
    ) -> None:
        """Write one iteration, with its computing, communication and idle time."""
        row = self._iteration
        row[0] = iteration
        row[1] = self._number
        row[2] = start_ns
        row[3] = end_ns
        row[4] = activity.compute_ns
        row[5] = activity.communication_ns
        row[6] = activity.exposed_ns
        row[7] = activity.idle_ns
        append_row(self._records.iterations, self._iteration_row)
