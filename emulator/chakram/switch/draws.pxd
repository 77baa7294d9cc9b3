# C types of draws.py, for the compiled form.

cimport cython

cdef unsigned long long _MASK
cdef unsigned long long _STEP
cdef unsigned long long _STREAM
cdef unsigned long long _FIRST
cdef unsigned long long _SECOND
cdef unsigned long long _WORD
cdef unsigned long long _PRIME


@cython.locals(mixed="unsigned long long")
cpdef unsigned long long draw(
    unsigned long long seed, unsigned long long stream, unsigned long long number
) except? 0
@cython.locals(value="unsigned long long")
cpdef unsigned long long flow_hash(
    object seed, unsigned long long source, unsigned long long destination,
    unsigned long long source_port
) except? 0
cdef unsigned long long _with_part(
    unsigned long long value, unsigned long long part
) except? 0
