"""Time dilation: slow down everything that depends on time by one factor.

With a dilation of 1000, a fabric of 400 Gbit/s runs at 400 Mbit/s, and every delay and
timer takes 1000 times as long. All ratios stay the same. Sizes, counts, fractions and
queues do not change. Field types mark rates and times with ``Stretches``. ``KEPT``
lists the exceptions and their reasons.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from chakram.config.jobs import Compute, Job
from chakram.config.transport import Transport
from chakram.fabric.fabric_types.link_settings import SwitchesSettings
from chakram.foundation.units import LONGEST_TIME_NS, exact_time
from chakram.roce.constants import local_ack_timeout_ns
from chakram.roce.opcodes import RNR_TIMER_NS
from chakram.settings.field_types import (
    LEAST_RATE_BPS,
    Model,
    Stretches,
    dilation_hint,
    too_slow,
)
from chakram.settings.located_errors import Location, Mistake
from chakram.switch.sonic_config import stretched_watchdog

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from chakram.fabric.fabric_types.base import FabricKind


KEPT: Mapping[tuple[str, str], str] = {
    ("Job", "trace"): "durations and start times in the trace, which may be synthetic, "
    "are stretched by compute.scale",
    ("Compute", "peak_flops"): "the resulting durations are stretched by scale",
    ("Compute", "memory_bytes_per_s"): "the resulting durations are stretched by scale",
    ("Transport", "congestion_control"): "stretched in the arguments of each control, "
    "as the control declares",
    ("Simulation", "local_memory_bytes_per_s"): "the resulting times are stretched",
    ("Preflight", "duration_ns"): "how long a rate is measured, in real time; the "
    "amount sent follows from the stretched rate",
    ("Metrics", "linger_ns"): "how long to wait for a scraper, in real time",
    ("StopIf", "duration_ns"): "a limit in real time",
    ("TelemetrySettings", "interval_ns"): "how often to ask switches, in real time",
    ("Experiment", "hang_timeout_ns"): "a limit in real time; the default is at least "
    "four stretched timeouts",
}
"""Rates and times that are not stretched, by section and field, with the reason."""

_PATIENCE = 4
"""Number of timeouts that a message may take before a run counts as hung."""

# Limits for single keys. This timeout doubles several times, so its initial value has a
# lower limit.
_LONGEST_NS: Mapping[Location, int] = {("adaptive_retransmission", "low"): 10**12}


def stretches(field: FieldInfo) -> Stretches | None:
    """Return how dilation changes a field, or None if the field does not change."""
    found = [each for each in field.metadata if isinstance(each, Stretches)]
    return found[0] if found else _in_type(field.annotation)


def _in_type(annotation: Any) -> Stretches | None:
    if isinstance(annotation, Stretches):
        return annotation
    # For an optional field, the metadata of the type other than None applies.
    metadata = getattr(annotation, "__metadata__", ())
    for each in (*metadata, *get_args(annotation)):
        found = _in_type(each)
        if found is not None:
            return found
    return None


def stretched_sections(experiment: Model) -> dict[str, Any]:
    """Return the stretched values of all experiment sections that dilation changes."""
    # *experiment* is an Experiment. Importing that class here would be circular.
    dilation: int = experiment.fabric.dilation  # type: ignore[attr-defined]
    sections = _changes(experiment, dilation)
    if "hang_timeout_ns" not in experiment.model_fields_set:
        timeout_ns = sections["transport"].retransmit_timeout_ns
        sections["hang_timeout_ns"] = max(
            experiment.hang_timeout_ns,  # type: ignore[attr-defined]
            _PATIENCE * timeout_ns,
        )
    records: Model = experiment.records  # type: ignore[attr-defined]
    if "sample_bin_ns" not in records.model_fields_set:
        # A stretched default would leave few samples of a run.
        sections.pop("records", None)
    return sections


def stretched(section: Model, dilation: int) -> Model:
    """Return a section with times multiplied and rates divided by *dilation*."""
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
    if isinstance(section, SwitchesSettings) and section.sonic is not None:
        tables = stretched_watchdog(json.loads(section.sonic), dilation)
        changes["sonic"] = json.dumps(tables)
    if isinstance(section, Compute):
        changes["scale"] = section.scale * dilation
    if isinstance(section, Transport):
        changes["rnr_timer"] = rnr_timer(section.rnr_timer, dilation)
        if section.local_ack_timeout:
            # The exponent can only express powers of two, so set the timeout in ns
            # instead.
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
    """Return the timer code whose time is closest to the stretched time of *code*."""
    wanted_ns = RNR_TIMER_NS[code] * dilation
    return min(
        range(len(RNR_TIMER_NS)), key=lambda each: abs(RNR_TIMER_NS[each] - wanted_ns)
    )


def check_dilation(
    fabric: FabricKind, jobs: tuple[Job, ...], transport: Transport
) -> Iterator[Mistake]:
    """Check that the experiment can still run after stretching."""
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
        yield from _check_rates(section, where, dilation)
    for where, section in sections:
        yield from _check_times(section, where, dilation)


def check_dilated_sections(fabric: FabricKind, **sections: Any) -> list[Mistake]:
    """Check that the times and rates of other sections can be stretched."""
    return [
        mistake
        for name, section in sections.items()
        if section is not None
        for check in (_check_rates, _check_times)
        for mistake in check(section, (name,), fabric.dilation)
    ]


def _check_rates(section: Model, where: Location, dilation: int) -> Iterator[Mistake]:
    for location, rate_bps in _quantities(section, Stretches.RATE, where):
        if dilation > 1 and rate_bps < dilation * LEAST_RATE_BPS:
            found, hint = too_slow(rate_bps, dilation)
            yield Mistake(location, found, hint)


def _check_times(section: Model, where: Location, dilation: int) -> Iterator[Mistake]:
    for location, time_ns in _times(section, where):
        longest_ns = _LONGEST_NS.get(location[-2:], LONGEST_TIME_NS)
        if dilation > 1 and time_ns * dilation > longest_ns:
            yield Mistake(
                location,
                f"{exact_time(time_ns)} times the dilation of {dilation} is more than "
                f"{exact_time(longest_ns)}",
                dilation_hint(longest_ns // time_ns),
            )


def _check_own_rate(fabric: FabricKind) -> Iterator[Mistake]:
    """Reject ports without a rate: the machine's own speed cannot be stretched."""
    if fabric.port_rate_bps is None:
        yield Mistake(
            tuple(fabric.rate_key.split(".")),
            "is not set, but dilation requires a port rate",
            "add one, e.g. rate: 400Gbit, or remove fabric.dilation",
        )


def _quantities(
    section: Model, kind: Stretches, where: Location
) -> Iterator[tuple[Location, int]]:
    """Yield location and value of all times, or all rates, that dilation changes."""
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
    """Yield the times of a section that a dilation multiplies, with their locations."""
    exponent = section.local_ack_timeout if isinstance(section, Transport) else None
    for location, time_ns in _quantities(section, Stretches.TIME, where):
        if exponent and location[-1] == "retransmit_timeout":
            yield (*where, "local_ack_timeout"), local_ack_timeout_ns(exponent)
        else:
            yield location, time_ns
