cdef class CongestionControl:
    cdef public long long rate_bps
    cdef public bint is_pacing
    cdef public long long window_bytes
    cdef public long long next_timer_ns

    cpdef void on_sent(self, long long wire_bytes, long long now_ns) except *
    cpdef void on_ack(self, long long acked_bytes, long long round_trip_ns, long long now_ns) except *
    cpdef void on_nak(self, long long now_ns) except *
    cpdef void on_cnp(self, long long now_ns) except *
    cpdef void on_timeout(self, long long now_ns) except *
    cpdef void on_timer(self, long long now_ns) except *
