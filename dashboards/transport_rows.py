"""Rows about traffic on the wire and the traffic generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.models import units

from chakram.records.run_records import GENERATOR_BOUND_PERCENT
from dashboards.norms import ONE_IS_TOO_MANY
from dashboards.panels import EVENTS_PER_SECOND, graph, query, rates, with_limit
from dashboards.queries import COLLECTIVE, RUN, share, sums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.panels import Panel


def transport_panels() -> Iterator[Panel]:
    """Yield the panels about traffic on the wire."""
    sent = sums("chakram_tx_bytes_total", "agent")
    received = sums("chakram_rx_bytes_total", "agent")
    yield graph(
        "Sent and received",
        "Bits on layer 2 by agent, and the delivered payload (goodput).",
        query(f"8 * {sent}", "{{agent}} sent"),
        query(f"8 * {received}", "{{agent}} received"),
        query(f"8 * {sums('chakram_delivered_bytes_total')}", "goodput"),
        unit=units.BitsPerSecondSI,
    )
    yield graph(
        "Losses and retransmissions",
        "Retransmitted packets by reason, negative acknowledgments, and packets "
        "that arrived out of sequence or twice.",
        rates(
            "chakram_retransmitted_packets_total",
            "reason",
            legend="retransmitted: {{reason}}",
        ),
        rates("chakram_nak_received_total", legend="NAK received"),
        rates("chakram_nak_sent_total", legend="NAK sent"),
        rates("chakram_out_of_sequence_packets_total", legend="out of sequence"),
        rates("chakram_duplicate_packets_total", legend="duplicates"),
        unit=units.PacketsPerSecond,
    )
    received_packets = "chakram_rx_packets_total"
    yield graph(
        "Congestion",
        "Share of received packets with a congestion mark, notifications received per "
        "packet sent, and notifications sent per packet received.",
        query(share("chakram_ecn_marked_packets_total", received_packets), "marked"),
        query(
            share("chakram_cnp_received_total", "chakram_tx_packets_total"),
            "CNP received",
        ),
        query(share("chakram_cnp_sent_total", received_packets), "CNP sent"),
        unit=units.PercentUnit,
    )
    yield graph(
        "Timeouts",
        "Acknowledgment timeouts, by agent.",
        rates("chakram_ack_timeouts_total", "agent"),
        unit=EVENTS_PER_SECOND,
    )
    yield graph(
        "Discarded packets",
        "Packets dropped by the kernel because a buffer was full, dropped by "
        "injected faults, or invalid.",
        rates("chakram_socket_drops_total", legend="receive buffer full"),
        rates("chakram_injected_drops_total", legend="injected"),
        rates("chakram_invalid_packets_total", "reason", legend="invalid: {{reason}}"),
        unit=units.PacketsPerSecond,
    )
    yield graph(
        "Send retries",
        "Failed sends, by agent: the kernel had no buffer space, or the interface "
        "was down.",
        rates("chakram_send_retries_total", "agent"),
        unit=EVENTS_PER_SECOND,
    )


def generator_panels() -> Iterator[Panel]:
    """Yield the panels that show whether the generator limited the results."""
    yield graph(
        "Waiting for the generator",
        "Mean number of flows whose due packets wait for the data plane.",
        rates("chakram_generator_wait_seconds_total", "agent"),
        unit=units.Short,
    )
    bound = f"chakram_generator_bound_collectives_total{{{COLLECTIVE}}}"
    yield graph(
        "Generator-bound collectives",
        "Measured collectives so far that waited for the generator for more than "
        f"{GENERATOR_BOUND_PERCENT} % of their time. Their times describe the "
        "generator.",
        query(f"sum({bound}) or vector(0)", "generator-bound"),
        unit=units.Short,
    )
    yield with_limit(
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
    yield graph(
        "Longest generator lag",
        "Longest time so far that due work waited for the data plane.",
        query(
            f"max by (agent) (chakram_generator_lag_max_seconds{{{RUN}}})",
            "{{agent}}",
        ),
        unit=units.Seconds,
        span=6,
    )
    late, rounds = (
        "chakram_generator_late_rounds_total",
        "chakram_generator_rounds_total",
    )
    yield graph(
        "Late rounds",
        "Share of the rounds of the data plane that started more than 1 ms late.",
        query(share(late, rounds, "agent"), "{{agent}}"),
        unit=units.PercentUnit,
        span=6,
    )
    yield graph(
        "CPU of the data plane",
        "CPU usage of the data plane in cores, by agent.",
        rates("chakram_cpu_seconds_total", "agent"),
        unit=units.Short,
        span=6,
    )
    yield graph(
        "Clock uncertainty",
        "Uncertainty of the offset between the clocks of agent and controller.",
        query(
            f"max by (agent) (chakram_agent_clock_uncertainty_seconds{{{RUN}}})",
            "{{agent}}",
        ),
        unit=units.Seconds,
        span=6,
    )
