"""``run.json``: settings, status and provenance of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from chakram.foundation.bounded_reading import parse_json
from chakram.foundation.errors import NoRunDirectory, RunDirectoryError
from chakram.foundation.ip_addresses import IPV4
from chakram.run_directory.json_to_dataclass import (
    DocumentReader,
    InRange,
    InvalidDocument,
    Members,
)
from chakram.summary.generator_health import GeneratorHealth

SCHEMA_VERSION = 2
"""Version of the run directory format. Every file in the directory contains it."""

MANIFEST = "run.json"

PREFLIGHT = "preflight"
"""Base name of the files of a preflight, without extension."""

SIMULATE = "simulate"
"""World of simulations, which run in virtual time."""

RUNNING = "running"
COMPLETE = "complete"
PARTIAL = "partial"
FAILED = "failed"
KILLED = "killed"
STATUSES = (RUNNING, COMPLETE, PARTIAL, FAILED, KILLED)
"""Possible statuses. For a killed run, ``run.json`` still contains ``running``, because
the writer cannot update it. ``chakram.run_directory.lock`` detects killed runs."""


_TIME_NS = 1 << 60
_TimeNs = Annotated[int, InRange(-_TIME_NS, _TIME_NS + 1)]
_Count = Annotated[int, InRange(0, 1 << 56)]


_Job = Annotated[
    Mapping[str, Any],
    Members(ranks=_Count, offset_ns=_TimeNs, iterations=_Count | None, order=str),
]
_Trace = Annotated[
    Mapping[str, Any], Members(trace=str, producer=str, nodes=_Count, sha256=str)
]
_PacketFault = Annotated[
    Mapping[str, Any], Members(fault=str, kind=str, packets=_Count)
]
_LinkFault = Annotated[
    Mapping[str, Any],
    Members(
        *("fault", "kind", "link", "ports", "at_ns"),
        fault=str,
        kind=str,
        link=str,
        ports=list[str],
        at_ns=_TimeNs | None,
        until_ns=_TimeNs | None,
    ),
]
_Preflight = Annotated[
    Mapping[str, Any],
    Members(passed=bool, pairs=_Count, findings=list[Mapping[str, str]]),
]
_Verification = Annotated[
    Mapping[str, Any],
    Members(
        every=_Count,
        has_icrcs=bool,
        packets=_Count,
        icrc_errors=_Count,
        wrong_payloads=_Count,
    ),
]
_Nic = Annotated[
    Mapping[str, Any],
    Members(
        *("device", "port"),
        device=str,
        port=_Count,
        settings=dict[str, str],
        counters=dict[str, int],
    ),
]
_Switch = Annotated[
    Mapping[str, Any],
    Members(
        "mapping",
        address=str | None,
        mapping=str,
        interval_ns=_Count,
        refresh_ns=_Count,
        clock_ahead_ns=int | None,
        clock_bound_ns=_Count | None,
        updates=_Count,
        ignored=_Count,
        restarts=_Count,
        gaps=list[dict[str, Any]],
        resets=list[dict[str, Any]],
        facts=dict[str, Any],
    ),
]
_Experiment = Annotated[
    Mapping[str, Any],
    Members(fabric=dict[str, Any], transport=dict[str, Any] | None),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """An agent's clock, as far as it is known.

    Attributes:
        offset_ns: Offset from the agent's clock to the controller's clock at the first
            measurement since its last step.
        uncertainty_ns: Bound on the error of times of this agent in tables.
        drift_ppm: How much faster the agent's clock runs than the controller's clock,
            in parts per million.
        steps: Number of times that the clock was set during the run.
        wall_source: What synchronizes the wall clock of the agent's host: ``chrony`` or
            ``ptp``. None if unknown, or if the host does not follow another clock.
        wall_offset_ns: Last offset that ``wall_source`` measured. None if unknown.
        wall_bound_ns: Bound on the error of that wall clock. None if unknown.
    """

    offset_ns: int
    uncertainty_ns: int
    drift_ppm: float = 0.0
    steps: int = 0
    wall_source: str | None = None
    wall_offset_ns: int | None = None
    wall_bound_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    """The contents of ``run.json``.

    Attributes:
        run_id: Identifier of the run, contained in every file of its directory.
        name: Name of the experiment.
        case: Case of the suite, or None outside suites.
        world: ``namespaces``, ``loopback``, ``external`` or ``simulate``.
        status: One of ``STATUSES``.
        reason: Why the run is partial or failed, otherwise None.
        started_at: Wall-clock time of the start in UTC, ISO 8601. Use it for display
            only, not to compute durations.
        ended_at: Wall-clock time of the end, in the same format. None while the run is
            in progress.
        unix_offset_ns: Offset from times in records to Unix time. None in virtual time,
            before traffic starts, and in runs of versions that did not record it.
        fabric: One-line description of the fabric, for tables and reports.
        family: Address family of all ports: ``ipv4`` or ``ipv6``.
        transport: One-line description of the transport.
        seed: Seed of all random numbers.
        psn_seed: Seed of the initial PSNs. None in a simulation, which uses ``seed``.
            Also None until a run has ended, because you could forge packets with it.
        size_scale: Factor on all message sizes, as a fraction such as ``1/64``.
        dilation: Factor by which the run stretched time. Records contain raw times.
        warmup: Iterations before the measured ones.
        measured: Measured iterations.
        sync: Synchronization between iterations.
        traces: Replayed traces by job.
        jobs: Number of ranks, start time, iterations, order of nodes, and changes to
            the trace, by job. If iterations is None, the job repeats until all other
            jobs have ended.
        experiment: The experiment, with a value for every default.
        versions: Versions of Python, Chakram, the kernel and the libraries.
        compiled: Hot modules that ran compiled, and reasons why others did not.
        host: Facts about the controller's machine.
        lock: ``hostname``, ``machine_id`` (a hash of the system's identifier) and
            ``boot_id`` of the controller's machine. Empty if the controller could not
            lock the directory.
        agents: By agent: ``version`` of Chakram, ``protocol``, ``python``, ``kernel``,
            ``host`` and ``compiled``, and ``counters`` of its host during the run.
            Empty in simulations, before traffic starts, and in runs of versions that
            did not record it.
        clocks: Clocks by agent.
        generator: By agent, how well the generator kept up. Empty while the run is in
            progress, and in runs of versions that did not record it.
        keeping_up: Rate or dilation at which the generator would have kept up. Empty if
            it did keep up.
        banners: Warnings that every report shows at its top.
        samples_dropped: Number of records lost in transfer.
        injected: Numbers of packets that ports disturbed because of injected faults, by
            kind of disturbance.
        invalid: Numbers of packets that ports rejected, by reason.
        verification: How ranks checked received packets. ``every``: they checked one in
            this many packets, or none if 0. ``has_icrcs``: whether packets had an ICRC.
            ``packets``, ``icrc_errors`` and ``wrong_payloads``: the numbers of packets
            checked, dropped for a wrong ICRC, and accepted with a wrong payload. Empty
            in simulations.
        packet_faults: For each entry of ``faults.packets``, a description (``fault``),
            its ``kind``, and the number of packets disturbed (``packets``).
        link_faults: For each entry of ``faults.links``, a description (``fault``), its
            ``kind``, its ``link`` and ``ports``, and its times ``at_ns`` and
            ``until_ns`` on the clock of the tables. If ``until_ns`` is None, the fault
            lasts to the end.
        rows: Number of rows by table.
        digests: SHA-256 of every other file that the run wrote, by file name. Empty
            while the run is in progress, and in runs of versions that did not record
            it.
        preflight: Result and findings of the preflight before the run. Empty if there
            was no preflight.
        nics: For ports on RDMA NICs: the ``device``, the number of the ``port``, and
            the ``settings`` and ``counters`` that its agent has reported.
        switches: For switches whose counters were read: ``address`` and ``mapping``;
            ``interval_ns`` between samples and ``refresh_ns``, the largest age of a
            counter; ``clock_ahead_ns`` and ``clock_bound_ns``, how far the switch's
            clock is ahead of this machine's monotonic clock, and the largest error of
            that value; the numbers of ``updates``, ``ignored`` values and ``restarts``;
            ``gaps`` and ``resets`` with ports and times on the clock of the tables; and
            ``facts`` that the switch reported.
    """

    run_id: str
    name: str
    case: str | None = None
    world: str
    status: str = RUNNING
    reason: str | None = None
    started_at: str
    ended_at: str | None = None
    unix_offset_ns: Annotated[int, InRange(0, 1 << 62)] | None = None
    fabric: str = ""
    family: str = IPV4
    transport: str = ""
    seed: int = 1
    psn_seed: int | None = None
    size_scale: str = "1"
    dilation: Annotated[int, InRange(1, 10**9 + 1)] = 1
    warmup: _Count = 0
    measured: _Count = 1
    sync: str = "barrier"
    traces: Mapping[str, _Trace] = field(default_factory=dict)
    jobs: Mapping[str, _Job] = field(default_factory=dict)
    experiment: _Experiment = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    compiled: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    lock: Mapping[str, Any] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    clocks: Mapping[str, ClockReading] = field(default_factory=dict)
    generator: Mapping[str, GeneratorHealth] = field(default_factory=dict)
    keeping_up: Mapping[str, Any] = field(default_factory=dict)
    banners: tuple[str, ...] = ()
    samples_dropped: int = 0
    injected: Mapping[str, _Count] = field(default_factory=dict)
    invalid: Mapping[str, _Count] = field(default_factory=dict)
    verification: _Verification = field(default_factory=dict)
    packet_faults: tuple[_PacketFault, ...] = ()
    link_faults: tuple[_LinkFault, ...] = ()
    rows: Mapping[str, _Count] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    preflight: _Preflight = field(default_factory=dict)
    nics: Mapping[str, _Nic] = field(default_factory=dict)
    switches: Mapping[str, _Switch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(
                f"status {self.status!r} is not one of {', '.join(STATUSES)}"
            )

    @property
    def clock_uncertainty_ns(self) -> int:
        """Largest uncertainty of any agent's clock offset, 0 on one machine."""
        return max(
            (reading.uncertainty_ns for reading in self.clocks.values()), default=0
        )

    @property
    def background_jobs(self) -> frozenset[str]:
        """Jobs that repeat until all other jobs have ended."""
        return frozenset(
            name for name, job in self.jobs.items() if job.get("iterations", 1) is None
        )


def ended_by_preflight(manifest: RunManifest) -> bool:
    """Return whether a run ended because its preflight failed."""
    return manifest.status == FAILED and manifest.preflight.get("passed") is False


def write_manifest(folder: Path, manifest: RunManifest) -> None:
    """Write ``run.json`` atomically, so that readers never see a partial file.

    Raises:
        OSError: If it cannot be written.
    """
    document = {"schema_version": SCHEMA_VERSION, **asdict(manifest)}
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    write_whole(folder / MANIFEST, text)


@contextmanager
def explained_writes(path: Path) -> Iterator[None]:
    """Convert errors of files below a folder to ``RunDirectoryError``."""
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(
            str(error.filename or path),
            f"cannot be written: {error.strerror or error}",
            "choose another folder for runs, or free disk space",
        ) from error


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically, so that readers see either the old or the new file.

    Raises:
        OSError: If it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal.

    Raises:
        OSError: If the file cannot be read.
    """
    import hashlib  # loads OpenSSL, which few readers need

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path) -> RunManifest:
    """Return the contents of ``run.json`` in *folder*.

    Raises:
        NoRunDirectory: If ``run.json`` is missing, invalid, or of a newer version.
        RunDirectoryError: If ``run.json`` cannot be read.
    """
    path = folder / MANIFEST
    try:
        document = parse_json(path.read_bytes(), str(path), error=NoRunDirectory)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoRunDirectory(
            str(folder),
            f"contains no {MANIFEST}" if folder.is_dir() else "is not a folder",
            "name a folder that `chakram run` or `chakram simulate` has written",
        ) from error
    except OSError as error:
        raise RunDirectoryError(
            str(folder),
            f"{MANIFEST} cannot be read: {error.strerror}",
        ) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if not isinstance(version, int):
        raise NoRunDirectory(
            str(path), "has no schema_version, so it is not a Chakram run"
        )
    if version > SCHEMA_VERSION:
        raise NoRunDirectory(
            str(path),
            f"has schema version {version}, but this Chakram reads versions up to "
            f"{SCHEMA_VERSION}",
            "read it with a newer Chakram",
        )
    try:
        # This call ignores fields that this version does not know.
        return _READER.read(document)
    except InvalidDocument as error:
        raise NoRunDirectory(str(path), *_damage(error.mistakes)) from error


_READER = DocumentReader(RunManifest)


def _damage(mistakes: Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """Return the problem in the contents of ``run.json``, and a hint."""
    lacking = [
        str(each["loc"][0])
        for each in mistakes
        if each["type"] == "missing" and len(each["loc"]) == 1
    ]
    if lacking:
        return (
            f"is damaged: it lacks {', '.join(lacking)}",
            "copy the run directory again",
        )
    first = mistakes[0]
    if not first["loc"]:
        return f"is damaged: {first['ctx']['error']}", None
    return f"is damaged: {first['loc'][0]!r} has an invalid value", None
