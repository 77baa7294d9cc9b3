"""Link faults of an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Annotated, Literal, Protocol

from pydantic import Field, WithJsonSchema

from chakram.collectives.ops import CollectiveOp
from chakram.config.simulation import Simulation
from chakram.fabric.fabric_types.base import FabricKind
from chakram.foundation.errors import ChakramError
from chakram.foundation.units import exact_rate, exact_time, format_share
from chakram.settings.field_types import Model, Name, Number, Rate, Time, Whole
from chakram.settings.located_errors import Location, Mistake
from chakram.switch.faults import FaultKind, LinkFault
from chakram.switch.port import NEVER
from chakram.topology.topology import Link, Topology

_LISTED = 6
_MOST_MOMENTS = 8
_OF_KIND = {
    "degrade": ("rate", "rate_bps"),
    "loss": ("probability", "probability"),
    "corruption": ("probability", "probability"),
    "flap": ("period", "period_ns"),
    "pause_storm": ("classes", "classes"),
}
"""Required key of each fault kind, and its Python field."""


Collective = Annotated[
    CollectiveOp,
    WithJsonSchema({"type": "string", "enum": [str(op) for op in CollectiveOp]}),
]


class Moment(Model):
    """Event of a job that starts a fault.

    In a simulation, the event is the posting of the first message that matches all
    keys. With only iteration and job, it is the first start of that iteration on a
    rank. The fault starts 1 ns after the event. Runs support only iteration and job,
    and react about 50 ms after the event.
    """

    iteration: Whole | None = Field(default=None, ge=0, examples=[3])
    """Iteration, from 0, warm-up included."""
    job: Name | None = Field(default=None, examples=["moe"])
    """Name of the job."""
    group: str | None = Field(default=None, max_length=256, examples=["ep0"])
    """Process group of the collective, as named by "chakram trace show". p2p means the
    messages between two ranks."""
    collective: Collective | None = Field(default=None, examples=["all_to_all"])
    """Type of the collective."""
    k: Whole | None = Field(default=None, ge=0, examples=[2])
    """Number of the collective in its group, from 0."""
    step: Whole | None = Field(default=None, ge=0, examples=[1])
    """Step of the collective's schedule, from 0."""

    @property
    def is_of_messages(self) -> bool:
        """Whether the event selects messages, and not only an iteration."""
        named = (self.group, self.collective, self.k, self.step)
        return any(each is not None for each in named)

    def describe(self) -> str:
        """Return a short description."""
        said = self.model_dump(mode="json", exclude_none=True)
        return ", ".join(f"{name} {value}" for name, value in said.items())


class LinkFaultSettings(Model):
    """A link fault."""

    kind: FaultKind
    """down: no packets pass, and packets queued or in flight are lost; flap: down for
    the first half of every period; degrade: a lower rate; loss: random packets are
    lost; corruption: random packets are corrupted; pause_storm: the other end pauses
    classes continuously (not with kernel switches)."""
    link: str = Field(min_length=1, max_length=256, examples=["leaf0-spine0"])
    """Name of the link, from "chakram fabric show" or links.parquet."""
    direction: Literal["both", "up", "down"] = "both"
    """Affected direction. both: both, as always for down and flap; up: from the first
    node in the name of the link, usually away from hosts; down: the reverse."""
    at_ns: Time | None = Field(default=None, alias="at", examples=["100ms"])
    """Start time, from the start of the run. Default without when: 0."""
    when: Moment | None = Field(
        default=None, examples=[{"collective": "all_to_all", "k": 2, "step": 0}]
    )
    """Event that starts the fault, instead of at."""
    duration_ns: Time | None = Field(default=None, alias="for", gt=0, examples=["50ms"])
    """Duration. Default: until the end of the run."""
    rate_bps: Rate | None = Field(default=None, alias="rate")
    """For degrade: rate of each direction, below that of the link."""
    probability: Annotated[Number, Field(gt=0.0, le=1.0)] | None = Field(
        default=None, examples=[0.01]
    )
    """For loss and corruption: fraction of packets that are affected."""
    period_ns: Time | None = Field(
        default=None, alias="period", ge=2, examples=["10ms"]
    )
    """For flap: time from one failure to the next."""
    classes: tuple[Annotated[Whole, Field(ge=0, le=7)], ...] = Field(
        default=(), max_length=8, examples=[[3]]
    )
    """For pause_storm, which requires this key: paused traffic classes."""

    @property
    def is_of_whole_run(self) -> bool:
        """Whether the link has another rate, or none, during the whole run."""
        return (
            self.kind in ("down", "degrade")
            and not self.at_ns
            and self.when is None
            and self.duration_ns is None
        )

    def ends(self, link: Link) -> list[str]:
        """Return the names of the affected ports of a link.

        Kinds ``down`` and ``flap`` affect the whole link, so one port represents it.
        """
        both = [str(link.a), str(link.b)]
        if self.kind in ("down", "flap"):
            return both[:1]
        return {"both": both, "up": both[:1], "down": both[1:]}[self.direction]

    def faults(self, ports: dict[str, int], link: Link, at_ns: int) -> list[LinkFault]:
        """Return the faults at the ports of a switch model.

        Args:
            ports: Port numbers by name.
            link: Link that the fault affects.
            at_ns: Start time.
        """
        until_ns = NEVER if self.duration_ns is None else at_ns + self.duration_ns
        return [
            LinkFault(
                kind=self.kind,
                port=ports[end],
                at_ns=at_ns,
                until_ns=until_ns,
                rate_bps=self.rate_bps,
                probability=self.probability,
                period_ns=self.period_ns,
                classes=self.classes,
            )
            for end in self.ends(link)
        ]

    def describe(self) -> str:
        """Return a short description."""
        way = "" if self.direction == "both" else f" ({self.direction})"
        what = {
            "down": "down",
            "flap": f"flaps every {exact_time(self.period_ns or 0)}",
            "degrade": f"has {exact_rate(self.rate_bps or 0)}",
            "loss": f"loses {format_share(self.probability or 0)}",
            "corruption": f"corrupts {format_share(self.probability or 0)}",
            "pause_storm": f"pauses classes {', '.join(map(str, self.classes))}",
        }[self.kind]
        begin = f"at {exact_time(self.at_ns or 0)}"
        if self.when is not None:
            begin = f"with {self.when.describe()}"
        end = "" if self.duration_ns is None else f" for {exact_time(self.duration_ns)}"
        return f"link {self.link}{way} {what} {begin}{end}"


class _LinkFaults(Protocol):
    """The link faults of an experiment."""

    @property
    def links(self) -> Sequence[LinkFaultSettings]: ...


def check_link_faults(
    faults: _LinkFaults, fabric: FabricKind, simulation: Simulation
) -> Iterator[Mistake]:
    """Check for contradictory faults and unknown links."""
    if not faults.links:
        return
    if not fabric.has_switches:
        yield Mistake(
            ("faults", "links"),
            f"fabric {fabric.kind} has no links",
            "remove it, or use a fabric with switches",
        )
    known = _link_names(fabric)
    if known is None:
        yield Mistake(
            ("faults", "links"),
            "the links of this fabric are not known",
            "describe it in fabric.topology and fabric.links",
        )
    for index, fault in enumerate(faults.links):
        where: Location = ("faults", "links", index)
        if known and fault.link not in known:
            yield Mistake(
                (*where, "link"),
                f"there is no link {fault.link!r}",
                _link_hint(fault.link, known),
            )
        yield from _check_itself(fault, where)
        yield from _check_level(fault, simulation, where)
    if sum(each.when is not None for each in faults.links) > _MOST_MOMENTS:
        yield Mistake(
            ("faults", "links"),
            f"more than {_MOST_MOMENTS} link faults have a when",
            "each needs an additional simulation: set at for some of them",
        )


def _link_hint(name: str, known: Sequence[str]) -> str:
    """Return the nearest link, also if the ends are reversed, or else examples."""
    first, _, second = name.partition("-")
    near = [
        (SequenceMatcher(None, each, link).ratio(), link)
        for each in (name, f"{second}-{first}")
        for link in get_close_matches(each, known, n=1)
    ]
    if near:
        return f"did you mean {max(near)[1]}?"
    return f"e.g. {', '.join(known[:_LISTED])}"


def _check_level(
    fault: LinkFaultSettings, simulation: Simulation, where: Location
) -> Iterator[Mistake]:
    """Check that a simulation at the configured level supports the fault."""
    if simulation.cost_model != "chakram":
        yield Mistake(
            where,
            f"cost model {simulation.cost_model} has no link faults",
            "write simulation: {cost_model: chakram}",
        )
    elif simulation.level != "packet" and not fault.is_of_whole_run:
        yield Mistake(
            where,
            f"level {simulation.level} has only links that are down or degraded "
            "during the whole run",
            "remove at, when and for, or write simulation: {level: packet}",
        )


def _link_names(fabric: FabricKind) -> list[str] | None:
    """Return the names of links, or None if unknown. An invalid fabric has none."""
    if not fabric.has_switches:
        return []
    try:
        topology: Topology | None = fabric.to_topology(fabric.nports)
    except ChakramError:
        return []  # the fabric's own check reports the problem
    if topology is None:
        return None
    return [link.name for link in topology.links]


def _check_itself(fault: LinkFaultSettings, where: Location) -> Iterator[Mistake]:
    key, _ = _OF_KIND.get(fault.kind, ("", ""))
    for other, name in dict(_OF_KIND.values()).items():
        value = getattr(fault, name)
        given = value is not None and value != ()
        if (other == key) != given:
            yield Mistake(
                (*where, other),
                f"is missing, but kind {fault.kind} requires it"
                if other == key
                else f"has no effect for kind {fault.kind}",
                "add it" if other == key else "remove it",
            )
    if fault.kind in ("down", "flap") and fault.direction != "both":
        yield Mistake(
            (*where, "direction"),
            f"kind {fault.kind} affects both directions",
            "remove it, or write kind: loss with probability: 1",
        )
    if fault.when is None:
        return
    if fault.at_ns is not None:
        yield Mistake(
            (*where, "when"), "cannot be combined with at", "remove one of them"
        )
    if fault.when.iteration is None and not fault.when.is_of_messages:
        yield Mistake(
            (*where, "when"),
            "selects neither an iteration nor messages",
            "e.g. {collective: all_to_all, k: 2} or {iteration: 3}",
        )
