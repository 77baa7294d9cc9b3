"""The experiment file: one file for ``run``, ``simulate`` and ``plan``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
)

from chakram.collectives.algorithms import AUTO, Choice
from chakram.collectives.ops import CollectiveOp
from chakram.config.collectives import AlgorithmChoice
from chakram.config.cross_checks import CHECKS
from chakram.config.dilation import stretched_sections
from chakram.config.jobs import Job
from chakram.config.preflight import Preflight, preflight_section
from chakram.config.simulation import Simulation
from chakram.config.transport import Faults, Transport
from chakram.fabric.fabric_types import Fabric
from chakram.foundation.errors import ConfigError, InputError
from chakram.settings import yaml_document as documents
from chakram.settings.addresses import ListenAddress
from chakram.settings.field_types import (
    BASE_DIRECTORY,
    CONFINED_TO,
    LabName,
    Model,
    Name,
    Time,
    Whole,
    WorkingPath,
)
from chakram.settings.located_errors import Location, Mistake, from_validation, report

_LAB_LENGTH = 32


class Iterations(Model):
    """How often each trace is replayed."""

    warmup: Whole = Field(default=2, ge=0, le=1_000_000)
    """Number of iterations before the measured ones. They are recorded, but excluded
    from all figures."""
    measured: Whole = Field(default=20, ge=1, le=1_000_000)
    """Number of measured iterations."""
    sync: Literal["barrier", "free", "gap"] = "barrier"
    """Synchronization of ranks between two iterations. barrier: a barrier of the job's
    ranks; free: none; gap: a pause of fixed length."""
    gap_ns: Time = Field(default=0, alias="gap", examples=["10ms"])
    """Pause between two iterations, with sync: gap."""

    @property
    def total(self) -> int:
        """Number of all iterations, warm-up included."""
        return self.warmup + self.measured


class Arrivals(Model):
    """Staggered start times of jobs."""

    order: Literal["listed", "random"] | tuple[Name, ...] = "listed"
    """Order of job starts. listed: as in jobs; random: drawn from seed; or a list of
    all job names."""
    gap_ns: Time = Field(alias="gap", examples=["50ms"])
    """Time between two starts."""
    spacing: Literal["even", "exponential"] = "even"
    """Lengths of the gaps. even: each gap has the length gap; exponential: random
    lengths with mean gap, drawn from seed."""


class AgentSettings(Model):
    """Resources that agents use on their machines."""

    shards: Whole | None = Field(default=None, ge=1, le=64)
    """Number of data-plane processes (shards) per agent. Default: one per free core
    here, one per port on a remote host, one in a simulation. Other values change UDP
    source ports and thus equal-cost paths."""


class Records(Model):
    """Settings for the records of a run."""

    sample_bin_ns: Time = Field(
        default=10_000_000, alias="sample_bin", ge=0, le=3600 * 10**9
    )
    """Sampling interval of ports, queue pairs and modeled switches. 0s: one sample, at
    the end. With dilation, the default is in real time."""


class Metrics(Model):
    """Prometheus endpoint of the run."""

    listen: ListenAddress | None = None
    """Address and port. If off or empty, no metrics are served."""
    linger_ns: Time = Field(default=15 * 10**9, alias="linger", ge=0, le=3600 * 10**9)
    """Maximum time for which metrics stay available after the run. The endpoint closes
    once the final values are scraped, or immediately if it was never scraped."""


class StopIf(Model):
    """Conditions that end a run early."""

    duration_ns: Time | None = Field(default=None, alias="duration", examples=["10min"])
    """Time limit of a run, in real time even with dilation. A run that reaches the
    limit has partial results. Default: no limit."""


def _metrics(value: object) -> object:
    """Convert ``off`` to an empty section, and an address to a section."""
    if isinstance(value, str):
        return {} if value == "off" else {"listen": value}
    if isinstance(value, dict) and value.get("listen") == "off":
        return {**value, "listen": None}
    return value


class Experiment(Model):
    """An experiment: which jobs run, on which fabric, and how often."""

    # Loading stretches all times and rates by the fabric's dilation. ``written`` keeps
    # the values from the file.

    version: Literal[1]
    """Version of the file format."""
    name: Name
    """Name in tables, metrics and names of run directories."""
    description: str | None = Field(default=None, max_length=10_000)
    """Purpose, as free text. Chakram ignores it."""
    lab: LabName | None = Field(default=None, examples=["night-run"])
    """Prefix of the run's namespaces and interfaces. Concurrent runs need different
    prefixes. Default: derived from name. A running lab of this name (see chakram fabric
    up) is used unchanged."""
    jobs: tuple[Job, ...] = Field(min_length=1, max_length=64)
    """Jobs, each with one trace and its placement."""
    arrivals: Arrivals | None = None
    """Staggered start of jobs, in addition to the key start of each job. Default:
    none."""
    collectives: dict[CollectiveOp, AlgorithmChoice] = Field(
        default_factory=dict, examples=[{"all_reduce": "ring"}]
    )
    """Algorithm by collective. Default: auto."""
    iterations: Iterations = Iterations.section_defaults()
    """How often each trace is replayed."""
    fabric: Fabric
    """Fabric that carries the packets."""
    transport: Transport = Transport.section_defaults()
    """Settings of all queue pairs."""
    faults: Faults = Faults.section_defaults()
    """Deliberate packet and link faults."""
    preflight: Annotated[
        Preflight,
        BeforeValidator(
            preflight_section,
            json_schema_input_type=Preflight | Literal["off", "warn", "require"],
        ),
    ] = Preflight.section_defaults(action="off")
    """Tests of every pair of ports before the run: a section, or only its action.
    Default: off."""
    seed: Whole = Field(default=1, ge=0, lt=1 << 63)
    """Seed of placement, arrivals, paths, faults, and ECN marks of simulated
    switches."""
    simulation: Simulation = Simulation.section_defaults()
    """Settings of chakram simulate. The simulated times of a run always use level
    packet."""
    predict: tuple[Literal["bound", "alone", "simulate"], ...] = ("bound", "alone")
    """References for measured times. bound: lower bound of each schedule; alone: each
    schedule simulated alone, if that takes only seconds; simulate: the whole job,
    simulated before a run on the network."""
    agents: AgentSettings = AgentSettings.section_defaults()
    """Resources that agents use on their machines."""
    metrics: Annotated[
        Metrics, BeforeValidator(_metrics, json_schema_input_type=Metrics | str)
    ] = Metrics.section_defaults()
    """Prometheus endpoint of the run: an address, off, or a section."""
    records: Records = Records.section_defaults()
    """Records of a run in addition to flows and collectives."""
    runs: WorkingPath = Path("runs")
    """Folder of run directories, relative to the working directory."""
    hang_timeout_ns: Time = Field(default=30 * 10**9, alias="hang_timeout", ge=10**8)
    """Time without progress after which a run fails. Dilated runs wait for at least
    four retransmission timeouts by default."""
    stop_if: StopIf = StopIf.section_defaults()
    """Conditions that end a run early."""
    _written: Experiment | None = PrivateAttr(default=None)

    @property
    def written(self) -> Experiment:
        """The experiment as written in the file, before dilation."""
        return self._written or self

    @property
    def dilation(self) -> int:
        """Factor that multiplies times and divides rates."""
        return 1 if self._written is None else self.fabric.dilation

    def stretched(self) -> Experiment:
        """Return the experiment with its fabric's dilation applied.

        A second call has no further effect.
        """
        if self._written is not None or self.fabric.dilation == 1:
            return self
        experiment = self.model_copy(update=stretched_sections(self))
        experiment._written = self
        return experiment

    @property
    def lab_name(self) -> str:
        """``lab``, or a prefix derived from ``name``."""
        if self.lab is not None:
            return self.lab
        kept = "".join(
            letter if letter.isalnum() else "-" for letter in self.name.lower()
        )
        return kept[:_LAB_LENGTH]

    @property
    def udp_port(self) -> int:
        """UDP port on which all ports of the fabric receive."""
        return self.fabric.udp_port

    def algorithm_of(self, op: CollectiveOp) -> Choice:
        """Return the configured algorithm of *op*; the default is ``auto``."""
        return self.collectives.get(op, AUTO)


def recorded_experiment(
    document: Mapping[str, Any],
    where: str,
    hint: str = "run the experiment again with this version",
) -> Experiment:
    """Parse an experiment from ``run.json``, perhaps with changes.

    Raises:
        InputError: If this version cannot read the experiment.
    """
    try:
        return Experiment.model_validate(dict(document)).stretched()
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(where, f"{place}: {first['msg']}", hint) from None


def load_experiment(
    path: str | Path,
    *,
    overrides: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    confined_to: Path | None = None,
) -> Experiment:
    """Load the experiment in the file at *path*.

    Args:
        path: The file. Relative paths in it start at its folder, except for ``runs``,
            which starts at the current folder.
        overrides: Values by key path, e.g. ``iterations.measured: "3"``, written as in
            the file.
        options: Command-line option of each override, by key path, for error messages.
            Default: ``--set``.
        confined_to: As for ``parse_experiment``.

    Raises:
        ConfigError: If the file is invalid. The error lists every mistake with its
            path, line, problem and hint.
    """
    path = Path(path)
    document = documents.read_document(path)
    if "base" in document.data and "jobs" not in document.data:
        raise ConfigError(
            str(path), "is a suite of experiments", "run it with chakram sweep"
        )
    return _experiment(
        document,
        source=str(path),
        path=path,
        overrides=overrides,
        options=options,
        confined_to=confined_to,
    )


def parse_experiment(
    text: str | bytes | documents.Document,
    *,
    source: str = "experiment",
    overrides: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    confined_to: Path | None = None,
) -> Experiment:
    """Parse *text* as an experiment; relative paths start at the current folder.

    Args:
        text: The experiment, or its document, which overrides change.
        source: Name of the experiment in errors.
        overrides: As for ``load_experiment``.
        options: As for ``load_experiment``.
        confined_to: Folder at which relative paths start instead, and outside of which
            the experiment may not name files. The experiment may then not name Python
            code either.

    Raises:
        ConfigError: As for ``load_experiment``, with *source* instead of a file name.
    """
    if not isinstance(text, documents.Document):
        raw = text.encode() if isinstance(text, str) else text
        text = documents.parse_document(raw, source=source)
    return _experiment(
        text,
        source=source,
        path=None,
        overrides=overrides,
        options=options,
        confined_to=confined_to,
    )


def check_changes(changes: object, *, name: str) -> None:
    """Check that the argument *name* is a mapping from key paths to values.

    Raises:
        ConfigError: If the argument is not a mapping, or a key is not text.
    """
    hint = f'e.g. {name}={{"iterations.measured": "3"}}'
    if not isinstance(changes, Mapping):
        raise ConfigError(name, f"is a {type(changes).__name__}, not a mapping", hint)
    for key in changes:
        if not isinstance(key, str):
            raise ConfigError(name, f"the key {key!r} is not text", hint)


def _experiment(
    document: documents.Document,
    *,
    source: str,
    path: Path | None,
    overrides: Mapping[str, str] | None,
    options: Mapping[str, str] | None = None,
    confined_to: Path | None = None,
) -> Experiment:
    check_changes(overrides or {}, name="overrides")
    said = {
        key: (value, (options or {}).get(key) or documents.option_text(key, value))
        for key, value in (overrides or {}).items()
    }
    written = document.copy() if said else document
    for key, (value, option) in said.items():
        documents.override(document, key, value, option=option)
    context = {} if path is None else {BASE_DIRECTORY: path.parent}
    if confined_to is not None:
        context = {BASE_DIRECTORY: confined_to, CONFINED_TO: confined_to}
    experiment, mistakes = _validated(document, context)
    if mistakes or experiment is None:
        blamed = _blamed(written, said, context)
        order = [*written.options.values(), *(option for _, option in said.values())]

        def option_of(mistake: Mistake) -> tuple[Location, str] | None:
            option = blamed.get((mistake.location, mistake.found))
            there = document.option(mistake.location)
            # Report the option that set this location, unless a later option caused the
            # mistake.
            if there is None or (
                option and order.index(option) > order.index(there[1])
            ):
                return None if option is None else ((), option)
            return there

        raise report(source, mistakes, document.line, option_of)
    # Experiments are stretched only here, so every loaded experiment is stretched once.
    return experiment.stretched()


def _validated(
    document: documents.Document, context: dict[str, Any]
) -> tuple[Experiment | None, list[Mistake]]:
    """Return the experiment in a document, or None, and all mistakes."""
    mistakes = list(document.mistakes)
    experiment: Experiment | None = None
    try:
        experiment = Experiment.model_validate(document.data, context=context)
    except ValidationError as error:
        mistakes += from_validation(error, model=Experiment, data=document.data)
        sections = _sound_sections(document.data, context)
    else:
        sections = {name: getattr(experiment, name) for name in Experiment.model_fields}
    for needed, check in CHECKS:
        if all(name in sections for name in needed):
            mistakes += check(*(sections[name] for name in needed))
    return experiment, mistakes


def _blamed(
    written: documents.Document,
    said: Mapping[str, tuple[str, str]],
    context: dict[str, Any],
) -> dict[tuple[Location, str], str]:
    """Return, for each mistake, the option that caused it.

    Mistakes of the file itself are omitted. The value of an option may be valid alone,
    but conflict with the file or with an earlier option. The option that introduces the
    conflict caused the mistake.
    """
    document = written.copy()

    def found() -> set[tuple[Location, str]]:
        _, mistakes = _validated(document, context)
        return {(each.location, each.found) for each in mistakes}

    before = found() if said else set()
    blamed: dict[tuple[Location, str], str] = {}
    for key, (value, option) in said.items():
        documents.override(document, key, value, option=option)
        after = found()
        blamed |= dict.fromkeys(after - before, option)
        before = after
    return blamed


def _sound_sections(data: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    """Return the sections that are valid on their own.

    Checks across these sections still run if another section has a mistake.
    """
    sections: dict[str, Any] = {}
    for name, field in Experiment.model_fields.items():
        key = field.alias or name
        if key not in data:
            if not field.is_required():
                sections[name] = field.get_default(call_default_factory=True)
            continue
        # The field's type with its metadata, such as bounds and validators.
        annotation: Any = field.annotation
        if field.metadata:
            annotation = Annotated[annotation, *field.metadata]
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        try:
            sections[name] = adapter.validate_python(data[key], context=context)
        except ValidationError:
            continue
    return sections
