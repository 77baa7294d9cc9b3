"""The engine of a port on an RDMA NIC: posts messages, and takes completions.

The replay uses this engine like any other ``PortEngine``. The NIC does the work that
other port engines do in software: packets, acknowledgments, retransmission, pacing and
congestion control. The plan's windows, pacing and congestion control do not apply,
except that a fixed rate becomes the rate limit of the NIC's queue pairs.

A long message leaves in pieces.  If the remote end is on a NIC, too, each piece is a
WRITE with immediate data, so that the receiver knows how many bytes have arrived.

All WRITEs of a queue pair use the same memory. If the payload is verified, messages use
the slots of that memory in turn, and credits prevent a slot from being overwritten
before it has been verified.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from chakram.foundation.errors import EnvironmentProblem, PlanError, RunFailed
from chakram.foundation.units import format_rate
from chakram.plan.nic_queue_pairs import (
    BoundPeer,
    BoundQueuePair,
    is_verified,
    payload_slots,
)
from chakram.plan.plan import CREDIT_CHANNELS
from chakram.plan.port_plan import HUGE_PAGES
from chakram.rdma.hardware_counters import counted, read_counters
from chakram.rdma.nic_device import Nic, find_nic, huge_page_bytes, open_device
from chakram.rdma.nic_settings import nic_settings
from chakram.roce.constants import NEVER, NO_IMMEDIATE
from chakram.roce.events import Event, MessageReceived, QueuePairFailed, SendCompleted
from chakram.roce.port import PortEngine
from chakram_agent.dataplane.nic_payload import (
    PIECE_BYTES,
    PayloadLayout,
    pattern,
    pattern_start,
    wrong_packets,
)
from chakram_agent.dataplane.nic_queue_pair import (
    NicQueuePair,
    PostedMessage,
    check_sockets,
)
from chakram_agent.dataplane.nic_receives import (
    SHARE_FROM,
    PortReceives,
    queue_depths,
)

if TYPE_CHECKING:
    from chakram.plan.plan import RankPlan, RunSettings
    from chakram.plan.port_plan import PortPlan
    from chakram.plan.transport import TransportPlan
    from chakram.rdma.libibverbs import Device
    from chakram.records.counter_definitions import PortStatistics
    from chakram.roce.burst import Burst
    from chakram.roce.queue_pair import QueuePair
    from chakram.roce.send_order import SendOrder

MORE_FOLLOWS = 0xFFFFFFFF
"""Immediate data of a piece that is not the last one of its message."""

_MAX_POLLS = 16
"""Limit on polls per call, so that a busy NIC does not delay other work."""
_POLLS_PER_DRAIN = 64
_TIMEOUT_UNIT_NS = 4096
_MAX_RETRIES = 7


def timeout_code(timeout_ns: int) -> int:
    """Return the code of the shortest timeout that is at least *timeout_ns*.

    Code 0 means no timeout.
    """
    if timeout_ns == 0:
        return 0
    return min(31, max(1, (-(-timeout_ns // _TIMEOUT_UNIT_NS) - 1).bit_length()))


class VerbsEngine(PortEngine):
    """The queue pairs of a port on an RDMA NIC, with the methods of other port engines.

    Call `bind` when all queue pairs have been added, and then `connect` once the remote
    ends are known. During the run, call `take_completions` and `hand_over` alternately.

    Attributes:
        bound: The ends of the queue pairs on the NIC, which their peers need.
        settings: Settings of the device, after `bind`.
        is_behind: Whether completions are pending but do not make the descriptor
            readable.
    """

    def __init__(
        self,
        port: PortPlan,
        ranks: Iterable[RankPlan],
        transport: TransportPlan,
        settings: RunSettings,
        clock: Callable[[], int],
    ) -> None:
        """Create a port without queue pairs, which opens no device yet.

        Args:
            port: The port, whose specification names the device.
            ranks: Ranks of the port.
            transport: Settings of the queue pairs.
            settings: Settings of the run.
            clock: Function that returns the time in ns.

        Raises:
            PlanError: If the plan has a setting that only sockets support.
        """
        super().__init__(rate_bps=None, burst_bound_ns=0, max_burst_packets=1)
        self._where = f"port {port.number} ({port.open} of {port.host})"
        if settings.faults or settings.drop_ratio:
            raise PlanError(
                self._where,
                "packet faults cannot be injected on an RDMA NIC",
                "remove faults.packets and faults.drop, or use a port of kind udp:",
            )
        if port.obeys_pauses:
            raise PlanError(
                self._where,
                "the suffix ,pauses is for sockets: the NIC itself obeys pause frames",
                "remove the suffix",
            )
        ranks = tuple(ranks)
        self._port = port
        self._transport = transport
        self._clock = clock
        self._plans = {
            pair.qpn: pair
            for rank in ranks
            for pair in rank.queue_pairs
            if pair.local_rate_bps is None
        }
        depths = queue_depths(len(self._plans))
        slots = payload_slots(ranks, transport, settings)
        self._may_share = len(self._plans) >= SHARE_FROM
        if transport.verb == "send" and is_verified(ranks, transport, settings):
            # A receive belongs to a slot of its queue pair.
            slots, self._may_share = depths.receives, False
        # Grants have no payload.
        verified = [
            qpn
            for qpn, pair in self._plans.items()
            if slots and pair.channel < CREDIT_CHANNELS
        ]
        self._index_of = {qpn: index for index, qpn in enumerate(verified)}
        self._layout = PayloadLayout(slots=slots, pairs=len(verified))
        self._receives = PortReceives(depths, self._layout, transport)
        self._planned: dict[int, QueuePair] = {}
        self._pairs: dict[int, NicQueuePair] = {}
        self._pair_of_device: dict[int, NicQueuePair] = {}
        self._due: dict[NicQueuePair, None] = {}
        self._taken: deque[Event] = deque()
        self._must_arm = True
        self._verified_packets = self._wrong_payloads = 0
        self.bound: tuple[BoundQueuePair, ...] = ()
        self.settings: dict[str, str] = {}
        self.is_behind = False
        self._empty_polls = 0
        self._counted_before: dict[str, int] = {}
        self._open = ExitStack()

    # The device.

    def bind(self) -> None:
        """Open the device and create its queue pairs.  Their ends are then in `bound`.

        Raises:
            ConfigError: If the device or the port's address does not exist.
            EnvironmentProblem: If the device has no room for the queue pairs or the
                memory, or cannot limit their rate, or libibverbs is missing.
        """
        device = open_device(self._port.interface)
        from chakram.rdma.libibverbs import CompletionQueue, QueuePair

        self._open.callback(device.close)
        self._nic: Nic = find_nic(device, self._port.address)
        self.settings = nic_settings(self._nic.name, self._nic.gid_index)
        if self._nic.firmware:
            self.settings["firmware"] = self._nic.firmware
        pairs = len(self._plans)
        self._rate_kbps = self._rate_limit(device)
        self._allocate(device)
        try:
            if self._may_share:
                self._receives.share(device, self._memory, self._open)
            depths = self._receives.depths
            if depths.shared:
                self.settings["shared_receives"] = str(depths.shared)
            self._completions = CompletionQueue(device, max(1, depths.completions))
            self._open.callback(self._completions.close)
            for plan in self._plans.values():
                made = QueuePair(
                    device,
                    self._memory,
                    self._completions,
                    send_depth=depths.sends,
                    receive_depth=depths.receives,
                    shared=self._receives.shared,
                )
                self._open.callback(made.close)
                pair = NicQueuePair(
                    plan=plan,
                    owner=self._planned[plan.qpn].owner,
                    planned=self._planned[plan.qpn],
                    device=made,
                    index=self._index_of.get(plan.qpn),
                    path_mtu=self._transport.path_mtu,
                    piece_bytes=PIECE_BYTES,
                    room=depths.sends,
                )
                self._pairs[plan.qpn] = self._pair_of_device[made.qpn] = pair
        except OSError as error:
            raise EnvironmentProblem(
                self._where,
                f"{self._nic.name} refuses {pairs} queue pairs: {error.strerror}",
                "raise the limit of locked memory (ulimit -l unlimited), or use fewer "
                "queue pairs",
            ) from None
        self._view = memoryview(self._memory)
        self._open.callback(self._view.release)
        self._view[: len(pattern())] = pattern()
        self.bound = tuple(map(self._bound, self._pairs.values()))

    def _rate_limit(self, device: Device) -> int:
        """Return the rate limit of each queue pair in kbit/s, or 0 if there is none.

        Raises:
            EnvironmentProblem: If the device cannot enforce the limit.
        """
        if self._transport.congestion_control != "fixed_rate":
            return 0
        rate_bps = dict(self._transport.congestion_parameters)["rate_bps"]
        lowest, highest = device.rate_limits_kbps
        if lowest <= rate_bps // 1000 <= highest:
            self.settings["rate_limit"] = format_rate(rate_bps)
            return rate_bps // 1000
        limits = (
            f"only from {format_rate(1000 * lowest)} to {format_rate(1000 * highest)}"
            if highest
            else "not at all, as it has no packet pacing"
        )
        raise EnvironmentProblem(
            self._where,
            f"{self._nic.name} cannot limit queue pairs to {format_rate(rate_bps)}: "
            f"{limits}",
            "change or remove transport.congestion_control.fixed_rate",
        )

    def _allocate(self, device: Device) -> None:
        """Register the memory of the port.

        Raises:
            EnvironmentProblem: If the host or the device has too little memory.
        """
        from chakram.rdma.libibverbs import Memory

        size_bytes = self._layout.size_bytes
        page_bytes, hint = 0, "raise the limit of locked memory (ulimit -l unlimited)"
        if self._port.open.endswith(HUGE_PAGES):
            page_bytes = huge_page_bytes()
            pages = -(-size_bytes // page_bytes)
            self.settings["huge_pages"] = f"{pages} of {page_bytes} B"
            hint = f"reserve {pages} more huge pages: sysctl vm.nr_hugepages"
        try:
            self._memory = Memory(device, size_bytes, huge_page_bytes=page_bytes)
        except OSError as error:
            raise EnvironmentProblem(
                self._where,
                f"{self._nic.name} gets no {size_bytes} B of memory: {error.strerror}",
                hint,
            ) from None
        self._open.callback(self._memory.close)

    def _bound(self, pair: NicQueuePair) -> BoundQueuePair:
        is_written = pair.index is not None and self._transport.verb == "write"
        offset = self._layout.scratch_offset
        if is_written and pair.index is not None:
            offset = self._layout.slot_offset(pair.index, 0)
        return BoundQueuePair(
            port=self._port.number,
            qpn=pair.plan.qpn,
            device_qpn=pair.device.qpn,
            address=self._memory.address + offset,
            key=self._memory.remote_key,
            slot_bytes=self._layout.piece_bytes,
            slots=self._layout.slots if is_written else 1,
            path_mtu=self._nic.path_mtu,
        )

    def connect(self, peers: Mapping[int, BoundPeer]) -> None:
        """Connect all queue pairs, and post their receives.

        Args:
            peers: The remote ends on NICs, by QPN in the plan. The other remote ends
                are on sockets, which use the QPNs of the plan.

        Raises:
            PlanError: If sockets at the other end could send more than fits in a slot.
            RunFailed: If the device refuses a connection.
        """
        for pair in self._pairs.values():
            self._connect(pair, peers.get(pair.plan.qpn))
        self._counted_before = self._raw_counters()
        # Arm the descriptor, because the event loop waits for it.
        self.take_completions()

    def _connect(self, pair: NicQueuePair, peer: BoundPeer | None) -> None:
        plan, transport = pair.plan, self._transport
        mtu = min(transport.path_mtu, self._nic.path_mtu)
        qpn, address, key = plan.remote_qpn, 0, 0
        if peer is None:
            check_sockets(plan, transport, self._where, self._layout.piece_bytes)
            if mtu < transport.path_mtu:
                raise PlanError(
                    self._where,
                    f"the path MTU of {self._nic.name} is {mtu} B, but the socket at "
                    f"{plan.remote_address} uses {transport.path_mtu} B",
                    f"set transport.path_mtu: {mtu}",
                )
        else:
            remote = peer.remote
            mtu = min(mtu, remote.path_mtu)
            qpn, address, key = remote.device_qpn, remote.address, remote.key
            pair.piece_bytes = min(PIECE_BYTES, remote.slot_bytes)
            pair.slot_bytes, pair.slots = remote.slot_bytes, remote.slots
            pair.has_nic_peer = True
        pair.path_mtu = mtu
        try:
            pair.device.connect(
                remote_qpn=qpn,
                remote_gid=plan.remote_address,
                gid_index=self._nic.gid_index,
                path_mtu=mtu,
                send_psn=plan.send_psn,
                receive_psn=plan.receive_psn,
                traffic_class=(transport.dscp_data if plan.dscp is None else plan.dscp)
                << 2
                | transport.ecn,
                remote_address=address,
                remote_key=key,
                timeout=timeout_code(transport.retransmit_timeout_ns),
                retries=min(_MAX_RETRIES, transport.retry_limit),
                rnr_retries=transport.rnr_retry_limit,
                rnr_timer=transport.rnr_timer,
                rate_kbps=self._rate_kbps,
            )
            self._receives.post(pair)
        except OSError as error:
            raise RunFailed(
                self._where,
                f"{self._nic.name} cannot connect queue pair {plan.qpn} to "
                f"{plan.remote_address}: {error}",
                "check the addresses and the route between both ends",
            ) from None

    def hardware_counters(self) -> dict[str, int]:
        """Return the device's counts since `connect`, by their OTG names."""
        return counted(self._counted_before, self._raw_counters())

    def _raw_counters(self) -> dict[str, int]:
        return read_counters(self._nic.name, self.settings.get("interface", ""))

    def fileno(self) -> int:
        """Return a descriptor that is readable when completions have arrived."""
        return self._completions.fileno()

    def close(self) -> None:
        """Release all objects of the device."""
        self._open.close()

    # Messages.

    def add_queue_pair(
        self, queue_pair: QueuePair, send_order: SendOrder | None = None
    ) -> None:
        """Add a queue pair of the plan: see `PortEngine`."""
        super().add_queue_pair(queue_pair, send_order)
        self._planned[queue_pair.qpn] = queue_pair

    def post_on(
        self,
        queue_pair: QueuePair,
        message_id: int,
        size_bytes: int,
        now_ns: int,
        order: int = 0,
        contents: bytes | None = None,
        remote_offset: int = 0,
        context: object = None,
    ) -> None:
        """Post a message: see `PortEngine`. The next `hand_over` passes it on."""
        pair = self._pairs[queue_pair.qpn]
        pair.pending.append(
            PostedMessage(
                message_id=message_id,
                size_bytes=size_bytes,
                posted_ns=now_ns,
                context=context,
                unsent_bytes=size_bytes,
                number=pair.numbered,
            )
        )
        pair.started += 1
        if message_id != NO_IMMEDIATE:
            pair.numbered += 1
        self._due[pair] = None

    def hand_over(self) -> bool:
        """Pass pending messages to the NIC while it has room.

        Returns:
            Whether messages were pending.

        Raises:
            RunFailed: If the device refuses the messages.
        """
        if not self._due:
            return False
        due, self._due = self._due, {}
        for pair in due:
            if pair.has_failed:
                continue
            now_ns = self._clock()
            rows = array("q")
            while pair.pending and pair.room:
                self._add_piece(rows, pair, now_ns)
            if not rows:
                continue
            try:
                pair.device.post(rows)
            except OSError as error:
                raise RunFailed(
                    self._where, f"{self._nic.name} refuses messages: {error}"
                ) from None
        return True

    def _add_piece(self, rows: array[int], pair: NicQueuePair, now_ns: int) -> None:
        """Add the next piece of a queue pair to a list of work requests."""
        message = pair.pending[0]
        piece_bytes = min(pair.piece_bytes, message.unsent_bytes)
        message.unsent_bytes -= piece_bytes
        is_last = message.unsent_bytes == 0
        if message.handed_ns < 0:
            message.handed_ns = now_ns
            due_ns = max(message.posted_ns, pair.room_ns)
            # Parts of one message wait at the same time, so count that time once.
            if message.context is None or message.context is not pair.last_context:
                message.wait_ns = now_ns - due_ns
            pair.last_context = message.context
        immediate = message.message_id if is_last else NO_IMMEDIATE
        if immediate == NO_IMMEDIATE and pair.has_nic_peer:
            immediate = MORE_FOLLOWS
        start = pattern_start(pair.plan.send_psn, message.number)
        slot = message.number % pair.slots * pair.slot_bytes
        is_send = self._transport.verb == "send" and is_last
        rows.extend(
            (message.number, start, piece_bytes, -1 if is_send else slot, immediate, 1)
        )
        pair.flying.append((message, is_last))
        pair.room -= 1
        if is_last:
            pair.pending.popleft()

    def take_completions(self) -> bool:
        """Take completions and arm the descriptor. Return whether any were found.

        If one call cannot take all completions, it sets `is_behind` and does not arm
        the descriptor.

        Raises:
            RunFailed: If the device no longer works.
        """
        found = self.is_behind = False
        self._empty_polls += 1
        if self._empty_polls % _POLLS_PER_DRAIN == 0:
            # An event may arrive after its completion, and remain in the descriptor.
            self._must_arm = True
        try:
            for _ in range(_MAX_POLLS):
                done = self._completions.poll()
                if done:
                    found = self._must_arm = True
                    now_ns = self._clock()
                    for each in done:
                        self._take(each, now_ns)
                elif self._must_arm:
                    self._must_arm = False
                    self._completions.arm()
                else:
                    return found
        except OSError as error:
            raise RunFailed(self._where, f"{self._nic.name}: {error}") from None
        self.is_behind = True
        return found

    def _take(self, done: tuple[int, int, bool, int, int, int], now_ns: int) -> None:
        number, status, is_receive, size_bytes, immediate, qpn = done
        pair = self._pair_of_device[qpn]
        if status:
            self._fail(pair, status, now_ns)
        elif is_receive:
            self._receive(pair, number, size_bytes, immediate, now_ns)
        else:
            self._acknowledge(pair, now_ns)

    def _fail(self, pair: NicQueuePair, status: int, now_ns: int) -> None:
        """Report the first error of a queue pair, which causes all later errors."""
        from chakram.rdma.libibverbs import status_text

        if pair.has_failed:
            return
        pair.has_failed = True
        flushed = pair.flushed = len(pair.flying) + len(pair.pending)
        reason = f"{self._nic.name} reports {status_text(status)!r} (status {status})"
        event = QueuePairFailed(reason, flushed, now_ns)
        event.owner = pair.owner
        self._taken.append(event)

    def _acknowledge(self, pair: NicQueuePair, now_ns: int) -> None:
        message, is_last = pair.flying.popleft()
        if pair.room == 0:
            pair.room_ns = now_ns
        pair.room += 1
        if pair.pending:
            self._due[pair] = None
        if not is_last:
            return
        pair.completed += 1
        pair.total_sent_bytes += message.size_bytes
        event = SendCompleted(
            message.message_id,
            message.size_bytes,
            message.posted_ns,
            message.handed_ns,
            now_ns,
            max(1, -(-message.size_bytes // pair.path_mtu)),
            0,
            0,
            None,
            message.wait_ns,
        )
        event.owner, event.context = pair.owner, message.context
        self._taken.append(event)

    def _receive(
        self,
        pair: NicQueuePair,
        number: int,
        size_bytes: int,
        immediate: int,
        now_ns: int,
    ) -> None:
        pair.received_bytes += size_bytes
        pair.total_received_bytes += size_bytes
        if immediate != MORE_FOLLOWS:
            event = MessageReceived(
                immediate,
                pair.received_bytes,
                max(1, -(-pair.received_bytes // pair.path_mtu)),
                0,
                now_ns,
                now_ns,
                self._wrong_packets(pair, number, size_bytes),
            )
            event.owner = pair.owner
            self._taken.append(event)
            pair.received_bytes = 0
            pair.received += 1
        self._receives.consume(pair)

    def _wrong_packets(self, pair: NicQueuePair, number: int, size_bytes: int) -> int:
        """Return how many packets of the last piece have a wrong payload.

        Payload from sockets has a different pattern, and is not verified.
        """
        is_due = pair.received % max(1, self._transport.verify_every) == 0
        if pair.index is None or not pair.has_nic_peer or not is_due:
            return 0
        is_send = self._transport.verb == "send"
        slot = number if is_send else pair.received % self._layout.slots
        place = self._layout.slot_offset(pair.index, slot)
        packets, wrong = wrong_packets(
            self._view[place : place + size_bytes],
            psn=pair.plan.receive_psn,
            message=pair.received,
            path_mtu=pair.path_mtu,
        )
        self._verified_packets += packets
        self._wrong_payloads += wrong
        return wrong

    def counted_pairs(self) -> tuple[NicQueuePair, ...]:
        """Return the queue pairs with their statistics."""
        return tuple(self._pairs.values())

    def statistics(self) -> PortStatistics:
        """Return the counters. Packet counters are 0, because the NIC keeps them."""
        return replace(
            super().statistics(),
            verified=self._verified_packets,
            wrong_payloads=self._wrong_payloads,
        )

    def received_bytes(self, qpn: int) -> int:
        """Return how many bytes a queue pair has received: see `PortEngine`."""
        return self._pairs[qpn].total_received_bytes

    # Methods of a port for tasks that the NIC does itself.

    def take_event(self) -> Event | None:
        """Return the oldest pending event, whose `owner` is set, or None."""
        return self._taken.popleft() if self._taken else None

    def handle_timers(self, now_ns: int) -> None:
        """Do nothing, because the NIC has the timers."""

    def peek_burst(self, now_ns: int) -> Burst | None:
        """Return None, because the NIC sends the packets."""
        return None

    def next_wakeup_ns(self) -> int:
        """Return when there is something to do apart from completions, or `NEVER`."""
        return 0 if self._due or self._taken or self.is_behind else NEVER
