# C types of progress.py, for the compiled form.

cimport cython

from chakram.replay.expansion cimport Expansion


cdef class ActiveCollective:
    cdef public Py_ssize_t operation
    cdef public long long key
    cdef public long long sequence
    cdef public Expansion expansion
    cdef public list missing_needs
    cdef public bytearray arrived
    cdef public long long sends_left
    cdef public long long receives_left
    cdef public long long ready_ns
    cdef public long long start_ns
    cdef public long long sent_bytes
    cdef public long long received_bytes
    cdef public long long generator_wait_ns
    cdef public long long retransmitted
    cdef public long long ce


cdef class Flow:
    cdef public ActiveCollective active
    cdef public long long step
    cdef public long long channel
    cdef public long long peer
    cdef public long long size_bytes
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
    @cython.locals(elapsed_ns="long long")
    cpdef change(self, long long computing, long long communicating, long long now_ns)
