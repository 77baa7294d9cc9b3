# cython: language_level=3, annotation_typing=False
"""What is under way on a rank: operations, messages, and how its time is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.replay.expansion import Expansion


class ActiveCollective:
    """A collective (or point-to-point operation) that has started and not ended."""

    __slots__ = (
        "arrived",
        "ce",
        "expansion",
        "generator_wait_ns",
        "key",
        "missing_needs",
        "operation",
        "ready_ns",
        "received_bytes",
        "receives_left",
        "retransmitted",
        "sends_left",
        "sent_bytes",
        "sequence",
        "start_ns",
    )

    def __init__(
        self,
        operation: int,
        key: int,
        sequence: int,
        expansion: Expansion,
        ready_ns: int,
        start_ns: int,
    ) -> None:
        self.operation = operation
        self.key = key
        self.sequence = sequence
        self.expansion = expansion
        self.missing_needs = list(expansion.needs)
        self.arrived = bytearray(len(expansion.receive_sizes))
        self.sends_left = len(expansion.send_qpns)
        self.receives_left = len(expansion.receive_sizes)
        self.ready_ns = ready_ns
        self.start_ns = start_ns
        self.sent_bytes = 0
        self.received_bytes = 0
        self.generator_wait_ns = 0
        self.retransmitted = 0
        self.ce = 0


class Flow:
    """A message on its way: where it belongs and what released it."""

    __slots__ = (
        "active",
        "cause_kind",
        "cause_number",
        "cause_rank",
        "channel",
        "peer",
        "ready_ns",
        "size_bytes",
        "step",
    )

    def __init__(
        self,
        active: ActiveCollective,
        step: int,
        channel: int,
        peer: int,
        size_bytes: int,
        ready_ns: int,
        cause_kind: int,
        cause_rank: int,
        cause_number: int,
    ) -> None:
        self.active = active
        self.step = step
        self.channel = channel
        self.peer = peer
        self.size_bytes = size_bytes
        self.ready_ns = ready_ns
        self.cause_kind = cause_kind
        self.cause_rank = cause_rank
        self.cause_number = cause_number


class Activity:
    """How a rank spends an iteration: computing, communicating, both or neither.

    Attributes:
        compute_ns: At least one compute operation ran.
        communication_ns: At least one collective or message was under way.
        exposed_ns: Communication without compute.
        idle_ns: Neither.
    """

    __slots__ = (
        "_communicating",
        "_computing",
        "_since_ns",
        "communication_ns",
        "compute_ns",
        "exposed_ns",
        "idle_ns",
    )

    def __init__(self) -> None:
        self._computing = 0
        self._communicating = 0
        self.begin(0)

    def begin(self, now_ns: int) -> None:
        """Start to count an iteration."""
        self._since_ns = now_ns
        self.compute_ns = 0
        self.communication_ns = 0
        self.exposed_ns = 0
        self.idle_ns = 0

    def change(self, computing: int, communicating: int, now_ns: int) -> None:
        """Take note that more (or fewer, below 0) operations are under way."""
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns > 0:
            self._since_ns = now_ns
            if self._computing:
                self.compute_ns += elapsed_ns
            if self._communicating:
                self.communication_ns += elapsed_ns
                if not self._computing:
                    self.exposed_ns += elapsed_ns
            elif not self._computing:
                self.idle_ns += elapsed_ns
        self._computing += computing
        self._communicating += communicating
