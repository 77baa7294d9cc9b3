"""Time dilation: an experiment with all that depends on time stretched by one factor.

A fabric of 400 Gbit/s runs at 400 Mbit/s with a dilation of 1000, and every delay and
timer takes 1000 times as long, so that all ratios stay.  Sizes, counts, shares and
queues are what they were.  Which fields are rates and times stands in their types
(``Stretches``); what is not stretched all the same stands in ``KEPT``, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from chakram.config.jobs import Compute, Job
from chakram.config.transport import Transport
from chakram.foundation.units import LONGEST_TIME_NS, exact_time
from chakram.roce.constants import local_ack_timeout_ns
from chakram.roce.opcodes import RNR_TIMER_NS
from chakram.settings.located_errors import Location, Mistake
from chakram.settings.quantities import (
    LEAST_RATE_BPS,
    Model,
    Stretches,
    dilation_hint,
    too_slow,
)

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from chakram.fabric.fabric_types.base import FabricKind


KEPT: Mapping[tuple[str, str], str] = {
    ("Job", "trace"): "durations and starts that come of it are stretched by "
    "compute.scale, also of what is made up",
    ("Compute", "peak_flops"): "the durations that come of it are stretched by scale",
    ("Compute", "memory_bytes_per_s"): "likewise",
    ("Transport", "congestion_control"): "stretched where it becomes arguments, of "
    "every control by what it declares",
    ("Simulation", "local_memory_bytes_per_s"): "stretched where it becomes times",
    ("Preflight", "duration_ns"): "how long a rate is measured, of the time that "
    "people wait; what is sent in it follows from the stretched rate",
    ("Metrics", "linger_ns"): "how long somebody waits who scrapes by the clock",
    ("StopIf", "duration_ns"): "a limit on the time that people wait",
    ("Experiment", "hang_timeout_ns"): "likewise; without one in the file it is at "
    "least four stretched timeouts",
}
"""By section and field: rates and times that are not stretched, with the reason."""

_PATIENCE = 4
"""Timeouts that a message may take before a run counts as hung."""

# A timeout doubles a few times from there.
_LONGEST_NS: Mapping[Location, int] = {("adaptive_retransmission", "low"): 10**12}


def stretches(field: FieldInfo) -> Stretches | None:
    """Return what a dilation does to a field of this type; None: nothing."""
    found = [each for each in field.metadata if isinstance(each, Stretches)]
    return found[0] if found else _in_type(field.annotation)


def _in_type(annotation: Any) -> Stretches | None:
    if isinstance(annotation, Stretches):
        return annotation
    # Of a field that may be None: what stands beside the other type.
    metadata = getattr(annotation, "__metadata__", ())
    for each in (*metadata, *get_args(annotation)):
        found = _in_type(each)
        if found is not None:
            return found
    return None


def stretched_sections(experiment: Model) -> dict[str, Any]:
    """Return the sections of an experiment that its dilation changes."""
    # An Experiment, whose own module imports this one: hence its base class here.
    dilation: int = experiment.fabric.dilation  # type: ignore[attr-defined]
    sections = _changes(experiment, dilation)
    if "hang_timeout_ns" not in experiment.model_fields_set:
        timeout_ns = sections["transport"].retransmit_timeout_ns
        sections["hang_timeout_ns"] = max(
            experiment.hang_timeout_ns,  # type: ignore[attr-defined]
            _PATIENCE * timeout_ns,
        )
    return sections


def stretched(section: Model, dilation: int) -> Model:
    """Return a section with its times multiplied and its rates divided."""
    changes = _changes(section, dilation)
    return section.model_copy(update=changes) if changes else section


def _changes(section: Model, dilation: int) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        if (type(section).__name__, name) in KEPT:
            continue
        value = getattr(section, name)
        new = _value(value, stretches(field), dilation)
        if new is not value:
            changes[name] = new
    if isinstance(section, Compute):
        changes["scale"] = section.scale * dilation
    if isinstance(section, Transport):
        changes["rnr_timer"] = rnr_timer(section.rnr_timer, dilation)
        if section.local_ack_timeout:
            # Its exponent knows powers of two only.
            changes["local_ack_timeout"] = None
            changes["retransmit_timeout_ns"] = dilation * local_ack_timeout_ns(
                section.local_ack_timeout
            )
    return changes


def _value(value: Any, kind: Stretches | None, dilation: int) -> Any:
    if isinstance(value, Model):
        return stretched(value, dilation)
    if isinstance(value, tuple) and any(isinstance(each, Model) for each in value):
        return tuple(_value(each, kind, dilation) for each in value)
    if kind is None or value is None:
        return value
    return value * dilation if kind is Stretches.TIME else value // dilation


def rnr_timer(code: int, dilation: int) -> int:
    """Return the timer code whose time is closest to that of *code*, stretched."""
    wanted_ns = RNR_TIMER_NS[code] * dilation
    return min(
        range(len(RNR_TIMER_NS)), key=lambda each: abs(RNR_TIMER_NS[each] - wanted_ns)
    )


def check_dilation(
    fabric: FabricKind, jobs: tuple[Job, ...], transport: Transport
) -> Iterator[Mistake]:
    """Check that what is stretched can still be run."""
    dilation = fabric.dilation
    if dilation == 1:
        return
    yield from _check_own_rate(fabric)
    sections: list[tuple[Location, Model]] = [
        (("fabric",), fabric),
        (("transport",), transport),
        *((("jobs", index), job) for index, job in enumerate(jobs)),
    ]
    for where, section in sections:
        for location, rate_bps in _quantities(section, Stretches.RATE, where):
            if rate_bps < dilation * LEAST_RATE_BPS:
                found, hint = too_slow(rate_bps, dilation)
                yield Mistake(location, found, hint)
    for where, section in sections:
        yield from _check_times(section, where, dilation)


def check_dilated_times(fabric: FabricKind, **sections: Any) -> list[Mistake]:
    """Check that the times of other sections can be stretched, too."""
    return [
        mistake
        for name, section in sections.items()
        if section is not None
        for mistake in _check_times(section, (name,), fabric.dilation)
    ]


def _check_times(section: Model, where: Location, dilation: int) -> Iterator[Mistake]:
    for location, time_ns in _times(section, where):
        longest_ns = _LONGEST_NS.get(location[-2:], LONGEST_TIME_NS)
        if dilation > 1 and time_ns * dilation > longest_ns:
            yield Mistake(
                location,
                f"{exact_time(time_ns)} is more than "
                f"{exact_time(longest_ns)} once multiplied with the dilation of "
                f"{dilation}",
                dilation_hint(longest_ns // time_ns),
            )


def _check_own_rate(fabric: FabricKind) -> Iterator[Mistake]:
    """Refuse ports as fast as the machine: nobody can stretch those."""
    if fabric.port_rate_bps is None:
        yield Mistake(
            tuple(fabric.rate_key.split(".")),
            "is not given, and ports as fast as this machine cannot be stretched",
            "e.g. rate: 400Gbit, or remove fabric.dilation",
        )


def _quantities(
    section: Model, kind: Stretches, where: Location
) -> Iterator[tuple[Location, int]]:
    """Yield what a dilation changes in a section, of one kind, with its place."""
    for name, field in type(section).model_fields.items():
        if (type(section).__name__, name) in KEPT:
            continue
        value = getattr(section, name)
        location = (*where, field.alias or name)
        if isinstance(value, Model):
            yield from _quantities(value, kind, location)
        elif isinstance(value, tuple):
            for index, each in enumerate(value):
                if isinstance(each, Model):
                    yield from _quantities(each, kind, (*location, index))
        elif stretches(field) is kind and value is not None:
            yield location, value


def _times(section: Model, where: Location) -> Iterator[tuple[Location, int]]:
    """Yield the times of a section that would be multiplied, with their places."""
    exponent = section.local_ack_timeout if isinstance(section, Transport) else None
    for location, time_ns in _quantities(section, Stretches.TIME, where):
        if exponent and location[-1] == "retransmit_timeout":
            yield (*where, "local_ack_timeout"), local_ack_timeout_ns(exponent)
        else:
            yield location, time_ns
