"""Our side of an exchange with the guest: the data plane of an agent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from random import Random
from typing import Any

from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.plan.plan import RunSettings
from chakram.replay.endpoint import Endpoint
from chakram.roce.constants import NO_IMMEDIATE, UDP_PORT
from chakram.roce.events import Event, MessageReceived, QueuePairFailed, SendCompleted
from chakram.roce.receive_memory import MemoryRegion
from chakram_agent.dataplane.loop import DataPlane
from chakram_agent.dataplane.open_port import open_line
from chakram_agent.send_limits import Policy
from tests.interop.softroce.machine import GUEST, HOST, MTU, Machine, gid
from tests.interop.softroce.messages import Message, messages_of, total_bytes
from tests.interop.softroce.orders import VERBS, Order, Outcome
from tests.port_plans import pair_plan, port_plan

POLICY = Policy(allow=(ip_network("198.18.0.0/15"), ip_network("2001:2::/48")))
_FIRST_QPN = 0xC4A001
_FIRST_SOURCE_PORT = 0xC4A0
_MEMORY_ADDRESS = 0x7C4A_0000_1000
_PATIENCE_S = 20


@dataclass(slots=True, kw_only=True)
class _Pair:
    """One queue pair of ours, and the messages of both directions."""

    verb: str
    qpn: int
    source_port: int
    send_psn: int
    receive_psn: int
    outgoing: list[Message]
    incoming: list[Message]
    memory: MemoryRegion
    events: list[Event] = field(default_factory=list)

    def told(self) -> list[Message]:
        """Return the messages with their own completion."""
        return [
            message
            for message in self.incoming
            if self.verb == "send" or message.has_immediate
        ]

    def post_receives(self) -> None:
        if self.verb == "send":
            for message in self.incoming:
                self.memory.post_receive(message.offset, message.size_bytes)

    def is_done(self) -> bool:
        return any(isinstance(each, QueuePairFailed) for each in self.events) or (
            len(self.events) == len(self.outgoing) + len(self.told())
        )

    def faults(self) -> list[str]:
        received = [each for each in self.events if isinstance(each, MessageReceived)]
        completed = [each for each in self.events if isinstance(each, SendCompleted)]
        found = []
        sent = [_id(message) for message in self.outgoing]
        if [each.message_id for each in completed] != sent:
            found.append(f"{self.verb}: {len(completed)} of {len(sent)} were completed")
        told = [_id(message) for message in self.told()]
        ids = [
            NO_IMMEDIATE if each.message_id is None else each.message_id
            for each in received
        ]
        if ids != told:
            found.append(f"{self.verb}: we were told of {ids[:9]}.., not {told[:9]}..")
        if sum(each.size_bytes for each in received) != total_bytes(self.incoming):
            found.append(f"{self.verb}: we were told of other sizes")
        found += [
            f"{self.verb} {message}: wrong contents"
            for message in self.incoming
            if self.memory.buffer[message.offset : message.offset + message.size_bytes]
            != message.contents()
        ]
        return found


def exchange(machine: Machine, order: Order) -> Outcome:
    """Send and receive the messages of *order*; return the result.

    Raises:
        GuestDied: If the guest does not answer, or an order of its failed.
    """
    random = Random(order.seed)
    pairs = [
        _make_pair(number, verb, order, random) for number, verb in enumerate(VERBS)
    ]
    opened = machine.ask(
        "open",
        pairs=[
            {
                "verb": pair.verb,
                "incoming": order.recipe(pair.verb, to_guest=True),
                "outgoing": order.recipe(pair.verb, to_guest=False),
            }
            for pair in pairs
        ],
    )["pairs"]
    endpoint = _make_endpoint(order, pairs, opened)
    machine.ask(
        "connect",
        pairs=[_description(order, pair) for pair in pairs],
        post_receives=order.receives_after_s is None,
    )
    line = run_in_namespace(
        machine.namespace,
        lambda: open_line(
            endpoint, order.transport, policy=POLICY, members=(GUEST[order.version],)
        ),
    )
    plane = DataPlane([line])
    try:
        known = len(machine.complaints())
        before = machine.ask("counters")
        guest = _carry_out(machine, plane, pairs, order)
        outcome = Outcome(
            guest=guest,
            counters=_grown(machine, before),
            complaints=machine.complaints()[known:],
            port=endpoint.engine.statistics(),
        )
    finally:
        plane.close()
    for pair in pairs:
        outcome.pairs[pair.verb] = endpoint.engine.queue_pair(pair.qpn).statistics()
        outcome.failures += [
            each.reason for each in pair.events if isinstance(each, QueuePairFailed)
        ]
        outcome.faults += pair.faults()
    machine.ask("close")
    return outcome


def _carry_out(
    machine: Machine, plane: DataPlane, pairs: list[_Pair], order: Order
) -> dict[str, Any]:
    """Send on both sides; return the report of the guest."""
    (line,) = plane.lines
    engine = line.endpoint.engine
    if order.receives_after_s is None:
        for pair in pairs:
            pair.post_receives()
    machine.tell(
        "exchange",
        memory=[
            {
                "address": pair.memory.address,
                "key": pair.memory.key ^ (order.wrong_keys == "guest"),
            }
            for pair in pairs
        ],
        limit_s=order.limit_s,
        receives_after_s=order.receives_after_s,
        last_request=order.last_request,
    )
    now_ns = time.monotonic_ns()
    for pair in pairs:
        for message in pair.outgoing:
            engine.post_send(
                pair.qpn,
                _id(message),
                message.size_bytes,
                now_ns,
                0,
                message.contents(),
                message.offset,
            )
    line.wake_ns = 0
    if order.receives_after_s is not None:
        refusing = engine.queue_pair(pairs[VERBS.index("send")].qpn)
        _drive(
            plane,
            pairs,
            lambda: refusing.statistics().receiver_not_ready_sent > 2,
            order.limit_s,
        )
        for pair in pairs:
            pair.post_receives()
    answers: list[dict[str, Any]] = []

    def is_answered() -> bool:
        answer = machine.answer()
        if answer is not None:
            answers.append(answer)
        return bool(answers)

    plane.watch(machine.control_descriptor())
    _drive(plane, pairs, is_answered, order.limit_s + _PATIENCE_S)
    # The guest may be done while its last ACK is on the way.
    _drive(plane, pairs, lambda: all(pair.is_done() for pair in pairs), _PATIENCE_S)
    return answers[0] if answers else machine.wait_answer("exchange")


def _drive(
    plane: DataPlane, pairs: list[_Pair], until: Callable[[], bool], limit_s: float
) -> None:
    """Serve the port until something is so, or time is up."""
    by_qpn = {pair.qpn: pair for pair in pairs}
    (line,) = plane.lines
    deadline_s = time.monotonic() + limit_s
    while not until() and time.monotonic() < deadline_s:
        for _ in range(50):
            plane.round()
        plane.wait(2_000_000)
        while line.endpoint.events:
            qpn, event = line.endpoint.events.popleft()
            by_qpn[qpn].events.append(event)


def _grown(machine: Machine, before: dict[str, int]) -> dict[str, int]:
    after = machine.ask("counters")
    return {name: after[name] - value for name, value in before.items()}


def _id(message: Message) -> int:
    return message.number if message.has_immediate else NO_IMMEDIATE


def _first_psn(order: Order, random: Random) -> int:
    return random.getrandbits(24) if order.first_psn is None else order.first_psn


def _make_pair(number: int, verb: str, order: Order, random: Random) -> _Pair:
    outgoing, incoming = (
        messages_of(order.recipe(verb, to_guest=to_guest)) for to_guest in (True, False)
    )
    memory = MemoryRegion(
        total_bytes(incoming), address=_MEMORY_ADDRESS, key=random.getrandbits(32)
    )
    return _Pair(
        verb=verb,
        qpn=_FIRST_QPN + number,
        source_port=_FIRST_SOURCE_PORT + number,
        send_psn=_first_psn(order, random),
        receive_psn=_first_psn(order, random),
        outgoing=outgoing,
        incoming=incoming,
        memory=memory,
    )


def _make_endpoint(
    order: Order, pairs: list[_Pair], opened: list[dict[str, int]]
) -> Endpoint:
    transport = replace(order.transport, path_mtu=order.path_mtu)
    endpoint = Endpoint(
        port=port_plan(
            open_spec="udp:tap0",
            address=HOST[order.version],
            udp_port=UDP_PORT,
            rate_bps=None,
            mtu=MTU,
        ),
        ranks=(),
        transport=transport,
        settings=RunSettings(),
        rank_numbers={},
    )
    for pair, theirs in zip(pairs, opened, strict=True):
        endpoint.add_queue_pair(
            pair_plan(
                pair.qpn,
                theirs["qpn"],
                remote=port_plan(address=GUEST[order.version], udp_port=UDP_PORT),
                source_port=pair.source_port,
                send_psn=pair.send_psn,
                receive_psn=pair.receive_psn,
            ),
            replace(transport, verb=pair.verb),
            remote_memory=(
                theirs["address"],
                theirs["key"] ^ (order.wrong_keys == "host"),
            ),
            memory=pair.memory,
        )
    return endpoint


def _description(order: Order, pair: _Pair) -> dict[str, Any]:
    """Return the parameters of our queue pair for the guest."""
    return {
        "qpn": pair.qpn,
        "send_psn": pair.send_psn,
        "receive_psn": pair.receive_psn,
        "path_mtu": order.path_mtu,
        "gid": gid(HOST[order.version]),
        "own_gid": gid(GUEST[order.version]),
        "traffic_class": order.traffic_class,
        "timeout": order.guest_timeout,
        "retries": order.guest_retries,
        "rnr_timer": 12,
    }
