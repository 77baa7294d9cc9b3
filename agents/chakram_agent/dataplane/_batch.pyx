# cython: language_level=3, boundscheck=False, wraparound=False
"""UDP ports that pass bursts to and from the kernel in preallocated C structures.

If extensions are built, ``BatchPort`` replaces ``UdpPort``, which uses Python's socket
module. On each call, the socket module takes microseconds to build and parse structures
that ``BatchPort`` prepares once. This module also provides a poll with an exact
timeout.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport EAGAIN, ECONNREFUSED, EINTR, EIO, errno
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from chakram_agent.dataplane.port_base cimport Port

import os
from socket import inet_pton

from chakram.roce.constants import BurstKind

cdef extern from "sys/socket.h" nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/socket.h>
    #include <netinet/in.h>
    #include <sys/epoll.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    #ifndef UDP_SEGMENT
    #define UDP_SEGMENT 103
    #endif
    #ifndef UDP_GRO
    #define UDP_GRO 104
    #endif
    #ifndef SO_RXQ_OVFL
    #define SO_RXQ_OVFL 40
    #endif
    #ifndef SYS_epoll_pwait2
    #define SYS_epoll_pwait2 441
    #endif
    static int chakram_poll(int epoll, struct epoll_event *events, int capacity,
                            long long nanoseconds) {
        struct timespec timeout;
        timeout.tv_sec = nanoseconds / 1000000000;
        timeout.tv_nsec = nanoseconds % 1000000000;
        return (int)syscall(SYS_epoll_pwait2, epoll, events, capacity, &timeout,
                            (void *)0, (size_t)0);
    }
    """
    ctypedef unsigned int socklen_t
    struct iovec:
        void *iov_base
        size_t iov_len
    struct msghdr:
        void *msg_name
        socklen_t msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
        int msg_flags
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    size_t CMSG_SPACE(size_t length)
    size_t CMSG_LEN(size_t length)
    unsigned char *CMSG_DATA(cmsghdr *cmsg)
    cmsghdr *CMSG_FIRSTHDR(msghdr *message)
    cmsghdr *CMSG_NXTHDR(msghdr *message, cmsghdr *cmsg)
    ssize_t sendmsg(int descriptor, const msghdr *message, int flags)
    int recvmmsg(
        int descriptor, mmsghdr *messages, unsigned int count, int flags, void *timeout
    )
    int SOL_SOCKET
    int MSG_DONTWAIT
    int SO_RXQ_OVFL

cdef extern from "netinet/in.h" nogil:
    int AF_INET
    int AF_INET6
    int IPPROTO_IP
    int IPPROTO_IPV6
    int IPPROTO_UDP
    int IP_TOS
    int IPV6_TCLASS
    int UDP_SEGMENT
    int UDP_GRO
    uint16_t htons(uint16_t value)
    uint16_t ntohs(uint16_t value)
    uint32_t ntohl(uint32_t value)
    struct in_addr:
        uint32_t s_addr
    struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    struct in6_addr:
        uint8_t s6_addr[16]
    struct sockaddr_in6:
        uint16_t sin6_family
        uint16_t sin6_port
        in6_addr sin6_addr

cdef extern from "endian.h" nogil:
    uint64_t be64toh(uint64_t value)

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int chakram_poll(
        int epoll, epoll_event *events, int capacity, long long nanoseconds
    )

cdef enum:
    # Maximum number of datagrams or coalesced batches that one call takes
    # from the kernel.
    ARRIVALS = 4
    # Larger than any UDP datagram or coalesced batch.
    BUFFER_BYTES = 65536
    # Room for the three control messages that the port requests from the kernel.
    CONTROL_BYTES = 96
    # Maximum number of descriptors that one poll returns. The next poll returns any
    # others.
    READY = 64
    CONGESTION_EXPERIENCED = 3
    # Largest segment size that the kernel accepts, a 16-bit number.
    LARGEST_SEGMENT = 65535


# Address of either family. Both structures have family and port at the same offsets.
ctypedef union socket_address:
    sockaddr_in ipv4
    sockaddr_in6 ipv6


cdef int DATA = int(BurstKind.DATA)
cdef int CNP = int(BurstKind.CNP)


cdef class BatchPort(Port):
    """A port on existing sockets. Closing the port closes the sockets."""

    cdef object _sockets
    cdef int _receiver
    cdef dict _senders
    # The last sending socket and its source port. The next burst usually uses them too.
    cdef int _sender
    cdef int _sender_port
    cdef bint _is_ipv6
    cdef socklen_t _address_bytes
    cdef Py_ssize_t _destination_count
    cdef socket_address *_destinations
    # The message of the next send. The port prepares its control messages in advance.
    cdef msghdr _outgoing
    cdef iovec _outgoing_part
    # The view that was sent last, and its buffer. An encoder returns the same view as
    # long as bursts have the same layout, so the port requests the buffer only once.
    cdef object _view
    cdef Py_buffer _bytes
    cdef bint _has_control_tos
    cdef bint _has_cnp_tos
    cdef uint8_t _segment_control[CONTROL_BYTES]
    cdef uint8_t _tos_control[CONTROL_BYTES]
    cdef uint8_t _cnp_control[CONTROL_BYTES]
    cdef uint8_t _mark_control[CONTROL_BYTES]
    # Arrivals. One call stores several datagrams or coalesced batches here.
    cdef list _buffers
    cdef const unsigned char[::1] _view0
    cdef const unsigned char[::1] _view1
    cdef const unsigned char[::1] _view2
    cdef const unsigned char[::1] _view3
    cdef mmsghdr _incoming[ARRIVALS]
    cdef iovec _incoming_parts[ARRIVALS]
    cdef socket_address _sources[ARRIVALS]
    cdef uint8_t _incoming_control[ARRIVALS][CONTROL_BYTES]
    cdef int _arrived
    cdef int _taken
    cdef int _shown

    def __cinit__(self):
        self._destinations = NULL

    def __init__(self, sockets):
        if self._destinations != NULL:
            raise ValueError("this port is open already")
        super().__init__()
        self._sockets = sockets
        self._receiver = sockets.receiver.fileno()
        self._senders = {
            number: sender.fileno() for number, sender in sockets.senders.items()
        }
        self._sender_port = -1
        self._view = None
        self.segments = sockets.segmentation
        self._is_ipv6 = sockets.is_ipv6
        self._address_bytes = (
            sizeof(sockaddr_in6) if self._is_ipv6 else sizeof(sockaddr_in)
        )
        self._prepare_sending(
            sockets.options.destinations,
            sockets.tos_of(BurstKind.ACK),
            sockets.tos_of(BurstKind.CNP),
        )
        self._prepare_receiving()

    def __dealloc__(self):
        PyBuffer_Release(&self._bytes)
        PyMem_Free(self._destinations)

    @property
    def capabilities(self):
        """Capabilities of this port."""
        return self._sockets.capabilities()

    def fileno(self):
        """Return the descriptor of the receiving socket."""
        return self._sockets.receiver.fileno()

    def close(self):
        """Close all sockets."""
        # Discard the descriptor numbers, because the kernel may soon reuse them.
        self._senders = {}
        self._sender_port = -1
        self._receiver = -1
        self._let_go()
        self._sockets.close()

    cdef object _prepare_sending(self, destinations, control_tos, cnp_tos):
        cdef Py_ssize_t index
        cdef size_t size
        cdef bytes address
        cdef socket_address *peer
        self._destination_count = len(destinations)
        size = max(1, self._destination_count) * sizeof(socket_address)
        self._destinations = <socket_address *>PyMem_Malloc(size)
        if self._destinations == NULL:
            raise MemoryError()
        memset(self._destinations, 0, size)
        for index in range(self._destination_count):
            text, udp_port = destinations[index]
            peer = &self._destinations[index]
            if self._is_ipv6:
                address = inet_pton(AF_INET6, text)
                peer.ipv6.sin6_family = AF_INET6
                peer.ipv6.sin6_port = htons(udp_port)
                memcpy(&peer.ipv6.sin6_addr, <char *>address, 16)
            else:
                address = inet_pton(AF_INET, text)
                peer.ipv4.sin_family = AF_INET
                peer.ipv4.sin_port = htons(udp_port)
                memcpy(&peer.ipv4.sin_addr, <char *>address, 4)
        memset(&self._outgoing, 0, sizeof(msghdr))
        self._outgoing.msg_iov = &self._outgoing_part
        self._outgoing.msg_iovlen = 1
        self._outgoing.msg_namelen = self._address_bytes
        _put_control(self._segment_control, IPPROTO_UDP, UDP_SEGMENT, 0, 2)
        self._has_control_tos = control_tos is not None
        self._put_tos(self._tos_control, control_tos or 0)
        self._has_cnp_tos = cnp_tos is not None
        self._put_tos(self._cnp_control, cnp_tos or 0)

    cdef object _put_tos(self, uint8_t *where, int tos):
        """Write the control message that sets the traffic class of a packet."""
        if self._is_ipv6:
            _put_control(where, IPPROTO_IPV6, IPV6_TCLASS, tos, 4)
        else:
            _put_control(where, IPPROTO_IP, IP_TOS, tos, 4)

    cdef object _prepare_receiving(self):
        cdef Py_ssize_t index
        self._buffers = [bytearray(BUFFER_BYTES) for _ in range(ARRIVALS)]
        # Creating a view takes longer than filling its buffer, so create all views only
        # once.
        self._view0, self._view1, self._view2, self._view3 = self._buffers
        self.buffer = self._view0
        memset(self._incoming, 0, sizeof(self._incoming))
        for index in range(ARRIVALS):
            # The list keeps each buffer alive, and no code resizes it.
            self._incoming_parts[index].iov_base = <char *>(
                <bytearray>self._buffers[index]
            )
            self._incoming_parts[index].iov_len = BUFFER_BYTES
            self._incoming[index].msg_hdr.msg_iov = &self._incoming_parts[index]
            self._incoming[index].msg_hdr.msg_iovlen = 1
            self._incoming[index].msg_hdr.msg_name = &self._sources[index]
            self._incoming[index].msg_hdr.msg_control = &self._incoming_control[index]

    cpdef bint send_burst(
        self,
        object view,
        Py_ssize_t segment_size,
        Py_ssize_t destination,
        int source_port,
        int kind,
        bint marked=False,
    ) except -1:
        """Send the bytes of one burst, or return False if there is no room now.

        Raises:
            KeyError: If the source port is unknown.
            ValueError: If the destination or the segment size is out of range.
            AgentError: If the port is no longer usable.
        """
        cdef int number
        cdef uint8_t *control_message = NULL
        cdef uint16_t segment
        if destination < 0 or destination >= self._destination_count:
            raise ValueError(f"destination {destination} is not known")
        if segment_size < 1 or segment_size > LARGEST_SEGMENT:
            raise ValueError(f"there are no segments of {segment_size} bytes")
        if source_port != self._sender_port:
            self._sender = self._senders[source_port]
            self._sender_port = source_port
        if view is not self._view:
            self._let_go()
            PyObject_GetBuffer(view, &self._bytes, PyBUF_SIMPLE)
            self._view = view
        self._outgoing.msg_name = &self._destinations[destination]
        if marked:
            self._put_tos(
                self._mark_control, self._sockets.marked_tos(kind, source_port)
            )
            control_message = self._mark_control
        elif kind == CNP:
            if self._has_cnp_tos:
                control_message = self._cnp_control
        elif kind != DATA:
            # If the source port has a separate class, its socket has the type of
            # service of this class.
            if self._has_control_tos and source_port < 0x10000:
                control_message = self._tos_control
        elif self._bytes.len > segment_size:
            if not self.segments:
                return self._send_singly(segment_size)
            segment = <uint16_t>segment_size
            control_message = self._segment_control
            memcpy(CMSG_DATA(<cmsghdr *>control_message), &segment, 2)
        self._outgoing.msg_control = control_message
        self._outgoing.msg_controllen = 0
        if control_message != NULL:
            self._outgoing.msg_controllen = CMSG_SPACE(
                2 if control_message == self._segment_control else 4
            )
        number = self._send(<char *>self._bytes.buf, self._bytes.len)
        if number == EIO and self.segments:
            # The interface has no checksum offload, so it cannot segment.
            self.segments = self._sockets.segmentation = False
            return False
        return number == 0 or self._has_no_room(number)

    cdef object _let_go(self):
        """Release the view that the port sent last, if any."""
        PyBuffer_Release(&self._bytes)
        self._view = None

    cdef int _send(self, char *start, size_t length) noexcept:
        """Send the message in ``_outgoing`` and return 0 or the error number."""
        cdef int number = 0
        self._outgoing_part.iov_base = start
        self._outgoing_part.iov_len = length
        # Do not release the GIL, because that takes time. The call never blocks, and a
        # data-plane process has no other thread to run.
        if sendmsg(self._sender, &self._outgoing, MSG_DONTWAIT) < 0:
            number = errno
        return number

    cdef bint _has_no_room(self, int number) except -1:
        """Count a retry and return False if there was no room, otherwise raise."""
        if number != EAGAIN:
            index = <socket_address *>self._outgoing.msg_name - self._destinations
            if not self._sockets.has_no_room(number, index):
                raise self._sockets.cannot_send(number, index)
        self.send_retries += 1
        return False

    cdef bint _send_singly(self, Py_ssize_t segment_size) except -1:
        """Send the segments one by one. Segments after a failure count as lost."""
        cdef Py_ssize_t start = 0
        cdef int number
        self._outgoing.msg_control = NULL
        self._outgoing.msg_controllen = 0
        while start < self._bytes.len:
            number = self._send(
                <char *>self._bytes.buf + start,
                min(segment_size, self._bytes.len - start),
            )
            if number != 0:
                self._has_no_room(number)
                # If earlier segments have left, the others count as lost, because the
                # port must not send the burst again.
                return start > 0
            start += segment_size
        return True

    cpdef bint receive_burst(self) except -1:
        """Store the next arrival in the attributes, or return False if there is none.

        Raises:
            AgentError: If the port is no longer usable.
        """
        cdef int index
        cdef int32_t value
        cdef uint64_t halves[2]
        cdef msghdr *header
        cdef cmsghdr *cmsg
        if self._taken >= self._arrived and not self._refill():
            return False
        index = self._taken
        self._taken += 1
        if index != self._shown:
            self._shown = index
            if index == 0:
                self.buffer = self._view0
            elif index == 1:
                self.buffer = self._view1
            elif index == 2:
                self.buffer = self._view2
            else:
                self.buffer = self._view3
        self.length = self._incoming[index].msg_len
        self.segment_size = 0
        self.marked = False
        self.source_port = ntohs(self._sources[index].ipv4.sin_port)
        if self._is_ipv6:
            memcpy(halves, &self._sources[index].ipv6.sin6_addr, 16)
            self.source_high = be64toh(halves[0])
            self.source_low = be64toh(halves[1])
        else:
            self.source_low = ntohl(self._sources[index].ipv4.sin_addr.s_addr)
        header = &self._incoming[index].msg_hdr
        cmsg = CMSG_FIRSTHDR(header)
        while cmsg != NULL:
            if cmsg.cmsg_level == IPPROTO_IP and cmsg.cmsg_type == IP_TOS:
                self.marked = (
                    CMSG_DATA(cmsg)[0] & CONGESTION_EXPERIENCED
                ) == CONGESTION_EXPERIENCED
            elif cmsg.cmsg_len >= CMSG_LEN(sizeof(int32_t)):
                memcpy(&value, CMSG_DATA(cmsg), sizeof(int32_t))
                if cmsg.cmsg_level == IPPROTO_IPV6 and cmsg.cmsg_type == IPV6_TCLASS:
                    self.marked = (
                        value & CONGESTION_EXPERIENCED
                    ) == CONGESTION_EXPERIENCED
                elif cmsg.cmsg_level == IPPROTO_UDP and cmsg.cmsg_type == UDP_GRO:
                    self.segment_size = value
                elif cmsg.cmsg_level == SOL_SOCKET and cmsg.cmsg_type == SO_RXQ_OVFL:
                    self.socket_drops = <uint32_t>value
            cmsg = CMSG_NXTHDR(header, cmsg)
        return True

    cdef bint _refill(self) except -1:
        """Take arrivals from the kernel and return whether there were any."""
        cdef int index, count
        cdef int number = 0
        if 0 < self._arrived < ARRIVALS:
            # The last call emptied the kernel's queue, so do not repeat it immediately.
            self._arrived = self._taken = 0
            return False
        for index in range(ARRIVALS):
            self._incoming[index].msg_hdr.msg_namelen = self._address_bytes
            self._incoming[index].msg_hdr.msg_controllen = CONTROL_BYTES
        count = recvmmsg(self._receiver, self._incoming, ARRIVALS, MSG_DONTWAIT, NULL)
        if count < 0:
            number = errno
        self._taken = 0
        self._arrived = max(count, 0)
        # ECONNREFUSED reports an ICMP error for an earlier packet.
        if number not in (0, EAGAIN, EINTR, ECONNREFUSED):
            raise self._sockets.cannot_receive(number)
        return count > 0


cdef object _put_control(
    uint8_t *where, int level, int kind, int32_t value, size_t length
):
    """Write a control message with an int or a short of *length* bytes."""
    cdef cmsghdr *cmsg = <cmsghdr *>where
    memset(where, 0, CONTROL_BYTES)
    cmsg.cmsg_len = CMSG_LEN(length)
    cmsg.cmsg_level = level
    cmsg.cmsg_type = kind
    # Copy only the first two bytes of *value* for a short. On big-endian machines,
    # this is correct only for 0.
    memcpy(CMSG_DATA(cmsg), &value, length)


def poll(int epoll, long long timeout_ns):
    """Wait up to *timeout_ns* for descriptors of *epoll*, and return the ready ones.

    Unlike ``select.epoll.poll``, this function does not round the timeout to
    milliseconds.

    Raises:
        OSError: If the kernel refuses the call. Before Linux 5.11, the error is ENOSYS.
    """
    cdef epoll_event events[READY]
    cdef int count, index
    cdef int number = 0
    if timeout_ns <= 0:
        count = chakram_poll(epoll, events, READY, 0)
        if count < 0:
            number = errno
    else:
        with nogil:
            count = chakram_poll(epoll, events, READY, timeout_ns)
            if count < 0:
                number = errno
    if number not in (0, EINTR):
        raise OSError(number, os.strerror(number))
    return [events[index].data.fd for index in range(count)]
