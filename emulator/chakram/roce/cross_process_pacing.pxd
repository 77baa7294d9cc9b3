cimport cython

from chakram.roce.notification_point cimport CnpLimiter
from chakram.roce.pacing cimport Line

cdef int _WORDS
cdef long long _BIT_NS
cdef long long _RETRY_NS


cdef class SharedLine(Line):
    cdef object _words
    cdef Py_ssize_t _first
    cdef Py_ssize_t _end
    cdef long long _grace_ns
    cdef long long _slack_ns
    cdef long long _line_ns
    cdef long long _held_ns

    cpdef CnpLimiter cnp_limiter(self, long long interval_ns)
    @cython.locals(begin="long long")
    cpdef object demand(self, long long since_ns)
    cpdef object rest(self)
    @cython.locals(line_ns="long long", hindmost="long long", turn="long long",
                   ready_ns="long long")
    cpdef long long ready_ns(self, long long now_ns) except? -1
    @cython.locals(lost_ns="long long")
    cpdef long long lost_ns(self, long long now_ns) except? -1
    @cython.locals(due_ns="long long")
    cpdef long long due_ns(self) except? -1
    @cython.locals(still_ns="long long", free_ns="long long", start_ns="long long",
                   work="long long", work_ns="long long", before="long long")
    cpdef object occupy(self, long long wire_bytes, long long now_ns,
                        long long queue_pairs=*)
    @cython.locals(taken_ns="long long", at="Py_ssize_t")
    cdef long long _taken_ns(self) except? -1
    @cython.locals(still_ns="long long", its_ns="long long", at="Py_ssize_t")
    cdef long long _still_ns(self) except? -1
    @cython.locals(since_ns="long long", its_ns="long long", at="Py_ssize_t")
    cdef long long _busy_since(self) except? -1
    @cython.locals(hindmost="long long", its_ns="long long", turn="long long",
                   at="Py_ssize_t")
    cdef long long _hindmost(self) except? -2
    @cython.locals(foremost="long long", turn="long long", at="Py_ssize_t")
    cdef long long _foremost(self) except? -2


cdef class SharedCnpLimiter(CnpLimiter):
    cdef object _words
    cdef Py_ssize_t _first
    cdef Py_ssize_t _end

    @cython.locals(after_ns="long long", at="Py_ssize_t")
    cpdef bint admits(self, long long now_ns) except -1
