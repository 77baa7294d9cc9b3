"""Reader of run directories, including directories of killed runs."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from chakram.fabric.fabric_traits import FABRIC_TRAITS
from chakram.foundation.errors import (
    DamagedRun,
    InputError,
    NoRunDirectory,
    RunDirectoryError,
)
from chakram.plan.wire_cost import overhead_bytes_of
from chakram.records import run_records
from chakram.run_directory import table_checks
from chakram.run_directory.added_flow_columns import (
    MESSAGES,
    paths_of_text,
    point_to_point,
)
from chakram.run_directory.collective_table import collective_records, column_values
from chakram.run_directory.growing_table import column_names, is_there, read_table
from chakram.run_directory.lock import read_current_manifest
from chakram.run_directory.manifest import MANIFEST, RunManifest
from chakram.run_directory.otg_metrics import (
    TRAFFIC_COLUMNS,
    port_metrics,
    queue_pair_metrics,
    traffic_of,
)
from chakram.run_directory.plan_document import PLAN, PlanDocument, read_plan
from chakram.run_directory.schemas import LINKS, OF_EVERY_TABLE, RANKS, SCHEMAS
from chakram.summary.message_summary import (
    MessageTransport,
    PortFacts,
    SentMessage,
)
from chakram.summary.result_warnings import incomplete
from chakram.summary.run_summary import Measurements, RunFacts, Summary, Verification
from chakram.summary.summarize_run import summarize_run

if TYPE_CHECKING:
    from chakram.plan.port_plan import PortPlan
    from chakram.summary.retransmissions import Traffic

_PREDICTED = "predicted_"


class RunResults:
    """The contents of a run directory, as ``open_run`` returns them.

    Methods read tables on demand. All of them may raise ``RunDirectoryError``.
    """

    def __init__(self, path: Path, manifest: RunManifest) -> None:
        self.path = path
        self.manifest = manifest
        self._checked: set[tuple[str, str]] = set()

    def table(self, name: str, *columns: str) -> pa.Table:
        """Return a table, or only some of its columns.

        Args:
            name: One of ``chakram.run_directory.schemas.SCHEMAS``.
            columns: Names of columns. Without any name, return all columns.

        Raises:
            InputError: If there is no such table.
        """
        if name not in SCHEMAS:
            raise InputError(
                str(self.path),
                f"there is no table {name!r}",
                f"choose from {', '.join(SCHEMAS)}",
            )
        return self._table(name, list(columns) or None)

    def _table(
        self,
        name: str,
        wanted: list[str] | None,
        where: Mapping[str, object] | None = None,
    ) -> pa.Table:
        table = self.unchecked_table(name, wanted, where)
        names = [
            each for each in table.column_names if (name, each) not in self._checked
        ]
        plan = self.plan()
        has_nics = bool(self.manifest.nics)
        problems = list(
            table_checks.check_table(table.select(names), name, has_nics=has_nics)
        )
        if plan is not None and not problems:
            problems += table_checks.check_references(table, name, plan)
        if problems:
            raise DamagedRun(
                str(self.path / f"{name}.parquet"),
                problems[0],
                "copy the run directory again; `chakram validate` lists all problems",
            )
        if wanted is None:
            table = self._whole(table, name)
        if where is None:
            self._checked.update((name, each) for each in names)
        return table

    def _whole(self, table: pa.Table, name: str) -> pa.Table:
        """Add nullable columns that older versions did not write, filled with nulls."""
        written = (table.schema.metadata or {}).get(b"chakram.schema_version")
        known = {*table.column_names, *OF_EVERY_TABLE.names}
        for field in () if written == b"1" else SCHEMAS[name]:
            if field.name in known:
                continue
            if not table_checks.may_be_null(name, field.name):
                raise self._unreadable(name, f"column {field.name} is missing")
            nulls = pa.nulls(table.num_rows, field.type)
            table = table.append_column(field.name, nulls)
        return table

    def unchecked_table(
        self,
        name: str,
        wanted: list[str] | None = None,
        where: Mapping[str, object] | None = None,
    ) -> pa.Table:
        """Return a table without the checks of ``run_directory.table_checks``.

        Args:
            name: One of ``chakram.run_directory.schemas.SCHEMAS``.
            wanted: Names of columns. None selects all columns.
            where: Column values that select rows.
        """
        try:
            table = read_table(self.path, name, column_names=wanted, where=where)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(name, str(error)) from error
        if table is None:
            table = SCHEMAS[name].empty_table()
            table = table.select(wanted) if wanted else table
        names = table.column_names
        if len({*names}) < len(names):
            raise self._unreadable(name, "it has two columns with the same name")
        return table

    def _unreadable(self, name: str, why: str) -> RunDirectoryError:
        return DamagedRun(
            str(self.path),
            f"table {name!r} cannot be read: {why.rstrip('.')}",
            "copy the run directory again; `chakram validate` lists all problems",
        )

    def columns(self, name: str) -> frozenset[str]:
        """Return the column names of a table, empty if the run never started it."""
        try:
            return frozenset(column_names(self.path, name))
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(name, str(error)) from error

    def missing(self) -> list[str]:
        """Return the names of missing files that the run wrote."""
        gone = [
            f"{name}.parquet"
            for name, rows in self.manifest.rows.items()
            if rows and name in SCHEMAS and not is_there(self.path, name)
        ]
        had_plan = any(self.manifest.rows.values())
        if had_plan and not (self.path / PLAN).exists():
            gone.append(PLAN)
        return gone

    def collectives(self) -> list[run_records.CollectiveRecord]:
        """Return the records of all collectives and point-to-point messages."""
        return self._collectives(self.table("collectives"))

    def _collectives(self, table: pa.Table) -> list[run_records.CollectiveRecord]:
        with self._explained_table("collectives"):
            return collective_records(table)

    @property
    def incomplete(self) -> str | None:
        """How an incomplete run ended, in words. None if the run is complete."""
        return incomplete(self.manifest.status, self.manifest.reason)

    def ranks(self, *, whole: bool = False) -> list[run_records.RankRecord]:
        """Return the iterations of all ranks.

        Args:
            whole: Only return iterations that all ranks of their job have ended. The
                start and end of other iterations are unknown.
        """
        with self._explained_table("ranks"):
            table = self.table("ranks", *RANKS.names)
            records = [run_records.RankRecord(**row) for row in table.to_pylist()]
            if not whole:
                return records
            ended = Counter((each.job, each.iteration) for each in records)
            expected: dict[str, int] = {}
            for (job, _), count in ended.items():
                # Runs of older versions do not record the number of ranks.
                known = self.manifest.jobs.get(job, {}).get("ranks")
                expected[job] = known or max(count, expected.get(job, 0))
            return [
                each
                for each in records
                if ended[each.job, each.iteration] == expected[each.job]
            ]

    def links(self) -> list[run_records.LinkRecord]:
        """Return the traffic counters of links."""
        return list(self._links)

    @cached_property
    def _links(self) -> tuple[run_records.LinkRecord, ...]:
        # Runs of older versions have fewer columns.
        known = self.columns("links") or LINKS.names
        names = [name for name in LINKS.names if name != "bytes" and name in known]
        with self._explained_table("links"):
            table = self.table("links", *names)
            columns = [column_values(table[name]) for name in names]
            return tuple(
                run_records.LinkRecord(**dict(zip(names, row, strict=True)))
                for row in zip(*columns, strict=True)
            )

    def completion_times(self) -> dict[run_records.CollectiveKey, array[int]]:
        """Return the completion times in ns of measured flows, by collective."""
        with self._explained_table("flows"):
            names = ["job", "group", "k"]
            flows = self.table("flows", *names, "measured", "fct_ns")
            flows = flows.filter(pc.field("measured")).unify_dictionaries()
            grouped = flows.group_by(names).aggregate([("fct_ns", "list")])
            keys = zip(*(column_values(grouped[name]) for name in names), strict=True)
            times = grouped["fct_ns_list"].combine_chunks()
            ends = times.offsets.to_pylist()
            values_ns = _integers(times.values)
            return {
                run_records.CollectiveKey(*key): values_ns[
                    ends[index] : ends[index + 1]
                ]
                for index, key in enumerate(keys)
            }

    def messages(self) -> list[SentMessage]:
        """Return the point-to-point messages of measured iterations."""
        with self._explained_table("flows"):
            column_of = {name: name for name in SentMessage._fields} | {
                "size_bytes": "bytes",
                "acked_ns": "last_acked_ns",
                "ways": "path",
            }
            late = {"fair_ns", "path"} - self.columns("flows")
            wanted = [name for name in column_of.values() if name not in late]
            flows = self._table(
                "flows", [*wanted, "group"], {**MESSAGES, "measured": True}
            )
            flows = flows.filter(point_to_point(flows))
            columns = {
                field: [None] * flows.num_rows
                if name in late
                else flows[name].to_pylist()
                for field, name in column_of.items()
            }
            known = {text: paths_of_text(text) for text in {*columns["ways"]} - {None}}
            columns["ways"] = [known.get(text) for text in columns["ways"]]
            return list(map(SentMessage._make, zip(*columns.values(), strict=True)))

    def message_transport(self) -> MessageTransport | None:
        """Return the transport of messages, or None if the run never had a plan."""
        plan = self.plan()
        if plan is None:
            return None
        facts = {
            port.number: PortFacts(
                number=port.number, host=port.host, rate_bps=port.rate_bps
            )
            for port in plan.ports
        }
        control = dict(plan.transport.congestion_parameters)
        return MessageTransport(
            path_mtu=plan.transport.path_mtu,
            verb=plan.transport.verb,
            window_bytes=plan.transport.window_bytes,
            burst_packets=plan.transport.max_burst_packets,
            # If the rate is fixed, it is also the lowest rate.
            least_rate_bps=control.get("min_rate_bps") or control.get("rate_bps") or 0,
            has_fixed_rate="min_rate_bps" not in control and "rate_bps" in control,
            overhead_bytes=overhead_bytes_of(self.manifest.family),
            ports={(rank.job, rank.rank): facts[rank.port] for rank in plan.ranks},
            within_hosts=frozenset(
                (rank.job, rank.rank, peer)
                for rank in plan.ranks
                for peer in rank.within_host
            ),
        )

    def plan(self) -> PlanDocument | None:
        """Return the contents of ``plan.json``, or None if the run had no plan."""
        return self._plan

    @cached_property
    def _plan(self) -> PlanDocument | None:
        return read_plan(self.path / PLAN)

    def rank_numbers(self) -> dict[tuple[str, int], int]:
        """Return rank numbers in the plan, by job and rank, empty without a plan."""
        plan = self.plan()
        return {
            (rank.job, rank.rank): rank.number
            for rank in (() if plan is None else plan.ranks)
        }

    def queue_pair_metrics(self, since_ns: Mapping[str, int] | None = None) -> pa.Table:
        """Return counters per queue pair, named as in the Open Traffic Generator.

        Args:
            since_ns: Time from which to count, by job. A job must have no message in
                progress at its time.
        """
        names = ["job", "src", "qpn", "first_sent_ns", "last_acked_ns", "fct_ns"]
        ends = self.table("queue_pair_ends")
        plan = self.plan()
        are_divided = plan is not None and plan.transport.split == "even"
        ports = self._ports(ends)
        with self._explained_table("queue_pair_ends", "queue_pairs", "flows"):
            return queue_pair_metrics(
                ends,
                self.table("queue_pairs"),
                self.table("flows", *names),
                ports=ports,
                family=self.manifest.family,
                are_divided=are_divided,
                since_ns=since_ns,
            )

    def port_metrics(self) -> pa.Table:
        """Return counters per port, with the sums of the port's queue pairs."""
        ends = self.table("queue_pair_ends")
        ports = self._ports(ends)
        with self._explained_table("queue_pair_ends", "queue_pairs", "ports"):
            return port_metrics(
                ends, self.table("queue_pairs"), self.table("ports"), ports=ports
            )

    def ports(self) -> list[PortPlan]:
        """Return the ports in ``plan.json``, empty if the run never had a plan."""
        plan = self.plan()
        return [] if plan is None else list(plan.ports)

    def _ports(self, ends: pa.Table) -> dict[int, dict[str, Any]]:
        """Return the ports by number. If *ends* has rows, ``plan.json`` must exist."""
        if ends.num_rows and self.plan() is None:
            raise DamagedRun(
                str(self.path / PLAN),
                "is missing",
                "copy the run directory again",
            )
        return {
            port.number: {"host": port.host, "address": port.address}
            for port in self.ports()
        }

    @contextmanager
    def _explained_table(self, *names: str) -> Iterator[None]:
        """Convert errors from unexpected table contents to ``RunDirectoryError``."""
        try:
            yield
        except (LookupError, TypeError, ValueError, pa.ArrowException) as error:
            tables = " or ".join(f"{name}.parquet" for name in names)
            raise DamagedRun(
                str(self.path),
                f"{tables} has unexpected contents: {error}",
                "copy the run directory again",
            ) from error

    def measurements(self) -> Measurements:
        """Return all data that a summary needs."""
        return self._measurements(self.table("collectives"))

    def _measurements(self, collectives: pa.Table) -> Measurements:
        manifest = self.manifest
        traits = FABRIC_TRAITS.get(manifest.world)
        named = {each.name for each in fields(RunFacts)}
        said = {each.name for each in fields(manifest)} & named
        gone = self.missing()
        missing = [f"FILES ARE MISSING: {', '.join(gone)}"] if gone else []
        facts = RunFacts(
            **{
                name: getattr(manifest, name)
                for name in said - {"verification", "banners"}
            },
            verification=_verification(manifest.verification),
            banners=(*missing, *manifest.banners),
            directory=str(self.path),
            clock_uncertainty_ns=manifest.clock_uncertainty_ns,
            rate_key=None if traits is None else traits.rate_key,
            stretches=traits is None or traits.stretches,
        )
        return Measurements(
            facts=facts,
            collectives=self._collectives(collectives),
            ranks=self.ranks(whole=True),
            links=self.links(),
            completion_times=self.completion_times(),
            messages=self.messages(),
            transport=self.message_transport(),
            generator=manifest.generator,
            traffic=self.traffic(),
            background=manifest.background_jobs,
        )

    def traffic(self) -> Traffic | None:
        """Return the traffic of the queue pairs, or None if it was not counted."""
        columns = ("job", "rank", "qpn", *TRAFFIC_COLUMNS)
        # Older versions did not distinguish late packets from lost packets.
        if not self.columns("queue_pairs") >= set(TRAFFIC_COLUMNS):
            return None
        return traffic_of(
            self.table("queue_pairs", *columns),
            self.table("ports", "port", "shard", "invalid_icrc"),
        )

    def summary(self, measurements: Measurements | None = None) -> Summary:
        """Return the summary, with the reference times that the run recorded.

        Args:
            measurements: Data for the summary, if you have already read it.
        """
        table = self.table("collectives")
        bounds = self._reference("bound_ns", table)
        alone = self._reference("alone_ns", table)
        return summarize_run(
            measurements or self._measurements(table),
            bound=lambda identity: bounds.get(identity.key),
            alone=lambda identity: alone.get(identity.key),
            predictions=self._predictions(table),
        )

    def bounds(self) -> dict[run_records.CollectiveKey, int]:
        """Return the recorded lower bounds of collectives in ns."""
        return self._reference("bound_ns", self.table("collectives"))

    def alone(self) -> dict[run_records.CollectiveKey, int]:
        """Return the recorded times of isolated collectives in ns."""
        return self._reference("alone_ns", self.table("collectives"))

    def ceilings(self) -> dict[run_records.CollectiveKey, int]:
        """Return the recorded times in ns that no algorithm can beat."""
        return self._reference("ceiling_ns", self.table("collectives"))

    def predictions(self) -> dict[str, dict[run_records.CollectiveKey, int]]:
        """Return the recorded predictions of times in ns, by source."""
        return self._predictions(self.table("collectives"))

    def _predictions(
        self, table: pa.Table
    ) -> dict[str, dict[run_records.CollectiveKey, int]]:
        return {
            name.removeprefix(_PREDICTED).removesuffix("_ns"): self._reference(
                name, table
            )
            for name in table.column_names
            if name.startswith(_PREDICTED)
        }

    def _reference(
        self, column: str, table: pa.Table
    ) -> dict[run_records.CollectiveKey, int]:
        if column not in table.column_names:
            return {}
        names = ("job", "group", "k", column)
        with self._explained_table("collectives"):
            rows = zip(*(column_values(table[name]) for name in names), strict=True)
            return {
                run_records.CollectiveKey(job, group, k): time_ns
                for job, group, k, time_ns in rows
                if time_ns is not None
            }


def runs_in(path: Path) -> list[Path]:
    """Return the run directories in a folder, oldest first.

    If *path* is itself a run directory, or contains none, return only *path*. In the
    latter case, ``open_run`` reports the problem.
    """
    if (path / MANIFEST).exists():
        return [path]
    return sorted(each.parent for each in path.glob(f"*/{MANIFEST}")) or [path]


def open_run(path: Path) -> RunResults:
    """Return the results in a run directory, even while it is being written.

    If *path* contains exactly one run directory, open that directory.

    Raises:
        NoRunDirectory: If *path* is not a run directory, or is of a newer version.
        RunDirectoryError: If the directory cannot be read.
    """
    first, *others = runs_in(path)
    if others:
        raise NoRunDirectory(
            str(path), f"contains {1 + len(others)} runs", "name one of them"
        )
    return RunResults(first, read_current_manifest(first))


def _integers(column: pa.Array) -> array[int]:
    """Return the values of a column of int64, which has no nulls, without numpy."""
    values = array("q")
    if len(column):
        data = memoryview(column.buffers()[1])[8 * column.offset :]
        values.frombytes(data[: 8 * len(column)])
    return values


def _verification(found: Mapping[str, Any]) -> Verification:
    """Return the verification in ``run.json``, without fields of newer versions."""
    names = {item.name for item in fields(Verification)}
    return Verification(**{name: found[name] for name in found if name in names})
