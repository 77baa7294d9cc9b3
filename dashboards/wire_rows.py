"""Rows of the run dashboard about the wire and the traffic generator."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import units

from dashboards.panels import graph, query
from dashboards.queries import COLLECTIVE, RUN, rate, ratio


def add_transport(board: dashboard.Dashboard) -> None:
    """Add the row for traffic on the wire."""
    board.with_row(dashboard.Row("Fabric and transport"))
    sent, received = rate("chakram_tx_bytes_total"), rate("chakram_rx_bytes_total")
    board.with_panel(
        graph(
            "Sent and received",
            "Bits on layer 2 by agent, and the delivered payload (goodput).",
            query(f"8 * sum by (agent) ({sent})", "{{agent}} sent"),
            query(f"8 * sum by (agent) ({received})", "{{agent}} received"),
            query(f"8 * sum({rate('chakram_delivered_bytes_total')})", "goodput"),
            unit=units.BitsPerSecondSI,
        )
    )
    board.with_panel(
        graph(
            "Losses and retransmissions",
            "Retransmitted packets by reason, negative acknowledgements, timeouts, and "
            "packets that arrived out of sequence or twice.",
            query(
                f"sum by (reason) ({rate('chakram_retransmitted_packets_total')})",
                "retransmitted: {{reason}}",
            ),
            query(f"sum({rate('chakram_nak_received_total')})", "NAK received"),
            query(f"sum({rate('chakram_nak_sent_total')})", "NAK sent"),
            query(f"sum({rate('chakram_ack_timeouts_total')})", "timeouts"),
            query(
                f"sum({rate('chakram_out_of_sequence_packets_total')})",
                "out of sequence",
            ),
            query(f"sum({rate('chakram_duplicate_packets_total')})", "duplicates"),
            unit=units.PacketsPerSecond,
        )
    )
    marked, packets = (
        rate("chakram_ecn_marked_packets_total"),
        rate("chakram_rx_packets_total"),
    )
    board.with_panel(
        graph(
            "Congestion",
            "Share of received packets with a congestion mark, and notifications per "
            "packet sent.",
            query(ratio(marked, packets), "marked"),
            query(
                ratio(
                    rate("chakram_cnp_received_total"), rate("chakram_tx_packets_total")
                ),
                "CNP received",
            ),
            query(ratio(rate("chakram_cnp_sent_total"), packets), "CNP sent"),
            unit=units.PercentUnit,
        )
    )
    links = rate("chakram_link_bytes_total")
    board.with_panel(
        graph(
            "Links",
            "The 12 most loaded directions of fabric links.",
            query(
                f"topk(12, 8 * sum by (link, direction) ({links}))",
                "{{link}} {{direction}}",
            ),
            unit=units.BitsPerSecondSI,
            span=12,
        )
    )
    board.with_panel(
        graph(
            "Discarded packets",
            "Packets dropped by the kernel because a buffer was full, dropped by "
            "injected faults, or invalid.",
            query(f"sum({rate('chakram_socket_drops_total')})", "receive buffer full"),
            query(f"sum({rate('chakram_injected_drops_total')})", "injected"),
            query(
                f"sum by (reason) ({rate('chakram_invalid_packets_total')})",
                "invalid: {{reason}}",
            ),
            query(f"sum({rate('chakram_send_retries_total')})", "send buffer full"),
            unit=units.PacketsPerSecond,
            span=12,
        )
    )


def add_generator(board: dashboard.Dashboard) -> None:
    """Add the row that shows whether the generator limited the results."""
    board.with_row(dashboard.Row("Generator health"))
    board.with_panel(
        graph(
            "Waiting for the generator",
            "Seconds per second that due packets waited for the data plane, summed "
            "over flows.",
            query(
                f"sum by (agent) ({rate('chakram_generator_wait_seconds_total')})",
                "{{agent}}",
            ),
            unit=units.Short,
            span=6,
        )
    )
    board.with_panel(
        graph(
            "Generator lag and clocks",
            "Longest time so far that due work waited for the data plane, and the "
            "uncertainty of the clocks.",
            query(
                f"max by (agent) (chakram_generator_lag_max_seconds{{{RUN}}})",
                "{{agent}} longest lag",
            ),
            query(
                f"max(chakram_agent_clock_uncertainty_seconds{{{RUN}}})",
                "clock uncertainty",
            ),
            unit=units.Seconds,
            span=6,
        )
    )
    late, rounds = (
        rate("chakram_generator_late_rounds_total"),
        rate("chakram_generator_rounds_total"),
    )
    board.with_panel(
        graph(
            "Data plane",
            "CPU usage of the data plane in cores, and the share of its rounds that "
            "started more than 1 ms late.",
            query(f"sum by (agent) ({rate('chakram_cpu_seconds_total')})", "{{agent}}"),
            query(ratio(late, rounds), "late rounds"),
            unit=units.Short,
            span=6,
        )
    )
    bound = rate("chakram_generator_bound_collectives_total", COLLECTIVE)
    board.with_panel(
        graph(
            "Data quality",
            "Samples lost so far, and generator-bound collectives per second.",
            query(f"sum(chakram_samples_dropped_total{{{RUN}}})", "samples dropped"),
            query(f"sum({bound}) or vector(0)", "generator-bound /s"),
            unit=units.Short,
            span=6,
        )
    )
