cdef class SendCompleted:
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


cdef class MessageReceived:
    cdef readonly object message_id
    cdef readonly long long size_bytes
    cdef readonly long long packets
    cdef readonly long long ce
    cdef readonly long long wrong
    cdef readonly long long first_received_ns
    cdef readonly long long received_ns


cdef class QueuePairFailed:
    cdef readonly object reason
    cdef readonly long long flushed
    cdef readonly long long failed_ns
    cdef readonly object retried_for
