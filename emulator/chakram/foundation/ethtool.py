"""Ethtool requests to an interface in the network namespace of this thread.

Source: the kernel's include/uapi/linux/ethtool.h.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_STATISTICS = 1  # ETH_SS_STATS
_NAME_BYTES = 32
_MOST_STATISTICS = _SPARE = 20_000


def ask(name: str, request: bytes) -> bytes | None:
    """Return the answer to an ethtool request; None if the interface refuses it."""
    data = array.array("B", request)
    pointer, _ = data.buffer_info()
    argument = struct.pack("16sP", name.encode()[:15], pointer).ljust(40, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            fcntl.ioctl(sock, _SIOCETHTOOL, argument)
        except OSError:
            return None
    return data.tobytes()


def statistics(name: str) -> dict[str, int]:
    """Return the statistics of an interface's driver, or nothing if it has none.

    The result is also empty if the number of statistics changes between the requests,
    for example because the interface gets more queues. The kernel then writes the new
    number of statistics.
    """
    head = struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _STATISTICS, 0)
    answer = ask(name, head)
    if answer is None:
        return {}
    _, _, mask, count = struct.unpack_from("=IIQI", answer)
    if not mask or not 0 < count <= _MOST_STATISTICS:
        return {}
    head = struct.pack("=III", _GSTRINGS, _STATISTICS, count)
    room = count + _SPARE
    texts = ask(name, head + bytes(_NAME_BYTES * room))
    values = ask(name, struct.pack("=II", _GSTATS, count) + bytes(8 * room))
    if texts is None or values is None:
        return {}
    (named,), (counted,) = (
        struct.unpack_from("=I", texts, 8),
        struct.unpack_from("=I", values, 4),
    )
    if named != count or counted != count:
        return {}
    return {
        texts[at : at + _NAME_BYTES].split(b"\0")[0].decode("ascii", "replace"): value
        for at, value in zip(
            range(12, 12 + _NAME_BYTES * count, _NAME_BYTES),
            struct.unpack_from(f"={count}Q", values, 8),
            strict=True,
        )
    }
