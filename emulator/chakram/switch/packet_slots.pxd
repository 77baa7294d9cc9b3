# C types for compiling packet_slots.py.

cimport cython

cdef int _FIELDS
cdef int _NEXT
cdef int _NONE


cdef class Packets:
    cdef long long[::1] cells
    cdef readonly long long in_use
    cdef long long _free

    @cython.locals(cells="long long[::1]", number="long long")
    cdef _chain(self, long long first, long long end)
    cpdef long long capacity(self) except? -1
    @cython.locals(slot="long long", field=int)
    cpdef long long take(self) except? -1
    cpdef void release_bytes(self, long long slot) noexcept
    cpdef long long get(self, long long slot, int field) except? -1
    cpdef put(self, long long slot, int field, long long value)
    @cython.locals(
        old="long long[::1]", cells="long long[::1]", count="long long",
        at="long long",
    )
    cdef _grow(self)
