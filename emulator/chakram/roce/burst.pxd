cimport cython

from chakram.roce.events cimport MessageParts

cdef int _DATA
cdef int _WRITE


# A burst is created for every send and every ACK, and usually freed before the next
# one. It cannot be part of a reference cycle, so it needs no garbage collection.
cdef class Burst:
    cdef public int kind
    cdef public int verb
    cdef public long long source_qpn
    cdef public long long destination_qpn
    cdef public int source_port
    cdef public long long destination
    cdef public long long psn
    cdef public int count
    cdef public int path_mtu
    cdef public int overhead_bytes
    cdef public long long message_id
    cdef public list message_ids
    cdef public long long message_bytes
    cdef public long long message_packets
    cdef public long long packet_index
    cdef public long long payload_bytes
    cdef public long long wire_bytes
    cdef public bint ack_request
    cdef public bint is_marked
    cdef public int flipped_bit
    cdef public long long resent_packets
    cdef public long long attempt
    cdef public int syndrome
    cdef public long long msn
    cdef public bytes contents
    cdef public unsigned long long remote_address
    cdef public unsigned long long remote_key
    cdef public long long sequence
    cdef public MessageParts parts
    cdef public list parts_of

    @cython.locals(index="long long")
    cpdef long long packet_payload_bytes(self, int position) except? -1
    @cython.locals(index="long long", length="long long")
    cpdef long long packet_wire_bytes(self, int position) except? -1
    cpdef long long psn_at(self, int position) except? -1
    cpdef long long packet_message_id(self, int position) except? -2
    @cython.locals(part=Burst, position="int", again="long long")
    cpdef Burst part(self, int first, int count)
