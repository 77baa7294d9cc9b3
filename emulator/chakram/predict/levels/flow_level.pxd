# C types of flows.py for the compiled build.

cimport cython

from chakram.predict.levels.message_level cimport MessageLevel

cdef int _ARRIVED, _CARRIED, _CLASS, _DOWN, _END, _KINDS, _LEFT_AT
cdef int _LINK, _NONE, _POSTED, _ROUTER, _SLOT, _UP, _WHERE
cdef long long _SHARES, _NEVER
cdef double _NOTHING_BYTES, _LEAST_PART, _BITS_PER_BYTE_NS


cdef class FlowLevel(MessageLevel):
    cdef double _batch
    cdef long long _due_ns
    cdef long long _settled_ns
    cdef Py_ssize_t _most_links
    cdef double[::1] _capacity
    cdef long long[::1] _delay_ns
    cdef double[::1] _left
    cdef long long[::1] _using
    cdef long long[::1] _first
    cdef double[::1] _heap_share
    cdef long long[::1] _heap_link
    cdef long long[::1] _users
    cdef long long[::1] _way
    cdef double[::1] _remaining
    cdef double[::1] _rate
    cdef long long[::1] _under_way
    cdef Py_ssize_t _count

    @cython.locals(
        at="Py_ssize_t", size="Py_ssize_t", base="Py_ssize_t", hops="Py_ssize_t",
        slowest="double", delay_ns="long long", link="Py_ssize_t",
        router="Py_ssize_t", at_ns="long long",
    )
    cdef _cross(self, Py_ssize_t slot, Py_ssize_t source, Py_ssize_t target)
    cdef _settle_by(self, long long at_ns)
    cdef _happen(self, Py_ssize_t number)
    @cython.locals(
        elapsed_ns="double", kept="Py_ssize_t", index="Py_ssize_t",
        slot="Py_ssize_t", left="double", delay_ns="long long",
        base="Py_ssize_t", hop="Py_ssize_t", first_ns="double", took_ns="double",
        needed_ns="double", wait_ns="long long",
    )
    cdef _settle(self)
    @cython.locals(
        links="Py_ssize_t", link="Py_ssize_t", total="Py_ssize_t",
        index="Py_ssize_t", slot="Py_ssize_t", base="Py_ssize_t",
        hop="Py_ssize_t", place="Py_ssize_t", used="Py_ssize_t",
        share="double", end="Py_ssize_t", other="Py_ssize_t",
    )
    cdef _fill_rates(self)
    @cython.locals(above="Py_ssize_t")
    cdef _raise(self, Py_ssize_t place, double share, Py_ssize_t link)
    @cython.locals(place="Py_ssize_t", below="Py_ssize_t")
    cdef _sink(self, Py_ssize_t used, double share, Py_ssize_t link)
