"""Management of the receives that a port posts on an RDMA NIC.

Each message with immediate data consumes a receive. If a port has few queue pairs, each
one has its own receive queue. Many queue pairs share a receive queue if the device
supports shared queues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram_agent.dataplane.nic_payload import PIECE_BYTES, PayloadLayout

if TYPE_CHECKING:
    from contextlib import ExitStack

    from chakram.plan.transport import TransportPlan
    from chakram.rdma.libibverbs import Device, Memory, SharedReceives
    from chakram.rdma.libibverbs import QueuePair as DeviceQueuePair
    from chakram_agent.dataplane.nic_queue_pair import NicQueuePair

SHARE_FROM = 64
"""Smallest number of queue pairs that share receives.

If there are fewer queue pairs, each one has its own receives.
"""

_MAX_DEPTH = 64
_MIN_DEPTH = 4
_QUEUE_ENTRIES = 12_000
"""Size of a port's completion queue, which all common devices support."""
_RECEIVES_PER_SEND = 2
_SHARED_RECEIVES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepths:
    """Maximum numbers of posted sends and receives.

    Attributes:
        pairs: Number of queue pairs.
        sends: Sends per queue pair.
        receives: Receives per queue pair. 0 if they are shared.
        shared: Receives of all queue pairs together. 0 if they are not shared.
    """

    pairs: int
    sends: int
    receives: int
    shared: int

    @property
    def completions(self) -> int:
        """Maximum number of completions that wait at the same time."""
        return self.pairs * (self.sends + self.receives) + self.shared


def queue_depths(pairs: int, *, are_shared: bool = False) -> QueueDepths:
    """Return queue depths at which the completion queue has room for all completions.

    Args:
        pairs: Number of queue pairs of the port.
        are_shared: Whether the queue pairs share their receives.
    """
    shared = _SHARED_RECEIVES if are_shared else 0
    receives_per_send = 0 if are_shared else _RECEIVES_PER_SEND
    depth = (_QUEUE_ENTRIES - shared) // max(1, pairs) // (1 + receives_per_send)
    depth = min(_MAX_DEPTH, max(_MIN_DEPTH, depth))
    return QueueDepths(
        pairs=pairs, sends=depth, receives=receives_per_send * depth, shared=shared
    )


class PortReceives:
    """The receives of a port's queue pairs.

    Call `share` before you create queue pairs that may share receives. Then call `post`
    once per queue pair, and `consume` for each completed receive.

    Attributes:
        depths: Maximum numbers of posted sends and receives.
        shared: Receive queue that the queue pairs share. If None, each queue pair has
            its own receive queue.
    """

    def __init__(
        self, depths: QueueDepths, layout: PayloadLayout, transport: TransportPlan
    ) -> None:
        """Create the object for queue pairs that do not share receives."""
        self.depths = depths
        self.shared: SharedReceives | None = None
        self._layout = layout
        self._are_sends = transport.verb == "send"
        self._consumed = 0

    def share(self, device: Device, memory: Memory, stack: ExitStack) -> None:
        """Post shared receives for all queue pairs, if the device supports them.

        Args:
            device: Device on which the port is open.
            memory: Memory of the port.
            stack: Exit stack that closes the shared queue.

        Raises:
            OSError: If the device refuses the receives.
        """
        from chakram.rdma.libibverbs import SharedReceives

        try:
            self.shared = SharedReceives(device, memory, _SHARED_RECEIVES)
        except OSError:
            return
        stack.callback(self.shared.close)
        self._post_unplaced(self.shared, _SHARED_RECEIVES)
        self.depths = queue_depths(self.depths.pairs, are_shared=True)

    def post(self, pair: NicQueuePair) -> None:
        """Post the first receives of a queue pair, if it has a queue of receives.

        Raises:
            OSError: If the device refuses the receives.
        """
        if self.depths.receives:
            self._post(pair, self.depths.receives)

    def consume(self, pair: NicQueuePair) -> None:
        """Count a completed receive.

        When half of a queue's receives have completed, post the same number of new
        receives.

        Raises:
            OSError: If the device refuses new receives.
        """
        if self.shared is not None:
            self._consumed += 1
            if self._consumed >= _SHARED_RECEIVES // 2:
                self._post_unplaced(self.shared, self._consumed)
                self._consumed = 0
            return
        pair.consumed += 1
        if pair.consumed >= self.depths.receives // 2:
            self._post(pair, pair.consumed)
            pair.consumed = 0

    def _post(self, pair: NicQueuePair, count: int) -> None:
        if not self._are_sends or pair.index is None:
            self._post_unplaced(pair.device, count)
            return
        for _ in range(count):
            slot = pair.next_slot
            pair.next_slot = (slot + 1) % self._layout.slots
            pair.device.post_receives(
                1,
                slot,
                offset=self._layout.slot_offset(pair.index, slot),
                size_bytes=self._layout.piece_bytes,
            )

    def _post_unplaced(
        self, queue: SharedReceives | DeviceQueuePair, count: int
    ) -> None:
        """Post receives without a slot. For SENDs, they have room for any piece."""
        size_bytes = PIECE_BYTES if self._are_sends else 0
        queue.post_receives(
            count, 0, offset=self._layout.scratch_offset, size_bytes=size_bytes
        )
