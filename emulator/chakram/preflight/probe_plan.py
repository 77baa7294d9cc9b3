"""Plan of probes between ports, and reports on paths from the counted probes."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from chakram.foundation.errors import PeerError
from chakram.foundation.ip_addresses import IPV6_EXTRA_BYTES, is_ipv6
from chakram.plan.plan import AgentPlan, Plan, RunSettings
from chakram.plan.port_plan import PortPlan
from chakram.plan.probes import ProbeEvent, ProbePacket, ProbePlan, ProbeTarget
from chakram.plan.queue_pairs import SOURCE_PORT_BASE, SOURCE_PORT_POOL
from chakram.plan.transport import PATH_MTUS, TransportPlan
from chakram.preflight.report import PreflightSettings
from chakram.preflight.rounds import chosen_rounds
from chakram.records.row_layout import ProbeRow, rows_of

SMALL_BYTES = 128
LARGEST_BYTES = 9216
"""Maximum size of a probe, even if a port allows longer packets."""

_IPV4_HEADERS_BYTES = 20 + 8 + 12 + 16 + 4 + 4
"""Largest overhead of a packet: IPv4, UDP, BTH, RETH, immediate data and ICRC."""

# Creating, sending, receiving and counting a packet takes about 60 us of one core.
_GAP_PER_PORT_NS = 100_000
_ROUND_MARGIN_NS = 5_000_000
_GRACE_NS = 300_000_000
_TRAINS_APART = 4

Pair = tuple[int, int]
"""Positions of the sending and the receiving port."""


def headers_bytes(address: str) -> int:
    """Return the maximum overhead of a packet, from the IP header on."""
    return _IPV4_HEADERS_BYTES + is_ipv6(address) * IPV6_EXTRA_BYTES


def probe_packets(
    ports: Sequence[PortPlan], transport: TransportPlan, settings: PreflightSettings
) -> tuple[ProbePacket, ...]:
    """Return the kinds of probes: small probes of each class, then larger probes.

    The first kind has the data class.
    """
    data = transport.dscp_data << 2 | transport.ecn
    classes = [data]
    if settings.check_classes:
        classes += [transport.dscp_data << 2 | ecn for ecn in range(4)]
        classes.append(transport.dscp_ack << 2)
        classes.append(transport.dscp_cnp << 2 | transport.ecn)
    packets = [
        ProbePacket(size_bytes=SMALL_BYTES, tos=tos) for tos in dict.fromkeys(classes)
    ]
    if settings.check_mtu:
        smallest = min(port.mtu for port in ports)
        more = headers_bytes(ports[0].address)
        sizes = [path_mtu + more for path_mtu in PATH_MTUS]
        sizes.append(smallest // 4 * 4)
        packets += [
            ProbePacket(size_bytes=size, tos=data)
            for size in sorted(set(sizes))
            if size <= min(smallest, LARGEST_BYTES)
        ]
    return tuple(packets)


def plan_probes(
    ports: Sequence[PortPlan],
    transport: TransportPlan,
    settings: PreflightSettings,
    *,
    run_id: str,
    caps_bps: Mapping[str, int | None] | None = None,
    packets: Sequence[ProbePacket] | None = None,
    rounds: Sequence[Sequence[Pair]] | None = None,
    slower: int = 1,
    is_train: bool = False,
) -> Plan:
    """Return a plan in which every port probes every other port, in disjoint rounds.

    Args:
        ports: Two or more ports.
        transport: Transport of the run, whose traffic classes the probes use.
        settings: Checks and limits.
        run_id: Name of the run.
        caps_bps: Maximum total rate of all ports of an agent, by agent.
        packets: Kinds of probes. If None, all kinds that the settings require.
        rounds: Rounds of (sender, receiver) positions. If None, the rounds that the
            settings require.
        slower: Factor that increases the gap between probes.
        is_train: Whether each packet is a train of ``settings.copies``.
    """
    packets = tuple(packets or probe_packets(ports, transport, settings))
    per_agent = Counter(port.agent for port in ports)
    gap_ns = max(per_agent.values()) * _GAP_PER_PORT_NS * slower
    rates = [port.rate_bps for port in ports if port.rate_bps is not None]
    rates += [
        max(1, cap_bps // count)
        for agent, count in per_agent.items()
        if (cap_bps := (caps_bps or {}).get(agent)) is not None
    ]
    wire_ns = [packet.wire_ns(min(rates, default=None)) for packet in packets]
    if is_train:
        # A slow link must send most of a train before the next train arrives.
        gap_ns = max(gap_ns, max(wire_ns) * settings.copies * _TRAINS_APART)
    turn_ns = sum(max(gap_ns, each_ns) for each_ns in wire_ns)
    copies = 1 if is_train else settings.copies
    round_ns = turn_ns * settings.paths * copies * 6 // 5 + _ROUND_MARGIN_NS
    if rounds is None:
        rounds = [
            [way for a, b in pairs for way in ((a, b), (b, a))]
            for pairs in chosen_rounds(len(ports), settings.rounds)
        ]
    targets: dict[str, list[ProbeTarget]] = {agent: [] for agent in per_agent}
    for number, pairs in enumerate(rounds):
        for a, b in pairs:
            targets[ports[a].agent].append(
                ProbeTarget(
                    offset_ns=number * round_ns,
                    source=ports[a].number,
                    destination=ports[b].number,
                    address=ports[b].address,
                    udp_port=ports[b].udp_port,
                )
            )
    step = max(1, SOURCE_PORT_POOL // settings.paths)
    source_ports = tuple(
        SOURCE_PORT_BASE + index * step for index in range(settings.paths)
    )
    return Plan(
        run_id=run_id,
        agents=tuple(
            AgentPlan(
                run_id=run_id,
                agent=agent,
                shards=1,
                ports=tuple(port for port in ports if port.agent == agent),
                ranks=(),
                transport=transport,
                settings=RunSettings(warmup=0, measured=1, sync="free"),
                peers=tuple(port.address for port in ports),
                probes=ProbePlan(
                    packets=packets,
                    source_ports=source_ports,
                    copies=settings.copies,
                    gap_ns=gap_ns,
                    end_ns=len(rounds) * round_ns + _GRACE_NS,
                    targets=tuple(found),
                    is_train=is_train,
                ),
            )
            for agent, found in targets.items()
        ),
    )


@dataclass(slots=True)
class PathReport:
    """Results of the probes from one port to another.

    Attributes:
        sent: Number of probes sent, by (packet, path).
        arrived: Number of probes that arrived, by (packet, path).
        classes: Number of probes that arrived, by type of service (as sent, as
            received).
        refused: By (packet, path), the error number from the sender's own kernel.
        too_big: Reported MTUs, with the reporting IPv4 address as a number.
        unreachable: Reported error numbers, with the reporting IPv4 address.
        drops: Number of packets, from any sender, that the receiver's full socket
            dropped.
        late_ns: By (packet, path) of trains, the sender's lag behind the train's rate.
        spans: By (packet, path), the number of packets in a train's later half, and the
            time in ns between the first and the last of them.
    """

    sent: Counter[tuple[int, int]] = field(default_factory=Counter)
    arrived: Counter[tuple[int, int]] = field(default_factory=Counter)
    classes: Counter[tuple[int, int]] = field(default_factory=Counter)
    refused: dict[tuple[int, int], int] = field(default_factory=dict)
    too_big: set[tuple[int, int]] = field(default_factory=set)
    unreachable: set[tuple[int, int]] = field(default_factory=set)
    drops: int = 0
    late_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    spans: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def largest(
        self, packets: Sequence[ProbePacket], path: int, *, tos: int | None = None
    ) -> int:
        """Return the size of the longest packet that arrived over a path, or 0 if none.

        If *tos* is given, only packets with that type of service count.
        """
        return max(
            (
                packets[packet].size_bytes
                for packet, over in self.arrived
                if over == path and tos in (None, packets[packet].tos)
            ),
            default=0,
        )

    @property
    def missing(self) -> list[tuple[int, int]]:
        """Keys (packet, path) of probes that were sent or refused but never arrived."""
        return [
            where
            for where in self.sent | Counter(self.refused.keys())
            if not self.arrived[where]
        ]

    def merge(self, other: PathReport) -> None:
        """Add the results of repeated probes."""
        self.sent += other.sent
        self.arrived += other.arrived
        self.classes += other.classes
        self.refused |= other.refused
        self.too_big |= other.too_big
        self.unreachable |= other.unreachable
        self.drops += other.drops

    def is_proof(self, kinds: Collection[tuple[int, int]]) -> bool:
        """Return whether missing probes prove a fault of the path.

        Reported errors prove a fault. Without such errors, missing probes prove a fault
        if they outnumber the packets that the receiver's socket dropped.
        """
        if self.too_big or self.unreachable or any(k in self.refused for k in kinds):
            return True
        return sum(self.sent[kind] for kind in kinds) > self.drops


def read_probes(
    rows: array[int], packets: Sequence[ProbePacket], *, paths: int
) -> dict[tuple[int, int], PathReport]:
    """Return a report from rows of probes for each source and destination.

    Raises:
        PeerError: If a row contains a packet or path that was not planned.
    """
    reports: dict[tuple[int, int], PathReport] = {}
    drops: Counter[int] = Counter()
    for row in rows_of(ProbeRow, rows):
        event, source, destination, packet, path, count, value, address = row
        if not 0 <= packet < len(packets) or not 0 <= path < paths:
            raise PeerError(
                "probes of an agent",
                f"name packet {packet} on path {path}, which is not in the plan",
            )
        if event == ProbeEvent.DROPPED:
            drops[source] += count
            continue
        report = reports.setdefault((source, destination), PathReport())
        where = (packet, path)
        if event == ProbeEvent.SENT:
            report.sent[where] += count
        elif event == ProbeEvent.ARRIVED:
            report.arrived[where] += count
            report.classes[packets[packet].tos, value] += count
        elif event == ProbeEvent.REFUSED:
            report.refused[where] = value
        elif event == ProbeEvent.TOO_BIG:
            report.too_big.add((value, address))
        elif event == ProbeEvent.OFFERED:
            report.late_ns[where] = value
        elif event == ProbeEvent.SPAN:
            report.spans[where] = max(report.spans.get(where, (0, 0)), (count, value))
        else:
            report.unreachable.add((value, address))
    for (_, destination), report in reports.items():
        report.drops = drops[destination]
    return reports
