"""Shaping: an HTB class with a queue that is limited in bytes, per end of a link.

HTB and not TBF: TBF cuts or drops a burst of packets (one GSO packet to the kernel)
that is larger than its own burst size and reached 37 % of the line rate; HTB sends it
whole and goes into debt.  The queue is a bfifo, so that its limit does not depend on
whether packets come one by one or in bursts.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from pyroute2.netlink import rtnl
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_pfifo, tcmsg
from pyroute2.netlink.rtnl.tcmsg.common import calc_xmittime

from chakram.fabric.link_requests import Request, create

__all__ = [
    "CLASS_HANDLE",
    "HOST_BURST_NS",
    "LEAF_HANDLE",
    "ROOT_HANDLE",
    "burst_bytes",
    "shape",
]

ROOT_HANDLE = 0x0001_0000
CLASS_HANDLE = 0x0001_0001
LEAF_HANDLE = 0x0010_0000

_TC_H_ROOT = 0xFFFF_FFFF
_LINKLAYER_ETHERNET = 1
# With one class per device nothing is shared out; the kernel only warns about quanta
# that it finds too small or too large.
_QUANTUM_BYTES = 60_000

_BURST_BYTES = 15_000
_BURST_NS = 200_000

HOST_BURST_NS = 2_000_000
"""How long a host may have been silent and still catch up on what it did not send.

Ports pace themselves, and when their process was late they catch up on a millisecond of
their rate.  Below that, every such burst would wait here for a timer, and timers are
what a throttled class costs: in a virtual machine 3-6 us each, a quarter of the time of
an all-to-all among 8 hosts of 1 Gbit/s.  The rate stays enforced over longer times, and
the switch ports, which decide what a receiver sees, are strict.
"""

# bfifo has pfifo's one option, a limit, counted in bytes.
plugins.setdefault("bfifo", sched_pfifo)


def burst_bytes(rate_bps: int, *, burst_ns: int = _BURST_NS) -> int:
    """Return how much an idle port may send at once, in bytes: *burst_ns* of its rate.

    Saved tokens let an incast of short messages beat the line rate, so this is small.
    But behind a burst of packets, which leaves whole and in debt, the next ACK would
    wait for a timer; at 1 Gbit/s, 15 KB and bursts of 4 packets of 4 KiB nearly every
    one did, and timers took a third of the time of a ring among 8 hosts.  25 KB, which
    is 200 us, leaves room for bursts of 5; a ring took 256 ms instead of 445.
    """
    return max(_BURST_BYTES, rate_bps * burst_ns // (8 * 10**9))


def shape(
    index: int, *, rate_bps: int, limit_bytes: int, burst_ns: int = _BURST_NS
) -> list[Request]:
    """Return the requests that limit what leaves through an interface.

    Args:
        index: Number of the interface.
        rate_bps: Layer-2 bits per second.
        limit_bytes: Bytes that may wait; what does not fit is dropped.
        burst_ns: How much of the rate an idle port saves up.
    """
    return [
        _for_interface(request, index)
        for request in (_root(), _class(rate_bps, burst_ns), _leaf(limit_bytes))
    ]


def _for_interface(request: Request, index: int) -> Request:
    # struct tcmsg begins behind the 16 bytes of nlmsghdr: family and padding (4 bytes),
    # then the number of the interface.
    data = bytearray(request.data)
    struct.pack_into("=i", data, 20, index)
    return Request(bytes(data), request.what)


@lru_cache(maxsize=1)
def _root() -> Request:
    message = tcmsg()
    message["handle"] = ROOT_HANDLE
    message["parent"] = _TC_H_ROOT
    message["attrs"] = [
        ("TCA_KIND", "htb"),
        (
            "TCA_OPTIONS",
            {
                "attrs": [
                    (
                        "TCA_HTB_INIT",
                        {
                            "version": 3,
                            "rate2quantum": 10,
                            "defcls": CLASS_HANDLE & 0xFFFF,
                            "debug": 0,
                            "direct_pkts": 0,
                        },
                    )
                ]
            },
        ),
    ]
    return create(message, rtnl.RTM_NEWQDISC, "htb queue discipline")


@lru_cache(maxsize=64)
def _class(rate_bps: int, burst_ns: int) -> Request:
    rate = max(1, rate_bps // 8)
    ticks = calc_xmittime(rate, burst_bytes(rate_bps, burst_ns=burst_ns))
    # The kernel reads 64-bit rates from attributes of their own, and then wants the
    # 32-bit field saturated.
    field = min(rate, 0xFFFF_FFFF)
    attributes: list[tuple[str, object]] = [
        (
            "TCA_HTB_PARMS",
            {
                "rate": field,
                "ceil": field,
                "buffer": ticks,
                "cbuffer": ticks,
                "quantum": _QUANTUM_BYTES,
                # pyroute2 calls the link layer "reserved".  With Ethernet the kernel
                # computes by itself and wants no table of 256 transmission times.
                "rate___reserved": _LINKLAYER_ETHERNET,
                "ceil___reserved": _LINKLAYER_ETHERNET,
            },
        )
    ]
    if rate > field:
        attributes += [("TCA_HTB_RATE64", rate), ("TCA_HTB_CEIL64", rate)]
    message = tcmsg()
    message["handle"] = CLASS_HANDLE
    message["parent"] = ROOT_HANDLE
    message["attrs"] = [("TCA_KIND", "htb"), ("TCA_OPTIONS", {"attrs": attributes})]
    what = f"htb class of {rate_bps} bit/s"
    return create(message, rtnl.RTM_NEWTCLASS, what)


@lru_cache(maxsize=64)
def _leaf(limit_bytes: int) -> Request:
    message = tcmsg()
    message["handle"] = LEAF_HANDLE
    message["parent"] = CLASS_HANDLE
    message["attrs"] = [
        ("TCA_KIND", "bfifo"),
        ("TCA_OPTIONS", {"limit": min(limit_bytes, 0x7FFF_FFFF)}),
    ]
    return create(message, rtnl.RTM_NEWQDISC, f"bfifo queue of {limit_bytes} bytes")
