# C types for compiling port.py.

cimport cython

from chakram.switch.packet_slots cimport Packets

cdef long long _NEVER
cdef int _CLASSES
cdef int _NEXT
cdef int _SIZE
cdef int _NONE
cdef int _HEAD
cdef int _TAIL
cdef int _QUEUE_PACKETS
cdef int _QUEUE_BYTES
cdef int _PEAK_BYTES
cdef int _SENT_PACKETS
cdef int _SENT_BYTES
cdef int _PAUSED_NS
cdef int _RECEIVED_PACKETS
cdef int _RECEIVED_BYTES
cdef int _MARKED_PACKETS
cdef int _DEFICIT
cdef int _QUANTUM
cdef int _TOP_BYTES
cdef int _DROP_PACKETS
cdef int _PFC_RECEIVED
cdef long long _BIT_NS
cdef long long _QUANTUM_BYTES


# Fields are in order of use. Fields that every packet uses come first.
@cython.final
cdef class Port:
    cdef readonly int number
    cdef readonly int peer
    cdef readonly int node
    cdef int waiting
    cdef int paused
    cdef int forced
    cdef int stormed
    cdef int pause_classes
    cdef int xoff
    cdef int _strict
    cdef int _turn
    cdef bint _turn_is_new
    cdef readonly bint is_host
    cdef readonly bint is_up
    cdef readonly bint cuts_through
    cdef bint nearest
    cdef bint is_shaper
    cdef bint is_lossy_wire
    cdef readonly long long free_ns
    cdef long long rest
    cdef readonly long long rate_bps
    cdef readonly long long nominal_bps
    cdef long long bucket_ns
    cdef readonly long long queued_bytes
    cdef long long cell_bytes
    cdef Packets packets
    cdef public list ingress
    cdef public list egress
    cdef list markers
    cdef long long by_class[128]
    cdef char class_of_dscp[64]
    cdef readonly object name
    cdef long long jitter_ns
    cdef long long left_ns
    cdef long long lost_share
    cdef long long corrupted_share
    cdef readonly long long quanta_ns
    cdef long long frame_bytes
    cdef long long response_ns
    cdef long long paused_since_ns[8]
    cdef long long paused_until_ns[8]
    cdef long long pause_ns[8]
    cdef long long xoff_epochs[8]
    cdef object watchdog
    cdef bint is_polled
    cdef long long polled_packets[8]
    cdef long long stuck_ns[8]
    cdef long long drop_bytes[8]
    cdef long long drops_by_reason[16]
    cdef long long wred_drops[8]
    cdef long long pfc_sent[8]
    cdef long long storms[8]
    cdef long long restored[8]

    @cython.locals(tail="long long")
    cpdef void push(
        self, int klass, long long slot, long long size_bytes
    ) noexcept
    @cython.locals(slot="long long", size_bytes="long long", after="long long")
    cpdef long long pop(self, int klass) noexcept
    @cython.locals(cells="long long")
    cpdef long long occupied(self, long long size_bytes) noexcept
    cpdef int ready(self) noexcept
    @cython.locals(ready=int, strict=int, klass=int, size_bytes="long long")
    cpdef int pick(self) noexcept
    @cython.locals(rate_bps="long long", work="long long")
    cpdef long long occupy(self, long long size_bytes, long long now_ns) noexcept
    cpdef long long sent_ns(self) noexcept
    cpdef long long paused_so_far(self, int klass, long long now_ns) noexcept
    cpdef bint pauses(self) noexcept
    cpdef int class_of(self, int dscp) except? -1
    cpdef bint is_paused(self, int klass) noexcept
    @cython.locals(klass=int, paused_ns="long long", peak_bytes="long long")
    cpdef list sampled(self, long long now_ns)
    cpdef pause_class(self, int klass, long long until_ns, long long now_ns)
    cpdef resume_class(self, int klass, long long now_ns)
    @cython.locals(klass=int)
    cpdef list of_classes(self, int field)
