"""Anomalies of hosts that may disturb traffic before it reaches the network."""

from __future__ import annotations

from collections.abc import Mapping

_NOTABLE_STEAL = 0.02
_SLOW_CLOCK = 0.7
_LEAST_SQUEEZED = 100
_LEAST_DROPPED = 20
_DROPS = ("_dropped", "_errors", "_fifo", "discard", "drop", "out_of_buffer", "crc")


def host_anomalies(counts: Mapping[str, int], duration_ns: int) -> list[str]:
    """Return one clause per anomaly in the counters of a host.

    Args:
        counts: Increase of each host counter during the run
            (``chakram_agent.host_counters``).
        duration_ns: Duration of the run.
    """
    found = [
        f"{name} grew by {count}"
        for name, count in sorted(counts.items())
        if " " in name
        and any(word in name for word in _DROPS)
        # Frames of protocols without a receiver are counted, too.
        and count >= (_LEAST_DROPPED if name.endswith(" rx_dropped") else 1)
    ]
    if dropped := counts.get("softnet_dropped"):
        found.append(f"the kernel dropped {dropped} packets on arrival (softnet)")
    squeezed = counts.get("softnet_squeezed", 0)
    if squeezed >= _LEAST_SQUEEZED:
        found.append(
            f"the kernel ran out of time for arriving packets {squeezed} times "
            "(softnet)"
        )
    if throttled := counts.get("cpu_throttled"):
        found.append(f"CPUs were throttled {throttled} times because of their heat")
    stolen_ns = counts.get("cpu_steal_ms", 0) * 10**6
    if duration_ns and stolen_ns > _NOTABLE_STEAL * duration_ns:
        found.append(
            f"other virtual machines used {stolen_ns / duration_ns:.0%} of a CPU's time"
        )
    fastest, limit = counts.get("cpu_fastest_khz"), counts.get("cpu_limit_khz")
    if fastest and limit and fastest < _SLOW_CLOCK * limit:
        found.append(
            f"the fastest CPU ran at {fastest / 1e6:.1f} GHz of {limit / 1e6:.1f} GHz"
        )
    return found
