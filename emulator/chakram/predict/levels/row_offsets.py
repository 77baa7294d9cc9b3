"""Where the numbers of a row stand, for all compiled modules of this folder.

What a compiled module knows as a C number cannot be imported from it; so it stands
here, and each module that needs it makes one of its own.
"""

from __future__ import annotations

from array import array

NONE = -1
"""Stands for nothing where else a number of something is."""

# What an event is about, in its low bits.
NETWORK = 0
"""Something of the network, by its number."""
TAKEN = 1
"""A message has been taken up."""
BEGUN = 2
"""A share may send."""
ARRIVED = 3
"""A message is at its receiver."""
KIND_BITS = 2
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
"""The last message that came before the share began."""
COUNTERS = 7
RANK = 8
ROW = 9
ITERATION = 10
RELEASED = 11
SENT = 12
RECEIVED = 13
LOCAL = 14
"""What messages within its server go through; ``NONE``: they take no time."""
SERVER = 15
"""The server that its host is part of, if messages may stay within; or ``NONE``."""
SENDS = 16
"""How many messages it has posted, ..."""
ARRIVALS = 17
"""... and how many have come, where they are taken up in turn."""
SHARE = 18
"""Numbers of a row."""

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
"""When its first bit left; ``NONE``: not yet."""
CAUSE = 9
SLOT = 10
"""Numbers of a row."""

# Kinds of collectives.
NRANKS = 0
ROTATES = 1
TURN = 2
CHUNKS = 3
PLACE = 4
"""First of its positions."""
MISSING = 5
"""Counters that a position needs."""
AWAITS = 6
"""Whether a share ends only when its own messages have arrived, too."""
BATCH = 7
"""Sends of a position that the others follow by count, 0: none do."""
IN_TURN = 8
"""Whether messages are taken up in turn, whichever they are."""
SHAPE = 9
"""Numbers of a row."""

# Counters of a share with a batch.
COME = 0
CREDITS = 1
BEHIND = 2
COUNTS = 3

# Positions: where their sends, receives and groups begin.
FIRST_SEND = 0
FIRST_RECEIVE = 1
FIRST_GROUP = 2
POSITION = 3
"""Numbers of a row."""

# Sends.
PEER = 0
SIZE = 1
STEP = 2
CHANNEL = 3
RECEIVE = 4
WAITS = 5
WAY = 6
"""Of what rotates the first of the classes of its way; ``SIZE`` is its chunk then."""
SEND = 7
"""Numbers of a row."""

# Groups: sends that wait for the same receives.
NEEDS = 0
COUNTER = 1
"""Of those that wait for several: which."""
MEMBER = 2
"""First of its members."""
WAITERS = 3
"""Numbers of a row."""

# Links.
HEAD = 0
TAIL = 1
FREE = 2
CARRIED = 3
CLASS_OF = 4
END = 5
"""The router where it ends; ``NONE``: a host."""
LINK = 6
"""Numbers of a row."""

# Hosts.
ROUTER = 0
UP = 1
DOWN = 2
WHERE = 3
"""Numbers of a row."""


def grown(old: array[int], needed: int) -> array[int]:
    """Return a copy of *old* with room for *needed* numbers, more than it has.

    Callers ask only for what has no room: compiled, a view that is passed and kept
    again wraps the one before it, and a chain of thousands overflows the stack when it
    is freed.
    """
    new = array("q", bytes(8 * max(2 * len(old), needed)))
    memoryview(new)[: len(old)] = memoryview(old)
    return new
