"""Collectives in configurations of the Open Traffic Generator, and their metrics.

The models are those of pull request 490 of open-traffic-generator/models (``ccl``). No
release contains them, so they are an extension, which only REST can carry. A stage
becomes a run: its communicators are jobs that run at the same time, and each of their
iterations is one collective.

A stage may name an experiment of the service instead of communicators, as
``experiment``. This key is specific to Chakram.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.grouping import grouped, spans
from chakram.plan.queue_pairs import SOURCE_PORT_POOL
from chakram.records.run_records import CollectiveRecord, RankRecord
from chakram.service.otg_reader import ConfigReader
from chakram.summary.bandwidth import bus_factor

ECN = {"non_ect": "off", "ect_0": "ect0", "ect_1": "ect1"}
"""Values of ECN fields, as in the section ``transport``."""

_ENDLESS = 1_000_000
_MOST_RUNS = 1_000
_LARGEST = 1 << 40
_KIB = 1024
_SIZES = {
    **{"gigabit": 125_000_000, "gigabyte": 10**9, "megabit": 125_000},
    **{"megabyte": 10**6, "kilobyte": 1_000},
}
_REDUCTIONS = {
    "ring_allreduce": "ring",
    "halving_doubling": "halving_doubling",
    "dual_tree": "double_binary_tree",
}
_PHASES = {
    "allreduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "all_gather": "all_gather",
}
_ALGORITHMS = (*_REDUCTIONS, "all_to_all_direct", "point_to_point")
_Choice = tuple[str, str | None]
"""Collective and algorithm."""

_POLICY: dict[str, Any] = {
    "path_mtu": 4096,
    "ecn": "ect1",
    "dscp": {"data": 24, "ack": 24},
}
"""Section ``transport`` of a communicator without settings."""


def experiment(
    jobs: list[dict[str, Any]],
    fabric: str,
    transport: Mapping[str, Any],
    sync: str = "free",
    count: int | None = None,
) -> dict[str, Any]:
    """Return the experiment with *jobs*. It runs until canceled if *count* is None."""
    return {
        "version": 1,
        "name": "otg",
        "jobs": jobs,
        "fabric": fabric,
        "transport": transport,
        "iterations": {"warmup": 0, "measured": count or _ENDLESS, "sync": sync},
        "predict": [],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """One collective of a stage.

    Attributes:
        name: Name of the communicator.
        job: Name of its job.
        locations: Ports of the fabric, in the order of the ranks.
        op: The collective; ``broadcast`` for a message from rank 0 to rank 1.
        algorithm: Algorithm of the collective, or None for a message.
        size_bytes: Size S as nccl-tests defines it.
        gap_ms: Compute time between two iterations.
    """

    name: str
    job: str
    locations: tuple[str, ...]
    op: str
    algorithm: str | None
    size_bytes: int
    gap_ms: int

    @property
    def bus_factor(self) -> float:
        """Bus bandwidth divided by algorithm bandwidth."""
        nranks = len(self.locations)
        return float(bus_factor(CollectiveOp(self.op), nranks=nranks))

    def times(self, records: Iterable[CollectiveRecord], dilation: int) -> Times:
        """Return the undilated times of the communicator's complete collectives."""
        durations_ns = [
            record.duration_ns // dilation
            for record in records
            if record.complete and record.identity.key.job == self.job
        ]
        return Times(durations_ns, self.gap_ms * 10**6)

    def trace(self, interval_ms: int) -> dict[str, Any]:
        """Return the trace of one iteration, which begins with the pauses."""
        nranks, start = len(self.locations), f"{interval_ms + self.gap_ms}ms"
        # In nccl-tests, the size of an all_gather covers all shards.
        shards = nranks if self.op == "all_gather" else 1
        size = f"{max(1, self.size_bytes // shards)}B"
        stream = {"op": self.op, "size": size, "count": 1, "start": start}
        return {"synth": "collectives", "ranks": nranks, "streams": [stream]}


@dataclass(slots=True, kw_only=True)
class Stage:
    """One stage of a configuration, which becomes a run.

    Attributes:
        name: Name of the stage.
        communicators: The collectives that run at the same time.
        experiment: Name of an experiment that runs instead of communicators.
        count: Number of iterations, or None to run until ``seconds`` have passed.
        seconds: Duration.
        interval_ms: Pause between two iterations.
        transport: Section ``transport``.
    """

    name: str
    communicators: list[Communicator] = field(default_factory=list)
    experiment: str | None = None
    count: int | None = None
    seconds: int = 0
    interval_ms: int = 0
    transport: dict[str, Any] = field(default_factory=dict)

    def document(self, fabric: str, sync: str) -> dict[str, Any]:
        """Return the experiment of the stage, which must have communicators."""
        jobs = [
            {
                "name": each.job,
                "trace": each.trace(self.interval_ms),
                "placement": {"ports": list(each.locations)},
            }
            for each in self.communicators
        ]
        chosen = {each.op: each.algorithm for each in self.communicators}
        algorithms = {op: name for op, name in chosen.items() if name is not None}
        document = experiment(jobs, fabric, self.transport, sync, self.count)
        return document | {"collectives": algorithms}


@dataclass(slots=True)
class CollectivePlan:
    """Stages and their order.

    Attributes:
        stages: Stages in the order of the configuration.
        order: For each run, its stage, and the pass over the stages, counted from 1.
        sync: Synchronization of ranks between two iterations.
    """

    stages: list[Stage] = field(default_factory=list)
    order: list[tuple[int, int]] = field(default_factory=list)
    sync: str = "free"


def read_collectives(
    reader: ConfigReader,
    ports: Mapping[str, str],
    transport: Mapping[str, Any],
    *,
    family: str,
) -> CollectivePlan:
    """Return the collectives of a configuration. The reader collects mistakes.

    Args:
        reader: The object ``ccl``.
        ports: Fabric port of each device, by name of the device.
        transport: Section ``transport`` from the rest of the configuration.
        family: Address family of the fabric, ``ipv4`` or ``ipv6``.
    """
    plan = CollectivePlan()
    reader.text("name")
    reader.choice("transport", ("rocev2",), "rocev2")
    modes = {"async": "free", "sync": "barrier"}
    plan.sync = modes[reader.choice("send_mode", modes, "async")]
    _only_zero(reader, "sync_rank_interval_ms")
    mode = reader.choice("stage_mode", ("sequential", "llm"), "sequential")
    loops = reader.whole("stage_loop_count", 1, 1, 1000)
    first = reader.whole("llm_index", 1, 1, 1000) if mode == "llm" else 0
    reader.skip("llm_index")
    names: set[str] = set()
    for each in reader.many("stages"):
        stage = _stage(each, ports, transport, family)
        _note_repeated(each, stage.name, names)
        plan.stages.append(stage)
    for name in ("iteration_recording", "tail_latency_recording", "tail_latency_cdf"):
        for setting in reader.one(name):
            if setting.data.get("enable"):
                setting.note_unable("enable")
            setting.skip(*setting.data)
    numbers = range(len(plan.stages))
    if not numbers:
        reader.note_wrong("stages", "is empty")
    elif loops * len(numbers) > _MOST_RUNS:
        reader.wrong.append(f"{reader.path}: needs more than {_MOST_RUNS} runs")
        loops = 1
    elif first >= len(numbers):
        reader.note_wrong("llm_index", f"is not below {len(numbers)}")
    plan.order = [(number, 1) for number in numbers[:first]] + [
        (number, loop) for loop in range(1, loops + 1) for number in numbers[first:]
    ]
    return plan


def _only_zero(reader: ConfigReader, name: str) -> None:
    """Report a number other than 0 as not supported."""
    if reader.number(name, 0, 0, 1 << 32):
        reader.note_unable(name)


def _note_repeated(reader: ConfigReader, name: str, names: set[str]) -> None:
    """Report a name that is in *names* already, and add it to *names*."""
    if name in names:
        reader.note_wrong("name", f"{name:.60} is used twice")
    names.add(name)


def _stage(
    reader: ConfigReader,
    ports: Mapping[str, str],
    transport: Mapping[str, Any],
    family: str,
) -> Stage:
    stage = Stage(name=reader.text("name"), count=10, interval_ms=1000)
    if reader.data.get("bg_flow_names"):
        reader.note_unable("bg_flow_names")
    reader.skip("bg_flow_names")
    given = [_algorithm(each) for each in reader.one("algorithm")]
    choice = given[0] if given else ("all_reduce", "ring")
    policies: list[dict[str, Any]] = []
    taken: set[str] = set()
    names: set[str] = set()
    for each in reader.many("communicators"):
        job = f"c{len(stage.communicators)}"
        found = _communicator(each, job, choice, ports)
        own = [_policy(policy, family) for policy in each.one("rocev2")]
        policies.append(own[0] if own else _POLICY)
        if {*found.locations} & taken:
            each.note_unable("device_names", "a port has one rank in each stage")
        taken.update(found.locations)
        _note_repeated(each, found.name, names)
        stage.communicators.append(found)
    if reader.data.get("experiment"):
        stage.experiment = reader.text("experiment")
        if stage.communicators or reader.data.get("duration"):
            reader.note_wrong("experiment", "has its own jobs and iterations")
    elif not stage.communicators:
        reader.note_wrong("communicators", "is empty")
    if any(each != policies[0] for each in policies):
        reader.note_unable("communicators", "all must have the same rocev2")
    elif policies:
        stage.transport = _merged(transport, policies[0])
    by_op: dict[str, str | None] = {}
    for of in stage.communicators:
        if by_op.setdefault(of.op, of.algorithm) != of.algorithm:
            reader.note_unable("communicators", f"{of.op} must have one algorithm")
    for duration in reader.one("duration"):
        _duration(duration, stage)
    return stage


def _duration(reader: ConfigReader, stage: Stage) -> None:
    kinds = ("fixed_iterations", "fixed_seconds")
    kind = reader.choice("choice", kinds, "fixed_iterations")
    if kind == "fixed_seconds":
        stage.count, stage.seconds = None, 1
    for settings in reader.one(kind):
        stage.interval_ms = settings.whole("interval_ms", 1000, 0, 3_600_000)
        if kind == "fixed_iterations":
            stage.count = settings.whole("count", 10, 1, _ENDLESS)
        else:
            stage.seconds = settings.whole("seconds", 1, 1, 86_400)


def _algorithm(reader: ConfigReader) -> _Choice:
    """Return the collective and its algorithm."""
    word = reader.choice("choice", _ALGORITHMS, "ring_allreduce")
    phase = reader.choice("phase", _PHASES, "allreduce")
    if word == "all_to_all_direct":
        return "all_to_all", "direct"
    if word == "point_to_point":
        return "broadcast", None
    if word == "dual_tree" and phase != "allreduce":
        reader.note_unable("phase", "dual_tree has only allreduce")
    return _PHASES[phase], _REDUCTIONS[word]


def _communicator(
    reader: ConfigReader, job: str, choice: _Choice, ports: Mapping[str, str]
) -> Communicator:
    name = reader.text("name")
    names = reader.data.get("device_names")
    reader.skip("device_names")
    locations: list[str] = []
    if not isinstance(names, list) or not 2 <= len(names) <= len(ports):
        reader.note_wrong("device_names", f"is not a list of 2 to {len(ports)} names")
    else:
        unknown = [each for each in names if str(each) not in ports]
        if unknown:
            reader.note_wrong("device_names", f"{unknown[0]!s:.60} has no port")
        locations = [ports[str(each)] for each in names if str(each) in ports]
        if len({*locations}) < len(locations):
            reader.note_wrong("device_names", "a port is listed twice")
    own = [_algorithm(each) for each in reader.one("algorithm")]
    op, algorithm = own[0] if own else choice
    if algorithm is None and len(locations) != 2:
        reader.note_wrong("device_names", "point_to_point has 2 ranks")
    generations = [_generation(each) for each in reader.one("generation")]
    size_bytes, gap_ms = generations[0] if generations else (160 * _SIZES["gigabit"], 0)
    if size_bytes > _LARGEST:
        reader.note_wrong("generation.data_size", "is above 1 TiB")
    return Communicator(
        name=name,
        job=job,
        locations=tuple(locations),
        op=op,
        algorithm=algorithm,
        size_bytes=size_bytes,
        gap_ms=gap_ms,
    )


def _generation(reader: ConfigReader) -> tuple[int, int]:
    """Return the size in bytes and the compute time in ms of an iteration."""
    unit = reader.choice("data_size_unit", _SIZES, "gigabit")
    size_bytes = reader.whole("data_size", 160, 1, 10**15) * _SIZES[unit]
    gap_ms = 0
    for gap in reader.one("compute_gap"):
        gap_ms = 200
        for fixed in gap.only("fixed"):
            gap_ms = fixed.whole("ms", 200, 0, 3_600_000)
    for scheduling in reader.one("qp_scheduling"):
        scheduling.choice("choice", ("continuous",), "continuous")
        scheduling.skip("continuous")
    return size_bytes, gap_ms


def _policy(reader: ConfigReader, family: str) -> dict[str, Any]:
    """Return the settings of a communicator as a section ``transport``."""
    policy = dict(_POLICY)
    asked = reader.choice("encapsulation", ("ipv4", "ipv6"), family)
    if asked != family:
        reader.note_unable("encapsulation", f"the fabric has {family} addresses")
    mtus = (256, 512, 1024, 2048, 4096)
    mtu = reader.whole("ib_mtu", 4096, 256, 4096)
    if mtu not in mtus:
        reader.note_unable("ib_mtu", f"is not one of {mtus}")
    policy["path_mtu"] = mtu
    pairs: dict[str, Any] = {"count": reader.whole("qps_per_peer", 1, 1, 64)}
    chunk = reader.whole("chunk_size_kb", 1 << 22, 1, 1 << 22)
    if chunk < 1 << 22:
        pairs["message_size"] = f"{chunk * _KIB}B"
    if pairs != {"count": 1}:
        policy["queue_pairs"] = pairs
    for kind in reader.one("connection_type"):
        for settings in kind.only("reliable_connection"):
            dscp = settings.whole("dscp", 24, 0, 63)
            policy["dscp"] = {"data": dscp, "ack": dscp}
            policy["ecn"] = ECN[settings.choice("ecn", ECN, "ect_1")]
            _only_zero(settings, "start_qp_number")
            if "start_udp_src_port" in settings.data:
                most = 65_536 - SOURCE_PORT_POOL
                first = settings.whole("start_udp_src_port", 49_152, 1024, most)
                ports = range(first, first + SOURCE_PORT_POOL)
                policy["source_ports"] = list(ports)
    return policy


def _merged(transport: Mapping[str, Any], policy: Mapping[str, Any]) -> dict[str, Any]:
    dscp = {**transport.get("dscp", {}), **policy["dscp"]}
    return {**transport, **policy, "dscp": dscp}


# ---- metrics -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Times:
    """Iterations of a communicator.

    Attributes:
        durations_ns: Undilated duration of each iteration, without pauses and compute
            time.
        gap_ns: Compute time of an iteration.
    """

    durations_ns: Sequence[int]
    gap_ns: int = 0

    def metrics(
        self, of: Communicator | None, rate_bps: int | None
    ) -> dict[str, float]:
        """Return the available metrics, with their names from pull request 490.

        Times are seconds, rates Gbit/s. Without a communicator, there are only times.

        Args:
            of: Communicator of the iterations, or None.
            rate_bps: Undilated rate of the communicator's slowest port, if known.
        """
        count = len(self.durations_ns)
        found: dict[str, float] = {"iteration_count": count}
        if not count:
            return found
        trans_s = sum(self.durations_ns) * 1e-9
        reduce_s = self.gap_ns * count * 1e-9
        jct_s = trans_s + reduce_s
        found |= {
            "jct": jct_s,
            "avg_jct": jct_s / count,
            "max_jct": (max(self.durations_ns) + self.gap_ns) * 1e-9,
            "min_jct": (min(self.durations_ns) + self.gap_ns) * 1e-9,
            "reduce_time": reduce_s,
            "trans_time": trans_s,
            "training_time": jct_s,
            "max_tail_latency_us": max(self.durations_ns) // 1000,
        }
        if of is None:
            return found
        alg_bw = 8e-9 * of.size_bytes * count / jct_s
        found |= {"alg_bw": alg_bw, "bus_bw": alg_bw * of.bus_factor}
        if rate_bps is not None:
            ideal_s = 8 * of.size_bytes * of.bus_factor * count / rate_bps
            found |= {
                "ideal_jct": ideal_s,
                "jct_percent": 100 * jct_s / ideal_s,
                "alg_bw_percent": 100 * ideal_s / jct_s,
                "bus_bw_percent": 100 * ideal_s / jct_s,
            }
        return found


def iteration_times(
    records: Iterable[RankRecord], dilation: int = 1
) -> dict[str, Times]:
    """Return the undilated times of the measured iterations of each job."""
    found = spans(
        ((each.job, each.iteration), each.start_ns, each.end_ns)
        for each in records
        if each.measured
    )
    by_job = grouped(
        (job, (end - start) // dilation) for (job, _), (start, end) in found.items()
    )
    return {job: Times(durations_ns) for job, durations_ns in by_job.items()}
