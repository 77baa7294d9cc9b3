# C types for compiling buffer.py.

cimport cython

cdef int _FITS
cdef int _NEEDS_HEADROOM
cdef int _REFUSED
cdef long long _NO_LIMIT


cdef class Pool:
    cdef readonly object name
    cdef readonly long long shared_bytes
    cdef readonly long long used_bytes
    cdef readonly long long headroom_used_bytes
    cdef readonly long long peak_bytes
    cdef long long _headroom_bytes
    cdef bint _shares_headroom


@cython.final
cdef class Account:
    cdef readonly Pool pool
    cdef readonly long long used_bytes
    cdef readonly long long headroom_used_bytes
    cdef readonly long long peak_bytes
    cdef readonly long long headroom_peak_bytes
    cdef long long _reserved_bytes
    cdef bint _has_alpha
    cdef int _alpha_shift
    cdef long long _static_bytes
    cdef long long _headroom_bytes
    cdef long long _xon_bytes
    cdef long long _xon_offset_bytes

    @cython.locals(free_bytes="long long", shift=int)
    cpdef long long threshold_bytes(self) noexcept
    @cython.locals(shared_bytes="long long")
    cpdef long long shared_bytes(self) noexcept
    @cython.locals(after="long long", more="long long", pool=Pool)
    cpdef int room_for(self, long long size_bytes) noexcept
    @cython.locals(shared_bytes="long long", pool=Pool)
    cpdef void charge(self, long long size_bytes, int room) noexcept
    @cython.locals(
        shared_bytes="long long", rest="long long", freed="long long", pool=Pool
    )
    cpdef void release(self, long long size_bytes) noexcept
    cpdef bint wants_pause(self) noexcept
    @cython.locals(shared_bytes="long long", limit_bytes="long long")
    cpdef bint allows_resume(self) noexcept
