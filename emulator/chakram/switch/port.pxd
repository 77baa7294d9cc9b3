# C types of port.py, for the compiled form.

cimport cython

from chakram.switch.packets cimport Packets

cdef long long _NEVER
cdef int _CLASSES
cdef int _NEXT
cdef int _SIZE
cdef int _NONE
cdef long long _BIT_NS
cdef long long _QUANTUM_BYTES


cdef class Port:
    cdef readonly int number
    cdef readonly int node
    cdef readonly object name
    cdef readonly int peer
    cdef readonly bint is_host
    cdef readonly bint is_up
    cdef readonly long long rate_bps
    cdef readonly long long nominal_bps
    cdef readonly long long free_ns
    cdef readonly long long queued_bytes
    cdef Packets packets
    cdef bint nearest
    cdef readonly bint cuts_through
    cdef long long cell_bytes
    cdef int class_of_dscp[64]
    cdef long long rest
    cdef bint is_shaper
    cdef long long bucket_ns
    cdef long long jitter_ns
    cdef long long left_ns
    cdef bint is_lossy_wire
    cdef long long lost_share
    cdef long long corrupted_share
    cdef unsigned long long wire_number
    cdef long long heads[8]
    cdef long long tails[8]
    cdef long long queue_bytes[8]
    cdef long long queue_packets[8]
    cdef int waiting
    cdef public list ingress
    cdef public list egress
    cdef list markers
    cdef int _strict
    cdef int _turn
    cdef bint _turn_is_new
    cdef long long deficits[8]
    cdef long long quantums[8]
    cdef int pause_classes
    cdef readonly long long quanta_ns
    cdef long long frame_bytes
    cdef long long response_ns
    cdef int paused
    cdef long long paused_since_ns[8]
    cdef long long paused_until_ns[8]
    cdef long long pause_ns[8]
    cdef long long paused_ns[8]
    cdef int xoff
    cdef long long xoff_epochs[8]
    cdef object watchdog
    cdef bint is_polled
    cdef long long polled_packets[8]
    cdef long long stuck_ns[8]
    cdef int stormed
    cdef int forced
    cdef long long received_packets[8]
    cdef long long received_bytes[8]
    cdef long long sent_packets[8]
    cdef long long sent_bytes[8]
    cdef long long drop_packets[8]
    cdef long long drop_bytes[8]
    cdef long long drops_by_reason[16]
    cdef long long marked_packets[8]
    cdef long long wred_drops[8]
    cdef long long pfc_received[8]
    cdef long long pfc_sent[8]
    cdef long long peak_bytes[8]
    cdef long long top_bytes[8]
    cdef long long storms[8]
    cdef long long restored[8]

    @cython.locals(tail="long long")
    cpdef push(self, int klass, long long slot, long long size_bytes)
    @cython.locals(slot="long long", size_bytes="long long", after="long long")
    cpdef long long pop(self, int klass) except? -1
    @cython.locals(cells="long long")
    cpdef long long occupied(self, long long size_bytes) except? -1
    cpdef int ready(self) except? -1
    @cython.locals(ready=int, strict=int, klass=int, size_bytes="long long")
    cpdef int pick(self) except? -1
    @cython.locals(rate_bps="long long", work="long long")
    cpdef long long occupy(self, long long size_bytes, long long now_ns) except? -1
    cpdef long long paused_so_far(self, int klass, long long now_ns) except? -1
    cpdef bint pauses(self) except -1
    cpdef int class_of(self, int dscp) except? -1
    cpdef bint is_paused(self, int klass) except -1
    @cython.locals(klass=int)
    cpdef clear_peaks(self)
    @cython.locals(klass=int, paused_ns="long long", peak_bytes="long long")
    cpdef list sampled(self, long long now_ns)
    cpdef be_paused(self, int klass, long long until_ns, long long now_ns)
    cpdef be_resumed(self, int klass, long long now_ns)
