"""Headroom: memory for the packets that still arrive after a port pauses its sender."""

from __future__ import annotations

_BITS_PER_BYTE_NS = 8 * 10**9
_KIB = 1024

_NS3_FRAME_BYTES = 43
_SONIC_FRAME_BYTES = 60
_PEER_RESPONSE_QUANTA = 40
_BYTES_PER_QUANTUM = 64


class LinkEnd:
    """Rate and delay of a port's link, on which settings depend.

    Attributes:
        rate_bps: Rate; None for no limit.
        delay_ns: One-way propagation delay.
    """

    __slots__ = ("delay_ns", "rate_bps")

    def __init__(self, *, rate_bps: int | None, delay_ns: int) -> None:
        self.rate_bps = rate_bps
        self.delay_ns = delay_ns

    def bytes_in(self, time_ns: int) -> int:
        """Return how many bytes the link carries in *time_ns*, rounded up."""
        return -(-(self.rate_bps or 0) * time_ns // _BITS_PER_BYTE_NS)


def headroom_bytes(end: LinkEnd, *, mtu: int, cell_bytes: int = 1) -> int:
    """Return how many bytes can still arrive after a port pauses its sender.

    The formula covers two packets: one that delays the pause frame, and one that the
    sender has already begun to send. It also covers a full link in both directions, and
    the sender's response time. Source: IEEE 802.1Qbb, annex O, and the formula of
    SONiC's buffer manager.

    Args:
        end: Rate and delay of the port's link.
        mtu: Size of the largest packet, in bytes.
        cell_bytes: Size of a memory cell. A packet that is one byte longer than a cell
            occupies two cells.
    """
    nbytes = 2 * mtu + 2 * end.bytes_in(end.delay_ns)
    nbytes += _PEER_RESPONSE_QUANTA * _BYTES_PER_QUANTUM + 2 * _SONIC_FRAME_BYTES
    if cell_bytes > 1:
        # In the worst case, packets are one byte longer than a cell.
        nbytes = nbytes * 2 * cell_bytes // (cell_bytes + 1)
    return -(-nbytes // _KIB) * _KIB


def ns3_headroom_bytes(end: LinkEnd) -> int:
    """Return the headroom of the RDMA models for ns-3, which ignores packet sizes."""
    return 3 * end.bytes_in(end.delay_ns)


def ns3_overrun_bytes(end: LinkEnd, *, mtu: int) -> int:
    """Return how many bytes beyond the ns-3 headroom can arrive after a pause.

    One packet leaves before the pause frame and one arrives after it. The link is full
    in both directions.
    """
    needed_bytes = 2 * mtu + 2 * end.bytes_in(end.delay_ns) + _NS3_FRAME_BYTES
    return max(0, needed_bytes - ns3_headroom_bytes(end))
