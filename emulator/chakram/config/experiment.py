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
from chakram.settings import yaml_document as documents
from chakram.settings.addresses import ListenAddress
from chakram.settings.located_errors import Location, Mistake, from_validation, report
from chakram.settings.quantities import (
    BASE_DIRECTORY,
    LabName,
    Model,
    Name,
    Time,
    Whole,
    WorkingPath,
)

_LAB_LENGTH = 32


class Iterations(Model):
    """How often the trace is replayed."""

    warmup: Whole = Field(default=2, ge=0, le=1_000_000)
    """Iterations before the measured ones; they are recorded, but in no figure."""
    measured: Whole = Field(default=20, ge=1, le=1_000_000)
    """Iterations that figures are made of."""
    sync: Literal["barrier", "free", "gap"] = "barrier"
    """What lies between two iterations of a rank. barrier: a barrier of all ranks of
    its job; free: nothing; gap: a time."""
    gap_ns: Time = Field(default=0, alias="gap", examples=["10ms"])
    """Time between two iterations; must be given with sync gap, and only then."""

    @property
    def total(self) -> int:
        """All iterations, warm-up included."""
        return self.warmup + self.measured


class Arrivals(Model):
    """When jobs begin, one after the other."""

    order: Literal["listed", "random"] | tuple[Name, ...] = "listed"
    """Which job begins first. listed: as in jobs; random: drawn from seed; or the names
    of all jobs in order."""
    gap_ns: Time = Field(alias="gap", examples=["50ms"])
    """Time between two arrivals."""
    spacing: Literal["even", "exponential"] = "even"
    """even: every gap is that long; exponential: gaps are drawn from seed, with that
    mean."""


class AgentSettings(Model):
    """What agents use of their machine."""

    shards: Whole | None = Field(default=None, ge=1, le=64)
    """Data-plane processes per agent. Without it, those of this machine are as many as
    its cores leave, another host has one per port, a simulation one. Queue pair numbers
    name them. With more than an agent has ports with ranks, the ranks of a port live in
    several of them: then they have a part in UDP source ports, and so in equal-cost
    paths, too."""


class Records(Model):
    """What stands in the run directory."""

    sample_bin_ns: Time = Field(
        default=10_000_000, alias="sample_bin", ge=0, le=3600 * 10**9
    )
    """Time between two samples of ports and queue pairs, and of the links of modelled
    switches; 0s: none are taken before the end."""


class Metrics(Model):
    """Where Prometheus finds the run."""

    listen: ListenAddress | None = None
    """Address and port that Prometheus scrapes; off, or nothing: no metrics are
    served."""
    linger_ns: Time = Field(default=15 * 10**9, alias="linger", ge=0, le=3600 * 10**9)
    """How long they are served after the end of the run, at most: until they have been
    scraped once more.  Not at all where nobody had scraped them before."""


class StopIf(Model):
    """When a run ends before its work is done."""

    duration_ns: Time | None = Field(default=None, alias="duration", examples=["10min"])
    """Time after which the run is ended, and its results marked as partial; real time,
    whatever the dilation. Without it there is no such limit."""


def _metrics(value: object) -> object:
    """Turn ``off`` into no address and an address into a section."""
    if isinstance(value, str):
        return {} if value == "off" else {"listen": value}
    if isinstance(value, dict) and value.get("listen") == "off":
        return {**value, "listen": None}
    return value


class Experiment(Model):
    """What is to be run, where and how often."""

    # Once read, its times and rates are those that a run has on this machine,
    # stretched by the fabric's dilation; ``written`` has them as the file does.

    version: Literal[1]
    """Version of this form of file."""
    name: Name
    """Name of the experiment: in tables, metrics and the names of run directories."""
    description: str | None = Field(
        default=None, max_length=10_000, examples=["Does the new leaf hold its rate?"]
    )
    """What it is for, in your words; nothing reads it."""
    lab: LabName | None = Field(default=None, examples=["night-run"])
    """Prefix of all namespaces and interfaces that the run creates; without it what
    name gives. Two runs at the same time need two. A lab of that name that is up
    (chakram fabric up) is used as it stands."""
    jobs: tuple[Job, ...] = Field(min_length=1, max_length=64)
    """What runs: one trace each, with its place on the fabric."""
    arrivals: Arrivals | None = None
    """Lets jobs begin one after the other; without it each begins at its own start."""
    collectives: dict[CollectiveOp, AlgorithmChoice] = Field(
        default_factory=dict, examples=[{"all_reduce": "ring"}]
    )
    """Algorithms by collective; auto for those that are not named."""
    iterations: Iterations = Iterations.unsaid()
    """How often the traces are replayed."""
    fabric: Fabric
    """Where the packets run: one of three kinds."""
    transport: Transport = Transport.unsaid()
    """Settings of all queue pairs."""
    faults: Faults = Faults.unsaid()
    """Packets and links that are disturbed on purpose."""
    preflight: Annotated[
        Preflight,
        BeforeValidator(
            preflight_section,
            json_schema_input_type=Preflight | Literal["off", "warn", "require"],
        ),
    ] = Preflight.unsaid(action="off")
    """What every pair of ports must show before the run: off, warn, require, or the
    tests one by one; without it off."""
    seed: Whole = Field(default=1, ge=0, lt=1 << 63)
    """Start of all random numbers: placement, arrivals, equal-cost paths, faults, marks
    of simulated switches."""
    simulation: Simulation = Simulation.unsaid()
    """How simulate simulates; the simulated times beside those of a run are of packets,
    whatever stands here."""
    predict: tuple[Literal["bound", "alone", "simulate"], ...] = ("bound", "alone")
    """What measured times are compared with. bound: what each schedule takes at least;
    alone: each schedule by itself on the fabric, simulated, as far as that is done in
    seconds; simulate: the whole job in virtual time, once, before the run."""
    agents: AgentSettings = AgentSettings.unsaid()
    """What agents use of their machines."""
    metrics: Annotated[
        Metrics, BeforeValidator(_metrics, json_schema_input_type=Metrics | str)
    ] = Metrics.unsaid()
    """Where Prometheus finds the run: an address, off, or a section."""
    records: Records = Records.unsaid()
    """What is recorded beside flows and collectives."""
    runs: WorkingPath = Path("runs")
    """Folder of the run directories; relative to where the command runs."""
    hang_timeout_ns: Time = Field(default=30 * 10**9, alias="hang_timeout", ge=10**8)
    """Without progress for so long, the run has failed. Unless the file names it, a
    dilated run waits for four of its timeouts at least."""
    stop_if: StopIf = StopIf.unsaid()
    """What ends a run before its work is done."""
    _written: Experiment | None = PrivateAttr(default=None)

    @property
    def written(self) -> Experiment:
        """The experiment as its file has it, before time was stretched."""
        return self._written or self

    @property
    def dilation(self) -> int:
        """Factor by which times were multiplied, and rates divided."""
        return 1 if self._written is None else self.fabric.dilation

    def stretched(self) -> Experiment:
        """Return the experiment with all that depends on time stretched.

        By its fabric's dilation; once, however often it is asked for.
        """
        if self._written is not None or self.fabric.dilation == 1:
            return self
        experiment = self.model_copy(update=stretched_sections(self))
        experiment._written = self
        return experiment

    @property
    def lab_name(self) -> str:
        """``lab``, or what the name gives for it."""
        if self.lab is not None:
            return self.lab
        kept = "".join(
            letter if letter.isalnum() else "-" for letter in self.name.lower()
        )
        return kept[:_LAB_LENGTH]

    @property
    def udp_port(self) -> int:
        """UDP port that all ports of the fabric receive on."""
        return self.fabric.udp_port

    def algorithm_of(self, op: CollectiveOp) -> Choice:
        """Return what the experiment says of *op*'s algorithm, or ``auto``."""
        return self.collectives.get(op, AUTO)


def load_experiment(
    path: str | Path,
    *,
    overrides: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Experiment:
    """Return the experiment in the file at *path*.

    Args:
        path: The file; relative paths in it start at its folder, except for ``runs``,
            which starts at the current one.
        overrides: Values by their path, e.g. ``iterations.measured: "3"``; a value is
            what would stand in the file.
        options: By path, how the user said an override; else by ``--set``.

    Raises:
        ConfigError: With every mistake of the file: its path, its line, what was
            found and what to do.
    """
    path = Path(path)
    return _experiment(
        documents.read_document(path),
        source=str(path),
        path=path,
        overrides=overrides,
        options=options,
    )


def parse_experiment(
    text: str | bytes,
    *,
    source: str = "experiment",
    overrides: Mapping[str, str] | None = None,
) -> Experiment:
    """Return the experiment that *text* is; relative paths start at the current folder.

    Raises:
        ConfigError: As ``load_experiment``; *source* names the text.
    """
    raw = text.encode() if isinstance(text, str) else text
    return _experiment(
        documents.parse_document(raw, source=source),
        source=source,
        path=None,
        overrides=overrides,
    )


def _experiment(
    document: documents.Document,
    *,
    source: str,
    path: Path | None,
    overrides: Mapping[str, str] | None,
    options: Mapping[str, str] | None = None,
) -> Experiment:
    said = {
        key: (value, (options or {}).get(key) or documents.option_text(key, value))
        for key, value in (overrides or {}).items()
    }
    written = document.copy() if said else document
    for key, (value, option) in said.items():
        documents.override(document, key, value, option=option)
    context = {} if path is None else {BASE_DIRECTORY: path.parent}
    experiment, mistakes = _validated(document, context)
    if mistakes or experiment is None:
        blamed = _blamed(written, said, context)
        order = [option for _, option in said.values()]

        def option_of(mistake: Mistake) -> tuple[Location, str] | None:
            option = blamed.get((mistake.location, mistake.found))
            there = document.option(mistake.location)
            # Who said what is there, unless somebody made it wrong after that.
            if there is None or (
                option and order.index(option) > order.index(there[1])
            ):
                return None if option is None else ((), option)
            return there

        raise report(source, mistakes, document.line, option_of)
    # Here and nowhere else, so that whoever has an experiment has the stretched one.
    return experiment.stretched()


def _validated(
    document: documents.Document, context: dict[str, Any]
) -> tuple[Experiment | None, list[Mistake]]:
    """Return the experiment that a document is, and all that is wrong with it."""
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
    """Return by mistake the option that made it: the file has none of them.

    What an option says may be right by itself and wrong beside something that stands in
    the file, or that another option said.  The last of them made the mistake.
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
    """Return the sections that are right on their own.

    So that checks across sections still run when some other section has a mistake.
    """
    sections: dict[str, Any] = {}
    for name, field in Experiment.model_fields.items():
        key = field.alias or name
        if key not in data:
            if not field.is_required():
                sections[name] = field.get_default(call_default_factory=True)
            continue
        # The field's own type, with what stands beside it (bounds, validators).
        annotation: Any = field.annotation
        if field.metadata:
            annotation = Annotated[annotation, *field.metadata]
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        try:
            sections[name] = adapter.validate_python(data[key], context=context)
        except ValidationError:
            continue
    return sections
