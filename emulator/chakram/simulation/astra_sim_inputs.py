"""Conversion of an experiment to ASTRA-sim inputs.

The inputs are workload, system, network and memory. The analytical networks support
rings, switches and full meshes. The ns-3 network supports any topology of switches.
Chakram's cost models ``astra-sim-*`` simulate the same inputs, so that you can compare
results. Source: code and observed behavior of ASTRA-sim at commit 518bd51.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from chakram.chakra.write.astra_collective import ASTRA_KEYS
from chakram.chakra.write.astra_workload import AstraWorkload
from chakram.config.experiment import Experiment
from chakram.fabric.fabric_types.topology_settings import FullyConnectedShape, RingShape
from chakram.foundation.errors import ConfigError
from chakram.plan.plan import Plan
from chakram.preparation.plan_settings import arrivals_ns, transport_plan
from chakram.preparation.resolved_run import load_run
from chakram.program.lowering import BARRIER_NAME
from chakram.roce.congestion.parameters import SHARE_UNIT
from chakram.simulation.common import simulated_topology
from chakram.topology.topology import EcnThresholds, Link, Topology

PREFIX = "workload"
_GIB_BITS = 8 << 30
"""Bits per second in ASTRA-sim's unit GB/s."""

_DEFAULT_ALGORITHM = "ring"


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraSimInputs:
    """ASTRA-sim inputs.

    Attributes:
        workload: The trace records by NPU.
        files: Contents of all other files, by name.
        notes: Notes for the user, one sentence each.
    """

    workload: AstraWorkload
    files: Mapping[str, bytes]
    notes: tuple[str, ...]

    def traces(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield the file name and the records of the trace of every NPU."""
        for npu in range(self.workload.npus):
            yield f"{PREFIX}.{npu}.et", self.workload.records(npu)


def astra_sim_inputs(stretched: Experiment) -> AstraSimInputs:
    """Return the ASTRA-sim inputs for one iteration of an experiment.

    Raises:
        ConfigError: If ASTRA-sim does not support a setting.
        ChakramError: If the experiment cannot be planned.
    """
    experiment = stretched.written
    # The operations that an ASTRA-sim rank can run concurrently determine the order in
    # which collectives start.
    jobs_of_file = tuple(
        job.model_copy(update={"resources": "astra-sim"}) for job in experiment.jobs
    )
    experiment = experiment.model_copy(update={"jobs": jobs_of_file})
    resolved = load_run(experiment)
    topology = simulated_topology(resolved)
    ports = experiment.fabric.simulated_ports(topology)
    plan = resolved.plan(ports, "export", connected=False)
    workload = AstraWorkload(
        npus=len(topology.hosts),
        programs=_by_npu(plan, topology),
        skipped=frozenset({BARRIER_NAME}),
        starts_ns=arrivals_ns(experiment),
    )
    files = {
        "system.json": _json(_system(experiment, workload)),
        "memory.json": _json({"memory-type": "NO_MEMORY_EXPANSION"}),
    }
    notes = [*_notes(experiment, workload)]
    for name, make in (
        ("network.yml", _analytical_network),
        ("ns3", _ns3),
    ):
        try:
            files |= make(experiment, topology)
        except ConfigError as error:
            notes.append(f"no {name}: {error.where} {error.found}")
    return AstraSimInputs(workload=workload, files=files, notes=tuple(notes))


def _notes(experiment: Experiment, workload: AstraWorkload) -> Iterator[str]:
    if experiment.iterations.total > 1 or any(job.repeat for job in experiment.jobs):
        yield "one iteration: ASTRA-sim runs a workload once"
    if workload.as_messages:
        yield (
            f"{workload.as_messages} shares of collectives are written as messages: "
            "ASTRA-sim lacks these collectives or their algorithms; it sends one "
            "message of a rank at a time"
        )
    if any(job.placement.same_host != "fabric" for job in experiment.jobs):
        yield "messages within a host use the network: ASTRA-sim does not model hosts"
    faults = experiment.faults
    if faults.links or faults.packets or faults.drop:
        yield "faults are omitted: ASTRA-sim files cannot contain them"
    if not experiment.fabric.on_this_machine:
        yield from experiment.fabric.warnings()


def _by_npu(plan: Plan, topology: Topology) -> dict[int, Any]:
    number_of = {host: number for number, host in enumerate(topology.hosts)}
    host_of = {port.number: port.host for port in plan.ports()}
    programs: dict[int, Any] = {}
    for rank in plan.ranks():
        npu = number_of[host_of[rank.port]]
        if npu in programs:
            raise ConfigError(
                "placement",
                f"puts several ranks on port {host_of[rank.port]}, but ASTRA-sim has "
                "one rank per NPU",
                "use ranks_per_port: 1, and a port for every rank",
            )
        programs[npu] = rank.program
    return programs


def _system(experiment: Experiment, workload: AstraWorkload) -> dict[str, Any]:
    simulation = experiment.simulation
    return {
        "scheduling-policy": "LIFO",
        "endpoint-delay": simulation.endpoint_delay_ns,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": simulation.parts,
        **{
            key.removesuffix("-custom"): [
                workload.implementations.get(op, _DEFAULT_ALGORITHM)
            ]
            for op, key in ASTRA_KEYS.items()
        },
        "collective-optimization": "localBWAware",
        "local-mem-bw": simulation.local_memory_bytes_per_s / 10**9,
        "roofline-enabled": 0,
        "trace-enabled": 1,
    }


def _analytical_network(experiment: Experiment, topology: Topology) -> dict[str, bytes]:
    """Return the network of the analytical backends.

    Raises:
        ConfigError: If the backends do not support the network.
    """
    settings = getattr(experiment.fabric, "topology", None)
    shape = None if settings is None else settings.shape
    own = {topology.host_link(host) for host in topology.hosts}
    links = own if len(topology.switches) == 1 else {*topology.links} - own
    if links is own:
        kind = "Switch"
    elif isinstance(shape, RingShape | FullyConnectedShape):
        kind = "Ring" if isinstance(shape, RingShape) else "FullyConnected"
        if any(link.rate_bps is not None or link.delay_ns for link in own):
            raise ConfigError(
                "fabric.links.host", "costs time, which these files cannot state"
            )
    else:
        raise ConfigError("fabric.topology", "is not a ring, switch or full mesh")
    costs = {(link.rate_bps, link.delay_ns) for link in links}
    ((rate_bps, delay_ns), *others) = costs
    if others or not rate_bps:
        raise ConfigError("fabric.links", "do not all have the same rate and delay")
    network: dict[str, object] = {
        "topology": kind,
        "npus_count": len(topology.hosts),
        "bandwidth": rate_bps / _GIB_BITS,
        "latency": float(delay_ns),
    }
    lines = [f"{key}: [ {value} ]\n" for key, value in network.items()]
    return {"network.yml": "".join(lines).encode()}


def _ns3(experiment: Experiment, topology: Topology) -> dict[str, bytes]:
    """Return the ns-3 configuration, and the files that the configuration names.

    Raises:
        ConfigError: If ns-3 lacks the congestion control or the size of a buffer, a
            link has no rate, or links of one rate have several ECN thresholds.
    """
    return {
        "ns3/topology.txt": _ns3_topology(topology).encode(),
        "ns3/config.txt": _ns3_config(experiment, topology).encode(),
        "ns3/logical.json": _json({"logical-dims": [str(len(topology.hosts))]}),
        # No additional flows, no traced nodes.
        "ns3/flow.txt": b"0\n",
        "ns3/trace.txt": b"0\n",
    }


def _ns3_topology(topology: Topology) -> str:
    """Return the topology in ns-3's format: hosts first, then switches."""
    nodes = (*topology.hosts, *topology.switches)
    number_of = {node: number for number, node in enumerate(nodes)}
    switches = " ".join(str(number_of[each]) for each in topology.switches)
    lines = [f"{len(nodes)} {len(topology.switches)} {len(topology.links)}", switches]
    lines += (
        f"{number_of[link.b.node]} {number_of[link.a.node]} {_rate(link)} "
        f"{link.delay_ns / 10**6:.10g}ms 0"
        for link in topology.links
    )
    return "\n".join(lines) + "\n"


def _rate(link: Link) -> str:
    if link.rate_bps is None:
        raise ConfigError(
            f"link {link.name}", "has no rate, but ns-3 needs one", "e.g. 400Gbit"
        )
    for unit, size in (("Gbps", 10**9), ("Mbps", 10**6), ("Kbps", 10**3)):
        if link.rate_bps % size == 0:
            return f"{link.rate_bps // size}{unit}"
    return f"{link.rate_bps}bps"


_CC_MODES: Final = {"none": 12, "dcqcn": 1}
"""ns-3 mode by congestion control. ns-3 has no mode 12, so only the window limits a
queue pair."""

_NS3_FIXED: Final = {
    "DCTCP_RATE_AI": "1000Mb/s",
    "ERROR_RATE_PER_LINK": "0.0000",
    "L2_CHUNK_SIZE": 4000,
    "L2_ACK_INTERVAL": 1,
    "L2_BACK_TO_ZERO": 0,
    "GLOBAL_T": 0,
    "FAST_REACT": 1,
    "U_TARGET": 0.95,
    "MI_THRESH": 0,
    "INT_MULTI": 1,
    "MULTI_RATE": 0,
    "SAMPLE_FEEDBACK": 0,
    "PINT_LOG_BASE": 1.05,
    "PINT_PROB": 1.0,
    "NIC_TOTAL_PAUSE_TIME": 0,
    "RATE_BOUND": 1,
    "ACK_HIGH_PRIO": 0,
    "LINK_DOWN": "0 0 0",
    "ENABLE_TRACE": 0,
}
"""Values from ASTRA-sim's own configuration that experiments cannot set."""


def _ns3_config(experiment: Experiment, topology: Topology) -> str:
    transport = transport_plan(experiment)
    name = transport.congestion_control
    if name not in _CC_MODES:
        raise ConfigError(
            "transport.congestion_control",
            f"is {name}, but ns-3 has only none and dcqcn",
        )
    rates = sorted(
        dict.fromkeys((link.rate_bps or 0, link.ecn) for link in topology.links),
        key=lambda each: each[0],
    )
    marks = bool(transport.ecn) and any(ecn for _, ecn in rates)
    ecn_of = dict(rates)
    if marks and len(ecn_of) < len(rates):
        raise ConfigError(
            "fabric.links", "have several ecn for one rate, but ns-3 has one per rate"
        )
    window = experiment.simulation.window
    settings: dict[str, object] = {
        "ENABLE_QCN": int(marks),
        "USE_DYNAMIC_PFC_THRESHOLD": 1,
        "PACKET_PAYLOAD_SIZE": 1000,
        "TOPOLOGY_FILE": "topology.txt",
        "FLOW_FILE": "flow.txt",
        "TRACE_FILE": "trace.txt",
        "TRACE_OUTPUT_FILE": "mix.tr",
        "FCT_OUTPUT_FILE": "fct.txt",
        "PFC_OUTPUT_FILE": "pfc.txt",
        "QLEN_MON_FILE": "qlen.txt",
        "QLEN_MON_START": 0,
        "QLEN_MON_END": 20000,
        "SIMULATOR_STOP_TIME": "40000000000000.00",
        "CC_MODE": _CC_MODES[name],
        **_dcqcn(dict(transport.congestion_parameters)),
        "HAS_WIN": int(window != "off"),
        "VAR_WIN": int(window == "scaled"),
        **_NS3_FIXED,
    }
    known = [(rate_bps, ecn or _NEVER_MARKS) for rate_bps, ecn in ecn_of.items()]
    for key, values in (
        ("KMAX_MAP", [ecn.kmax_bytes / 1000 for _, ecn in known]),
        ("KMIN_MAP", [ecn.kmin_bytes / 1000 for _, ecn in known]),
        ("PMAX_MAP", [ecn.probability for _, ecn in known]),
    ):
        settings[key] = " ".join(
            [
                str(len(known)),
                *(
                    f"{rate_bps} {_number(value)}"
                    for (rate_bps, _), value in zip(known, values, strict=True)
                ),
            ]
        )
    switches = experiment.fabric.simulated_switches
    buffer_bytes = (switches and switches.buffer_bytes) or 32 << 20
    if buffer_bytes % (1 << 20):
        raise ConfigError(
            "fabric.switches.buffer", "is not a multiple of 1MiB, as ns-3 requires"
        )
    settings["BUFFER_SIZE"] = buffer_bytes >> 20
    return "".join(f"{key} {value}\n" for key, value in settings.items())


_NEVER_MARKS: Final = EcnThresholds(kmin_bytes=10**9, kmax_bytes=10**9, probability=0.0)


def _dcqcn(arguments: Mapping[str, int]) -> dict[str, object]:
    """Return the DCQCN parameters, or unused defaults if DCQCN is off."""

    def micros(name: str, default_us: int) -> str:
        return _number(arguments.get(name, default_us * 1000) / 1000)

    def rate(name: str, default_mbit: int) -> str:
        return f"{_number(arguments.get(name, default_mbit * 10**6) / 10**6)}Mb/s"

    return {
        "ALPHA_RESUME_INTERVAL": micros("alpha_period_ns", 1),
        "RATE_DECREASE_INTERVAL": micros("decrease_period_ns", 4),
        "CLAMP_TARGET_RATE": arguments.get("clamps_target", 0),
        "RP_TIMER": micros("increase_period_ns", 900),
        "EWMA_GAIN": _number(arguments.get("gain_q20", SHARE_UNIT // 256) / SHARE_UNIT),
        "FAST_RECOVERY_TIMES": arguments.get("recovery_stages", 1),
        "RATE_AI": rate("additive_increase_bps", 50),
        "RATE_HAI": rate("hyper_increase_bps", 100),
        "MIN_RATE": rate("min_rate_bps", 100),
    }


def _number(value: float) -> str:
    return f"{value:.10g}"


def _json(document: Mapping[str, object]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
