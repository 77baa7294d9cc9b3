# C types of messages.py for the compiled build.

cimport cython

from chakram.native.prefetch_lines cimport prefetch_cell
from chakram.predict.levels.pending_messages cimport Traffic
from chakram.predict.levels.ring_steps cimport RingSteps

cdef int _FAR, _KIND_BITS, _NEAR, _NETWORK, _NEXT_TO
cdef int _AT, _ENDED, _FIRST_SEND, _GROUP, _LEFT, _NRANKS, _PEER, _POSITION
cdef int _RECEIVED, _RELEASES, _SENT, _STEPPED
cdef long long _STEPPED_MESSAGES
cdef int _ARRIVED, _ARRIVES, _CARRIED, _CAUSE, _CLASS, _CLASS_OF, _DOWN, _END, _FREE
cdef int _FROM, _HEAD, _HOST, _IN_TURN, _KIND, _KINDS, _LATEST, _LEAST_SERIES, _LEFT_AT
cdef int _LINK, _LOCAL, _MORE, _NEXT, _NONE, _ORDER, _POSTED, _ROUTER, _SEND, _SERVER
cdef int _SHAPE, _SHARE, _SLOT, _TAIL, _TO, _UP, _WAITS, _WHERE, _WHICH
cdef unsigned long long _MASK, _PRIME


cdef class MessageLevel(Traffic):
    cdef object _network
    cdef object _times
    cdef bint _is_shared
    cdef bint _in_series
    cdef bint _chooses
    cdef bint _is_routed_by_hosts
    cdef unsigned long long _seed
    cdef Py_ssize_t _routers
    cdef dict _kind_of
    cdef list _examples
    cdef dict _class_of
    cdef list _classes
    cdef Py_ssize_t _room
    cdef long long[::1] _hold_ns
    cdef long long[::1] _reach_ns
    cdef long long[::1] _wire
    cdef long long[::1] _links
    cdef Py_ssize_t _link_count
    cdef long long[::1] _hosts
    cdef long long[::1] _hops_of
    cdef long long[::1] _hops
    cdef Py_ssize_t _hops_used
    cdef long long[::1] _lasts
    cdef long long[::1] _first_leaving
    cdef long long[::1] _leaving
    cdef long long[::1] _first_arriving
    cdef long long[::1] _arriving
    cdef Py_ssize_t _most_leaving
    cdef long long[::1] _distances
    cdef long long[::1] _reached
    cdef dict _paths
    cdef dict _crossed
    cdef dict _rings

    @cython.locals(
        row="Py_ssize_t", router="Py_ssize_t", count="Py_ssize_t", first="Py_ssize_t",
        at="Py_ssize_t",
    )
    cdef _add_groups_to(self, Py_ssize_t last, long long[::1] groups,
                        long long[::1] counts)
    cpdef Py_ssize_t _size_class(self, long long size_bytes,
                                 long long reduced_bytes) except -1
    @cython.locals(
        at="Py_ssize_t", sender="Py_ssize_t", source="Py_ssize_t",
        receiver="Py_ssize_t", server="Py_ssize_t",
        target="Py_ssize_t", line="Py_ssize_t",
    )
    cdef _carry(self, Py_ssize_t slot)
    @cython.locals(size="Py_ssize_t", taken_ns="long long")
    cdef _cross(self, Py_ssize_t slot, Py_ssize_t source, Py_ssize_t target)
    cdef long long _path_ns(self, Py_ssize_t source, Py_ssize_t target,
                            Py_ssize_t size) except -1
    @cython.locals(link="Py_ssize_t", router="Py_ssize_t")
    cpdef list path(self, Py_ssize_t source, Py_ssize_t target)
    @cython.locals(first="Py_ssize_t", ring=RingSteps)
    cdef _join_ring(self, Py_ssize_t share)
    @cython.locals(
        shape="Py_ssize_t", nranks="Py_ssize_t", place="Py_ssize_t",
        send="Py_ssize_t", count="Py_ssize_t", distance="Py_ssize_t",
        size="Py_ssize_t", position="Py_ssize_t", receiver="Py_ssize_t",
        link="Py_ssize_t", row="Py_ssize_t", time="Py_ssize_t",
    )
    cdef RingSteps _ring(self, Py_ssize_t first)
    @cython.locals(
        ring=RingSteps, shape="Py_ssize_t", nranks="Py_ssize_t", steps="Py_ssize_t",
        size="Py_ssize_t", share="Py_ssize_t", row="Py_ssize_t",
    )
    cdef _step_ring(self, Py_ssize_t first)
    @cython.locals(
        last="Py_ssize_t", row="Py_ssize_t", first="Py_ssize_t",
        count="Py_ssize_t", mixed="unsigned long long",
    )
    cdef Py_ssize_t _next_link(self, Py_ssize_t source, Py_ssize_t target,
                               Py_ssize_t router) except -1
    @cython.locals(
        row="Py_ssize_t", router="Py_ssize_t", first="Py_ssize_t", count="Py_ssize_t",
        distance="long long", at="Py_ssize_t", link="Py_ssize_t", end="Py_ssize_t",
        before="Py_ssize_t", is_new="bint",
    )
    cdef Py_ssize_t _add_hops(self, Py_ssize_t last) except -1
    @cython.locals(
        router="Py_ssize_t", count="Py_ssize_t", at="Py_ssize_t", place="Py_ssize_t",
        before="Py_ssize_t",
    )
    cdef _measure_distances(self, Py_ssize_t last)
    @cython.locals(
        row="Py_ssize_t", at="Py_ssize_t", size="Py_ssize_t", time="Py_ssize_t",
        begins_ns="long long", arrives_ns="long long", tail="Py_ssize_t",
        order="long long",
    )
    cdef _enter(self, Py_ssize_t slot, Py_ssize_t link)
    @cython.locals(
        row="Py_ssize_t", host="Py_ssize_t", link="Py_ssize_t", end="Py_ssize_t",
        server="Py_ssize_t", receiver="Py_ssize_t", slot="Py_ssize_t",
        further="Py_ssize_t", size="Py_ssize_t", time="Py_ssize_t",
        arrives_ns="long long",
    )
    cdef Py_ssize_t _post_series(self, Py_ssize_t share, Py_ssize_t send,
                                 Py_ssize_t last, long long cause) except -1
    @cython.locals(host="Py_ssize_t")
    cdef bint _forwards(self, Py_ssize_t router, Py_ssize_t receiver) except -1
    @cython.locals(
        row="Py_ssize_t", time="Py_ssize_t", begins_ns="long long",
        arrives_ns="long long", order="long long",
    )
    cdef _enter_last(self, Py_ssize_t link, Py_ssize_t sender, Py_ssize_t receiver,
                     Py_ssize_t size)
    @cython.locals(
        at="Py_ssize_t", row="Py_ssize_t", following="Py_ssize_t", to="Py_ssize_t",
        field="Py_ssize_t",
    )
    cdef Py_ssize_t _follow_up(self, Py_ssize_t slot, Py_ssize_t link) except -1
    @cython.locals(
        at="Py_ssize_t", kind="Py_ssize_t", share="Py_ssize_t", send="Py_ssize_t",
        size="Py_ssize_t", left_ns="long long", arrives_ns="long long",
    )
    cdef _turn_to_next(self, Py_ssize_t slot, Py_ssize_t link)
    @cython.locals(what="long long", slot="Py_ssize_t")
    cdef _look_ahead(self)
    @cython.locals(
        slot="Py_ssize_t", at="Py_ssize_t", receiver="Py_ssize_t",
        sender="Py_ssize_t", link="Py_ssize_t", size="Py_ssize_t",
        router="Py_ssize_t", row="Py_ssize_t", following="Py_ssize_t",
    )
    cdef _happen(self, Py_ssize_t number)
