"""A fabric of modeled switches in virtual time, small and slow, for tests.

It does by hand what owners of a model do: packets cross wires, pause frames cross them
beside the packets, and nothing else happens.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chakram.switch.fault_schedule import FaultSchedule
from chakram.switch.headroom import LinkEnd
from chakram.switch.model import SwitchModel
from chakram.switch.packet_outcomes import DELIVERED, QUEUED
from chakram.switch.packet_slots import (
    DESTINATION,
    DSCP,
    ECN,
    ECT,
    EGRESS,
    FATE,
    FLOW,
    NUMBER,
    POSITION,
    SIZE,
)
from chakram.switch.port import NEVER
from chakram.switch.profiles import fifo, host
from chakram.switch.settings import HostSpec, PortSpec, SwitchSpec
from tests.property.model_check import check_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.switch.faults import LinkFault
    from chakram.switch.settings import Balancing, SwitchSettings

GBIT = 10**9
DELAY_NS = 500


def port_ready_ns(model: SwitchModel, number: int) -> int:
    """Return when a port may begin to send a packet; ``NEVER``: it has none."""
    port = model.port(number)
    return port.free_ns if port.is_up and port.ready() else NEVER


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A packet that has reached a host."""

    time_ns: int
    host: int
    flow: int
    number: int
    ecn: int


@dataclass
class Wires:
    """A model and the wires between its ports, in virtual time."""

    model: SwitchModel
    delay_ns: int = DELAY_NS
    now_ns: int = 0
    arrived: list[Arrival] = field(default_factory=list)
    drops: list[tuple[int, int]] = field(default_factory=list)
    sent: int = 0
    faults: FaultSchedule | None = None
    departures: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.number = 0
        self.lines: dict[int, deque[tuple[int, int]]] = {}
        self.freeing: dict[int, int] = {}

    def at(self, time_ns: int, do: Callable[[], None]) -> None:
        self.number += 1
        heappush(self.events, (time_ns, self.number, do))

    def send(
        self,
        source: int,
        destination: int,
        flow: int,
        *,
        size: int = 1000,
        dscp: int = 26,
        ecn: int = ECT,
    ) -> int:
        """Send a packet from a host now; return its outcome at the host."""
        packets = self.model.packets
        slot = packets.take()
        for name, value in (
            (SIZE, size),
            (DSCP, dscp),
            (FLOW, flow),
            (DESTINATION, destination),
            (ECN, ecn),
            (POSITION, self.sent),
            (NUMBER, self.sent),
        ):
            packets.put(slot, name, value)
        self.sent += 1
        port = self.model.host_port(source)
        outcome = self.model.send(port, slot, self.now_ns)
        if outcome != QUEUED:
            self.drops.append((packets.get(slot, POSITION), outcome))
            packets.release_bytes(slot)
        self.drive(port)
        return outcome

    def drive(self, number: int) -> None:
        """Send from a port if permitted; otherwise return when it may."""
        model = self.model
        while True:
            ready_ns = port_ready_ns(model, number)
            if ready_ns == NEVER:
                break
            if ready_ns > self.now_ns:
                if self.freeing.get(number) != ready_ns:
                    self.freeing[number] = ready_ns
                    self.at(ready_ns, lambda: self.drive(number))
                break
            slot = model.transmit(number, self.now_ns)
            assert slot >= 0
            self.departures.append((number, slot, self.now_ns))
            self.lines.setdefault(number, deque()).append((slot, self.sent))
            arrival_ns = model.port(number).sent_ns() + self.delay_ns
            self.at(arrival_ns, partial(self.arrive, number, slot))
        self.settle()

    def arrive(self, number: int, slot: int) -> None:
        line = self.lines[number]
        if not line or line[0][0] != slot:
            return  # lost with its link
        line.popleft()
        model = self.model
        packets = model.packets
        peer = model.port(number).peer
        outcome = model.receive(peer, slot, self.now_ns)
        if outcome == QUEUED:
            self.drive(packets.get(slot, EGRESS))
        else:
            if outcome == DELIVERED:
                self.arrived.append(
                    Arrival(
                        time_ns=self.now_ns,
                        host=peer - model.host_port(0),
                        flow=packets.get(slot, FLOW),
                        number=packets.get(slot, POSITION),
                        ecn=packets.get(slot, ECN),
                    )
                )
            else:
                self.drops.append((packets.get(slot, POSITION), outcome))
            packets.release_bytes(slot)
        self.settle()

    def settle(self) -> None:
        """Carry pause frames, and return packets that the model has dropped."""
        model = self.model
        while (signal := model.next_signal()) is not None:
            peer = model.port(signal.port).peer
            self.at(
                signal.time_ns + self.delay_ns,
                partial(self.obey, peer, signal.klass, signal.duration_ns),
            )
        for slot in model.take_dropped():
            self.drops.append((model.packets.get(slot, POSITION), -1))
            model.packets.release_bytes(slot)
        for number in model.take_link_changes():
            line = self.lines.get(number, deque())
            while line:
                slot, _ = line.popleft()
                if model.packets.get(slot, FATE) == 0:
                    model.lose(slot)
                else:
                    model.receive(model.port(number).peer, slot, self.now_ns)
                self.drops.append((model.packets.get(slot, POSITION), -1))
                model.packets.release_bytes(slot)
            self.drive(number)

    def obey(self, number: int, klass: int, duration_ns: int) -> None:
        self.model.pause(number, klass, duration_ns, self.now_ns)
        self.drive(number)

    def next_ns(self) -> int:
        times = [self.model.next_ns()]
        if self.events:
            times.append(self.events[0][0])
        if self.faults is not None:
            times.append(self.faults.next_ns())
        return min(times)

    def step(self) -> bool:
        """Process the next event; False: there is none."""
        time_ns = self.next_ns()
        if time_ns == NEVER:
            return False
        assert time_ns >= self.now_ns
        self.now_ns = time_ns
        if self.faults is not None and self.faults.next_ns() <= time_ns:
            touched = self.faults.advance(time_ns)
        elif self.model.next_ns() <= time_ns:
            touched = self.model.advance(time_ns)
        else:
            heappop(self.events)[2]()
            return True
        self.settle()
        for number in touched:
            self.drive(number)
        return True

    def run(self, until_ns: int = NEVER) -> None:
        """Continue until there is no event, or until a time."""
        while self.next_ns() < until_ns and self.step():
            pass
        if until_ns != NEVER:
            self.now_ns = max(self.now_ns, until_ns)

    def run_until(self, holds: Callable[[], bool]) -> None:
        """Continue until a condition holds, or until there is no event."""
        while not holds() and self.step():
            pass

    def on_wires(self) -> int:
        return sum(len(line) for line in self.lines.values())

    def check(self) -> list[str]:
        """Return mistakes: wrong counters, and missing packets."""
        model = self.model
        wrong = check_model(model, self.now_ns)
        held = model.waiting() + self.on_wires()
        if self.sent != len(self.arrived) + len(self.drops) + held:
            wrong.append(
                f"{self.sent} sent, {len(self.arrived)} arrived, {len(self.drops)} "
                f"dropped, {held} under way"
            )
        if model.packets.in_use != held:
            wrong.append(f"{model.packets.in_use} slots for {held} packets")
        if (model.entered, model.dropped) != (self.sent, len(self.drops)):
            wrong.append(
                f"the model counts {model.entered} in and {model.dropped} dropped of "
                f"{self.sent} and {len(self.drops)}"
            )
        return wrong


def star(
    hosts: int,
    settings: Callable[[Sequence[LinkEnd]], SwitchSettings],
    *,
    rate_bps: int = 10 * GBIT,
    seed: int = 1,
    faults: Sequence[LinkFault] = (),
    host_settings: SwitchSettings | None = None,
) -> Wires:
    """Return hosts on one switch; port *i* of it leads to host *i*."""
    ends = [LinkEnd(rate_bps=rate_bps, delay_ns=DELAY_NS)] * hosts
    model = SwitchModel(
        switches=[
            SwitchSpec(
                name="s0",
                settings=settings(ends),
                ports=tuple(
                    PortSpec(name=f"s0:p{each}", rate_bps=rate_bps, peer=hosts + each)
                    for each in range(hosts)
                ),
            )
        ],
        hosts=[
            HostSpec(
                port=PortSpec(name=f"h{each}:eth0", rate_bps=rate_bps, peer=each),
                settings=host_settings or host(),
            )
            for each in range(hosts)
        ],
        next_hops=lambda _node, destination: [destination - 1],
        seed=seed,
    )
    wires = Wires(model)
    if faults:
        wires.faults = FaultSchedule(model, faults)
    for destination in range(hosts):
        model.forwarding.add_flow(0, 1 + destination, lambda: lambda _node, _count: 0)
    return wires


def ring(
    switches: int,
    settings: Callable[[Sequence[LinkEnd]], SwitchSettings],
    *,
    rate_bps: int = 10 * GBIT,
    clockwise: bool = True,
) -> tuple[Wires, Callable[[int, int], list[int]]]:
    """Return switches in a circle with a host each, and the next hops.

    Port 0 of a switch leads to its host, 1 to the next switch, 2 to the one before. All
    packets go clockwise, or else the shorter way on a line without its last link.
    """
    first_host = 3 * switches

    def next_hops(node: int, destination: int) -> list[int]:
        home = destination - switches
        if home == node:
            return [3 * node]
        if clockwise or home > node:
            return [3 * node + 1]
        return [3 * node + 2]

    ends = [LinkEnd(rate_bps=rate_bps, delay_ns=DELAY_NS)] * 3
    model = SwitchModel(
        switches=[
            SwitchSpec(
                name=f"s{node}",
                settings=settings(ends),
                ports=(
                    PortSpec(
                        name=f"s{node}:host", rate_bps=rate_bps, peer=first_host + node
                    ),
                    PortSpec(
                        name=f"s{node}:next",
                        rate_bps=rate_bps,
                        peer=3 * ((node + 1) % switches) + 2,
                    ),
                    PortSpec(
                        name=f"s{node}:back",
                        rate_bps=rate_bps,
                        peer=3 * ((node - 1) % switches) + 1,
                    ),
                ),
            )
            for node in range(switches)
        ],
        hosts=[
            HostSpec(
                port=PortSpec(name=f"h{node}:eth0", rate_bps=rate_bps, peer=3 * node),
                settings=host(),
            )
            for node in range(switches)
        ],
        next_hops=next_hops,
        seed=1,
    )
    return Wires(model), next_hops


def flow_to(wires: Wires, source: int, destination: int) -> int:
    """Return a new flow between two hosts of a fabric whose switches hash."""
    model = wires.model
    entry = model.port(model.port(model.host_port(source)).peer).node
    node = model.port(model.host_port(destination)).node
    return model.forwarding.add_flow(entry, node, lambda: lambda _node, _count: 0)


def two_leaves(
    *, spines: int, balancing: Balancing, rate_bps: int = 10 * GBIT
) -> Wires:
    """Return two hosts on a leaf each, and spines between; flow 0 goes from 0 to 1."""
    nodes = 2 + spines
    ports = 1 + spines
    first_host = 2 * ports + 2 * spines

    def next_hops(node: int, destination: int) -> list[int]:
        home = destination - nodes
        if node >= 2:
            return [2 * ports + 2 * (node - 2) + home]
        if home == node:
            return [node * ports]
        return [node * ports + 1 + spine for spine in range(spines)]

    def settings(count: int) -> SwitchSettings:
        ends = [LinkEnd(rate_bps=rate_bps, delay_ns=DELAY_NS)] * count
        return replace(fifo(ends, queue_bytes=[None] * count), balancing=balancing)

    leaves = [
        SwitchSpec(
            name=f"leaf{leaf}",
            settings=settings(ports),
            ports=(
                PortSpec(
                    name=f"leaf{leaf}:host", rate_bps=rate_bps, peer=first_host + leaf
                ),
                *(
                    PortSpec(
                        name=f"leaf{leaf}:up{spine}",
                        rate_bps=rate_bps,
                        peer=2 * ports + 2 * spine + leaf,
                    )
                    for spine in range(spines)
                ),
            ),
        )
        for leaf in range(2)
    ]
    tops = [
        SwitchSpec(
            name=f"spine{spine}",
            settings=settings(2),
            ports=tuple(
                PortSpec(
                    name=f"spine{spine}:down{leaf}",
                    rate_bps=rate_bps,
                    peer=leaf * ports + 1 + spine,
                )
                for leaf in range(2)
            ),
        )
        for spine in range(spines)
    ]
    model = SwitchModel(
        switches=[*leaves, *tops],
        hosts=[
            HostSpec(
                port=PortSpec(
                    name=f"h{each}:eth0", rate_bps=rate_bps, peer=each * ports
                ),
                settings=host(),
            )
            for each in range(2)
        ],
        next_hops=next_hops,
        seed=1,
    )
    wires = Wires(model)
    flow_to(wires, 0, 1)
    return wires
