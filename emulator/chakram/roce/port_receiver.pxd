cimport cython

from chakram.roce.burst cimport Burst
from chakram.roce.segment_parser cimport Run, SegmentParser
from chakram.roce.queue_pair cimport QueuePair
from chakram.roce.queue_pairs cimport QueuePairs
from chakram.roce.scheduler cimport Scheduler
from chakram.roce.packet_verification cimport ArrivingFlow, PacketVerifier

cdef int _MALFORMED
cdef int _INTACT
cdef int _WRONG_ICRC
cdef int _DATA
cdef int _CNP
cdef int _ACKNOWLEDGE


cdef class Receiver:
    cdef QueuePairs _queue_pairs
    cdef Scheduler _scheduler
    cdef PacketVerifier _verifier
    cdef int _until_next
    cdef SegmentParser _parser
    cdef Run _run
    cdef readonly long long packets_received
    cdef readonly long long unknown_queue_pair
    cdef readonly long long foreign_address
    cdef readonly long long malformed
    cdef readonly long long partition_key_errors
    cdef readonly long long unsupported
    cdef readonly long long verified
    cdef readonly long long icrc_errors
    cdef readonly long long wrong_payloads

    @cython.locals(queue_pair=QueuePair)
    cpdef object receive_burst(self, Burst burst, long long now_ns, int first,
                               int count, int ce)
    @cython.locals(queue_pair=QueuePair)
    cpdef bint set_not_ready(self, long long qpn, long long psn, long long now_ns,
                            int ce) except -1
    @cython.locals(run=Run, queue_pair=QueuePair, offset="Py_ssize_t",
                   size="Py_ssize_t", qpn="long long", verifier=PacketVerifier,
                   position="int", repeated="int")
    cpdef object receive_datagrams(self, const unsigned char[::1] buffer,
                                   Py_ssize_t length, Py_ssize_t segment_size,
                                   long long now_ns, bint ce, int source_port,
                                   unsigned long long source_high,
                                   unsigned long long source_low)
    @cython.locals(count="int", verifier=PacketVerifier, flow=ArrivingFlow)
    cdef int _repeat(self, QueuePair queue_pair, const unsigned char[::1] buffer,
                     Py_ssize_t offset, Py_ssize_t size, Py_ssize_t length,
                     int source_port, int position) except -1
    @cython.locals(queue_pair=QueuePair)
    cpdef bint is_foreign(self, long long qpn, unsigned long long high,
                          unsigned long long low) except -1
    @cython.locals(queue_pair=QueuePair)
    cdef QueuePair _addressed(self, long long qpn, unsigned long long high,
                              unsigned long long low)
    cdef bint _admits(self, const unsigned char[::1] buffer, Py_ssize_t offset,
                      Py_ssize_t size) except -1
    cdef object _deliver(self, QueuePair queue_pair, Run run, bint ce, long long now_ns)
    @cython.locals(parser=SegmentParser, start="Py_ssize_t")
    cdef object _keep(self, QueuePair queue_pair, const unsigned char[::1] buffer,
                      bint ce, long long now_ns)
    @cython.locals(opcode="int")
    cdef object _receive_control(self, QueuePair queue_pair, bint ce, long long now_ns)
    @cython.locals(verifier=PacketVerifier, flow=ArrivingFlow, verdict="int")
    cdef bint _is_good(self, QueuePair queue_pair, const unsigned char[::1] buffer,
                       Py_ssize_t offset, Py_ssize_t size, int source_port,
                       int position, bint ce, long long now_ns) except -1
