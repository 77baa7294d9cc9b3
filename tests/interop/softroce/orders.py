"""Requests for exchanges with the guest, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chakram.plan.transport import TransportPlan
from chakram.records.counter_definitions import PortStatistics, QueuePairStatistics

VERBS = ("write", "send")
LARGEST_BYTES = 1 << 20

TRANSPORT = TransportPlan(
    ack_interval_packets=16,
    # The guest's processor is emulated, and the machine may be busy: patience.
    retransmit_timeout_ns=10_000_000_000,
)
GUEST_TIMEOUT = 21
"""The guest's own local ACK timeout: 4.096 us x 2**21, 8.6 seconds."""

LOSSY_TIMEOUT = 14
"""Where packets are lost: 67 ms, the product's default."""
LOSSY_TRANSPORT = TransportPlan(
    # Of a window with a single ACK more than every tenth would wait for the timeout.
    ack_interval_packets=4,
    retransmit_timeout_ns=4096 << LOSSY_TIMEOUT,
    # On a busy machine the guest may stall for longer than seven timeouts.
    retry_limit=100,
)
RETRY_FOR_EVER = 7
"""A retry count that Soft-RoCE does not count down."""

# Of Soft-RoCE: what it counts when it does not take a packet in its turn.
REJECTIONS = (
    "out_of_seq_request",
    "duplicate_request",
    "rcvd_seq_err",
    "rcvd_rnr_err",
    "send_rnr_err",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "completer_retry_err",
    "send_err",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An exchange in both directions, on a queue pair of each verb.

    Attributes:
        version: Of IP.
        path_mtu: Of both queue pairs.
        to_guest: Messages from us to Soft-RoCE, on each of the queue pairs.
        to_host: The same in the other direction.
        largest_bytes: The largest message.
        seed: All messages follow from it.
        first_psn: Of all queue pairs, in both directions; None: any.
        transport: Settings of our queue pairs; path MTU and verb are set here.
        traffic_class: What the guest's packets carry.
        guest_timeout: Local ACK timeout of the guest, as an exponent.
        guest_retries: Its retry count.
        receives_after_s: How long the guest waits before it posts receives, and we wait
            until its SENDs have been refused; None: all are posted before any is sent.
        wrong_keys: Who names a wrong key in WRITEs, ``host`` or ``guest``; empty: none.
        last_request: What the guest asks for after its messages, which we do not serve:
            a key of ``REQUESTS`` in ``guest.py``; empty: nothing.
        limit_s: How long it may take.
    """

    version: int
    path_mtu: int = 4096
    to_guest: int = 0
    to_host: int = 0
    largest_bytes: int = LARGEST_BYTES
    seed: str = "0"
    first_psn: int | None = None
    transport: TransportPlan = TRANSPORT
    traffic_class: int = 0
    guest_timeout: int = GUEST_TIMEOUT
    guest_retries: int = RETRY_FOR_EVER
    receives_after_s: float | None = None
    wrong_keys: str = ""
    last_request: str = ""
    limit_s: float = 60.0

    def recipe(self, verb: str, *, to_guest: bool) -> dict[str, Any]:
        """Return the seed of the messages of one direction, for both sides."""
        return {
            "seed": f"{self.seed} {verb} {to_guest}",
            "count": self.to_guest if to_guest else self.to_host,
            "largest_bytes": self.largest_bytes,
        }


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How an exchange went.

    Attributes:
        guest: Report of the guest.
        faults: Mistakes in our completions and in received contents.
        failures: Why queue pairs of ours failed.
        counters: By how much those of Soft-RoCE grew.
        complaints: What the guest's kernel said against Soft-RoCE.
        port: Counters of our port.
        pairs: Counters of our queue pairs, by verb.
    """

    guest: dict[str, Any]
    faults: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    port: PortStatistics
    pairs: dict[str, QueuePairStatistics] = field(default_factory=dict)

    def check(self) -> None:
        """Every message has arrived once, with its contents, and both sides know it."""
        problems = (
            *self.failures,
            *self.guest["failed"],
            *self.guest["wrong"],
            *self.faults,
            *self.complaints,
        )
        assert problems == ()
        assert self.port.malformed == self.port.unknown_queue_pair == 0
        assert self.port.unsupported == self.port.partition_key_errors == 0

    def rejections(self) -> dict[str, int]:
        """Return the counters of Soft-RoCE that grew though nothing should go wrong."""
        return {name: self.counters[name] for name in REJECTIONS if self.counters[name]}
