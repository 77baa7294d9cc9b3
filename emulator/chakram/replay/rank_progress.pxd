# C types for the compiled version of rank_progress.py.

cimport cython

from chakram.replay.expansion cimport Expansion
from chakram.replay.rank_queue_pair cimport Pair


cdef int _END_START
cdef long long _UNKNOWN
cdef bytearray _NO_MARK


# An operation cannot be part of a reference cycle, so it needs no garbage collection.
cdef class ActiveOperation:
    cdef public Py_ssize_t index
    cdef public long long key
    cdef public long long first_immediate
    cdef public long long first_order
    cdef public Expansion expansion
    cdef public list missing_needs
    cdef public bytearray marks
    cdef public Py_ssize_t first_send
    cdef public long long messages_left
    cdef public long long ready_ns
    cdef public Py_ssize_t released_by
    cdef public long long start_ns
    cdef public long long end_ns
    cdef public int end_kind
    cdef public long long end_rank
    cdef public long long end_number
    cdef public bint is_counted
    cdef public long long sent_bytes
    cdef public long long received_bytes
    cdef public long long generator_wait_ns
    cdef public long long retransmitted
    cdef public long long ce
    cdef public long long wrong
    cdef public long long slip_ns

    cpdef begin(
        self, Py_ssize_t index, long long key, long long first_immediate,
        long long first_order, Expansion expansion, long long ready_ns,
        long long start_ns, bint is_counted
    )
    cdef note_end(self, int kind, long long rank, long long number, long long time_ns)


# A flow cannot be part of a reference cycle, so it needs no garbage collection.
cdef class Flow:
    cdef public Pair pair
    cdef public long long immediate
    cdef public long long size_bytes
    cdef public long long order
    cdef public ActiveOperation active
    cdef public Py_ssize_t send
    cdef public long long ready_ns
    cdef public int cause_kind
    cdef public long long cause_rank
    cdef public long long cause_number


cdef class Activity:
    cdef long long _computing
    cdef long long _communicating
    cdef long long _since_ns
    cdef public long long compute_ns
    cdef public long long communication_ns
    cdef public long long exposed_ns
    cdef public long long idle_ns

    cpdef begin(self, long long now_ns)
    cpdef bint is_communicating(self) except -1
    @cython.locals(elapsed_ns="long long")
    cpdef change(self, long long computing, long long communicating, long long now_ns)
