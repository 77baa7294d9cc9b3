# C types of router_passes.py for the compiled build.

cimport cython

from chakram.predict.levels.message_level cimport MessageLevel
from chakram.predict.levels.pending_messages cimport Traffic
from chakram.predict.levels.record_streams cimport RecordStreams

cdef int _ARRIVALS, _ARRIVES, _AWAITS, _BATCH, _BYTES, _CARRIED, _CLASS_OF, _COUNT
cdef int _END, _FIRST_SEND, _FREE, _FREE_AT, _FROM, _MORE, _GROUP, _HEAD, _HOST, _IN_TURN, _KIND
cdef int _KINDS, _KIND_BITS, _LAST_NS, _LAST_ORDER, _LATEST, _LATEST_AT, _LEFT, _LEFT_AT
cdef int _LINK, _NEXT, _NONE, _NRANKS, _ORDER, _OTHER, _OWN, _PASSED, _PEER, _PLACE
cdef int _POSITION, _RECEIVED, _ROTATES, _ROUTER, _SEND, _SERVER, _SHAPE, _SHARE, _SLOT
cdef int _STEPPED, _SUM, _TAIL, _UP, _WAITS, _WAY, _WHERE
cdef long long _MOST
cdef unsigned long long _LOW, _MASK


cdef class RouterPasses(MessageLevel):
    cdef readonly long long passed
    cdef dict _begins
    cdef Py_ssize_t _first
    cdef long long _base_ns
    cdef long long[::1] _position_at
    cdef dict _is_direct
    cdef long long[::1] _level_of
    cdef list _stages
    cdef list _entering
    cdef RecordStreams _streams
    cdef long long[::1] _links_at
    cdef unsigned long long[::1] _arrivals
    cdef long long[::1] _host_at
    cdef Py_ssize_t _nranks
    cdef Py_ssize_t _size
    cdef Py_ssize_t _first_send
    cdef long long _last_entry

    @cython.locals(first="Py_ssize_t", begins=list, shape="Py_ssize_t")
    cdef _start(self, Py_ssize_t share)
    cdef _step_ring(self, Py_ssize_t first)
    @cython.locals(shape="Py_ssize_t")
    cdef bint _may_pass(self, Py_ssize_t first) except -1
    cdef bint _is_exchange(self, Py_ssize_t shape) except -1
    cdef _set_stages(self)
    @cython.locals(
        router="Py_ssize_t", count="Py_ssize_t", is_used="unsigned char[::1]",
        place="Py_ssize_t", at="Py_ssize_t", link="Py_ssize_t", end="Py_ssize_t",
        distance="long long",
    )
    cdef _raise_levels(self, Py_ssize_t last, list firsts)
    cdef bint _prepare(self) except -1
    cdef Py_ssize_t _class_at(self, Py_ssize_t position, Py_ssize_t distance) except -1
    cdef _pass_all(self)
    @cython.locals(
        at="Py_ssize_t", link="Py_ssize_t", row="Py_ssize_t", position="Py_ssize_t",
        host="Py_ssize_t", number="Py_ssize_t", level="Py_ssize_t",
        router="Py_ssize_t", below="Py_ssize_t", before="Py_ssize_t",
        turn="Py_ssize_t", messages="long long", passes="long long",
        earlier="long long", done="long long",
    )
    cdef bint _pass(self, long long until) except -1
    @cython.locals(
        link="Py_ssize_t", distance="Py_ssize_t", arrives="unsigned long long",
        at="Py_ssize_t", row="Py_ssize_t", position="Py_ssize_t",
    )
    cdef bint _send_all(self, Py_ssize_t turn) except -1
    @cython.locals(time="Py_ssize_t", row="Py_ssize_t", arrives="long long")
    cdef long long _entered(self, Py_ssize_t link, long long begins,
                            Py_ssize_t size) except -1
    @cython.locals(
        streams=RecordStreams, position="Py_ssize_t", distance="Py_ssize_t",
        peer="Py_ssize_t", link="Py_ssize_t", entry="unsigned long long",
        size="Py_ssize_t", arrives="unsigned long long",
    )
    cdef bint _pass_router(self, Py_ssize_t number, Py_ssize_t level,
                           Py_ssize_t router, Py_ssize_t below,
                           long long until) except -1
    cdef _count(self, Py_ssize_t position, Py_ssize_t peer, Py_ssize_t size,
                unsigned long long arrives)
    @cython.locals(streams=RecordStreams, is_later="bint")
    cdef void _count_at(self, Py_ssize_t at, unsigned long long arrives) noexcept
    @cython.locals(link="Py_ssize_t", row="Py_ssize_t", at="Py_ssize_t")
    cdef _commit(self)
    @cython.locals(
        link="Py_ssize_t", row="Py_ssize_t", slot="Py_ssize_t", at="Py_ssize_t",
        rest="Py_ssize_t", _="Py_ssize_t",
    )
    cdef _skip_passed(self)
    @cython.locals(row="Py_ssize_t")
    cdef _end_shares(self)
    @cython.locals(
        streams=RecordStreams, rest="Py_ssize_t", link="Py_ssize_t",
        position="Py_ssize_t", send="Py_ssize_t", at="Py_ssize_t", row="Py_ssize_t",
        tail="Py_ssize_t", _="Py_ssize_t",
    )
    cdef _queue_rest(self)
