"""Default burst size, window and ACK interval, if the experiment sets none.

On real switches a burst should be short, because it arrives at a queue at line rate. It
lasts at most 15 us at the port's rate. It has at least two packets, since single
packets cost a data-plane process too much time.

If the kernel of this machine forms the fabric, the number of bursts determines the
cost. Sending, bridging, shaping and receiving one burst takes 12-16 us of core time. A
burst that has to wait for a timer at a switch port takes 6 us more. The number of
packets in a burst hardly matters, because it crosses bridges as one unit.

The table was measured on a star of 8 hosts that one process drives, with path MTU 4096
and a window of 64 KiB. The process had real-time priority on two virtual cores that it
shared with other processes. The values are percentages of the ideal. Each is the median
of 5 to 9 iterations:

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

Bursts therefore grow until all ports of a process together send only 30 000 bursts per
second.

On a Clos (2 spines, 2 leaves) every burst takes more hops and therefore more core time.
The same collectives reached:

* 99.1 and 92 % at 500 Mbit/s with 4 packets
* 99.5 and 98.8 % at 500 Mbit/s with 8 packets
* 87 and 98 % at 1 Gbit/s with 8 packets

A mix of collectives loaded all ports of such a Clos at 250 Mbit/s. With bursts of 4
packets, it often waited for the process and took 3 to 9 % longer than simulated. With 8
packets it did neither. On two tiers, a process therefore sends a quarter as many
bursts.

If a process models the switches, it handles each packet separately and once, regardless
of the number of switches on the path. Larger bursts then only save wakeups of processes
that each have a core, so even fewer bursts are sent. Packets now wait for two processes
and in their host's own queue, so a window covers at least 5 ms at the port's rate. At
200 Mbit/s, rings of 8 hosts took 13 % longer than simulated with bursts of 2 and
windows of 64 KiB.
"""

from __future__ import annotations

_LONGEST_NS = 15_000
_BURSTS_PER_S = 30_000
_MODELED_BURSTS_PER_S = 12_000
_FEWEST = 2
# The kernel takes at most 64 KiB per send, with headers: 15 packets of 4 KiB.
_LARGEST_BYTES = 61_440
_MOST = 64
_WINDOW_BURSTS = 4
_LEAST_WINDOW_BYTES = 64 * 1024
_MODELED_WINDOW_NS = 5_000_000
# Ethernet, IPv4, UDP, BTH and ICRC: bytes of a packet in addition to its payload.
_OVERHEAD_BYTES = 58


def burst_packets(
    *,
    rate_bps: int | None,
    path_mtu: int,
    window_bytes: int | None,
    on_kernel: bool,
    ports: int,
    tiers: int = 1,
    is_modeled: bool = False,
) -> int:
    """Return the number of packets per burst.

    Args:
        rate_bps: Rate of a port, in wire bits per second. None means unlimited.
        path_mtu: Payload of a full packet.
        window_bytes: Window of a queue pair. It should have room for two bursts, so
            that one is in flight while the other is acknowledged. None means that
            ``window_bytes`` chooses the window later.
        on_kernel: Whether bridges and queues of this machine form the fabric.
        ports: Number of ports that one data-plane process drives.
        tiers: Switch tiers of the fabric: 1 for a single switch, 2 for leaves and
            spines.
        is_modeled: Whether a process of this machine models the switches.
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
            _MODELED_BURSTS_PER_S if is_modeled else bursts_per_s
        ) * packet_bits
        wanted = (ports * rate_bps + per_packet // 2) // per_packet
    else:
        wanted = rate_bps * _LONGEST_NS // (8 * 10**9 * path_mtu)
    return max(_FEWEST, min(most, wanted))


def window_bytes(
    *, burst_packets: int, path_mtu: int, modeled_rate_bps: int | None = None
) -> int:
    """Return the default window: four bursts, but at least 64 KiB.

    With fewer bursts in flight, a queue pair waits for acknowledgments. With more
    bursts, the queue pair only fills queues (1 Gbit/s, bursts of 8: 96 to 98 % with 64
    KiB, 96 to 99 % with 128 KiB). With modeled switches, the window also covers at
    least 5 ms of real time at a port's rate.
    """
    late = (modeled_rate_bps or 0) * _MODELED_WINDOW_NS // (8 * 10**9)
    return max(_LEAST_WINDOW_BYTES, late, _WINDOW_BURSTS * burst_packets * path_mtu)


def ack_interval_packets(burst_packets: int) -> int:
    """Return the default number of packets per ACK: two bursts.

    That is half a window of four bursts, so sending never waits for an ACK.
    """
    return 2 * burst_packets
