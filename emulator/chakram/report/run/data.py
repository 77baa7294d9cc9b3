"""Data of a run's page: facts, and flows and samples as arrays.

Times are undilated, in ns from the start of the first rank.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from chakram.analysis.critical_path import Operation
from chakram.analysis.run_causes import why_of
from chakram.collectives.ops import CollectiveOp
from chakram.fabric.fabric_types import Fabric
from chakram.foundation.errors import ChakramError, InputError
from chakram.report.column_arithmetic import spread, under_way
from chakram.report.run.flows import Flows, flows_of, whole_numbers
from chakram.summary.bandwidth import bus_factor
from chakram.summary.run_summary import SIMULATE, Measurements, Summary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chakram.analysis.lost_time_causes import Why
    from chakram.diagnosis.early_end import EarlyEnd
    from chakram.fabric.fabric_types.base import FabricKind
    from chakram.records.run_records import CollectiveRecord
    from chakram.run_directory.reader import RunResults
    from chakram.topology.topology import Topology


WHY_FLOWS = 200_000
"""Limit on flows for the critical path. With more flows, the critical path takes longer
to compute than the rest of the page."""

TIME_BINS = 400
"""Number of time bins in plots over time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NicTraffic:
    """Utilization of ports over time: the fraction of its rate that each port used."""

    hosts: tuple[str, ...]
    transmit: NDArray[np.float64]
    receive: NDArray[np.float64]
    bin_ns: float
    is_sampled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """JCT of one iteration of a job, compared with serial execution.

    ``compute_ns`` and ``communication_ns`` belong to the rank with the largest sum.
    """

    job: str
    iteration_ns: float
    compute_ns: float
    communication_ns: float

    @property
    def ratio(self) -> float | None:
        """JCT divided by Roofline_seq, the time of serial execution."""
        roofline_ns = self.compute_ns + self.communication_ns
        return self.iteration_ns / roofline_ns if roofline_ns else None


class RunData:
    """Data of a run's page.

    All methods may raise ``RunDirectoryError``.
    """

    def __init__(self, results: RunResults) -> None:
        self.results = results
        self.manifest = results.manifest
        self.ranks = results.ranks()
        self.transport = results.message_transport()
        self.dilation = self.manifest.dilation
        starts_ns = [rank.start_ns for rank in self.ranks]
        ends_ns = [rank.end_ns for rank in self.ranks]
        if results.incomplete:
            # Ranks without an ended iteration have operations and flows only.
            for name, start, end in (
                ("operations", "ready_ns", "end_ns"),
                ("flows", "posted_ns", "last_acked_ns"),
            ):
                table = results.table(name, start, end)
                if table.num_rows:
                    starts_ns.append(pc.min(table[start]).as_py())
                    ends_ns.append(pc.max(table[end]).as_py())
        self.origin_ns = min(starts_ns, default=0)
        # In a damaged table, all ranks may end before the first rank starts.
        self.end_ns = self.undilated(max((self.origin_ns, *ends_ns)))

    @cached_property
    def _measurements(self) -> Measurements:
        return self.results.measurements()

    @cached_property
    def summary(self) -> Summary:
        """The summary that ``chakram show`` prints."""
        return self.results.summary(self._measurements)

    @cached_property
    def whole_iterations(self) -> frozenset[tuple[str, int]]:
        """Iterations that all ranks of their job have ended, as job and number."""
        return frozenset(
            (each.job, each.iteration) for each in self._measurements.ranks
        )

    @cached_property
    def end(self) -> EarlyEnd | None:
        """The queue pairs that ended the run early, if any gave up."""
        if not self.results.incomplete:
            return None
        from chakram.diagnosis.early_end import early_end

        return early_end(self.results)

    @property
    def collectives(self) -> Sequence[CollectiveRecord]:
        """All collectives, and messages between two ranks."""
        return self._measurements.collectives

    @property
    def is_simulated(self) -> bool:
        """Whether the run is a simulation in virtual time."""
        return self.manifest.world == SIMULATE

    def seen(self, *letters: str) -> str:
        """Return the observation points for letters of ``page.OBSERVED``, as text."""
        found = dict.fromkeys(
            "v" if self.is_simulated and letter in "bc" else letter
            for letter in letters
        )
        return ", ".join(f"({letter})" for letter in found)

    def undilated(self, time_ns: float) -> float:
        """Convert a time of the records to the time axis of the page."""
        return (time_ns - self.origin_ns) / self.dilation

    @cached_property
    def fabric(self) -> FabricKind | str:
        """The fabric section of the experiment, or the reason why it is unknown."""
        section = self.manifest.experiment.get("fabric")
        if section is None:
            return "the run does not record its fabric"
        try:
            return TypeAdapter(Fabric).validate_python(section)
        except ValidationError as error:
            return f"this version cannot draw its fabric: {str(error).splitlines()[0]}"

    @cached_property
    def topology(self) -> Topology | str:
        """Hosts, switches and links, or the reason why they are unknown."""
        if isinstance(self.fabric, str):
            return self.fabric
        nports = len({port.number for port in self._ports.values()}) or None
        try:
            found = self.fabric.to_topology(nports)
        except ChakramError as error:
            return f"this version cannot draw its fabric: {str(error).splitlines()[0]}"
        return found or "the experiment does not state the topology of the fabric"

    @property
    def _ports(self) -> Mapping[tuple[str, int], Any]:
        return {} if self.transport is None else self.transport.ports

    @cached_property
    def flows(self) -> Flows:
        """All flows, warm-up included. Unknown values are -1."""
        times = {"origin_ns": self.origin_ns, "dilation": self.dilation}
        return flows_of(self.results, **times)

    @cached_property
    def measured(self) -> Flows:
        """The flows of measured iterations that cross a port."""
        flows = self.flows
        chosen = flows["measured"] == 1
        if self.transport is not None and self.transport.within_hosts:
            places = {name: number for number, name in enumerate(flows.names["job"])}
            within = [
                (places[job] << 42) | (src << 21) | dst
                for job, src, dst in self.transport.within_hosts
                if job in places
            ]
            chosen &= ~np.isin(self.pairs(flows), within)
        return flows.where(chosen)

    @staticmethod
    def pairs(flows: Flows) -> NDArray[np.int64]:
        """Return a number that identifies the job, sender and receiver of each flow."""
        return (flows["job"] << 42) | (flows["src"] << 21) | flows["dst"]

    @cached_property
    def why(self) -> Why | str:
        """The causes of lost time, or the reason why they are unknown."""
        if len(self.measured) > WHY_FLOWS:
            return f"it has more than {WHY_FLOWS:,} flows; use `chakram why`"
        try:
            return why_of(self.results)
        except InputError as error:
            return f"it {error.found}"

    @cached_property
    def faults(self) -> list[dict[str, Any]]:
        """Injected faults, with times on the page's time axis, or None if unknown."""
        return [
            {
                name: value
                if value is None or not name.endswith("_ns")
                else self.undilated(value)
                for name, value in row.items()
            }
            for row in self.results.table("faults").to_pylist()
        ]

    @cached_property
    def operations(self) -> list[Operation]:
        """Operations of the iteration with the critical path, computations included.

        Empty if there is no critical path or if the run did not record operations.
        """
        why = self.why
        if isinstance(why, str) or why.path is None:
            return []
        table = self.results.table("operations", *Operation._fields, "job", "iteration")
        table = table.filter(
            (pc.field("job") == why.path.job)
            & (pc.field("iteration") == why.path.iteration)
        )
        names = Operation._fields
        columns = (table[name].to_pylist() for name in names)
        return list(map(Operation._make, zip(*columns, strict=True)))

    @cached_property
    def session_rates(self) -> dict[str, NDArray[np.float64]]:
        """Bandwidth of every session in bit/s, by collective.

        A session is a pair of ranks. The bandwidth of a session is its payload divided
        by the time during which at least one of its messages is in flight.
        """
        found = {}
        flows = self.measured.where(self.measured["bytes"] > 0)
        for number, op in enumerate(flows.names["collective"]):
            own = flows.where(flows["collective"] == number)
            if len(own):
                _, busy_ns, places = under_way(
                    self.pairs(own), own["posted_ns"], own["last_acked_ns"]
                )
                sent = np.bincount(places, weights=own["bytes"])
                found[str(op)] = 8e9 * sent / np.maximum(busy_ns, 1)
        return found

    @cached_property
    def rate_of(self) -> dict[tuple[str, int], float | None]:
        """Undilated rate of each rank in bit/s. Ranks share the rate of their port."""
        sharing = Counter(port.number for port in self._ports.values())
        return {
            place: None
            if not port.rate_bps
            else port.rate_bps * self.dilation / sharing[port.number]
            for place, port in self._ports.items()
        }

    def line_rate(self, job: str) -> float | None:
        """Return B_acc of a job, the lowest rate of its ranks, in bit/s."""
        rates = [rate for (name, _), rate in self.rate_of.items() if name == job]
        known = [rate for rate in rates if rate is not None]
        return min(known) if known and len(known) == len(rates) else None

    @cached_property
    def payload_share(self) -> float | None:
        """Payload of a full packet as a fraction of the packet's layer-2 bytes."""
        if self.transport is None:
            return None
        mtu = self.transport.path_mtu
        return mtu / (mtu + self.transport.overhead_bytes)

    @cached_property
    def rooflines(self) -> tuple[Roofline, ...]:
        """JCT and Roofline_seq of the jobs whose ports have rates.

        The communication time of a rank is the sum of 8 S algo_factor / B_acc over its
        collectives and the messages that it sends.
        """
        flows = self.flows
        keys = (flows["job"] << 42) | (flows["group"] << 21)
        members: dict[tuple[int, int], set[int]] = {}
        for side in ("src", "dst"):
            for key in np.unique(keys | flows[side]).tolist():
                place = (key >> 42, (key >> 21) & 0x1FFFFF)
                members.setdefault(place, set()).add(key & 0x1FFFFF)
        jobs = {name: number for number, name in enumerate(flows.names["job"])}
        groups = {name: number for number, name in enumerate(flows.names["group"])}
        found = []
        for iteration in self.summary.iterations:
            rate = self.line_rate(iteration.job)
            if rate is None:
                continue
            bits: defaultdict[int, float] = defaultdict(float)
            seen = set()
            for record in self.collectives:
                identity = record.identity
                if identity.key.job != iteration.job or identity.key in seen:
                    continue
                seen.add(identity.key)
                place = jobs.get(iteration.job, -1), groups.get(identity.key.group, -1)
                ranks = members.get(place, set())
                if identity.op is CollectiveOp.SEND_RECV and record.critical:
                    ranks = {record.critical.src}
                factor = bus_factor(identity.op, nranks=identity.nranks)
                for rank in ranks:
                    bits[rank] += 8 * identity.size_bytes * float(factor)
            computes = {
                rank.rank: rank.compute_ns
                for rank in self.summary.ranks
                if rank.job == iteration.job
            }
            compute_ns, communication_ns = max(
                (
                    (computes.get(rank, 0.0), bits[rank] * 1e9 / rate)
                    for rank in {*computes, *bits}
                ),
                key=sum,
                default=(0.0, 0.0),
            )
            found.append(
                Roofline(
                    job=iteration.job,
                    iteration_ns=iteration.mean_ns,
                    compute_ns=compute_ns,
                    communication_ns=communication_ns,
                )
            )
        return tuple(found)

    @property
    def bin_ns(self) -> float:
        """Length of a time bin in plots over time."""
        return max(1.0, self.end_ns / TIME_BINS)

    @cached_property
    def nics(self) -> NicTraffic | str:
        """Utilization of ports over time, or the reason why it is unknown.

        Samples of the ports show the utilization. Without samples, the bytes of each
        flow are spread evenly between its first packet and its last acknowledgment.
        """
        rates = {
            port.number: (port.host, port.rate_bps * self.dilation)
            for port in self._ports.values()
            if port.rate_bps
        }
        if not rates:
            return "the ports of this run have no rate"
        if not self.end_ns:
            return "no rank completed an iteration"
        order = sorted(rates)
        row_of = np.full(max(order) + 1, -1)
        row_of[order] = np.arange(len(order))
        capacity = np.array([rates[port][1] for port in order]) * self.bin_ns / 8e9
        if self.manifest.nics:
            return "RDMA NICs do not report their load over time"
        sampled = self._sampled_nics(row_of, len(order))
        if sampled is None and not (self.flows["packets"] > 0).any():
            return "no flow was recorded"
        both = sampled or self._nics_of_flows(row_of, len(order))
        transmit, receive = (bytes_ / capacity[:, None] for bytes_ in both)
        return NicTraffic(
            hosts=tuple(rates[port][0] for port in order),
            transmit=transmit,
            receive=receive,
            bin_ns=self.bin_ns,
            is_sampled=sampled is not None,
        )

    def binned(
        self,
        rows: NDArray[np.int64],
        starts_ns: NDArray[Any],
        ends_ns: NDArray[Any],
        amounts: NDArray[Any],
        *,
        count: int = 1,
    ) -> NDArray[np.float64]:
        """Return sums by row and time bin, with each amount spread over its time.

        Args:
            rows: Row of each amount, below *count*.
            starts_ns: Start of each amount.
            ends_ns: End of each amount.
            amounts: Amounts to spread.
            count: Number of rows.
        """
        starts, ends = starts_ns / self.bin_ns, ends_ns / self.bin_ns
        return spread(rows, starts, ends, amounts, shape=(count, TIME_BINS))

    def deltas(
        self,
        table: str,
        keys: tuple[str, ...],
        counters: tuple[str, ...],
        values: tuple[str, ...] = (),
    ) -> dict[str, NDArray[np.int64]] | None:
        """Return the increase of counters between samples, or None without samples.

        A counter without a value counts as unchanged. If there are no values at all,
        the result is None.

        Returns:
            Columns with a row per interval: the keys, ``start_ns``, ``end_ns``, the
            increase of each counter, and *values* unchanged.
        """
        found = self.results.table(table, *keys, "time_ns", *counters, *values)
        found = found.unify_dictionaries()
        named = (*counters, *values)
        if all(found[name].null_count == found.num_rows for name in named):
            return None
        columns: dict[str, NDArray[np.int64]] = {}
        for name in (*keys, "time_ns", *counters, *values):
            column = found[name]
            if pa.types.is_dictionary(column.type):
                column = pa.chunked_array([column.combine_chunks().indices])
            columns[name] = whole_numbers(column)
        order = np.lexsort([columns["time_ns"], *(columns[key] for key in keys)])
        columns = {name: column[order] for name, column in columns.items()}
        first = np.ones(len(order), bool)
        first[1:] = np.any(
            [columns[key][1:] != columns[key][:-1] for key in keys], axis=0
        )
        if np.count_nonzero(first) == len(order):
            return None  # there is only the final sample of each key
        time_ns = (columns.pop("time_ns") - self.origin_ns) / self.dilation
        grown = {}
        for name in counters:
            before = np.where(first, 0, np.roll(columns[name], 1))
            known = (columns[name] >= 0) & (before >= 0)
            grown[name] = np.where(known, columns[name] - before, 0)
        start_ns = np.where(first, 0, np.roll(time_ns, 1))
        return {
            **{key: columns[key] for key in keys},
            # If an interval begins before the run, count its increase from the start of
            # the run.
            "start_ns": np.where(time_ns > 0, np.maximum(start_ns, 0), start_ns),
            "end_ns": time_ns,
            **grown,
            **{name: columns[name] for name in values},
        }

    def _sampled_nics(
        self, row_of: NDArray[np.int64], count: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        found = self.deltas("ports", ("port", "shard"), ("tx_bytes", "rx_bytes"))
        if found is None:
            return None
        known = (found["port"] < len(row_of)) & (found["start_ns"] >= 0)
        rows = row_of[np.where(known, found["port"], 0)]
        known &= rows >= 0
        times = found["start_ns"][known], found["end_ns"][known]
        transmit, receive = (
            self.binned(rows[known], *times, found[name][known], count=count)
            for name in ("tx_bytes", "rx_bytes")
        )
        return transmit, receive

    def _nics_of_flows(
        self, row_of: NDArray[np.int64], count: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        flows = self.flows
        overhead = 0 if self.transport is None else self.transport.overhead_bytes
        amounts = flows["bytes"] + flows["packets"] * overhead
        ranks = 1 + max((rank for _, rank in self._ports), default=0)
        port_of = np.zeros((len(flows.names["job"]), ranks), np.int64)
        jobs = {name: number for number, name in enumerate(flows.names["job"])}
        for (job, rank), port in self._ports.items():
            if job in jobs:
                port_of[jobs[job], rank] = port.number
        sides = (row_of[port_of[flows["job"], flows[side]]] for side in ("src", "dst"))
        crossing = flows["packets"] > 0
        transmit, receive = (
            self.binned(
                rows[known],
                flows["first_sent_ns"][known],
                flows["last_acked_ns"][known],
                amounts[known],
                count=count,
            )
            for rows in sides
            # Ports without a rate have no row.
            for known in [crossing & (rows >= 0)]
        )
        return transmit, receive
