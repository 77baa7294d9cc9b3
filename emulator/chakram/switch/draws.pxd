# C types of draws.py, for the compiled form.

cimport cython

cdef unsigned long long _MASK
cdef unsigned long long _STEP
cdef unsigned long long _STREAM
cdef unsigned long long _FIRST
cdef unsigned long long _SECOND


@cython.locals(mixed="unsigned long long")
cpdef unsigned long long draw(
    unsigned long long seed, unsigned long long stream, unsigned long long number
) except? 0
