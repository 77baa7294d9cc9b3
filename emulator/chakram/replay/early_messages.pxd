# C types for the compiled version of early_messages.py.

from chakram.replay.rank_queue_pair cimport Pair
from chakram.roce.events cimport MessageReceived


cdef class EarlyMessages:
    cdef readonly long long count
    cdef readonly long long refused
    cdef long long _limit
    cdef dict _by_key

    cpdef keep(
        self, long long key, Pair pair, long long immediate, MessageReceived event
    )
    cpdef list take(self, long long key)
