"""The main loop of a data-plane process: receive, advance, send, wait.

A ``Line`` is an endpoint with its port. The loop serves all lines of the process round
robin. It does not use asyncio, because asyncio timers are a millisecond late. The loop
spins while packets flow, because a wakeup takes longer than processing a packet. It
sleeps after 300 us without activity.
"""

from __future__ import annotations

import errno
import select
import time
from typing import TYPE_CHECKING

from chakram.foundation.ip_addresses import IPV6_EXTRA_BYTES, is_ipv6
from chakram.native.host_time import host_ns
from chakram.roce.constants import NEVER, BurstKind
from chakram.roce.contents_encoder import ContentsEncoder
from chakram.roce.faulty_port import flip_bit
from chakram.roce.histogram import Histogram
from chakram.roce.packet_encoder import WireEncoder
from chakram_agent.agent_clock import monotonic_ns

if TYPE_CHECKING:
    from chakram.plan.transport import TransportPlan
    from chakram.replay.endpoint import Endpoint
    from chakram.roce.port import PortEngine
    from chakram_agent.dataplane.pause_listener import PauseListener
    from chakram_agent.dataplane.port_base import Port

try:
    from chakram_agent.dataplane._batch import poll as exact_poll
except ImportError:  # the extension is not built, or is disabled
    exact_poll = None  # type: ignore[assignment]

__all__ = ["DataPlane", "Line"]

_NEVER = NEVER
_HAS_HOST_CLOCK = monotonic_ns is time.monotonic_ns
_DATA, _CNP = int(BurstKind.DATA), int(BurstKind.CNP)
_OUTER_HEADER_BYTES = 14 + 20 + 8
"""Bytes of Ethernet, IPv4 and UDP headers, which sockets do not deliver."""

# Limits on bursts per round and line. A busy line must not delay the others. It also
# must not fill the caches with packets that its peer in the same process has not
# received yet.
_RECEIVES_PER_ROUND = 16
_SENDS_PER_ROUND = 8

# Time without packets after which the loop sleeps. A wakeup takes 30-60 us, and packets
# of a flow at 1 Gbit/s are 30-300 us apart.
_SPIN_NS = 300_000
# Time between the wakeup and the due time, because a wakeup takes time.
_WAKE_MARGIN_NS = 60_000
# Shortest wait that uses an inexact poll. Shorter waits are naps, because an inexact
# poll counts in milliseconds.
_POLL_NS = 2_000_000
_NAP_NS = 100_000
_RETRY_NS = 50_000
"""Time until the next attempt after the kernel had no room for a burst."""

_LATE_NS = 1_000_000
# Largest number of lines whose sockets the loop reads without a poll. With more lines,
# a poll for the readable sockets takes less time than reading the empty sockets.
_UNPOLLED_LINES = 2
# Port rate above which a short packet takes less time on the wire than a system call.
_FAST_BPS = 4_000_000_000


def _now_ns() -> int:
    """Return the time of the agent's clock."""
    return host_ns() if _HAS_HOST_CLOCK else monotonic_ns()


class Line:
    """An endpoint with its port.

    Attributes:
        endpoint: Endpoint with the ranks of the port.
        port: Port that sends and receives the endpoint's packets.
        pauses: Listener for pause frames, or None.
        encoder: Encoder of bursts. Messages with explicit contents use another encoder.
        blocked: Whether the port had no room for the last burst.
        received_bytes: Bytes that have arrived, from Ethernet header to ICRC.
        wake_ns: Time at which to serve the line next. A past time means now.
    """

    __slots__ = (
        "_contents_encoder",
        "_engine",
        "_leaves_alone",
        "_outer_header_bytes",
        "_sources",
        "blocked",
        "encoder",
        "endpoint",
        "pauses",
        "port",
        "received_bytes",
        "wake_ns",
    )

    def __init__(
        self, endpoint: Endpoint, port: Port, transport: TransportPlan
    ) -> None:
        self.endpoint = endpoint
        self._engine: PortEngine = endpoint.engine
        if not 0 < (endpoint.port.rate_bps or 0) < _FAST_BPS:
            # The peer continues as soon as it has the message. Send short data before
            # the ACK, so that the ACK does not delay the message.
            self._engine.lead_with_short_data()
        self.port = port
        self._outer_header_bytes = _OUTER_HEADER_BYTES
        if is_ipv6(endpoint.port.address):
            self._outer_header_bytes += IPV6_EXTRA_BYTES
        self.encoder = WireEncoder(
            local_address=endpoint.port.address,
            path_mtu=transport.path_mtu,
            max_burst_packets=max(2, transport.max_burst_packets),
            udp_port=endpoint.port.udp_port,
            icrc=transport.icrc,
        )
        self._contents_encoder = ContentsEncoder(local_address=endpoint.port.address)
        for index, (address, udp_port) in enumerate(endpoint.destinations):
            self.encoder.set_destination(index, address, udp_port)
            self._contents_encoder.set_destination(index, address, udp_port)
        self._leaves_alone = False
        if not port.segments:
            self._leave_alone()
        self.blocked = False
        self.received_bytes = 0
        self.wake_ns = 0
        self.pauses: PauseListener | None = None
        # Source ports, by QPN, of queue pairs with a separate class. The first mapping
        # is for data. The second is for ACKs and NAKs if they use the class of the
        # data.
        self._sources: list[dict[int, int]] = [{}, {}]

    def use_classes(self, data: dict[int, int], answers: dict[int, int]) -> None:
        """Set the source ports, by QPN, of queue pairs with a separate class."""
        self._sources = [data, answers]

    def hear(self, now_ns: int) -> None:
        """Apply the pause frames that have arrived."""
        if self.pauses is not None:
            for data, answers, until_ns in self.pauses.take(now_ns):
                self._engine.pause(data, answers, until_ns, now_ns)

    def receive(self) -> bool:
        """Process arrived packets, and return whether there were any.

        Use the time after packets are read as their arrival time. An earlier time could
        precede their departure, because this process may lose its core before it reads
        them.
        """
        port = self.port
        received = False
        for _ in range(_RECEIVES_PER_ROUND):
            if not port.receive_burst():
                break
            packets = (
                -(-port.length // port.segment_size) if port.segment_size > 0 else 1
            )
            self.received_bytes += port.length + packets * self._outer_header_bytes
            self._engine.receive_datagrams(
                port.buffer,
                port.length,
                port.segment_size,
                _now_ns(),
                port.marked,
                port.source_port,
                port.source_high,
                port.source_low,
            )
            received = True
        return received

    def send(self, now_ns: int) -> bool:
        """Send the bursts that may leave now, and return whether any burst left."""
        sent = False
        self.blocked = False
        for _ in range(_SENDS_PER_ROUND):
            burst = self._engine.peek_burst(now_ns)
            if burst is None:
                break
            if burst.contents is None:
                view, segment_size = self.encoder.encode(burst)
            else:
                view, segment_size = self._contents_encoder.encode(burst)
            if burst.flipped_bit >= 0:
                damaged = bytearray(view)
                flip_bit(damaged, burst.flipped_bit)
                view = memoryview(damaged)
            source_port = burst.source_port
            if self._sources[0] and burst.kind != _CNP:
                source_port = self._sources[burst.kind != _DATA].get(
                    burst.source_qpn, source_port
                )
            if not self.port.send_burst(
                view,
                segment_size,
                burst.destination,
                source_port,
                burst.kind,
                burst.is_marked,
            ):
                if not self.port.segments and not self._leaves_alone:
                    # Encode the same burst again, with ICRCs for packets that the port
                    # sends separately.
                    self._leave_alone()
                    continue
                self.blocked = True
                break
            self._engine.commit_burst(burst, now_ns)
            sent = True
        return sent

    def _leave_alone(self) -> None:
        """Switch to encoding packets for a port that sends them separately."""
        self._leaves_alone = True
        self.encoder.send_unsegmented()
        self._contents_encoder.send_unsegmented()


class DataPlane:
    """All lines of one process.

    Attributes:
        lines: Lines that the loop serves.
        busy_ns: Duration of all rounds that received or sent packets. CPU time does not
            show the load, because the process spins while packets flow. If this
            duration is close to the elapsed time, the process is the bottleneck.
        max_lag_ns: Longest delay until the loop served a line that was due.
        lags: Histogram of the delays until the loop served due lines.
        late_rounds: Number of these delays above 1 ms.
        rounds: Number of rounds so far.
    """

    __slots__ = (
        "_active_ns",
        "_epoll",
        "_exact",
        "_hearing",
        "_line_of",
        "_unpolled",
        "busy_ns",
        "lags",
        "late_rounds",
        "lines",
        "max_lag_ns",
        "rounds",
    )

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        self.busy_ns = 0
        self.max_lag_ns = 0
        self.lags = Histogram()
        self.late_rounds = 0
        self.rounds = 0
        self._epoll = select.epoll(max(1, 2 * len(lines)))
        self._line_of = {line.port.fileno(): line for line in lines}
        self._hearing = {
            line.pauses.fileno(): line for line in lines if line.pauses is not None
        }
        # Lines that every round reads without a poll. While an epoll instance watches a
        # socket, every arrival takes the lock of the instance, which delays the
        # sender's core.
        are_few = len(lines) <= _UNPOLLED_LINES and not self._hearing
        self._unpolled = lines if are_few else []
        if not self._unpolled:
            self._watch_lines()
        self._active_ns = 0
        self._exact = exact_poll is not None

    def arm(self, start_ns: int) -> None:
        """Start all ranks at *start_ns* (CLOCK_MONOTONIC)."""
        for line in self.lines:
            line.endpoint.arm(start_ns)
            line.wake_ns = line.endpoint.next_wakeup_ns()

    def work(self, until_ns: int, limit_ns: int) -> None:
        """Run rounds until *until_ns*, with waits of at most *limit_ns*.

        The method checks the time before every round. After a suspension of the
        process, it therefore returns before it sends.
        """
        while _now_ns() < until_ns:
            self.round()
            self.wait(limit_ns)

    def round(self) -> None:
        """Serve every line that has arrived packets or due work."""
        self.rounds += 1
        active = False
        began_ns = _now_ns()
        for line in self._unpolled or self._readable():
            if line.receive():
                line.wake_ns = 0
                active = True
        now_ns = _now_ns()
        for line in self.lines:
            due_ns = line.wake_ns
            if due_ns > now_ns:
                continue
            now_ns = _now_ns()
            if due_ns > 0:
                self._note_lag(now_ns - due_ns)
            line.endpoint.advance(now_ns)
            if line.endpoint.woken:
                self._wake(line.endpoint)
            if line.send(now_ns):
                active = True
            line.wake_ns = (
                now_ns + _RETRY_NS if line.blocked else line.endpoint.next_wakeup_ns()
            )
        if active:
            self._active_ns = _now_ns()
            self.busy_ns += self._active_ns - began_ns

    def _readable(self) -> list[Line]:
        """Return the lines with arrivals, and apply the pause frames that arrived."""
        readable = []
        for descriptor in self._poll(0):
            if descriptor in self._line_of:
                readable.append(self._line_of[descriptor])
            elif descriptor in self._hearing:
                line = self._hearing[descriptor]
                line.hear(_now_ns())
                line.wake_ns = 0
        return readable

    def _wake(self, endpoint: Endpoint) -> None:
        """Wake the lines whose ranks received messages from a rank on the same host."""
        for line in self.lines:
            if line.endpoint in endpoint.woken:
                line.wake_ns = 0
        endpoint.woken = []

    def watch(self, descriptor: int) -> None:
        """Also wake up from ``wait`` when *descriptor* is readable."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def wait(self, limit_ns: int) -> None:
        """Wait for work, for at most *limit_ns*."""
        now_ns = _now_ns()
        if now_ns - self._active_ns < _SPIN_NS:
            return
        wake_ns = _NEVER
        for line in self.lines:
            if line.wake_ns < wake_ns:
                wake_ns = line.wake_ns
        sleep_ns = min(wake_ns - _WAKE_MARGIN_NS - now_ns, limit_ns)
        if sleep_ns <= 0:
            return
        if not self._exact and sleep_ns < _POLL_NS:
            time.sleep(min(sleep_ns, _NAP_NS) / 1e9)
            return
        if self._unpolled:
            self._watch_lines()
        self._poll(sleep_ns)
        for line in self._unpolled:
            self._epoll.unregister(line.port.fileno())

    def _watch_lines(self) -> None:
        """Wake up from ``wait`` when packets arrive for a line."""
        for descriptor in (*self._line_of, *self._hearing):
            self._epoll.register(descriptor, select.EPOLLIN)

    def finished(self) -> bool:
        """Return whether all ranks have completed all iterations."""
        for line in self.lines:  # noqa: SIM110 - this compiles to a loop in C
            if not line.endpoint.finished():
                return False
        return True

    def failure(self) -> str | None:
        """Return why ranks cannot complete their work, or None."""
        for line in self.lines:
            reason = line.endpoint.failed()
            if reason is not None:
                return reason
        return None

    def close(self) -> None:
        """Close all ports, which ends all traffic of this process."""
        self._epoll.close()
        for line in self.lines:
            line.port.close()
            if line.pauses is not None:
                line.pauses.close()

    def _poll(self, timeout_ns: int) -> list[int]:
        """Wait for at most *timeout_ns*, and return the readable descriptors."""
        if self._exact:
            try:
                return exact_poll(self._epoll.fileno(), timeout_ns)
            except OSError as error:
                if error.errno != errno.ENOSYS:
                    raise
                self._exact = False  # the kernel is older than 5.11
        # ``select.epoll.poll`` rounds up to milliseconds, so subtract one.
        timeout_s = max(0, timeout_ns // 1_000_000 - 1) / 1000
        return [descriptor for descriptor, _ in self._epoll.poll(timeout_s)]

    def _note_lag(self, lag_ns: int) -> None:
        self.lags.add(lag_ns)
        self.max_lag_ns = max(self.max_lag_ns, lag_ns)
        if lag_ns > _LATE_NS:
            self.late_rounds += 1
