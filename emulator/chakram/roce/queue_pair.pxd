cimport cython

from chakram.native.prefetch_lines cimport prefetch
from chakram.roce.packet_dispatch cimport Arrivals
from chakram.roce.burst cimport Burst
from chakram.roce.congestion.base cimport CongestionControl
from chakram.roce.fifo cimport Fifo
from chakram.roce.pacing cimport Pace
from chakram.roce.requester cimport Requester
from chakram.roce.responder cimport Responder
from chakram.roce.retries cimport Retries
from chakram.roce.send_queue cimport SendQueue
from chakram.roce.packet_verification cimport ArrivingFlow

cdef long long _NEVER
cdef int _DATA
cdef int _CNP
cdef unsigned long long _ADDRESS_MASK
cdef int _AETH_BYTES
cdef int _CNP_BYTES


cdef class QueuePair:
    # Fields that are read for every packet come first.
    cdef readonly long long qpn
    cdef readonly Requester requester
    cdef readonly Responder responder
    cdef readonly Arrivals arrivals
    cdef CongestionControl _congestion_control
    cdef Pace _pace
    cdef SendQueue _queue
    cdef Retries _retries
    cdef public bint is_in_ring
    cdef public bint is_answering
    cdef public long long order
    cdef public long long turn_behind
    cdef public object send_order
    cdef public long long deficit_bytes
    cdef public long long ready_since_ns
    cdef public long long wait_before_ns
    cdef public long long timeout_entry_ns
    cdef public long long control_entry_ns
    cdef public long long ready_entry_ns
    cdef readonly long long remote_qpn
    cdef readonly int source_port
    cdef readonly int path_mtu
    cdef readonly int overhead_bytes
    cdef readonly long long destination
    cdef unsigned long long _remote_address
    cdef unsigned long long _remote_key
    cdef Fifo _events
    cdef readonly object owner
    cdef readonly object memory
    cdef readonly bint is_bound
    cdef readonly unsigned long long peer_high
    cdef readonly unsigned long long peer_low
    cdef public bint is_heard
    cdef readonly long long foreign_packets
    cdef readonly unsigned long long foreign_high
    cdef readonly unsigned long long foreign_low
    cdef public ArrivingFlow flow

    cpdef object redirect_events(self, Fifo events)
    cpdef object belong_to(self, object owner)
    cpdef object connect_to(self, long long remote_qpn,
                            unsigned long long remote_address,
                            unsigned long long remote_key)
    cpdef object fetch_sender(self)
    cpdef object fetch_receiver(self)
    cpdef object bind_to(self, unsigned long long peer_high,
                         unsigned long long peer_low)
    cpdef bint takes_from(self, unsigned long long high,
                          unsigned long long low) except -1
    cpdef object note_foreign(self, unsigned long long high, unsigned long long low)
    cpdef object post_send(self, long long message_id, long long size_bytes,
                           long long now_ns, bytes contents=*,
                           unsigned long long remote_offset=*)
    cpdef object next_event(self)
    @cython.locals(requester=Requester)
    cpdef long long happenings(self) except? -1
    @cython.locals(packets="int")
    cpdef object receive_burst(self, Burst burst, long long now_ns, int first=*,
                               object count=*, int ce=*)
    cpdef object handle_timeout(self, long long now_ns)
    @cython.locals(timeout_ns="long long", ready_ns="long long")
    cpdef long long next_timeout_ns(self) except? -1
    @cython.locals(burst=Burst)
    cpdef Burst next_burst(self, long long now_ns, long long max_packets)
    @cython.locals(burst=Burst)
    cpdef Burst make_answer(self)
    @cython.locals(burst=Burst)
    cpdef Burst make_burst(self, long long max_packets)
    cpdef object commit(self, Burst burst, long long now_ns)
    cdef object _address(self, Burst burst)
