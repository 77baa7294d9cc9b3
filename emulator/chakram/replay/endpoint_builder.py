"""Creates the engine and queue pairs of an endpoint from the settings of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from chakram.foundation.ip_addresses import address_halves
from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.plan import QueuePairPlan, RankPlan, RunSettings
from chakram.plan.port_plan import PortPlan
from chakram.plan.transport import TransportPlan, limiter_key, notification_scope
from chakram.roce.congestion import (
    CONTROLS,
    CongestionControl,
    check_control_arguments,
    new_control,
)
from chakram.roce.congestion.parameters import CNP_PARAMETERS, check_arguments
from chakram.roce.cross_process_pacing import SharedLine
from chakram.roce.fault_selection import FaultRule, PacketFaults
from chakram.roce.faulty_port import FaultyPort
from chakram.roce.notification_point import CnpLimiter
from chakram.roce.pacing import Line
from chakram.roce.packet_verification import PacketVerifier
from chakram.roce.port import PortEngine
from chakram.roce.queue_pair import LONGEST_BURST_NS, QueuePair
from chakram.switch.keyed_random import draw

if TYPE_CHECKING:
    from chakram.roce.receive_memory import MemoryRegion


_SHORTEST_BURST_NS = 15_000
_SEEDS = (1 << 64) - 1
_OF_PORT = notification_scope("port")


class CongestionSettings:
    """Creates the congestion controls and CNP limiters of a port's queue pairs.

    Args:
        transport: Settings of the queue pairs.
        line: Shared link of the port, if other processes also send through the port.

    Raises:
        ValueError: If the control is unknown or its arguments are invalid.
        PlugInError: If the control cannot be imported.
    """

    def __init__(
        self, transport: TransportPlan, line: SharedLine | None = None
    ) -> None:
        name = transport.congestion_control
        arguments = dict(transport.congestion_parameters)
        self._name = name
        self._kind = CONTROLS.load(name)
        # CNP parameters are for the receiver, not for the congestion control of the
        # sender.
        self._interval_ns: int | None = None
        self._scope = 0
        if self._kind.wants_cnps:
            check_arguments(name, CNP_PARAMETERS, arguments)
            self._interval_ns, self._scope = (
                arguments.pop(each.argument) for each in CNP_PARAMETERS
            )
        check_control_arguments(name, self._kind, arguments)
        self._arguments = arguments
        self._line = line
        self._limiters: dict[int, CnpLimiter] = {}

    def control(self) -> CongestionControl:
        """Return a control for another queue pair.

        Raises:
            ValueError: If the control rejects its arguments.
            RunFailed: If the control cannot be created.
        """
        return new_control(self._name, self._kind, self._arguments)

    def limiter(self, *, qpn: int, destination: int) -> CnpLimiter | None:
        """Return the CNP limiter of a queue pair, or None if no CNPs are sent."""
        if self._interval_ns is None:
            return None
        key = limiter_key(self._scope, qpn=qpn, destination=destination)
        if key not in self._limiters:
            self._limiters[key] = (
                CnpLimiter(self._interval_ns)
                if self._line is None or self._scope != _OF_PORT
                else self._line.cnp_limiter(self._interval_ns)
            )
        return self._limiters[key]


def make_engine(
    port: PortPlan,
    ranks: Sequence[RankPlan],
    transport: TransportPlan,
    settings: RunSettings,
    verifier: PacketVerifier | None,
    line: SharedLine | None = None,
) -> PortEngine:
    """Return the engine of a port, with packet faults if the settings have any."""
    faults = list(settings.faults)
    if settings.drop_ratio:
        faults.append(
            PacketFault(
                action=FaultAction.DROP, packets="any", probability=settings.drop_ratio
            )
        )
    rules: dict[bool, list[FaultRule]] = {False: [], True: []}
    for index, fault in enumerate(faults):
        qpns = None if fault.is_for_all else frozenset(_qpns_of(fault, ranks))
        if qpns is None or qpns:
            # The rule for drop_ratio is not one of the listed faults, so it has no
            # index.
            place = index if index < len(settings.faults) else None
            rules[fault.at_send].append(FaultRule(fault, qpns, index=place))
    make: Callable[..., PortEngine] = PortEngine
    if any(rules.values()):
        seed = draw(settings.seed & _SEEDS, 0, port.number)
        pairs = [pair for rank in ranks for pair in rank.queue_pairs]
        make = partial(
            FaultyPort,
            at_receive=PacketFaults(
                rules[False],
                seed,
                {each.qpn: (each.receive_psn, each.send_psn) for each in pairs},
            ),
            at_send=PacketFaults(
                rules[True],
                seed,
                {each.qpn: (each.send_psn, each.receive_psn) for each in pairs},
            ),
        )
    return make(
        rate_bps=port.rate_bps,
        burst_bound_ns=transport.burst_bound_ns,
        max_burst_packets=transport.max_burst_packets,
        verifier=verifier,
        line=line
        or Line(
            rate_bps=port.rate_bps or 0,
            burst_bound_ns=transport.burst_bound_ns,
            saves_up=transport.saves_up,
        ),
    )


def _qpns_of(fault: PacketFault, ranks: Sequence[RankPlan]) -> Iterator[int]:
    """Yield the queue pairs of a port that *fault* applies to."""
    for rank in ranks:
        program = rank.program
        if fault.job is not None and program.job != fault.job:
            continue
        for pair in rank.queue_pairs:
            ends = (program.rank, pair.peer_rank)
            source, destination = ends if fault.at_send else ends[::-1]
            if (
                fault.source in (None, source)
                and fault.destination in (None, destination)
                and fault.group in (None, pair.group)
                and fault.channel in (None, pair.channel)
                and fault.queue_pair in (None, pair.index)
            ):
                yield pair.qpn


def burst_time_ns(
    port: PortPlan, transport: TransportPlan, *, overhead_bytes: int
) -> int:
    """Return the maximum duration of a paced burst, at the rate of its queue pair.

    This is the duration of the port's largest burst at the port's rate. A queue pair at
    half that rate thus sends bursts of half that size. The duration is at least 15 us,
    the burst limit on real switches (``chakram.plan.transport_defaults``).
    """
    if port.rate_bps is None:
        return _SHORTEST_BURST_NS
    burst_bits = 8 * transport.max_burst_packets * (transport.path_mtu + overhead_bytes)
    burst_ns = burst_bits * 10**9 // port.rate_bps
    return min(max(_SHORTEST_BURST_NS, burst_ns), LONGEST_BURST_NS)


def make_queue_pair(
    pair: QueuePairPlan,
    destination: int,
    transport: TransportPlan,
    settings: CongestionSettings,
    *,
    overhead_bytes: int,
    burst_ns: int,
    remote_memory: tuple[int, int] = (0, 0),
    memory: MemoryRegion | None = None,
    verifier: PacketVerifier | None = None,
) -> QueuePair:
    """Return one end of a queue pair of a plan.

    Args:
        pair: Numbers of the queue pair.
        destination: Destination index of the peer.
        transport: Settings of the queue pair.
        settings: Congestion settings of the port.
        overhead_bytes: See `QueuePair`.
        burst_ns: See `QueuePair`.
        remote_memory: Remote address and key for WRITEs.
        memory: Memory that stores received data; None: data are discarded.
        verifier: Packet verifier of the port; None: packets are not verified.

    Raises:
        ValueError: If a value is out of range.
    """
    remote_address, remote_key = remote_memory
    queue_pair = QueuePair(
        pair,
        transport,
        destination=destination,
        congestion_control=settings.control(),
        cnp_limiter=settings.limiter(qpn=pair.qpn, destination=destination),
        burst_ns=burst_ns,
        overhead_bytes=overhead_bytes,
        remote_address=remote_address,
        remote_key=remote_key,
        memory=memory,
    )
    queue_pair.bind_to(*address_halves(pair.remote_address))
    if verifier is not None:
        # If there is receive memory, the peer may run other software and send any
        # payload.
        queue_pair.flow = verifier.flow(pair.remote_address, is_ours=memory is None)
    return queue_pair
