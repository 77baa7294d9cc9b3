cimport cython

cdef long long _UNKNOWN


cdef class MessageParts:
    cdef public long long own_port_ns
    cdef public long long window_ns
    cdef public long long pace_ns
    cdef public long long pause_ns
    cdef public long long transfer_ns
    cdef public long long repair_ns
    cdef public long long left_ns
    cdef public long long sent_ns
    cdef public long long departed_ns
    cdef public long long received_ns
    cdef public long long queue_ns
    cdef public long long switch_pause_ns
    cdef public long long serialise_ns
    cdef public long long queue_port
    cdef public long long pause_port
    cdef public long long slow_ns
    cdef public long long slow_port
    cdef public long long host_pause_ns
    cdef public long long host_own_ns
    cdef public long long host_alone_ns

    cpdef object begin(self)
    @cython.locals(rest_ns="long long", own_ns="long long")
    cpdef object conclude(self)


# An event cannot be part of a reference cycle, so it needs no garbage collection.
cdef class SendCompleted:
    cdef public object owner
    cdef public object context
    cdef readonly long long message_id
    cdef readonly long long size_bytes
    cdef readonly long long posted_ns
    cdef readonly long long first_sent_ns
    cdef readonly long long last_acked_ns
    cdef readonly long long packets
    cdef readonly long long retransmitted
    cdef readonly long long cnps
    cdef readonly object rate_at_start_bps
    cdef readonly long long generator_wait_ns
    cdef readonly MessageParts parts


cdef class MessageReceived:
    cdef public object owner
    cdef readonly object message_id
    cdef readonly long long size_bytes
    cdef readonly long long packets
    cdef readonly long long ce
    cdef readonly long long wrong
    cdef readonly long long first_received_ns
    cdef readonly long long received_ns


cdef class QueuePairFailed:
    cdef public object owner
    cdef readonly object reason
    cdef readonly long long flushed
    cdef readonly long long failed_ns
    cdef readonly object retried_for
