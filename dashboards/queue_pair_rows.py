"""Rows about queue pairs, congestion at the endpoints, and ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.models import units

from dashboards.norms import ONE_IS_TOO_MANY
from dashboards.panels import (
    BAD,
    EVENTS_PER_SECOND,
    GOOD,
    figure,
    graph,
    logarithmic,
    query,
    rates,
    retransmitted_share,
    thresholds,
)
from dashboards.queries import RUN, quantile, share, sums, top

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.panels import Panel


def queue_pair_panels() -> Iterator[Panel]:
    """Yield the panels of queue pairs."""
    for state, title, about in (
        ("at_line", "At line rate", "Queue pairs at their initial rate."),
        ("limited", "Slowed down", "Queue pairs slowed down by congestion control."),
        ("failed", "Failed", "Queue pairs in the error state."),
    ):
        selector = f'{RUN}, state="{state}"'
        panel = figure(
            title,
            about,
            query(f"sum(chakram_queue_pairs{{{selector}}})", title),
            unit=units.Short,
        ).span(5)
        if state == "failed":
            panel = panel.thresholds(thresholds((None, GOOD), (ONE_IS_TOO_MANY, BAD)))
        yield panel
    yield retransmitted_share().span(5)
    yield figure(
        "Messages in flight",
        "Messages posted and not yet finished.",
        query(f"sum(chakram_flows_active{{{RUN}}})", "messages"),
        unit=units.Short,
    ).span(4)
    yield graph(
        "Rates of queue pairs",
        "Payload rate of queue pairs: minimum, median, 99 % and maximum.",
        query(
            f"8 * max by (share) (chakram_queue_pair_sent_bytes_per_second{{{RUN}}})",
            "{{share}}",
        ),
        unit=units.BitsPerSecondSI,
    )
    yield graph(
        "Retransmissions",
        "Retransmitted packets by reason, and negative acknowledgments.",
        rates(
            "chakram_retransmitted_packets_total",
            "reason",
            legend="retransmitted: {{reason}}",
        ),
        rates("chakram_nak_sent_total", legend="NAK sent"),
        unit=units.PacketsPerSecond,
    )
    yield graph(
        "Timeouts",
        "Acknowledgment timeouts, by agent.",
        rates("chakram_ack_timeouts_total", "agent"),
        unit=EVENTS_PER_SECOND,
    )
    for title, about, metric in (
        (
            "Round trips",
            "Time from a packet that requests an acknowledgment to that "
            "acknowledgment: median and 99 %.",
            "chakram_round_trip_seconds",
        ),
        (
            "Pacing error",
            "Delay of bursts against their pace: median and 99 %. Only for ports and "
            "queue pairs with a rate.",
            "chakram_pacing_error_seconds",
        ),
    ):
        yield graph(
            title,
            about,
            *(
                query(
                    quantile(part, metric, "agent", RUN),
                    f"{{{{agent}}}} p{100 * part:g}",
                )
                for part in (0.5, 0.99)
            ),
            unit=units.Seconds,
            span=12,
        ).scale_distribution(logarithmic())


def congestion_panels() -> Iterator[Panel]:
    """Yield the panels about congestion at the endpoints."""
    yield graph(
        "Marked on arrival",
        "Share of received packets with a congestion mark, by agent.",
        query(
            share(
                "chakram_ecn_marked_packets_total", "chakram_rx_packets_total", "agent"
            ),
            "{{agent}}",
        ),
        unit=units.PercentUnit,
    )
    yield graph(
        "Congestion notifications",
        "Sent by receivers, and received by senders.",
        rates("chakram_cnp_sent_total", legend="sent"),
        rates("chakram_cnp_received_total", legend="received"),
        unit=units.PacketsPerSecond,
    )
    yield graph(
        "Paused at the endpoints",
        "Mean number of ports that pause frames stop, by agent.",
        rates("chakram_paused_seconds_total", "agent"),
        unit=units.Short,
    )


def port_panels() -> Iterator[Panel]:
    """Yield the panels of ports, by host."""
    for title, about, metric, factor, unit in (
        ("Sent", "Bits on layer 2.", "tx_bytes", "8 * ", units.BitsPerSecondSI),
        ("Received", "Bits on layer 2.", "rx_bytes", "8 * ", units.BitsPerSecondSI),
        (
            "Retransmitted by host",
            "Packets that a host retransmitted.",
            "retransmitted_packets",
            "",
            units.PacketsPerSecond,
        ),
        (
            "Marked by host",
            "Data packets that arrived with a congestion mark.",
            "marked_packets",
            "",
            units.PacketsPerSecond,
        ),
        (
            "Notifications by host",
            "Congestion notifications that a host received as a sender.",
            "cnp_received",
            "",
            units.PacketsPerSecond,
        ),
        (
            "Timeouts by host",
            "Acknowledgment timeouts.",
            "ack_timeouts",
            "",
            EVENTS_PER_SECOND,
        ),
        (
            "Paused by host",
            "Mean number of ports that pause frames stop.",
            "paused_seconds",
            "",
            units.Short,
        ),
        (
            "Data plane late by host",
            "Mean number of ports that wait for the data plane.",
            "generator_wait_seconds",
            "",
            units.Short,
        ),
    ):
        counted = sums(f"chakram_host_{metric}_total", "host")
        yield graph(
            title,
            about,
            query(top(f"{factor}{counted}"), "{{host}}"),
            unit=unit,
            span=6,
        )
