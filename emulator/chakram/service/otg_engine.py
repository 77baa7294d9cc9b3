"""The traffic generator that an OTG client drives: configuration, control, metrics.

A configuration reserves the fabric. An empty configuration releases it. The service
also releases it when the client has sent no request for some minutes and no flow is
running.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chakram.foundation.errors import ChakramError, ConfigError
from chakram.run_directory.reader import RunResults, open_run
from chakram.service.job_queue import JobQueue
from chakram.service.otg_collectives import Stage, experiment
from chakram.service.otg_config import OtgFlow, OtgPlan, OtgProblem, convert_config
from chakram.service.otg_runs import StageSequence, choose_jobs, start_run, stop_runs
from chakram.service.run_store import RUNNING, StoredRun
from chakram.service.submissions import Submission, check_submission, read_experiment

if TYPE_CHECKING:
    from pyarrow import Table


API_VERSION = "1.62.0"
"""Version of the supported OTG models."""

_SETTLE_S, _SETTLE_LOOKS = 0.25, 40
"""Interval and number of reads of the counters of stopped flows."""

_ARRIVED = "message_complete_rx"

IDLE_S = 600.0
"""Time without requests after which a client without running flows loses the fabric."""

_FLOW_NUMBERS = (
    *("src_qp", "dest_qp", "data_frames_tx", "data_frames_rx", "frame_delta"),
    *("data_frames_retransmitted", "frame_sequence_error", "tx_bytes", "rx_bytes"),
    *("message_tx", "message_complete_rx", "message_fail", "flow_completion_time"),
    *("ecn_ce_rx", "cnp_tx", "cnp_rx", "ack_tx", "ack_rx", "nak_tx", "nak_rx"),
)
_AT_RECEIVER = (
    *("data_frames_rx", "rx_bytes", "message_complete_rx", "frame_sequence_error"),
    *("ecn_ce_rx", "cnp_tx", "ack_tx", "nak_tx", "data_rx_rate"),
)
"""Counters of a flow that the receiving queue pair counts."""

_FLOW_ADDRESSES = ("src_ipv4", "dest_ipv4", "src_ipv6", "dest_ipv6")
_FLOW_RATES = ("data_tx_rate", "data_rx_rate")
_OF_FLOW = {
    "frames_tx": "data_frames_tx",
    "frames_rx": "data_frames_rx",
    "bytes_tx": "tx_bytes",
    "bytes_rx": "rx_bytes",
}
_OF_PORT = {**_OF_FLOW, "frames_tx": "tx_packets", "frames_rx": "rx_packets"}
"""Counters of flows and ports, by OTG's names."""

_ADDRESS_OF_NEIGHBOR = {
    "ipv4_neighbors": "ipv4_address",
    "ipv6_neighbors": "ipv6_address",
}
"""Key of the address in each kind of neighbor state."""

_TRANSMIT = "traffic.flow_transmit"
"""Place that errors name for requests to start or stop flows."""


class OtgEngine:
    """Traffic engine that an OTG client controls.

    Args:
        queue: The queue of the service.
        resources: Folder of resources.
        fabric: Name of the fabric.

    Attributes:
        rates_bps: Undilated rate of each port of the fabric, if known.
    """

    def __init__(self, queue: JobQueue, resources: Path, fabric: str) -> None:
        self._queue = queue
        self._resources = resources
        self._fabric = fabric
        self._holder = "otg"
        self._key = fabric
        self._lock = asyncio.Lock()
        self._config: dict[str, Any] = {}
        self._plan = OtgPlan()
        self._run_id: str | None = None
        self._started: frozenset[str] = frozenset()
        # Last start of each job that did not start with the run.
        self._since_ns: dict[str, int] = {}
        self._stages: StageSequence | None = None
        self.rates_bps: dict[str, int | None] = {}
        self._neighbors: Callable[[str], list[tuple[str, str]] | None] = lambda _: None
        self._used_s = time.monotonic()

    async def set_config(self, config: Any) -> dict[str, list[str]]:
        """Replace the configuration, and return warnings about it.

        Raises:
            OtgProblem: If the configuration is wrong or not supported.
            ChakramError: If the fabric is in use.
        """
        async with self._used():
            is_empty = isinstance(config, Mapping) and not any(config.values())
            plan = OtgPlan()
            if not is_empty:
                ports = await asyncio.to_thread(self.ports)
                plan = await asyncio.to_thread(convert_config, config, ports)
            if plan.flows:
                await self._submission(plan)  # finds errors before a run does
            stages = await self._stages_of(plan)
            await self._stop()
            if is_empty:
                self._queue.release(self._key, self._holder)
            else:
                self._reserve()
            self._config, self._plan, self._run_id = dict(config), plan, None
            self._stages = stages
            return {"warnings": plan.warnings}

    async def get_config(self, _: Any) -> dict[str, Any]:
        """Return the configuration as it was set."""
        async with self._used():
            return self._config

    async def control(self, state: Any) -> dict[str, list[str]]:
        """Start or stop traffic, and return warnings.

        Raises:
            OtgProblem: If the request is not supported.
            ChakramError: If the flows cannot be started.
        """
        async with self._used():
            kind = _kind(state, "control_state", "traffic", "protocol", "port")
            if kind == "protocol":
                return {"warnings": _protocols(state.get("protocol"))}
            if kind != "traffic":
                raise OtgProblem(501, [f"{kind or 'choice'}: is not supported"])
            if "ccl" in _inner(state, "traffic"):
                await self._collectives(_inner(state, "traffic", "ccl").get("state"))
                return {"warnings": []}
            transmit = _inner(state, "traffic", "flow_transmit")
            word = transmit.get("state")
            if word in ("pause", "resume"):
                raise OtgProblem(501, [f"{_TRANSMIT}.state: {word} is not supported"])
            if word not in ("start", "stop"):
                raise OtgProblem(400, [f"{_TRANSMIT}.state: is not start or stop"])
            wanted = self._flows(transmit, _TRANSMIT)
            sending = self._sending(self._current())
            if word == "start":
                await self._start(wanted, sending)
            elif sending <= wanted:
                await self._stop()
            elif sending & wanted:
                await self._choose(sending - wanted)
                await self._settle(sending & wanted)
            return {"warnings": []}

    async def metrics(self, request: Any) -> dict[str, Any]:
        """Return counters of ports, flows or peers.

        Raises:
            OtgProblem: If the requested metrics are not supported.
        """
        async with self._used():
            kind = _kind(request, "metrics_request")
            asked = _inner(request, kind)
            run = self._current()
            if kind == "rocev2_flow":
                wanted = self._flows(_inner(asked, "per_qp"), f"{kind}.per_qp")
                rows = await asyncio.to_thread(self._flow_rows, run, wanted)
                return _answer("rocev2_flow_per_qp_metrics", rows)
            if kind == "port":
                names = _chosen(asked, "port_names", kind, self._plan.locations)
                rows = await asyncio.to_thread(self._port_rows, run, names)
                return _answer("port_metrics", rows)
            if kind == "flow":
                sending, wanted = self._sending(run), self._flows(asked, kind)
                found = await asyncio.to_thread(self._flow_rows, run, wanted)
                rows = [
                    {
                        "name": row["flow_name"],
                        "port_tx": row["port_tx"],
                        "port_rx": row["port_rx"],
                        "transmit": _transmit(row["flow_name"] in sending),
                        **_renamed(row, _OF_FLOW),
                    }
                    for row in found
                ]
                return _answer("flow_metrics", rows)
            if kind in ("rocev2_ipv4", "rocev2_ipv6"):
                peers = self._plan.peers[kind.removeprefix("rocev2_")]
                inner, path = _inner(asked, "per_peer"), f"{kind}.per_peer"
                names = _chosen(inner, "peer_names", path, peers)
                sending = self._sending(run)
                up = {
                    queue_pair
                    for flow in self._plan.flows
                    if flow.name in sending
                    for queue_pair in flow.queue_pairs
                }
                rows = [_peer_row(name, peers[name], up) for name in names]
                return _answer(f"{kind}_per_peer_metrics", rows)
            if kind == "ccl":
                if self._stages is None:
                    return _answer("ccl_metrics", [])
                rows = await asyncio.to_thread(
                    self._stages.metrics,
                    _names(asked, "communicator_names"),
                    _names(asked, "stage_names"),
                    with_loops=asked.get("include_loop_metrics") is True,
                )
                return _answer("ccl_metrics", rows)
            raise OtgProblem(501, [f"{kind or 'choice'}: is not supported"])

    async def states(self, request: Any) -> dict[str, Any]:
        """Return the known neighbors of the devices' ports.

        Raises:
            OtgProblem: If other states are requested, or the fabric's states are
                unknown.
        """
        async with self._used():
            kind = _kind(request, "states_request")
            if kind not in _ADDRESS_OF_NEIGHBOR:
                raise OtgProblem(501, [f"{kind or 'choice'}: is not supported"])
            inner, ethernets = _inner(request, kind), self._plan.ethernets
            rows = []
            for name in _chosen(inner, "ethernet_names", kind, ethernets):
                host = self._plan.locations.get(ethernets[name])
                if host is None:
                    continue
                found = self._neighbors(host)
                if found is None:
                    why = "hosts have neighbor tables that the engine does not read"
                    raise OtgProblem(501, [f"{kind}: {why}"])
                rows += [
                    {
                        "ethernet_name": name,
                        _ADDRESS_OF_NEIGHBOR[kind]: address,
                        "link_layer_address": mac,
                    }
                    for address, mac in found
                    if (":" in address) == (kind == "ipv6_neighbors")
                ]
            return _answer(kind, rows)

    async def give_up_when_idle(self) -> None:
        """Release the fabric whenever its client is idle. Run until canceled."""
        while True:
            await asyncio.sleep(min(30.0, IDLE_S / 4))
            is_sending = bool(self._sending(self._current()))
            is_sending |= self._stages is not None and self._stages.is_running
            if time.monotonic() - self._used_s > IDLE_S and not is_sending:
                self._queue.release(self._key, self._holder)
                self._config, self._plan, self._stages = {}, OtgPlan(), None

    def ports(self) -> dict[str, str]:
        """Return the address of each port of the fabric, by name.

        Raises:
            ConfigError: If the fabric's file is invalid.
        """
        probe = {
            "name": "probe",
            "trace": {"synth": "one_to_all", "ranks": 2},
            "placement": {"ranks_per_port": 64},
        }
        document = experiment([probe], self._fabric, {})
        found = check_submission(json.dumps(document), self._resources)
        self._key = found.fabric
        fabric = found.experiment.fabric
        ports = fabric.planned_ports(fabric.nports or 0)
        self.rates_bps = {
            port.host: None
            if port.rate_bps is None
            else port.rate_bps * fabric.dilation
            for port in ports
        }
        self._neighbors = fabric.neighbors
        return {port.host: port.address for port in ports}

    # ---- helpers ---------------------------------------------------------------------

    def _used(self) -> asyncio.Lock:
        self._used_s = time.monotonic()
        return self._lock

    async def _submission(self, plan: OtgPlan) -> Submission:
        text = json.dumps(plan.experiment(self._fabric))
        return await asyncio.to_thread(
            check_submission, text, self._resources, places=plan.places
        )

    def _flows(self, asked: Mapping[str, Any], path: str) -> frozenset[str]:
        """Return the names of the requested flows."""
        known = [flow.name for flow in self._plan.flows]
        return frozenset(_chosen(asked, "flow_names", path, known))

    async def _start(self, names: frozenset[str], sending: frozenset[str]) -> None:
        if not self._plan.flows:
            raise OtgProblem(400, ["stateful_flows: there is no flow to start"])
        if names <= sending:
            return
        if sending:
            now_ns = time.monotonic_ns()
            self._since_ns |= dict.fromkeys(self._jobs(names - sending), now_ns)
            await self._choose(sending | names)
            return
        self._reserve()
        # An earlier start may have left a run if the client gave up or the start took
        # too long.
        await stop_runs(self._queue, self._key, self._holder)
        submission = await self._submission(self._plan)
        run = await start_run(self._queue, submission, self._holder, self._jobs(names))
        self._run_id, self._started, self._since_ns = run.id, names, {}

    def _jobs(self, names: Set[str]) -> list[str]:
        """Return the jobs of flows."""
        return [flow.job for flow in self._plan.flows if flow.name in names]

    async def _choose(self, names: frozenset[str]) -> None:
        """Make the run in progress send only the flows *names*."""
        assert self._run_id is not None
        self._started = names
        await choose_jobs(self._queue, self._run_id, self._jobs(names))

    async def _settle(self, names: frozenset[str]) -> None:
        """Wait until the counters of stopped flows include their last messages."""
        for _ in range(_SETTLE_LOOKS):
            rows = await asyncio.to_thread(self._flow_rows, self._current(), names)
            if all(each.get("message_tx") == each.get(_ARRIVED) for each in rows):
                return
            await asyncio.sleep(_SETTLE_S)

    async def _stop(self) -> None:
        if self._stages is not None:
            await self._stages.stop()
        await stop_runs(self._queue, self._key, self._holder)

    def _reserve(self) -> None:
        if not self._queue.reserve(self._key, self._holder):
            hint = "wait for its end, or cancel it"
            raise ConfigError(f"fabric {self._fabric}", "is used by a run", hint)

    async def _collectives(self, word: Any) -> None:
        """Start or stop the stages of collectives."""
        if word not in ("start", "stop"):
            raise OtgProblem(400, ["traffic.ccl.state: is not start or stop"])
        if self._stages is None:
            raise OtgProblem(400, ["ccl: there is no collective to start"])
        if word == "stop":
            await self._stages.stop()
        else:
            self._reserve()
            await self._stages.start()

    async def _stages_of(self, plan: OtgPlan) -> StageSequence | None:
        """Return the stages of a configuration. Check the experiments of all stages."""
        if plan.collectives is None:
            return None
        submissions = [
            await asyncio.to_thread(self._of_stage, stage, plan)
            for stage in plan.collectives.stages
        ]
        return StageSequence(
            self._queue,
            self._key,
            self._holder,
            plan.collectives,
            submissions,
            self.rates_bps,
        )

    def _of_stage(self, stage: Stage, plan: OtgPlan) -> Submission:
        if stage.experiment is None:
            assert plan.collectives is not None
            document = stage.document(self._fabric, plan.collectives.sync)
            return check_submission(
                json.dumps(document), self._resources, places=plan.places
            )
        found = check_submission(
            read_experiment(stage.experiment, self._resources), self._resources
        )
        if found.fabric != self._key:
            why = f"does not use the fabric {self._fabric}"
            hint = f"set fabric: {self._fabric}"
            raise ConfigError(f"experiment {stage.experiment}", why, hint)
        return found

    def _sending(self, run: StoredRun | None) -> frozenset[str]:
        """Return the names of the flows that a run sends. Ended runs send none."""
        is_running = run is not None and run.state == RUNNING
        return self._started if is_running else frozenset()

    def _current(self) -> StoredRun | None:
        """Return the run that sends the flows, or None."""
        return None if self._run_id is None else self._queue.store.find(self._run_id)

    def _rows(
        self, run: StoredRun | None, table: Callable[[RunResults], Table]
    ) -> list[dict[str, Any]]:
        """Return the rows of a run's table, empty if nothing is written yet."""
        directory = None if run is None else self._queue.directory_of(run.id)
        if directory is None:
            return []
        try:
            rows: list[dict[str, Any]] = table(open_run(directory)).to_pylist()
        except ChakramError:
            return []
        return rows

    def _flow_rows(
        self, run: StoredRun | None, names: frozenset[str]
    ) -> list[dict[str, Any]]:
        read = partial(RunResults.queue_pair_metrics, since_ns=self._since_ns)
        found = _both_ends(self._rows(run, read))
        flows = [flow for flow in self._plan.flows if flow.name in names]
        return [_flow_row(flow, found.get(flow.job, {})) for flow in flows]

    def _port_rows(
        self, run: StoredRun | None, names: Iterable[str]
    ) -> list[dict[str, Any]]:
        rows = self._rows(run, RunResults.port_metrics)
        found = {row["name"]: row for row in rows}
        sending = self._sending(run)
        flows = [flow for flow in self._plan.flows if flow.name in sending]
        used = {port for flow in flows for port in (flow.port_tx, flow.port_rx)}
        of_stage = frozenset() if self._stages is None else self._stages.ports
        locations = self._plan.locations
        return [
            {
                "name": name,
                "location": locations[name],
                "transmit": _transmit(name in used or locations[name] in of_stage),
                **_renamed(found.get(locations[name], {}), _OF_PORT),
            }
            for name in names
        ]


def _both_ends(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the counters of each job's flow, from the sender and the receiver."""
    sent: dict[str, dict[str, Any]] = {}
    arrived: dict[str, dict[str, Any]] = {}
    for row in rows:
        job, _, rest = row["flow_name"].partition("/")
        (sent if rest.endswith("/0>1") else arrived)[job] = row
    return {
        job: {**row, **{name: arrived[job].get(name) for name in _AT_RECEIVER}}
        for job, row in sent.items()
        if job in arrived
    }


def _flow_row(flow: OtgFlow, row: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: value for name, value in row.items() if value is not None}
    return {
        "flow_name": flow.name,
        "port_tx": flow.port_tx,
        "port_rx": flow.port_rx,
        **{name: known[name] for name in _FLOW_ADDRESSES if name in known},
        **{name: round(n) for name in _FLOW_NUMBERS if (n := known.get(name, -1)) >= 0},
        **{name: float(known[name]) for name in _FLOW_RATES if name in known},
    }


def _peer_row(name: str, queue_pairs: Collection[str], up: Set[str]) -> dict[str, Any]:
    """Return the row of a peer. The engine connects only queue pairs that send."""
    count = sum(each in up for each in queue_pairs)
    return {
        "name": name,
        "qp_configured": len(queue_pairs),
        "qp_up": count,
        "qp_down": len(queue_pairs) - count,
    }


def _renamed(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the known counters of a row, by OTG's names."""
    return {name: row[of] for name, of in names.items() if row.get(of) is not None}


def _transmit(is_sending: bool) -> str:
    return "started" if is_sending else "stopped"


def _answer(choice: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"choice": choice, choice: rows}


def _kind(request: Any, path: str, *known: str) -> str:
    """Return the choice in a request, or else the first key, if any.

    Args:
        request: Request of the client.
        path: Place of the request, for errors.
        known: Keys to look for. Without any, the function looks for all keys.

    Raises:
        OtgProblem: If the request is not an object.
    """
    if not isinstance(request, Mapping):
        raise OtgProblem(400, [f"{path}: is not an object"])
    keys = [name for name in known if name in request] if known else request
    return str(request.get("choice") or next(iter(keys), ""))


def _inner(data: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return an object that is nested in other objects, empty if it is missing.

    Raises:
        OtgProblem: If one of these values is not an object.
    """
    path = ""
    for name in names:
        path = f"{path}.{name}" if path else name
        inner = data.get(name) or {}
        if not isinstance(inner, Mapping):
            raise OtgProblem(400, [f"{path}: is not an object"])
        data = inner
    return data


def _names(data: Mapping[str, Any], key: str) -> list[str]:
    """Return the list of names at a key, empty if it is missing.

    Raises:
        OtgProblem: If the value is not a list of names.
    """
    names = data.get(key) or []
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise OtgProblem(400, [f"{key}: is not a list of names"])
    return names


def _chosen(
    data: Mapping[str, Any], key: str, path: str, known: Collection[str]
) -> list[str]:
    """Return the listed names, or all known names if none is listed.

    Raises:
        OtgProblem: If a name is unknown.
    """
    names = _names(data, key)
    for name in names:
        if name not in known:
            raise OtgProblem(400, [f"{path}.{key}: {name:.60} is unknown"])
    return names or list(known)


def _protocols(protocol: Any) -> list[str]:
    """Answer a request to start or stop protocols, which has no effect on runs."""
    kind = _kind(protocol, "protocol")
    if kind in ("all", "rocev2"):
        return ["queue pairs are connected when flows start"]
    raise OtgProblem(501, [f"protocol.{kind}: is not supported"])
