"""Rows about queue pairs, congestion at the endpoints, and ports."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard
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
    retransmitted_share,
    thresholds,
)
from dashboards.queries import RUN, quantile, rate, share, top


def add_queue_pairs(board: dashboard.Dashboard) -> None:
    """Add the row of queue pairs."""
    board.with_row(dashboard.Row("Queue pairs"))
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
        board.with_panel(panel)
    board.with_panel(retransmitted_share().span(5))
    board.with_panel(
        figure(
            "Messages in flight",
            "Messages posted and not yet finished.",
            query(f"sum(chakram_flows_active{{{RUN}}})", "messages"),
            unit=units.Short,
        ).span(4)
    )
    board.with_panel(
        graph(
            "Rates of queue pairs",
            "Payload rate of queue pairs: minimum, median, 99 % and maximum.",
            query(
                "8 * max by (share) "
                f"(chakram_queue_pair_sent_bytes_per_second{{{RUN}}})",
                "{{share}}",
            ),
            unit=units.BitsPerSecondSI,
        )
    )
    board.with_panel(
        graph(
            "Retransmissions",
            "Retransmitted packets by reason, and negative acknowledgments.",
            query(
                f"sum by (reason) ({rate('chakram_retransmitted_packets_total')})",
                "retransmitted: {{reason}}",
            ),
            query(f"sum({rate('chakram_nak_sent_total')})", "NAK sent"),
            unit=units.PacketsPerSecond,
        )
    )
    board.with_panel(
        graph(
            "Timeouts",
            "Acknowledgment timeouts, by agent.",
            query(
                f"sum by (agent) ({rate('chakram_ack_timeouts_total')})", "{{agent}}"
            ),
            unit=EVENTS_PER_SECOND,
        )
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
        board.with_panel(
            graph(
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
        )


def add_congestion(board: dashboard.Dashboard) -> None:
    """Add the row about congestion at the endpoints."""
    board.with_row(dashboard.Row("Congestion at the endpoints"))
    received = rate("chakram_rx_packets_total")
    board.with_panel(
        graph(
            "Marked on arrival",
            "Share of received packets with a congestion mark, by agent.",
            query(
                share(rate("chakram_ecn_marked_packets_total"), received, "agent"),
                "{{agent}}",
            ),
            unit=units.PercentUnit,
        )
    )
    board.with_panel(
        graph(
            "Congestion notifications",
            "Sent by receivers, and received by senders.",
            query(f"sum({rate('chakram_cnp_sent_total')})", "sent"),
            query(f"sum({rate('chakram_cnp_received_total')})", "received"),
            unit=units.PacketsPerSecond,
        )
    )
    board.with_panel(
        graph(
            "Paused at the endpoints",
            "Mean number of ports that pause frames stop, by agent.",
            query(
                f"sum by (agent) ({rate('chakram_paused_seconds_total')})", "{{agent}}"
            ),
            unit=units.Short,
        )
    )


def add_ports(board: dashboard.Dashboard) -> None:
    """Add the row of ports, by host."""
    board.with_row(dashboard.Row("Ports, by host"))
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
        counted = rate(f"chakram_host_{metric}_total")
        board.with_panel(
            graph(
                title,
                about,
                query(top(f"{factor}sum by (host) ({counted})"), "{{host}}"),
                unit=unit,
                span=6,
            )
        )
