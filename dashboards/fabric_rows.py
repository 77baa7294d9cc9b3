"""Rows about the fabric, which need counters that only some fabrics have.

Only labs (``fabric.kind: namespaces``) have counters of links. Only modeled switches
(``fabric.switch: model``) have counters of queues, marks and pauses. Other fabrics have
what their switches report (``fabric.telemetry``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.models import units

from dashboards.norms import MAX_PAUSED_SHARE, ONE_IS_TOO_MANY
from dashboards.panels import bars, graph, query, rates, with_limit
from dashboards.queries import MOST, RUN, sums, top

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.panels import Panel

BY_LINK = "link, direction"
BY_CLASS = f"{BY_LINK}, class"
AT_LINK = "{{link}} {{direction}}"
AT_CLASS = f"{AT_LINK}, class {{{{class}}}}"


def link_panels() -> Iterator[Panel]:
    """Yield the panels of links."""
    sent = sums("chakram_link_bytes_total", f"run_id, {BY_LINK}")
    yield graph(
        "Load of links",
        f"The {MOST} most loaded link directions.",
        query(top(f"8 * {sent}"), AT_LINK),
        unit=units.BitsPerSecondSI,
        span=12,
    )
    yield graph(
        "Imbalance of links",
        "Load of the most loaded link direction over the mean of all. 1 means "
        "balanced.",
        query(
            f"max by (run_id) ({sent}) / clamp_min(avg by (run_id) ({sent}), 1)",
            "run {{run_id}}",
        ),
        unit=units.Short,
        span=12,
    )
    total = f"last_over_time(chakram_link_bytes_total{{{RUN}}}[$__range])"
    yield bars(
        "Bytes of links",
        f"The {MOST} most loaded link directions since the start of their run. "
        "Select several runs to compare them.",
        query(
            top(f"sum by (run_id, {BY_LINK}) ({total})"),
            f"{AT_LINK}, run {{{{run_id}}}}",
            instant=True,
        ),
        unit=units.BytesSI,
        span=24,
    )


def switch_panels() -> Iterator[Panel]:
    """Yield the panels of modeled switches."""
    yield from _queue_panels()
    yield from _switch_process_panels()


def _queue_panels() -> Iterator[Panel]:
    """Yield panels about the lengths, marks, pauses and drops of queues in switches."""
    yield graph(
        "Queues",
        f"Bytes that wait to be sent into a link, by class: the {MOST} longest queues.",
        query(top(f"chakram_switch_queue_bytes{{{RUN}}}"), AT_CLASS),
        unit=units.BytesSI,
        span=12,
    )
    yield graph(
        "Marked",
        "Packets marked when they were sent into a link, by class.",
        query(top(sums("chakram_switch_marked_packets_total", BY_CLASS)), AT_CLASS),
        unit=units.PacketsPerSecond,
        span=12,
    )
    yield with_limit(
        graph(
            "Paused",
            "Share of the time that pause frames stopped the sender into a link. "
            "Dashed: limit of the alert `ChakramPaused`.",
            query(top(sums("chakram_switch_paused_seconds_total", BY_CLASS)), AT_CLASS),
            unit=units.PercentUnit,
        ).max(1),
        MAX_PAUSED_SHARE,
    )
    yield graph(
        "Pause frames",
        "Pause frames received by the sender into a link, by class.",
        query(top(sums("chakram_switch_pause_frames_total", BY_CLASS)), AT_CLASS),
        unit=units.PacketsPerSecond,
    )
    dropped = sums("chakram_switch_dropped_packets_total", f"{BY_LINK}, reason")
    yield graph(
        "Dropped",
        "Packets dropped by the port that sends into a link, also on arrival there, by "
        "reason.",
        query(
            f"label_replace({top(f'{dropped} > 0')} or on () vector(0), "
            '"reason", "none", "reason", "")',
            f"{{{{reason}}}} {AT_LINK}",
        ),
        unit=units.PacketsPerSecond,
    )


def _switch_process_panels() -> Iterator[Panel]:
    """Yield panels on whether the process that runs the switches keeps up."""
    yield graph(
        "CPU of the switch process",
        "CPU usage of the process that runs the switches, in cores.",
        rates("chakram_switch_cpu_seconds_total", legend="cores"),
        unit=units.Short,
    )
    yield with_limit(
        graph(
            "Lost frames",
            "Frames since the start of the run that the switch process lost "
            "because it had no buffer space, or because the kernel did not accept "
            "them. A real switch would not lose them.",
            query(f"sum(chakram_switch_lost_frames_total{{{RUN}}})", "lost frames"),
            unit=units.Short,
        ),
        ONE_IS_TOO_MANY,
    )
    yield graph(
        "Switch delay",
        "Largest recent delay of a frame that left the switch process late.",
        query(f"max(chakram_switch_delay_max_seconds{{{RUN}}})", "delay"),
        unit=units.Seconds,
    )
