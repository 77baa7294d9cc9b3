"""Faults of links, as an experiment file has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, WithJsonSchema

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ChakramError
from chakram.foundation.units import exact_rate, exact_time
from chakram.settings.located_errors import Location, Mistake
from chakram.settings.quantities import Model, Name, Number, Rate, Time, Whole
from chakram.switch.faults import FaultKind, LinkFault
from chakram.switch.port import NEVER

if TYPE_CHECKING:
    from chakram.config.simulation import Simulation
    from chakram.config.transport import Faults
    from chakram.fabric.fabric_types.base import FabricKind
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
"""By kind the key that it needs, and the field that it is."""


Collective = Annotated[
    CollectiveOp,
    WithJsonSchema({"type": "string", "enum": [str(op) for op in CollectiveOp]}),
]


class Moment(Model):
    """Something that a job does.

    The first message that all keys fit, as it is posted: in simulations. With iteration
    and job alone, the first rank that begins that iteration; a run hears of it some
    50 ms later.
    """

    iteration: Whole | None = Field(default=None, ge=0, examples=[3])
    """Which iteration, from 0, warm-up included."""
    job: Name | None = Field(default=None, examples=["moe"])
    """Of this job."""
    group: str | None = Field(default=None, max_length=256, examples=["ep0"])
    """Of a collective of this process group, as "chakram trace show" names it."""
    collective: Collective | None = Field(default=None, examples=["all_to_all"])
    """Of such a collective."""
    k: Whole | None = Field(default=None, ge=0, examples=[2])
    """Of the collective with this number in its group, from 0."""
    step: Whole | None = Field(default=None, ge=0, examples=[1])
    """Of this step of its schedule, from 0."""

    @property
    def is_of_messages(self) -> bool:
        """Whether it is about messages, and not about iterations alone."""
        named = (self.group, self.collective, self.k, self.step)
        return any(each is not None for each in named)

    def describe(self) -> str:
        """Return it in a few words."""
        said = self.model_dump(mode="json", exclude_none=True)
        return ", ".join(f"{name} {value}" for name, value in said.items())


class LinkFaultSettings(Model):
    """Something that happens to a link."""

    kind: FaultKind
    """down: nothing passes, and what waits or is under way is lost; flap: that, for the
    first half of every period; degrade: another rate; loss, corruption: of packets, at
    random; pause_storm: the other end pauses classes all the time (not where a kernel
    switches)."""
    link: str = Field(min_length=1, max_length=256, examples=["leaf0-spine0"])
    """Name of the link, as "chakram fabric show" and links.parquet have it."""
    direction: Literal["both", "up", "down"] = "both"
    """up: away from hosts; down: towards them. down and flap are always both."""
    at_ns: Time | None = Field(default=None, alias="at", examples=["100ms"])
    """When it begins, from the start of the run; without at and when, with the run."""
    when: Moment | None = Field(
        default=None, examples=[{"collective": "all_to_all", "k": 2, "step": 0}]
    )
    """What it begins with, in place of at: in simulations 1 ns later."""
    duration_ns: Time | None = Field(default=None, alias="for", gt=0, examples=["50ms"])
    """How long it lasts; without it to the end."""
    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Of degrade: the rate of each direction."""
    probability: Annotated[Number, Field(gt=0.0, le=1.0)] | None = Field(
        default=None, examples=[0.01]
    )
    """Of loss and corruption: share of the packets."""
    period_ns: Time | None = Field(
        default=None, alias="period", ge=2, examples=["10ms"]
    )
    """Of flap: from one time down to the next."""
    classes: tuple[Annotated[Whole, Field(ge=0, le=7)], ...] = Field(
        default=(), max_length=8, examples=[[3]]
    )
    """Of pause_storm: traffic classes that are paused."""

    def ends(self, link: Link) -> list[str]:
        """Return the ports of a link that it is about: one, if it is of both."""
        both = [str(link.a), str(link.b)]
        if self.kind in ("down", "flap"):
            return both[:1]
        return {"both": both, "up": both[:1], "down": both[1:]}[self.direction]

    def faults(self, ports: dict[str, int], link: Link, at_ns: int) -> list[LinkFault]:
        """Return what happens to the ports of a model.

        Args:
            ports: Their numbers, by name.
            link: That of its name.
            at_ns: When it begins.
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
        """Return it in a few words."""
        way = "" if self.direction == "both" else f" ({self.direction})"
        what = {
            "down": "down",
            "flap": f"flaps every {exact_time(self.period_ns or 0)}",
            "degrade": f"has {exact_rate(self.rate_bps or 0)}",
            "loss": f"loses {self.probability or 0:.2%}",
            "corruption": f"corrupts {self.probability or 0:.2%}",
            "pause_storm": f"pauses classes {', '.join(map(str, self.classes))}",
        }[self.kind]
        begin = f"at {exact_time(self.at_ns or 0)}"
        if self.when is not None:
            begin = f"with {self.when.describe()}"
        end = "" if self.duration_ns is None else f" for {exact_time(self.duration_ns)}"
        return f"link {self.link}{way} {what} {begin}{end}"


def check_link_faults(
    faults: Faults, fabric: FabricKind, simulation: Simulation
) -> Iterator[Mistake]:
    """Refuse faults that contradict themselves, or of links that are not there."""
    if not faults.links:
        return
    known = _link_names(fabric)
    if known is None:
        yield Mistake(
            ("faults", "links"),
            "the links of this fabric are not known",
            "describe it in fabric.topology and fabric.links",
        )
    for index, fault in enumerate(faults.links):
        where: Location = ("faults", "links", index)
        if known is not None and fault.link not in known:
            yield Mistake(
                (*where, "link"),
                f"there is no link {fault.link!r}",
                f"e.g. {', '.join(known[:_LISTED])}",
            )
        yield from _check_itself(fault, where)
    if sum(each.when is not None for each in faults.links) > _MOST_MOMENTS:
        yield Mistake(
            ("faults", "links"),
            f"more than {_MOST_MOMENTS} of them have a when",
            "each is a simulation more: give some of them times",
        )
    if (simulation.level, simulation.cost_model) != ("packet", "chakram"):
        yield Mistake(
            ("faults", "links"),
            "links fail where packets and queue pairs are simulated",
            "simulation: {level: packet, cost_model: chakram}",
        )


def _link_names(fabric: FabricKind) -> list[str] | None:
    try:
        topology: Topology | None = fabric.to_topology(fabric.nports)
    except ChakramError:
        return []  # what is wrong with it is told of the fabric
    if topology is None or not fabric.has_switches:
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
                f"is missing: a fault of kind {fault.kind} needs it"
                if other == key
                else f"means nothing for kind {fault.kind}",
                "give it" if other == key else "remove it",
            )
    if fault.kind in ("down", "flap") and fault.direction != "both":
        yield Mistake(
            (*where, "direction"),
            f"a link is {fault.kind} in both",
            "remove it, or kind: loss with probability: 1",
        )
    if fault.when is None:
        return
    if fault.at_ns is not None:
        yield Mistake((*where, "when"), "means nothing beside at", "remove one of them")
    if fault.when.iteration is None and not fault.when.is_of_messages:
        yield Mistake(
            (*where, "when"),
            "names neither an iteration nor messages",
            "e.g. {collective: all_to_all, k: 2} or {iteration: 3}",
        )
