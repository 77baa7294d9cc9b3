"""Rows about traffic on the wire and the traffic generator."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import units

from chakram.records.run_records import GENERATOR_BOUND_PERCENT
from dashboards.norms import ONE_IS_TOO_MANY
from dashboards.panels import EVENTS_PER_SECOND, graph, query, with_limit
from dashboards.queries import COLLECTIVE, RUN, rate, ratio, share


def add_transport(board: dashboard.Dashboard) -> None:
    """Add the row about traffic on the wire."""
    board.with_row(dashboard.Row("Transport"))
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
            "Retransmitted packets by reason, negative acknowledgments, and packets "
            "that arrived out of sequence or twice.",
            query(
                f"sum by (reason) ({rate('chakram_retransmitted_packets_total')})",
                "retransmitted: {{reason}}",
            ),
            query(f"sum({rate('chakram_nak_received_total')})", "NAK received"),
            query(f"sum({rate('chakram_nak_sent_total')})", "NAK sent"),
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
            unit=units.PacketsPerSecond,
        )
    )
    board.with_panel(
        graph(
            "Send retries",
            "Failed sends, by agent: the kernel had no buffer space, or the interface "
            "was down.",
            query(
                f"sum by (agent) ({rate('chakram_send_retries_total')})", "{{agent}}"
            ),
            unit=EVENTS_PER_SECOND,
        )
    )


def add_generator(board: dashboard.Dashboard) -> None:
    """Add the row that shows whether the generator limited the results."""
    board.with_row(dashboard.Row("Generator health"))
    board.with_panel(
        graph(
            "Waiting for the generator",
            "Mean number of flows whose due packets wait for the data plane.",
            query(
                f"sum by (agent) ({rate('chakram_generator_wait_seconds_total')})",
                "{{agent}}",
            ),
            unit=units.Short,
        )
    )
    bound = f"chakram_generator_bound_collectives_total{{{COLLECTIVE}}}"
    board.with_panel(
        graph(
            "Generator-bound collectives",
            "Measured collectives so far that waited for the generator for more than "
            f"{GENERATOR_BOUND_PERCENT} % of their time. Their times describe the "
            "generator.",
            query(f"sum({bound}) or vector(0)", "generator-bound"),
            unit=units.Short,
        )
    )
    board.with_panel(
        with_limit(
            graph(
                "Samples dropped",
                "Records lost so far because a queue was full.",
                query(
                    f"sum by (agent) (chakram_samples_dropped_total{{{RUN}}})",
                    "{{agent}}",
                ),
                unit=units.Short,
            ),
            ONE_IS_TOO_MANY,
        )
    )
    board.with_panel(
        graph(
            "Longest generator lag",
            "Longest time so far that due work waited for the data plane.",
            query(
                f"max by (agent) (chakram_generator_lag_max_seconds{{{RUN}}})",
                "{{agent}}",
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
            "Late rounds",
            "Share of the rounds of the data plane that started more than 1 ms late.",
            query(share(late, rounds, "agent"), "{{agent}}"),
            unit=units.PercentUnit,
            span=6,
        )
    )
    board.with_panel(
        graph(
            "CPU of the data plane",
            "CPU usage of the data plane in cores, by agent.",
            query(f"sum by (agent) ({rate('chakram_cpu_seconds_total')})", "{{agent}}"),
            unit=units.Short,
            span=6,
        )
    )
    board.with_panel(
        graph(
            "Clock uncertainty",
            "Uncertainty of the offset between the clocks of agent and controller.",
            query(
                f"max by (agent) (chakram_agent_clock_uncertainty_seconds{{{RUN}}})",
                "{{agent}}",
            ),
            unit=units.Seconds,
            span=6,
        )
    )
