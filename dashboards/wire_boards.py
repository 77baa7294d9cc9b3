"""Dashboards of the wire: switches and congestion, queue pairs and ports."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import units

from dashboards.panels import figure, graph, logarithmic, query
from dashboards.queries import RUN, quantile, rate, ratio, share

BY_LINK = "link, direction"
BY_CLASS = f"{BY_LINK}, class"
AT_LINK = "{{link}} {{direction}}"
AT_CLASS = f"{AT_LINK}, class {{{{class}}}}"
MOST = 12


def top(expression: str) -> str:
    """Return a query for the series with the largest values."""
    return f"topk({MOST}, {expression})"


def add_switches(board: dashboard.Dashboard) -> None:
    """Add the row of modeled switches."""
    board.with_row(dashboard.Row("Modelled switches"))
    board.with_panel(
        graph(
            "Queues",
            f"Bytes that wait to be sent into a link, by class: the {MOST} longest "
            "queues.",
            query(top(f"chakram_switch_queue_bytes{{{RUN}}}"), AT_CLASS),
            unit=units.BytesSI,
            span=12,
        )
    )
    board.with_panel(
        graph(
            "Marked",
            "Packets marked when they were sent into a link, by class.",
            query(
                top(
                    f"sum by ({BY_CLASS}) "
                    f"({rate('chakram_switch_marked_packets_total')})"
                ),
                AT_CLASS,
            ),
            unit=units.PacketsPerSecond,
            span=12,
        )
    )
    board.with_panel(
        graph(
            "Paused",
            "Share of the time that pause frames stopped the sender into a link.",
            query(
                top(
                    f"sum by ({BY_CLASS}) "
                    f"({rate('chakram_switch_paused_seconds_total')})"
                ),
                AT_CLASS,
            ),
            unit=units.PercentUnit,
        ).max(1)
    )
    board.with_panel(
        graph(
            "Pause frames",
            "Pause frames received by the sender into a link, by class.",
            query(
                top(
                    f"sum by ({BY_CLASS}) ({rate('chakram_switch_pause_frames_total')})"
                ),
                AT_CLASS,
            ),
            unit=units.PacketsPerSecond,
        )
    )
    board.with_panel(
        graph(
            "Dropped",
            "Packets dropped at the port that sends into a link, by reason.",
            query(
                top(
                    f"sum by ({BY_LINK}, reason) "
                    f"({rate('chakram_switch_dropped_packets_total')})"
                )
                + " or vector(0)",
                f"{AT_LINK}: {{{{reason}}}}",
            ),
            unit=units.PacketsPerSecond,
        )
    )
    board.with_panel(
        graph(
            "Switch process",
            "CPU usage of the switch process in cores, and frames per second for which "
            "it had no buffer space. Above 0, it drops frames that a switch would not "
            "drop.",
            query(f"sum({rate('chakram_switch_cpu_seconds_total')})", "CPU"),
            query(f"sum({rate('chakram_switch_lost_frames_total')})", "lost frames /s"),
            unit=units.Short,
            span=12,
        )
    )
    board.with_panel(
        graph(
            "Switch delay",
            "Largest recent delay of a frame that left the switch process late.",
            query(f"max(chakram_switch_delay_max_seconds{{{RUN}}})", "delay"),
            unit=units.Seconds,
            span=12,
        )
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
            "Seconds per second that pause frames stopped data, summed over ports.",
            query(
                f"sum by (agent) ({rate('chakram_paused_seconds_total')})", "{{agent}}"
            ),
            unit=units.Short,
        )
    )
    board.with_panel(
        graph(
            "Load of links",
            f"The {MOST} most loaded link directions.",
            query(
                top(f"8 * sum by ({BY_LINK}) ({rate('chakram_link_bytes_total')})"),
                AT_LINK,
            ),
            unit=units.BitsPerSecondSI,
            span=12,
        )
    )
    board.with_panel(
        graph(
            "Imbalance of links",
            "Load of the most loaded link direction over the mean of all. 1 means "
            "balanced.",
            query(
                f"max(sum by ({BY_LINK}) ({rate('chakram_link_bytes_total')})) / "
                f"clamp_min(avg(sum by ({BY_LINK}) "
                f"({rate('chakram_link_bytes_total')})), 1)",
                "max over mean",
            ),
            unit=units.Short,
            span=12,
        )
    )


def add_queue_pairs(board: dashboard.Dashboard) -> None:
    """Add the row of queue pairs."""
    board.with_row(dashboard.Row("Queue pairs"))
    for state, title, about in (
        ("at_line", "At line rate", "Queue pairs at their initial rate."),
        ("limited", "Slowed down", "Queue pairs slowed down by congestion control."),
        ("failed", "Failed", "Queue pairs in the error state."),
    ):
        selector = f'{RUN}, state="{state}"'
        board.with_panel(
            figure(
                title,
                about,
                query(f"sum(chakram_queue_pairs{{{selector}}})", title),
                unit=units.Short,
            ).span(5)
        )
    board.with_panel(
        figure(
            "Retransmitted",
            "Share of the packets sent that were retransmissions.",
            query(
                ratio(
                    rate("chakram_retransmitted_packets_total"),
                    rate("chakram_tx_packets_total"),
                ),
                "retransmitted",
            ),
            unit=units.PercentUnit,
        ).span(5)
    )
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
                f"max by (share) (chakram_queue_pair_sent_bytes_per_second{{{RUN}}})",
                "{{share}}",
            ),
            unit=units.BytesPerSecondSI,
        )
    )
    board.with_panel(
        graph(
            "Retransmissions",
            "Retransmitted packets by reason, negative acknowledgements and timeouts.",
            query(
                f"sum by (reason) ({rate('chakram_retransmitted_packets_total')})",
                "retransmitted: {{reason}}",
            ),
            query(f"sum({rate('chakram_nak_sent_total')})", "NAK"),
            query(f"sum({rate('chakram_ack_timeouts_total')})", "timeouts"),
            unit=units.PacketsPerSecond,
        )
    )
    board.with_panel(
        graph(
            "Round trips and pacing",
            "Time from a packet that requests an acknowledgement to that "
            "acknowledgement, and delay of bursts against their pace: median and 99 %.",
            *(
                query(
                    quantile(part, f"chakram_{metric}_seconds", "agent", RUN),
                    f"{{{{agent}}}} {text} p{100 * part:g}",
                )
                for metric, text in (
                    ("round_trip", "round trip"),
                    ("pacing_error", "pacing error"),
                )
                for part in (0.5, 0.99)
            ),
            unit=units.Seconds,
        ).scale_distribution(logarithmic())
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
            "Acknowledgement timeouts.",
            "ack_timeouts",
            "",
            "ops",
        ),
        (
            "Paused by host",
            "Share of the time that pause frames stopped data, summed over ports.",
            "paused_seconds",
            "",
            units.PercentUnit,
        ),
        (
            "Data plane late by host",
            "Share of the time that ports stalled for the data plane, summed over "
            "ports.",
            "generator_wait_seconds",
            "",
            units.PercentUnit,
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
