# C types for compiling keyed_random.py.

cimport cython

cdef unsigned long long _MASK
cdef unsigned long long _STEP
cdef unsigned long long _STREAM
cdef unsigned long long _FIRST
cdef unsigned long long _SECOND
cdef unsigned long long _WORD
cdef long long _HALF_LAP
cdef long long _LAP
cdef unsigned long long _PRIME


cpdef unsigned long long draw(
    unsigned long long seed, unsigned long long stream, unsigned long long number
) except? 0
@cython.locals(mixed="unsigned long long")
cpdef unsigned long long packet_number(
    unsigned long long flow, unsigned long long position, unsigned long long attempt
) except? 0
cdef unsigned long long _mixed(unsigned long long mixed) except? 0
@cython.locals(value="unsigned long long")
cpdef unsigned long long flow_hash(
    object seed, unsigned long long source, unsigned long long destination,
    unsigned long long source_port
) except? 0
cdef unsigned long long _with_part(
    unsigned long long value, unsigned long long part
) except? 0


cdef class Attempts:
    cdef unsigned long long _flow
    cdef long long _highest
    cdef long long _last
    cdef long long _most
    cdef long long _times

    @cython.locals(position="long long", ahead="long long")
    cpdef unsigned long long number(self, long long psn) except? 0
