"""Writer of the run directory, which holds all results of a run.

::

    runs/20260131T120000Z-quickstart/
        run.json              settings, status and provenance
        experiment.yaml       the experiment file, with the changes by --set above it
        plan.json             ranks, ports and addresses
        flows.parquet         one row per message
        collectives.parquet   one row per collective and iteration
        ranks.parquet         one row per rank and iteration
        operations.parquet    one row per operation of a rank and iteration
        links.parquet         one row per direction of a link
        faults.parquet        one row per entry of the experiment's faults
        queue_pairs.parquet   one row per sample of a queue pair
        ports.parquet         one row per sample of a port
        link_samples.parquet  one row per sample of a port of the fabric
        queue_pair_ends.parquet   one row per queue pair, with its constant properties
        clocks.parquet        one row per burst of pings to an agent

The directory name of a simulation ends with ``-simulate``.

During a run, all tables except links and faults grow in parts
(``chakram.run_directory.growing_table``). ``chakram.run_directory.schemas`` and
docs/reference/run-directory.md list the columns.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from chakram.foundation.errors import PeerError, RunDirectoryError
from chakram.records import run_records
from chakram.records.collective_assembly import CollectiveJoiner
from chakram.records.named_rows import OperationTable, rank_records
from chakram.records.row_layout import RecordRows
from chakram.run_directory import manifest as manifests
from chakram.run_directory.added_flow_columns import MessageColumns
from chakram.run_directory.collective_table import collectives_table
from chakram.run_directory.fault_table import faults_table
from chakram.run_directory.growing_table import PartedTable
from chakram.run_directory.lock import RunLock, owner
from chakram.run_directory.missing_nic_values import (
    NIC_TRANSPORT_NOTE,
    blank_of,
    blanked,
    nic_ranks,
    nics_of,
)
from chakram.run_directory.operation_tables import OperationTables
from chakram.run_directory.schemas import (
    LINKS,
    RANKS,
    SCHEMAS,
    FlowTables,
    SampleTables,
    clocks_table,
    queue_pair_ends_table,
    records_table,
    with_bounds,
)

if TYPE_CHECKING:
    from chakram.control.clock_track import ClockTrack
    from chakram.plan.plan import Plan

LAST_METRICS = "metrics.txt"
"""File with the final metrics, as OpenMetrics text."""

ROWS_PER_PART = 100_000
"""Number of rows in memory at which the writer writes a part of each table."""

RANKS_PER_PART = 128
"""Number of ranks per part of ``queue_pair_ends``. A rank may have a thousand rows."""

_MAX_SAME_SECOND = 1000
_MAX_NAME, _MAX_NAME_BYTES = 80, 200
"""Maximum length of the experiment's name in the name of a run directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecords:
    """Records of the collectives and rank iterations that a batch of rows completed."""

    collectives: Sequence[run_records.CollectiveRecord]
    ranks: Sequence[run_records.RankRecord]


class RunDirectory:
    """The writer of one run directory, as ``create`` returns it.

    Only one thread may call methods at a time. All methods may raise
    ``RunDirectoryError``.
    """

    def __init__(
        self, path: Path, manifest: manifests.RunManifest, lock: RunLock
    ) -> None:
        self.path = path
        self.manifest = manifest
        self._lock = lock
        self._pending = RecordRows()
        self._pending_collectives: list[run_records.CollectiveRecord] = []
        self._pending_ranks: list[run_records.RankRecord] = []
        self._sample_tables: SampleTables | None = None
        self._operations: OperationTable | None = None
        self._joiner: CollectiveJoiner | None = None
        self._flow_tables: FlowTables | None = None
        self._operation_tables: OperationTables | None = None
        self._host_of: dict[tuple[str, int], str] = {}
        self._endless_jobs: frozenset[str] = frozenset()
        self._is_full = False
        self._blank: Mapping[str, Sequence[str]] = {}
        metadata = {
            "chakram.schema_version": str(manifests.SCHEMA_VERSION),
            "chakram.run_id": manifest.run_id,
            "chakram.case": manifest.case or "",
        }
        constants = {"run_id": manifest.run_id, "world": manifest.world}
        self._tables = {
            name: PartedTable(
                path, name, schema=schema, metadata=metadata, constants=constants
            )
            for name, schema in SCHEMAS.items()
        }

    @classmethod
    def create(
        cls,
        parent: Path,
        *,
        manifest: manifests.RunManifest,
        started: datetime,
        experiment_text: str = "",
    ) -> RunDirectory:
        """Create a new directory below *parent*. Call this first in a run.

        Args:
            parent: Folder of all runs. Created if missing.
            manifest: Manifest of the run. The directory's name contains the name of the
                run.
            started: Start time in UTC, which is the first part of the directory's name.
            experiment_text: The experiment file, unchanged.

        Raises:
            RunDirectoryError: If the directory cannot be created or written.
        """
        path = make_folder(
            parent,
            manifest.name,
            kind=manifests.SIMULATE if manifest.world == manifests.SIMULATE else "",
            started=started,
            experiment_text=experiment_text,
        )
        with manifests.explained_writes(path):
            lock = RunLock(path)
            if lock.is_held:
                manifest = replace(manifest, lock=owner())
            manifests.write_manifest(path, manifest)
        return cls(path, manifest, lock)

    def update(self, **changes: Any) -> None:
        """Change fields of the manifest and write it."""
        self.manifest = replace(self.manifest, **changes)
        with manifests.explained_writes(self.path):
            manifests.write_manifest(self.path, self.manifest)

    def begin(
        self,
        plan: Plan,
        *,
        ports: Sequence[str] = (),
        recorded: Container[int] | None = None,
    ) -> OperationTable:
        """Write the plan. Afterward, you can add rows.

        Args:
            plan: Plan to be executed.
            ports: Names of the fabric's ports, indexed by the port numbers in rows.
            recorded: Numbers of the ranks whose operations have rows. None means all
                ranks.

        Returns:
            Operations of the plan, by the numbers in rows.
        """
        operations = OperationTable(plan, recorded)
        on_nic = nic_ranks(plan)
        warmup = self.manifest.warmup
        self._operations = operations
        self._endless_jobs = frozenset(
            job.job
            for agent in plan.agents
            for job in agent.settings.jobs
            if job.is_background
        )
        hosts = {port.number: port.host for port in plan.ports()}
        self._host_of = {
            (rank.program.job, rank.program.rank): hosts.get(rank.port, "")
            for rank in plan.ranks()
        }
        self._joiner = CollectiveJoiner(
            operations,
            warmup=warmup,
            has_arrivals=self.manifest.world != manifests.SIMULATE,
        )
        self._flow_tables = FlowTables(
            operations,
            warmup=warmup,
            family=plan.family(),
            ports=ports,
            on_nic=on_nic,
        )
        if any(on_nic):
            self._blank = blank_of(plan)
            transport = f"{self.manifest.transport}; {NIC_TRANSPORT_NOTE}"
            self.update(nics=nics_of(plan), transport=transport)
        self._operation_tables = OperationTables(plan, operations, warmup=warmup)
        self._sample_tables = SampleTables(plan, names=ports)
        with manifests.explained_writes(self.path):
            text = json.dumps(_describe_plan(plan), indent=1) + "\n"
            manifests.write_whole(self.path / "plan.json", text)
            ranks = plan.ranks()
            for first in range(0, len(ranks), RANKS_PER_PART):
                some = ranks[first : first + RANKS_PER_PART]
                self._append("queue_pair_ends", queue_pair_ends_table(some))
        return operations

    def add(self, rows: RecordRows) -> NewRecords:
        """Add rows from any agent and return the records that they complete.

        Raises:
            PeerError: If a row does not match the plan.
            ValueError: If ``begin`` has not been called.
        """
        if self._operations is None or self._joiner is None:
            raise ValueError("rows arrived before the plan")
        with _explained_rows():
            completed = self._joiner.add(rows)
            ranks = rank_records(
                rows.iterations,
                self._operations,
                warmup=self.manifest.warmup,
            )
        if len(rows) < ROWS_PER_PART:
            self._pending.extend(rows)
        else:
            self._write(rows)
        self._pending_collectives += completed
        self._pending_ranks += ranks
        if len(self._pending) >= ROWS_PER_PART:
            self.flush()
        return NewRecords(collectives=completed, ranks=ranks)

    def add_link_samples(self, rows: array[int]) -> None:
        """Write samples of links (rows of ``LINK_SAMPLE_FIELDS``).

        Raises:
            ValueError: If ``begin`` has not been called.
        """
        if self._sample_tables is None:
            raise ValueError("samples arrived before the plan")
        with manifests.explained_writes(self.path):
            self._tables["link_samples"].append(self._sample_tables.links(rows))

    def flush(self) -> None:
        """Write pending rows. Call this every few seconds.

        After a failed write, the writer writes no further rows. Otherwise, the
        directory could contain iterations without their messages.

        Raises:
            PeerError: If a row does not match the plan. All rows since the last call
                are then dropped.
        """
        collectives, self._pending_collectives = self._pending_collectives, []
        ranks, self._pending_ranks = self._pending_ranks, []
        self._write(self._pending.take())
        if self._is_full:
            return
        with self._written():
            # Write these last. Then recorded collectives always have their flows, even
            # in a killed run.
            self._append("collectives", collectives_table(collectives))
            self._tables["ranks"].append(records_table(ranks, RANKS))

    @property
    def verifies_payload(self) -> bool:
        """Whether wrong payload would be detected on all ports."""
        return "wrong" not in self._blank.get("collectives", ())

    def _append(self, name: str, table: pa.Table) -> None:
        """Append rows to a table, without values that NICs do not report."""
        self._tables[name].append(blanked(table, self._blank.get(name, ())))

    def _write(self, rows: RecordRows) -> None:
        """Write a part of each table. The cost hardly depends on the number of rows."""
        if (
            self._is_full
            or not len(rows)
            or self._flow_tables is None
            or self._operation_tables is None
            or self._sample_tables is None
        ):
            return
        with _explained_rows():
            tables = {
                "flows": self._flow_tables.table(rows.flows),
                "operations": self._operation_tables.table(rows),
                "queue_pairs": self._sample_tables.queue_pairs(rows.queue_pairs),
                "ports": self._sample_tables.ports(rows.ports),
            }
        with self._written():
            for name, table in tables.items():
                self._tables[name].append(table)

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Stop all further writes of rows after a failed write."""
        try:
            with manifests.explained_writes(self.path):
                yield
        except RunDirectoryError:
            self._is_full = True
            raise

    def write_metrics(self, text: str) -> None:
        """Write the final metrics, as OpenMetrics text."""
        with manifests.explained_writes(self.path):
            manifests.write_whole(self.path / LAST_METRICS, text)

    def finish(
        self,
        status: str = manifests.COMPLETE,
        *,
        ended: datetime,
        reason: str | None = None,
        links: Sequence[run_records.LinkRecord] = (),
        bound: Mapping[run_records.CollectiveKey, int] | None = None,
        alone: Mapping[run_records.CollectiveKey, int] | None = None,
        ceiling: Mapping[run_records.CollectiveKey, int] | None = None,
        predictions: Mapping[str, Mapping[run_records.CollectiveKey, int]]
        | None = None,
        flow_bound: Callable[[str, int, int, int], int] | None = None,
        messages: MessageColumns | None = None,
        clock_samples: Mapping[str, ClockTrack] | None = None,
        **changes: Any,
    ) -> None:
        """Write the last rows, merge the parts and record how the run ended.

        If parts cannot be merged, they are kept and the run is marked as partial.

        Args:
            status: ``complete``, ``partial`` or ``failed``.
            ended: End time in UTC.
            reason: Why the run is not complete. None if it is complete.
            links: Traffic counters of links.
            bound: Lower bound in ns, by collective.
            alone: Time in ns of the isolated collective on the fabric, by collective.
            ceiling: Time in ns that no algorithm beats, by collective.
            predictions: Time in ns, by source (e.g. ``simulate``) and collective.
            flow_bound: Function that returns the lower bound on a message in ns, given
                job, sender, receiver and size in bytes.
            messages: Converter that appends fair times and paths to flows. With None,
                these columns contain nulls.
            clock_samples: Models of the agents' clocks, by name.
            changes: Other fields of the manifest to change.
        """
        if self._joiner is not None:
            self._pending.flows.extend(self._joiner.waiting())
            self._pending_collectives += [
                record
                for record in self._joiner.unfinished()
                # A job that repeats until the others end never completes its last
                # iteration.
                if status != manifests.COMPLETE
                or record.identity.key.job not in self._endless_jobs
            ]
        problem: RunDirectoryError | None = None
        try:
            self.flush()
            references = {
                "bound_ns": bound or {},
                "alone_ns": alone or {},
                "ceiling_ns": ceiling or {},
            }
            for source, times_ns in (predictions or {}).items():
                references[f"predicted_{source}_ns"] = times_ns
            columns = messages or MessageColumns()
            with manifests.explained_writes(self.path):
                columns.prepare(self.path)
                tables = self._tables
                tables["flows"].merge(
                    lambda part: columns.append_to(with_bounds(part, flow_bound))
                )
                tables["collectives"].merge(
                    lambda part: _with_references(part, references)
                )
                tables["links"].append(records_table(links, LINKS))
                tables["faults"].append(
                    faults_table(
                        self.path,
                        links=links,
                        host_of=self._host_of,
                        link_faults=changes.get("link_faults", ()),
                        packet_faults=changes.get("packet_faults", ()),
                    )
                )
                tables["clocks"].append(clocks_table(clock_samples or {}))
                for name, table in tables.items():
                    if name not in ("flows", "collectives"):
                        table.merge()
        except RunDirectoryError as error:
            problem = error
            status = manifests.PARTIAL if status == manifests.COMPLETE else status
            reason = reason or str(error)
        self.update(
            status=status,
            reason=reason,
            ended_at=ended.isoformat(timespec="seconds"),
            rows={name: table.rows for name, table in self._tables.items()},
            digests=self._digests(),
            **changes,
        )
        self._lock.release()
        if problem is not None:
            raise problem

    def _digests(self) -> dict[str, str]:
        tables = (f"{name}.parquet" for name in SCHEMAS)
        names = ("experiment.yaml", "plan.json", *tables)
        with manifests.explained_writes(self.path):
            return {
                name: manifests.file_digest(self.path / name)
                for name in names
                if (self.path / name).exists()
            }


def _with_references(
    table: pa.Table, references: Mapping[str, Mapping[run_records.CollectiveKey, int]]
) -> pa.Table:
    """Append a column per kind of reference time, e.g. bounds, to collectives."""
    names = (table[name].to_pylist() for name in ("job", "group", "k"))
    keys = [run_records.CollectiveKey(*key) for key in zip(*names, strict=True)]
    for name, times_ns in references.items():
        values = [times_ns.get(key) for key in keys]
        table = table.append_column(name, pa.array(values, pa.int64()))
    return table


def _describe_plan(plan: Plan) -> dict[str, Any]:
    """Return the plan without programs and queue pairs, for ``plan.json``."""
    first = plan.agents[0] if plan.agents else None
    return {
        "schema_version": manifests.SCHEMA_VERSION,
        "run_id": plan.run_id,
        "agents": [
            {"agent": agent.agent, "shards": agent.shards} for agent in plan.agents
        ],
        "ports": [asdict(port) for port in plan.ports()],
        "ranks": [
            {
                "number": rank.number,
                "job": rank.program.job,
                "rank": rank.program.rank,
                "agent": agent.agent,
                "port": rank.port,
                "shard": rank.shard,
                "operations": len(rank.program.columns),
                "queue_pairs": len(rank.queue_pairs),
                "within_host": sorted(
                    {
                        pair.peer_rank
                        for pair in rank.queue_pairs
                        if pair.local_rate_bps is not None
                    }
                ),
            }
            for agent in plan.agents
            for rank in agent.ranks
        ],
        "transport": asdict(first.transport) if first else {},
        "settings": asdict(first.settings) if first else {},
    }


def make_folder(
    parent: Path,
    name: str,
    *,
    started: datetime,
    experiment_text: str,
    kind: str = "",
) -> Path:
    """Create a new folder below *parent* with the experiment file, and return it.

    Args:
        parent: Parent folder. Created if missing.
        name: Name of the experiment, which is part of the folder's name.
        started: Start time in UTC, which is the first part of the folder's name.
        experiment_text: The experiment file, unchanged.
        kind: Last part of the folder's name. Empty for a run on a network.

    Raises:
        RunDirectoryError: If the folder cannot be created or written.
    """
    try:
        str(parent).encode()
    except UnicodeEncodeError:
        # Arrow opens files by their name in UTF-8.
        raise RunDirectoryError(
            str(parent), "is not a name in UTF-8", "choose another folder for runs"
        ) from None
    with manifests.explained_writes(parent):
        parent.mkdir(parents=True, exist_ok=True)
        parts = (f"{started:%Y%m%dT%H%M%SZ}", _file_name(name), kind)
        path = _make_new(parent, "-".join(filter(None, parts)))
        (path / "experiment.yaml").write_text(experiment_text, encoding="utf-8")
    return path


def _make_new(parent: Path, stem: str) -> Path:
    """Create a new directory, with a suffix if several runs start in one second."""
    for number in range(1, _MAX_SAME_SECOND):
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise FileExistsError(
        0, f"{_MAX_SAME_SECOND} runs of the same second already exist"
    )


def _file_name(name: str) -> str:
    """Return *name*, with hyphens for characters that file names should not have."""
    safe = "".join(char if char.isalnum() or char in "._-" else "-" for char in name)
    # File systems limit the bytes of a file name.
    short = safe.strip(".-")[:_MAX_NAME].encode()[:_MAX_NAME_BYTES]
    return short.decode(errors="ignore") or "run"


@contextmanager
def _explained_rows() -> Iterator[None]:
    """Convert errors in rows to ``PeerError``, because agents sent the rows."""
    try:
        yield
    except (ValueError, pa.ArrowException) as error:
        raise PeerError("records of an agent", f"are invalid: {error}") from error
