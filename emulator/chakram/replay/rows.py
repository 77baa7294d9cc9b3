# cython: language_level=3, annotation_typing=False
"""Writes what a rank did as rows of numbers; ``chakram.core.records`` names them.

A row is packed into bytes and appended: a fifth of the time that an array takes to read
its numbers one by one.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from chakram.core.records import FLOW_FIELDS, ITERATION_FIELDS, SHARE_FIELDS

if TYPE_CHECKING:
    from chakram.core.records import RecordRows
    from chakram.replay.progress import ActiveOperation, Activity, Flow
    from chakram.roce.events import SendCompleted

__all__ = ["RowWriter"]

_FLOW = Struct(f"={len(FLOW_FIELDS)}q")
_SHARE = Struct(f"={len(SHARE_FIELDS)}q")
_ITERATION = Struct(f"={len(ITERATION_FIELDS)}q")


class RowWriter:
    """Writes the rows of one rank.

    Args:
        records: Where they go.
        number: Of the rank in the plan.
    """

    __slots__ = ("_number", "_records")

    def __init__(self, records: RecordRows, number: int) -> None:
        self._records = records
        self._number = number

    def flow(
        self, iteration: int, qpn: int, flow: Flow, event: SendCompleted, wait_ns: int
    ) -> None:
        """Write one message; *wait_ns*: how long it waited for the generator."""
        expansion = flow.active.expansion
        send = flow.send
        self._records.flows.frombytes(
            _FLOW.pack(
                iteration,
                self._number,
                flow.active.index,
                expansion.send_steps[send],
                expansion.send_channels[send],
                expansion.send_peers[send],
                qpn,
                event.size_bytes,
                flow.ready_ns,
                event.posted_ns,
                event.first_sent_ns,
                event.last_acked_ns,
                event.rate_at_start_bps or 0,
                event.packets,
                event.retransmitted,
                event.cnps,
                wait_ns,
                flow.cause_kind,
                flow.cause_rank,
                flow.cause_number,
            )
        )

    def share(self, iteration: int, active: ActiveOperation) -> None:
        """Write the rank's share of one operation that has ended."""
        self._records.shares.frombytes(
            _SHARE.pack(
                iteration,
                self._number,
                active.index,
                active.ready_ns,
                active.start_ns,
                active.end_ns,
                active.sent_bytes,
                active.received_bytes,
                active.generator_wait_ns,
                active.retransmitted,
                active.ce,
                active.slip_ns,
            )
        )

    def iteration(
        self, iteration: int, start_ns: int, end_ns: int, activity: Activity
    ) -> None:
        """Write one iteration, and how its time was spent."""
        self._records.iterations.frombytes(
            _ITERATION.pack(
                iteration,
                self._number,
                start_ns,
                end_ns,
                activity.compute_ns,
                activity.communication_ns,
                activity.exposed_ns,
                activity.idle_ns,
            )
        )
