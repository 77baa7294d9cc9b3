cimport cython

from chakram.roce.congestion.base cimport CongestionControl

cdef long long _NEVER
cdef double _NEAR


cdef class Dcqcn(CongestionControl):
    # Fields that are read for every burst come first.
    cdef bint _is_limited
    cdef bint _decrease_heard
    cdef double _line_rate
    cdef double _gain
    cdef double _alpha_decay
    cdef double _alpha_initial
    cdef long long _alpha_period_ns
    cdef long long _decrease_period_ns
    cdef double _cut_scale
    cdef double _max_cut
    cdef long long _increase_period_ns
    cdef long long _byte_counter_bytes
    cdef long long _recovery_stages
    cdef double _additive_increase
    cdef double _hyper_increase
    cdef bint _is_hyper_scaled
    cdef double _min_rate
    cdef double _first_cnp_rate
    cdef bint _clamps_target
    cdef bint _clamps_target_after_increase
    cdef bint _is_released_at_line
    cdef double _scaled_window
    cdef double _rate
    cdef double _target
    cdef readonly double alpha
    cdef bint _is_started
    cdef long long _alpha_ns
    cdef bint _alpha_heard
    cdef long long _decrease_ns
    cdef long long _increase_ns
    cdef long long _time_stage
    cdef long long _byte_stage
    cdef long long _bytes
    cdef readonly long long cuts

    cpdef void on_sent(self, long long wire_bytes, long long now_ns) except *
    cpdef void on_ack(self, long long acked_bytes, long long round_trip_ns, long long now_ns) except *
    cpdef void on_cnp(self, long long now_ns) except *
    cpdef void on_timer(self, long long now_ns) except *
    cdef object _start(self, long long now_ns)
    @cython.locals(share="double")
    cdef object _cut(self, long long now_ns)
    cdef object _limit(self, long long now_ns)
    @cython.locals(cut_ns="long long", periods="long long")
    cdef object _catch_up(self, long long now_ns)
    @cython.locals(periods="long long")
    cdef object _catch_up_alpha(self, long long now_ns)
    @cython.locals(periods="long long", alike="long long")
    cdef object _catch_up_rate(self, long long now_ns)
    @cython.locals(last="long long", time_stage="long long", byte_stage="long long")
    cdef long long _alike_increases(self) except? -1
    @cython.locals(last="long long", lower="long long", upper="long long")
    cdef object _increase(self, long long times)
    @cython.locals(gap="double", room="double", whole="long long")
    cdef object _climb(self, long long times, double increment)
    cdef object _reach_line(self)
    @cython.locals(timer_ns="long long", window_bytes="long long")
    cdef object _publish(self)
