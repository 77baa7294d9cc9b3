# C types of pending_messages.py for the compiled build.

cimport cython

from chakram.predict.levels.collective_kinds cimport Kinds
from chakram.predict.simulator.event_queue cimport Events

cdef int _ARRIVALS, _ARRIVED, _AT, _AWAITS, _BATCH, _BEGUN, _BEHIND, _CAUSE, _CHANNEL
cdef int _CHUNKS, _CLASS, _COME, _COUNTER, _COUNTERS, _COUNTS
cdef int _CREDITS, _EARLY, _FIRST_GROUP, _FIRST_RECEIVE, _FIRST_SEND, _FLOW
cdef int _ENDED, _MANY_SLOTS, _FROM, _GOING, _GROUP, _HOST, _IN_TURN, _ITERATION, _KIND, _KIND_BITS, _KINDS
cdef int _LAST_NS, _LAST_ORDER, _LEFT, _LEFT_AT, _RELEASES, _LOCAL, _MEMBER, CAUSE_MESSAGE, _MISSING, _MORE, _NEEDS
cdef int _NETWORK, _NEXT, _NONE, _NRANKS, CAUSE_OPERATION, _PEER, _PLACE, _POSITION
cdef int _POSTED, _RANK, _RECEIVE, _RECEIVED, _RELEASED, _ROTATES, _ROW
cdef int _SEND, _SENDS, _SENT, _SERVER, _SHAPE, _SHARE, _SIZE, _SLOT, CAUSE_START, _STATE
cdef int _STEP, _STEPPED, _TAKEN, _TO, _TURN, _WAITERS, _WAITING, _WAITS, _WAY, _WHICH
cdef long long EVENTS_PER_SIGNALS, LAST_INSTANT_NS


cdef class Traffic(Kinds):
    cdef readonly long long now_ns
    cdef readonly long long events
    cdef long long _work
    cdef readonly long long messages
    cdef Events _coming
    cdef public list done
    cdef public object report
    cdef long long _start_ns
    cdef bint _is_settled
    cdef long long _caller_ns
    cdef public bint record
    cdef public bint is_folded
    cdef public bint is_stepped
    cdef public bint is_alone
    cdef long long[::1] _shares
    cdef Py_ssize_t _shares_used
    cdef dict _free_shares
    cdef dict _open_shares
    cdef long long[::1] _counters
    cdef Py_ssize_t _counters_used
    cdef dict _free_counters
    cdef long long[::1] _slots
    cdef Py_ssize_t _slots_used
    cdef Py_ssize_t _free_slot
    cdef bint _is_large
    cdef long long[::1] _flows
    cdef Py_ssize_t _flows_used

    @cython.locals(
        nranks="Py_ssize_t", first="Py_ssize_t", rotates="bint",
        place="Py_ssize_t", position="Py_ssize_t", row="Py_ssize_t",
        at="Py_ssize_t",
    )
    cpdef Py_ssize_t open(self, Py_ssize_t shape) except -1
    @cython.locals(row="Py_ssize_t")
    cpdef place(self, Py_ssize_t share, long long host, long long rank,
                long long server=*, long long local=*)
    @cython.locals(row="Py_ssize_t")
    cpdef begin(self, Py_ssize_t share, long long operation, long long iteration,
                long long released)
    @cython.locals(
        row="Py_ssize_t", shape="Py_ssize_t", counters="Py_ssize_t",
        at="Py_ssize_t", first="Py_ssize_t", last="Py_ssize_t",
        cause="long long", send="Py_ssize_t", needs="long long",
        group="Py_ssize_t", end="Py_ssize_t", batch="Py_ssize_t", place="Py_ssize_t",
        slot="Py_ssize_t", before="Py_ssize_t", following="Py_ssize_t",
    )
    cdef _start(self, Py_ssize_t share)
    @cython.locals(row="Py_ssize_t", shape="Py_ssize_t", place="Py_ssize_t")
    cdef Py_ssize_t _position_row(self, Py_ssize_t share) except -1
    cdef _join_ring(self, Py_ssize_t share)
    cdef _step_ring(self, Py_ssize_t first)
    cdef Py_ssize_t _take_counters(self, Py_ssize_t count) except -1
    @cython.locals(row="Py_ssize_t", last_ns="long long", order="long long")
    cdef _complete(self, Py_ssize_t share)
    @cython.locals(row="Py_ssize_t", counters="Py_ssize_t")
    cdef _end(self, Py_ssize_t share)
    cdef Py_ssize_t _post_series(self, Py_ssize_t share, Py_ssize_t send,
                                 Py_ssize_t last, long long cause) except -1
    @cython.locals(slot="Py_ssize_t", row="Py_ssize_t")
    cdef _post(self, Py_ssize_t share, Py_ssize_t send,
                   long long cause)
    @cython.locals(row="Py_ssize_t")
    cdef _count_sent(self, Py_ssize_t share, Py_ssize_t size)
    @cython.locals(slot="Py_ssize_t", at="Py_ssize_t")
    cdef Py_ssize_t _new_slot(self, Py_ssize_t share, Py_ssize_t send,
                              long long cause) except -1
    cdef _make_room(self, Py_ssize_t slots)
    @cython.locals(
        row="Py_ssize_t", shape="Py_ssize_t", peer="Py_ssize_t", nranks="Py_ssize_t",
    )
    cdef Py_ssize_t _receiver(self, Py_ssize_t share, Py_ssize_t send) except -1
    @cython.locals(
        row="Py_ssize_t", shape="Py_ssize_t", size="Py_ssize_t",
        chunks="Py_ssize_t", chunk="Py_ssize_t",
    )
    cdef Py_ssize_t _class_of_send(self, Py_ssize_t share,
                                   Py_ssize_t send) except -1
    cdef _carry(self, Py_ssize_t slot)
    cdef _look_ahead(self)
    cdef _happen(self, Py_ssize_t number)
    @cython.locals(
        at="Py_ssize_t", sender="Py_ssize_t", row="Py_ssize_t",
        receiver="Py_ssize_t", place="Py_ssize_t", send="Py_ssize_t",
        taken_ns="long long",
    )
    cdef _arrive(self, Py_ssize_t slot)
    cdef bint _has_effects(self, Py_ssize_t send, Py_ssize_t size) except -1
    cdef _count_arrival(self, Py_ssize_t sender, Py_ssize_t receiver, Py_ssize_t size,
                        long long at_ns, long long order)
    @cython.locals(row="Py_ssize_t")
    cdef _expect(self, Py_ssize_t share, long long at_ns, long long order)
    @cython.locals(
        row="Py_ssize_t", slot="Py_ssize_t", behind="Py_ssize_t",
        taken_ns="long long",
    )
    cdef _take_early(self, Py_ssize_t share)
    @cython.locals(share="Py_ssize_t", row="Py_ssize_t")
    cdef _take(self, Py_ssize_t slot)
    @cython.locals(
        at="Py_ssize_t", share="Py_ssize_t", sender="Py_ssize_t",
        send="Py_ssize_t", row="Py_ssize_t", place="Py_ssize_t",
        first_send="Py_ssize_t", first_group="Py_ssize_t",
        receive="Py_ssize_t", cause="long long", group="Py_ssize_t",
        member="Py_ssize_t", counter="Py_ssize_t",
    )
    cdef _receive(self, Py_ssize_t slot)
    @cython.locals(
        row="Py_ssize_t", batch="Py_ssize_t", counters="Py_ssize_t",
        following="Py_ssize_t",
    )
    cdef _follow(self, Py_ssize_t share, Py_ssize_t first_send, long long cause)
    cpdef Py_ssize_t flow_rows(self) except -1
    @cython.locals(
        row="Py_ssize_t", at="Py_ssize_t", share="Py_ssize_t",
        send="Py_ssize_t", cause="long long", size="Py_ssize_t",
    )
    cdef _write(self, Py_ssize_t slot)
    cpdef advance(self, long long now_ns)
    cdef _pause(self, long long messages)
    @cython.locals(
        at_ns="long long", what="long long", kind="int", number="Py_ssize_t",
        coming=Events,
    )
    cpdef bint run(self, long long until_ns, long long most_flows=*) except -1
