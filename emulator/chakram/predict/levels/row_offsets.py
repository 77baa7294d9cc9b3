"""Row layouts shared by all compiled modules of this folder.

Compiled modules cannot import each other's C constants. Each module therefore defines
its own C constants with the values from here.
"""

from __future__ import annotations

import mmap
from array import array
from typing import Literal, cast

_LARGE = 1 << 20
"""Minimum length of an array that is in separate memory."""

NONE = -1
"""Absent value of a field that contains a number."""

# Kinds of events, in the low bits of an event number.
NETWORK = 0
"""An event of the network, with a number that the network defines."""
TAKEN = 1
"""The receiver has processed a message."""
BEGUN = 2
"""A share may start to send."""
ARRIVED = 3
"""A message has arrived at its receiver."""
ENDED = 4
"""A share ends."""
STEPPED = 5
"""All positions of a ring take steps (``chakram.predict.levels.ring_steps``), or all
positions of an exchange have begun (``chakram.predict.levels.router_passes``)."""
KIND_BITS = 3
KINDS = 1 << KIND_BITS

# Shares.
KIND = 0
AT = 1
GROUP = 2
"""The share of position 0."""
HOST = 3
LEFT = 4
STATE = 5
EARLY = 6
"""Latest message that arrived too early for its receive: start of a linked list."""
COUNTERS = 7
RANK = 8
ROW = 9
ITERATION = 10
RELEASED = 11
SENT = 12
RECEIVED = 13
LOCAL = 14
"""Line for messages within the server. ``NONE`` means that they take no time."""
SERVER = 15
"""Server of the share's host if messages may stay within the server, else ``NONE``."""
SENDS = 16
"""Number of posted messages, if receives match by order of arrival."""
ARRIVALS = 17
"""Number of arrived messages, if receives match by order of arrival."""
LAST_NS = 18
"""Time of the latest arrival that has no event."""
LAST_ORDER = 19
"""Order of that arrival among simultaneous events."""
SHARE = 20
"""Row length."""

# Messages.
NEXT = 0
FROM = 1
TO = 2
WHICH = 3
CLASS = 4
ARRIVES = 5
ORDER = 6
POSTED = 7
LEFT_AT = 8
"""Time at which the first bit left, or ``NONE`` before the departure."""
CAUSE = 9
MORE = 10
"""Number of the sender's next messages that follow this one on the same link.

They have no row until this message leaves the link."""
SLOT = 11
"""Row length."""

# Kinds of collectives.
NRANKS = 0
ROTATES = 1
TURN = 2
CHUNKS = 3
PLACE = 4
"""Index of its first position."""
MISSING = 5
"""Number of counters per position."""
AWAITS = 6
"""Whether a share ends only after its own messages have arrived, too."""
BATCH = 7
"""Number of sends in the first batch. 0 means that sends are not in batches."""
IN_TURN = 8
"""Whether receives match messages by order of arrival."""
SHAPE = 9
"""Row length."""

# Counters of a share with a batch.
COME = 0
CREDITS = 1
BEHIND = 2
COUNTS = 3

# Positions: the indices of their first send, receive and group.
FIRST_SEND = 0
FIRST_RECEIVE = 1
FIRST_GROUP = 2
POSITION = 3
"""Row length."""

# Sends.
PEER = 0
SIZE = 1
STEP = 2
CHANNEL = 3
RECEIVE = 4
WAITS = 5
WAY = 6
"""First size class of the send's variant, if the kind rotates.

Sends that the receiver reduces and other sends are separate variants. ``SIZE`` is then
the chunk.
"""
RELEASES = 7
"""Whether sends of the receiver wait for it."""
SEND = 8
"""Row length."""

# Groups: sends that wait for the same receives.
NEEDS = 0
COUNTER = 1
"""Index of the counter, for a group that waits for several receives."""
MEMBER = 2
"""Index of its first member."""
WAITERS = 3
"""Row length."""

# Links.
HEAD = 0
TAIL = 1
FREE = 2
CARRIED = 3
CLASS_OF = 4
END = 5
"""Router at its end, or ``NONE`` if the link ends at a host."""
LATEST = 6
"""Arrival time of the last message in its queue."""
LINK = 7
"""Row length."""

# Hosts.
ROUTER = 0
UP = 1
DOWN = 2
WHERE = 3
"""Row length."""


def large_array(typecode: Literal["q", "Q"], count: int) -> array[int]:
    """Return *count* zeros of 8 bytes in separate memory.

    Huge pages avoid TLB misses, and the kernel allocates pages only on first access.
    """
    memory = mmap.mmap(-1, 8 * count)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    # Compiled code uses arrays and memory views through the buffer protocol.
    return cast("array[int]", memoryview(memory).cast(typecode))


def grown(old: array[int], needed: int) -> array[int]:
    """Return a copy of *old* with room for at least *needed* numbers.

    Call this only if *old* is too small. In compiled code, a memory view that is passed
    and stored again wraps the previous view. A chain of thousands of views overflows
    the stack when it is freed.
    """
    count = max(2 * len(old), needed)
    is_large = count >= _LARGE
    new = large_array("q", count) if is_large else array("q", bytes(8 * count))
    memoryview(new)[: len(old)] = memoryview(old)
    return new
