"""How many packets leave as one burst, where the experiment does not say.

On real switches a burst should be short, for it arrives at a queue at line rate: at
most 15 us of the port's rate, and at least two packets, since single ones cost a
data-plane process too much time.

Where the fabric is made of this machine's kernel, the burst is what costs: sending,
bridging, shaping and receiving one takes 12-16 us of a core, and 6 us more when it has
to wait at a switch port for a timer; how many packets it holds hardly matters, for it
crosses bridges as one.  Measured on a star of 8 hosts that one process drives, path MTU
4096, window 64 KiB, on two virtual cores that others used too, hence with real-time
priority; percent of the ideal, the median of 5 to 9 iterations:

===========  =========  ===============  =================  =====================
host rate    packets    bursts per s     ring all-reduce    direct all-to-all
===========  =========  ===============  =================  =====================
250 Mbit/s   1          59 000           99.5               99.5
250 Mbit/s   2          30 000           99.5               99.4
500 Mbit/s   2          59 000           99.3               98.6
500 Mbit/s   4          30 000           99.2               98.6
1 Gbit/s     4          59 000           93                 94
1 Gbit/s     5          47 000           96.6               92
1 Gbit/s     8          30 000           98.3               98.7
===========  =========  ===============  =================  =====================

So bursts grow until all ports of a process together send 30 000 of them per second.  On
a Clos (2 spines, 2 leaves) every burst takes more hops and thus more of the core: 99.1
and 92 % at 500 Mbit/s with 4 packets, but 99.5 and 98.8 % with 8; 87 and 98 % at
1 Gbit/s with 8.  A mix of collectives that loads all ports of such a Clos at
250 Mbit/s took 3 to 9 % longer than simulated with 4 packets and kept waiting for the
process; with 8 it did not.  So there a quarter as many bursts are let go.

Where a process models the switches, each packet crosses it by itself, however many
switches it meets; what bursts are for is to wake processes less often that have a core
each.  So fewer of them are let go, and since packets then wait for two processes and in
their host's own queue, windows hold 5 ms of the port's rate: at 200 Mbit/s rings of 8
hosts took 13 % longer than simulated with bursts of 2 and 64 KiB.
"""

from __future__ import annotations

_LONGEST_NS = 15_000
_BURSTS_PER_S = 30_000
_MODELLED_BURSTS_PER_S = 12_000
_FEWEST = 2
# The kernel takes 64 KiB in one send, with headers: 15 packets of 4 KiB.
_LARGEST_BYTES = 61_440
_MOST = 64
_WINDOW_BURSTS = 4
_LEAST_WINDOW_BYTES = 64 * 1024
_MODELLED_WINDOW_NS = 5_000_000
# Ethernet, IPv4, UDP, BTH and ICRC: a packet on the wire beside its payload.
_OVERHEAD_BYTES = 58


def burst_packets(
    *,
    rate_bps: int | None,
    path_mtu: int,
    window_bytes: int | None,
    on_kernel: bool,
    ports: int,
    tiers: int = 1,
    is_modelled: bool = False,
) -> int:
    """Return how many packets leave as one.

    Args:
        rate_bps: Of a port, in wire bits per second; None: not limited.
        path_mtu: Payload of a full packet.
        window_bytes: Of a queue pair: two bursts fit, so that one is under way while
            the other one is acknowledged.  None: it will be made to fit.
        on_kernel: Whether bridges and queues of this machine are the fabric.
        ports: How many of them one data-plane process drives.
        tiers: Of switches in the fabric: 1 for a single switch, 2 for leaves and
            spines.
        is_modelled: Whether a process of this machine models the switches.
    """
    most = min(_MOST, _LARGEST_BYTES // path_mtu)
    if window_bytes is not None:
        most = min(most, window_bytes // (2 * path_mtu))
    if rate_bps is None:
        wanted = most
    elif on_kernel:
        packet_bits = 8 * (path_mtu + _OVERHEAD_BYTES)
        bursts_per_s = _BURSTS_PER_S // tiers**2
        per_packet = (
            _MODELLED_BURSTS_PER_S if is_modelled else bursts_per_s
        ) * packet_bits
        wanted = (ports * rate_bps + per_packet // 2) // per_packet
    else:
        wanted = rate_bps * _LONGEST_NS // (8 * 10**9 * path_mtu)
    return max(_FEWEST, min(most, wanted))


def window_bytes(
    *, burst_packets: int, path_mtu: int, modelled_rate_bps: int | None = None
) -> int:
    """Return the window where the experiment names none: four bursts, or 64 KiB.

    With fewer bursts under way a queue pair waits for acknowledgements; with more it
    only fills queues (1 Gbit/s, bursts of 8: 96 to 98 % with 64 KiB, 96 to 99 % with
    128 KiB).  With modelled switches a port's rate counts, too, as it is in real time.
    """
    late = (modelled_rate_bps or 0) * _MODELLED_WINDOW_NS // (8 * 10**9)
    return max(_LEAST_WINDOW_BYTES, late, _WINDOW_BURSTS * burst_packets * path_mtu)


def ack_interval_packets(burst_packets: int) -> int:
    """Return after how many packets an ACK is asked for: two bursts.

    That is half a window of four bursts, so that sending never stops for it.
    """
    return 2 * burst_packets
