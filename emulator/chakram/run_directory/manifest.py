"""``run.json``: what a run was, how it ended, and where its numbers come from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from chakram.foundation.bounded_reading import parse_json
from chakram.foundation.errors import NoRunDirectory, RunDirectoryError
from chakram.foundation.ip_addresses import IPV4
from chakram.summary.generator_health import GeneratorHealth  # noqa: TC001 - likewise

SCHEMA_VERSION = 2
"""Version of the run directory; every file of it carries the number."""

MANIFEST = "run.json"

SIMULATE = "simulate"
"""The world of what ran in virtual time."""

RUNNING = "running"
COMPLETE = "complete"
PARTIAL = "partial"
FAILED = "failed"
KILLED = "killed"
STATUSES = (RUNNING, COMPLETE, PARTIAL, FAILED, KILLED)
"""A run that was killed stays ``running`` in its file: nobody was left to say
otherwise.  Who reads it finds out (``chakram.run_directory.lock``)."""


_TIME_NS = 1 << 60
_TimeNs = Annotated[int, Field(ge=-_TIME_NS, le=_TIME_NS)]
_Count = Annotated[int, Field(ge=0, lt=1 << 56)]


def _members(*needed: str, **kinds: Any) -> AfterValidator:
    """Return a check of the members of a mapping; those not needed may be missing."""
    readers = {name: TypeAdapter(kind) for name, kind in kinds.items()}

    def check(value: Mapping[str, Any]) -> Mapping[str, Any]:
        for name, reader in readers.items():
            if name in value or name in needed:
                reader.validate_python(value.get(name, ...), strict=True)
        return value

    return AfterValidator(check)


_Job = Annotated[
    Mapping[str, Any],
    _members(ranks=_Count, offset_ns=_TimeNs, iterations=_Count | None, order=str),
]
_Trace = Annotated[
    Mapping[str, Any], _members(trace=str, producer=str, nodes=_Count, sha256=str)
]
_PacketFault = Annotated[
    Mapping[str, Any], _members(fault=str, kind=str, packets=_Count)
]
_LinkFault = Annotated[
    Mapping[str, Any],
    _members(
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
    _members(passed=bool, pairs=_Count, findings=list[Mapping[str, str]]),
]
_Verification = Annotated[
    Mapping[str, Any],
    _members(
        every=_Count,
        has_icrcs=bool,
        packets=_Count,
        icrc_errors=_Count,
        wrong_payloads=_Count,
    ),
]
_Experiment = Annotated[
    Mapping[str, Any],
    _members(fabric=dict[str, Any], transport=dict[str, Any] | None),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """What to add to an agent's clock to get the controller's, and how sure that is."""

    offset_ns: int
    uncertainty_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    """The contents of ``run.json``.

    Attributes:
        run_id: Identity of the run; every file of its directory names it.
        name: Name of the experiment.
        case: Case of the suite, None outside of suites.
        world: ``namespaces``, ``loopback``, ``external`` or ``simulate``.
        status: One of ``STATUSES``.
        reason: Why it is partial or failed, None otherwise.
        started_at: Wall-clock time, UTC, ISO 8601; for people, never for durations.
        ended_at: Likewise; None while it runs.
        unix_offset_ns: What to add to times of records to get Unix time; None where
            time is virtual, before traffic has begun, and in runs of versions that did
            not note it.
        fabric: The fabric in one line, for tables and reports.
        family: Address family of all ports: ``ipv4`` or ``ipv6``.
        transport: The transport in one line.
        seed: Seed of everything that is random.
        psn_seed: Seed of the first PSNs; None in a simulation, which takes them from
            ``seed``, and until a run has ended: who knows it could forge packets.
        size_scale: Factor of all message sizes, as a fraction such as ``1/64``.
        dilation: Factor by which time was stretched; records hold raw time.
        warmup: Iterations before the measured ones.
        measured: Measured iterations.
        sync: What lies between iterations.
        traces: By job, what was replayed.
        jobs: By job, its ranks, when it begins, its iterations (None: until the others
            have ended), what orders its nodes, and what was made of its trace.
        experiment: The experiment with all defaults filled in.
        versions: Of Python, Chakram, the kernel and the libraries.
        compiled: Which hot modules ran compiled, and why others did not.
        host: Facts about the controller's machine.
        lock: Where the controller held a lock on the directory while it wrote it:
            ``hostname`` and ``boot_id``; empty where it could hold none.
        agents: By agent: ``version`` of Chakram, ``protocol``, ``python``, ``kernel``,
            ``host`` and ``compiled``; empty in simulations, before traffic has begun,
            and in runs of versions that did not note it.
        clocks: By agent.
        generator: By agent, how it kept up; empty while the run goes, and in runs of
            versions that did not note it.
        keeping_up: At what rate or dilation the generator would have kept up; empty
            where it did.
        banners: Warnings that belong on top of every report.
        samples_dropped: Records lost on the way.
        injected: By what was done, how many packets ports have disturbed on purpose.
        invalid: By what was wrong with them, how many packets ports have not taken.
        verification: How packets that arrived were looked at: ``every`` (one in so
            many; 0: none), ``has_icrcs``, and how many were looked at (``packets``),
            dropped for a wrong ICRC (``icrc_errors``), and taken with a wrong payload
            (``wrong_payloads``); empty in simulations.
        packet_faults: By entry of ``faults.packets``, what it is (``fault``, in words,
            and ``kind``) and how many packets it has disturbed (``packets``).
        link_faults: By entry of ``faults.links``, what it is (``fault``, in words, and
            ``kind``), of which ``link`` and ``ports``, and when: ``at_ns`` and
            ``until_ns`` on the clock of the tables (None: to the end).
        rows: By table, how many rows it has.
        digests: By file that the run wrote beside this one, its SHA-256; empty while it
            goes, and in runs of versions that did not note them.
        preflight: Whether the test of the fabric before the run has passed, and what it
            has found; empty where there was none.
    """

    run_id: str
    name: str
    case: str | None = None
    world: str
    status: str = RUNNING
    reason: str | None = None
    started_at: str
    ended_at: str | None = None
    unix_offset_ns: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None
    fabric: str = ""
    family: str = IPV4
    transport: str = ""
    seed: int = 1
    psn_seed: int | None = None
    size_scale: str = "1"
    dilation: Annotated[int, Field(ge=1, le=10**9)] = 1
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

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status {self.status!r} is none of {', '.join(STATUSES)}")

    @property
    def clock_uncertainty_ns(self) -> int:
        """Largest uncertainty of any agent's clock; 0 on one machine."""
        return max(
            (reading.uncertainty_ns for reading in self.clocks.values()), default=0
        )


def write_manifest(folder: Path, manifest: RunManifest) -> None:
    """Write ``run.json``; a reader sees the old or the new one, never a part.

    Raises:
        OSError: If it cannot be written.
    """
    document = {"schema_version": SCHEMA_VERSION, **asdict(manifest)}
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    write_whole(folder / MANIFEST, text)


def write_whole(path: Path, text: str) -> None:
    """Write a file; a reader sees the old or the new one, never a part.

    Raises:
        OSError: If it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def read_manifest(folder: Path) -> RunManifest:
    """Return the contents of ``run.json`` in *folder*.

    Raises:
        NoRunDirectory: If it is not there, not one of ours, or of a newer version.
        RunDirectoryError: If it cannot be read.
    """
    path = folder / MANIFEST
    try:
        document = parse_json(path.read_bytes(), str(path), error=NoRunDirectory)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoRunDirectory(
            str(folder),
            f"holds no {MANIFEST}" if folder.is_dir() else "is no folder",
            "a run directory is a folder that `chakram run` or `simulate` has written",
        ) from error
    except OSError as error:
        raise RunDirectoryError(
            str(folder),
            f"{MANIFEST} cannot be read: {error.strerror}",
        ) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if not isinstance(version, int):
        raise NoRunDirectory(str(path), "has no schema_version: no run of Chakram")
    if version > SCHEMA_VERSION:
        raise NoRunDirectory(
            str(path),
            f"has schema version {version}, this Chakram reads {SCHEMA_VERSION}",
            "read it with a newer Chakram",
        )
    try:
        # What this version does not know is left out.
        return _READER.validate_python(document)
    except ValidationError as error:
        raise NoRunDirectory(str(path), *_damage(error)) from error


_READER = TypeAdapter(RunManifest)


def _damage(error: ValidationError) -> tuple[str, str | None]:
    """Return what is wrong with the contents of a manifest, and a hint."""
    mistakes = error.errors()
    lacking = [
        str(each["loc"][0])
        for each in mistakes
        if each["type"] == "missing" and len(each["loc"]) == 1
    ]
    if lacking:
        return (
            f"is damaged: it lacks {', '.join(lacking)}",
            "every run writes them; take another copy of the run",
        )
    first = mistakes[0]
    if not first["loc"]:
        return f"is damaged: {first['ctx']['error']}", None
    return f"is damaged: {first['loc'][0]!r} is not what a run writes there", None
