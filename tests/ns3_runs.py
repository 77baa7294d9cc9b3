"""Jobs that ns-3 has also run, on our switches with ns-3 hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from chakram.collectives.groups import ProcessGroup
from chakram.formats.ns3 import FlowTime
from chakram.predict.levels.cost_models import AstraSimDivision, AstraSimTimes
from chakram.predict.levels.level_network import network_of
from chakram.predict.levels.ns3_packet_level import PacketLevel
from chakram.predict.levels.run_plan import LevelRun
from chakram.predict.simulator.ns3_host_model import Ns3Hosts
from chakram.predict.simulator.switch_fabric import SwitchFabric
from chakram.program.operations import Operation
from chakram.records.row_layout import RecordRows
from chakram.roce.congestion import CongestionControl, make
from chakram.roce.congestion.parameters import SHARE_UNIT
from chakram.switch.profiles import Profile
from chakram.topology.topology import EcnThresholds, Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.made_plans import (
    collective,
    flow_rows,
    make_plan,
    program,
    receive,
    send,
)

RATE_BPS = 400 * 10**9
DELAY_NS = 500
ECN = EcnThresholds(kmin_bytes=800_000, kmax_bytes=3_200_000, probability=0.2)

GROUPS = {
    "all_reduce": (0, 8, 2, 10, 4, 12, 6, 14),
    "all_to_all": (1, 9, 3, 11, 5, 13, 7, 15),
}
"""Of the mix, in the order of their rings."""

Window = Literal["off", "fixed", "scaled"]


def dcqcn() -> CongestionControl:
    """Return DCQCN as in the configuration that ASTRA-sim brings along."""
    return make(
        "dcqcn",
        line_rate_bps=RATE_BPS,
        gain_q20=SHARE_UNIT // 256,
        alpha_initial_q20=SHARE_UNIT,
        alpha_period_ns=1_000,
        decrease_period_ns=4_000,
        cut_shift=1,
        max_cut_q20=SHARE_UNIT,
        increase_period_ns=900_000,
        byte_counter_bytes=0,
        recovery_stages=1,
        additive_increase_bps=50_000_000,
        hyper_increase_bps=100_000_000,
        is_hyper_scaled=0,
        min_rate_bps=100_000_000,
        first_cnp_rate_bps=0,
        clamps_target=0,
        clamps_target_after_increase=1,
        is_released_at_line=0,
        scaled_window_bytes=0,
    )


def star(hosts: int) -> Topology:
    return single_switch(hosts, RATE_BPS, host_delay_ns=DELAY_NS, host_ecn=ECN)


def two_tiers(hosts: int) -> Topology:
    """Return two leaves and two spines."""
    return clos(
        2,
        2,
        hosts // 2,
        RATE_BPS,
        RATE_BPS,
        host_delay_ns=DELAY_NS,
        uplink_delay_ns=DELAY_NS,
        host_ecn=ECN,
        uplink_ecn=ECN,
    )


@dataclass(kw_only=True)
class Ns3Job:
    """Work of ranks 0 to n-1 on hosts 0 to n-1, with its settings.

    Attributes:
        topology: The fabric.
        operations: Of each rank.
        groups: All process groups.
        controlled: Whether DCQCN is on.
        window: As ns-3 has it.
        mark_at: Where switches mark; None: as ns-3's do.
        parts: Into how many collectives are cut.
        seed: Of marks.
    """

    topology: Topology
    operations: Mapping[int, Sequence[Operation]]
    groups: Sequence[ProcessGroup]
    controlled: bool = False
    window: Window = "off"
    mark_at: Literal["enqueue", "dequeue"] | None = None
    parts: int = 1
    seed: int = 1
    flows: list[FlowTime] = field(default_factory=list)
    pauses: int = 0
    finish_ns: int = 0

    def run(self) -> Ns3Job:
        """Simulate it, and store the results."""
        hosts = len(self.topology.hosts)
        plan = make_plan(
            [
                program(rank, self.groups, self.operations.get(rank, ()))
                for rank in range(hosts)
            ],
            self.topology,
        )
        fabric = SwitchFabric(
            self.topology,
            Profile(name="ns3", mark_at=self.mark_at),
            ecn=True,
            seed=self.seed,
        )
        network, number_of = network_of(self.topology)
        level = PacketLevel(
            network,
            AstraSimTimes(),
            fabric=fabric,
            settings=Ns3Hosts(window=self.window),
            make_control=dcqcn if self.controlled else None,
            record=True,
        )
        run = LevelRun(
            plan,
            level,
            host_of={port.number: number_of[port.host] for port in plan.ports()},
            division=AstraSimDivision(parts=self.parts),
        )
        rows: list[FlowTime] = []

        def keep(records: RecordRows) -> None:
            rows.extend(
                FlowTime(
                    row.rank,
                    row.peer,
                    0,
                    0,
                    row.size_bytes,
                    row.posted_ns,
                    row.last_acked_ns - row.posted_ns,
                    0,
                )
                for row in flow_rows(records)
            )

        self.finish_ns = run.run(flush=keep).end_ns
        self.flows = rows
        self.pauses = sum(
            sum(port.counted(self.finish_ns)["pfc_received"])
            for port in fabric.model.ports()
        )
        return self


def mix(*jobs: str, size_bytes: int = 4 << 20, **settings: Any) -> Ns3Job:
    """Return chains of four collectives, of one job or of both."""
    groups = [ProcessGroup(name=job, ranks=ranks) for job, ranks in GROUPS.items()]
    algorithms = {"all_reduce": "ring", "all_to_all": "direct"}
    operations = {
        rank: [
            collective(
                job,
                size_bytes,
                group=job,
                number=number,
                algorithm=algorithms[job],
                after=[number - 1] if number else [],
            )
            for number in range(4)
        ]
        for job in jobs
        for rank in GROUPS[job]
    }
    return Ns3Job(
        topology=two_tiers(16), operations=operations, groups=groups, **settings
    )


def incast(senders: int, size: int, **settings: Any) -> Ns3Job:
    """Return messages of ranks 1, 2, ... to rank 0, on a star."""
    hosts = senders + 1
    operations: dict[int, list[Operation]] = {
        rank: [send(0, size)] for rank in range(1, hosts)
    }
    operations[0] = [receive(rank, size) for rank in range(1, hosts)]
    group = ProcessGroup(name="all", ranks=tuple(range(hosts)))
    return Ns3Job(
        topology=star(hosts), operations=operations, groups=[group], **settings
    )


def of_job(flows: Sequence[FlowTime], job: str) -> list[FlowTime]:
    """Return the messages of one job of the mix, in the order of their start."""
    ranks = GROUPS[job]
    return sorted(
        (flow for flow in flows if flow.src in ranks),
        key=lambda flow: (flow.start_ns, flow.src, flow.dst),
    )


def moments(flows: Sequence[FlowTime]) -> list[tuple[int, ...]]:
    """Return all messages with their start and end, in a fixed order."""
    return sorted(
        (flow.src, flow.dst, flow.start_ns, flow.size_bytes, flow.fct_ns)
        for flow in flows
    )


def end_ns(flows: Sequence[FlowTime]) -> int:
    return max(flow.end_ns for flow in flows)


def quantile_ns(flows: Sequence[FlowTime], share: float) -> int:
    times = sorted(flow.fct_ns for flow in flows)
    return times[min(len(times) - 1, int(share * len(times)))]
