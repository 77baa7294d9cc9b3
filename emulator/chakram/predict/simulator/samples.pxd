# C types of samples.py for the compiled build.

cimport cython

from chakram.native.append_rows_direct cimport append_values
from chakram.replay.samples cimport Sampler
from chakram.switch.port cimport Port


cdef class LinkSampler:
    cdef readonly object rows
    cdef object _ports
    cdef dict _found
    cdef dict _seen
    cdef long long _last_ns
    cdef dict _before
    cdef long long _bin_ns
    cdef long long _next_ns
    cdef long long _taken

    cpdef begin(self, long long bin_ns, long long now_ns)
    cpdef turn(self, long long now_ns)
    cpdef end(self, long long now_ns)
    @cython.locals(
        port=Port, found=list, row=list, at="Py_ssize_t", place="Py_ssize_t",
        time_ns="long long",
    )
    cpdef long long take(self, long long now_ns) except? -1


cdef class FabricSampler(Sampler):
    cdef readonly LinkSampler links
    cdef list _hosts
    cdef object _dscp
    cdef long long _now_ns

    cpdef turn(self, long long now_ns)
    cpdef _count(self, long long rows)
    cpdef finish(self, long long now_ns)
    @cython.locals(host=Port)
    cpdef _values_of_port(self, object at, tuple counted, object disturbances)
