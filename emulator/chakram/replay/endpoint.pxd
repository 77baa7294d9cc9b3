# C types for the compiled version of endpoint.py.

cimport cython

from chakram.replay.rank_queue_pair cimport Pair
from chakram.replay.rank_progress cimport Flow
from chakram.replay.rank cimport Replay
from chakram.roce.events cimport MessageReceived, SendCompleted
from chakram.roce.port cimport PortEngine
from chakram.roce.queue_pair cimport QueuePair

cdef long long _NEVER


cdef class Endpoint:
    cdef readonly object port
    cdef readonly object records
    cdef readonly list destinations
    cdef dict _destination_of
    cdef object _congestion_settings
    cdef object _verifier
    cdef object _overhead_bytes
    cdef object _burst_ns
    cdef readonly object events
    cdef readonly PortEngine engine
    cdef readonly list replays
    cdef list _awaited
    cdef object _failure
    cdef long long _timer_ns
    cdef Py_ssize_t _finished
    cdef long long _computing_calls
    cdef dict _pair_of_qpn
    cdef list _replay_of_place
    cdef list _queue_pairs
    cdef dict _bundle_of_qpn
    cdef list _arrivals
    cdef long long _turn
    cdef dict _links
    cdef dict _lanes
    cdef readonly list local_pairs
    cdef readonly dict dscps
    cdef public list woken

    cpdef arm(self, long long start_ns)
    @cython.locals(engine=PortEngine, arrivals=list)
    cpdef advance(self, long long now_ns)
    @cython.locals(
        engine=PortEngine, replay=Replay, timer_ns="long long", next_ns="long long",
        bundles=dict, post=Flow, queue_pair=QueuePair,
    )
    cdef _serve(self, long long now_ns)
    cpdef expect(self, long long due_ns, object qpn, object event)
    @cython.locals(
        received=MessageReceived, completed=SendCompleted, pair=Pair, replay=Replay,
        recorded="long long",
    )
    cdef _dispatch(self, object event, long long now_ns)
    cpdef long long next_timer_ns(self) except? -1
    @cython.locals(wakeup_ns="long long")
    cpdef long long next_wakeup_ns(self) except? -1
    @cython.locals(replays=list, replay=Replay)
    cpdef bint finished(self) except -1
    @cython.locals(replay=Replay)
    cpdef bint is_measuring(self) except -1
    cpdef failed(self)
