# C types of rank.py, for the compiled form.

cimport cython

from chakram.replay.expansion cimport Expander, Expansion
from chakram.replay.progress cimport ActiveCollective, Activity, Flow

cdef int _COLLECTIVE
cdef int _SEND
cdef int _RECEIVE
cdef int _COMPUTE
cdef long long _NEVER
cdef int _TIMER_START
cdef int _EARLY_LIMIT


cdef class Replay:
    cdef public long long number
    cdef public object job
    cdef public long long rank
    cdef public object records
    cdef public long long iteration
    cdef public long long completed_messages
    cdef public long long completed_operations
    cdef public long long stray_messages
    cdef public long long finished_ns
    cdef long long _early_messages
    cdef tuple _operations
    cdef object _settings
    cdef long long _iterations
    cdef long long _gap_ns
    cdef object _numbers
    cdef dict _rank_of_number
    cdef dict _group_number
    cdef long long _point_to_point
    cdef dict _group_of_qpn
    cdef dict _peer_of_qpn
    cdef list _kinds
    cdef list _initial_missing
    cdef list _successors
    cdef list _missing
    cdef long long _left
    cdef list _ready_ns
    cdef list _released_by
    cdef list _ready
    cdef list _per_iteration
    cdef dict _sends
    cdef dict _receives
    cdef dict _active
    cdef dict _receiving
    cdef dict _early
    cdef dict _flows
    cdef dict _stream_free_ns
    cdef dict _stream_queue
    cdef list _timers
    cdef object _posts
    cdef long long _iteration_start_ns
    cdef Activity _activity
    cdef Expander _expander

    cpdef long long next_timer_ns(self)
    cpdef handle_timers(self, long long now_ns)
    @cython.locals(group="long long", key="long long", active=ActiveCollective)
    cpdef message_received(
        self, long long qpn, long long immediate, long long ce, long long now_ns
    )
    cpdef next_post(self)
    cpdef bint finished(self)
    cdef _keep_early(
        self, long long key, long long qpn, long long message, long long ce,
        long long now_ns
    )
    cdef _start_iteration(self, long long due_ns, long long now_ns)
    cdef _end_iteration(self, long long now_ns)
    @cython.locals(index="Py_ssize_t", kind="int")
    cdef _run(self, long long now_ns)
    cdef _done(self, Py_ssize_t index, long long done_ns)
    cdef _start_compute(self, Py_ssize_t index, long long now_ns)
    cdef _end_compute(self, Py_ssize_t index, long long deadline_ns, long long now_ns)
    @cython.locals(
        group="long long", sequence="long long", key="long long",
        expansion=Expansion, active=ActiveCollective, ready_ns="long long",
    )
    cdef _start_collective(self, Py_ssize_t index, long long now_ns)
    @cython.locals(
        expansion=Expansion, qpn="long long", immediate="long long",
        size_bytes="long long",
    )
    cdef _post(
        self, ActiveCollective active, Py_ssize_t send, long long ready_ns,
        int cause_kind, long long cause_rank, long long cause_number
    )
    @cython.locals(expansion=Expansion, receive="Py_ssize_t")
    cdef _arrive(
        self, ActiveCollective active, long long qpn, long long message,
        long long ce, long long now_ns
    )
    cdef _end_collective(self, ActiveCollective active, long long now_ns)
    cdef _start_send(self, Py_ssize_t index, long long now_ns)
    cdef _start_receive(self, Py_ssize_t index, long long now_ns)
    cdef _end_receive(self, ActiveCollective active, long long key, long long now_ns)
