# C types of early.py, for the compiled form.

cdef class EarlyMessages:
    cdef readonly long long count
    cdef readonly long long refused
    cdef long long _limit
    cdef dict _by_key

    cpdef keep(
        self, long long key, long long qpn, long long message, long long size_bytes,
        long long ce, long long received_ns
    )
    cpdef list take(self, long long key)
