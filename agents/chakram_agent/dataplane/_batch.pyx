# cython: language_level=3, boundscheck=False, wraparound=False
"""Bursts to and from UDP sockets that a port has opened, straight from C structures.

This is ``UdpPort``'s inner part where extensions are built; without it the port speaks
through Python's socket module, which takes several microseconds per call to build and
to take apart what here lies ready.  Also here: a poll whose timeout is exact.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport EAGAIN, ECONNREFUSED, EINTR, EINVAL, ENOSYS, errno
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

import os

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
    int MSG_TRUNC
    int SO_RXQ_OVFL

cdef extern from "netinet/in.h" nogil:
    int AF_INET
    int IPPROTO_IP
    int IPPROTO_UDP
    int IP_TOS
    int UDP_SEGMENT
    int UDP_GRO
    uint16_t htons(uint16_t value)
    uint16_t ntohs(uint16_t value)
    struct in_addr:
        uint32_t s_addr
    struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int chakram_poll(
        int epoll, epoll_event *events, int capacity, long long nanoseconds
    )

DEF ARRIVALS = 4
DEF BUFFER_BYTES = 65536
DEF CONTROL_BYTES = 96
DEF READY = 64

cdef int _CE = 3
cdef int _LARGEST_SEGMENT = 65507


cdef class BurstSockets:
    """The sockets of one port.

    Args:
        receiver: Descriptor of the socket that receives.
        senders: Descriptor of the socket that sends, by UDP source port.
        destinations: (IPv4 address in network order, UDP port), by index.
        control_tos: Type-of-service byte of control packets; None: as the sockets say.

    Attributes:
        buffer: Holds what ``receive`` has returned last.
        socket_drops: What the kernel has dropped for want of room in the buffer.
    """

    cdef readonly object buffer
    cdef readonly unsigned int socket_drops
    cdef int _receiver
    cdef dict _senders
    cdef Py_ssize_t _destination_count
    cdef sockaddr_in *_destinations
    cdef bint _has_control_tos
    # What is sent.
    cdef msghdr _outgoing
    cdef iovec _outgoing_part
    cdef uint8_t _segment_control[32]
    cdef uint8_t _tos_control[32]
    # What is received: several datagrams, or coalesced runs of them, at a time.
    cdef list _buffers
    cdef mmsghdr _incoming[ARRIVALS]
    cdef iovec _incoming_parts[ARRIVALS]
    cdef sockaddr_in _sources[ARRIVALS]
    cdef uint8_t _incoming_control[ARRIVALS][CONTROL_BYTES]
    cdef int _arrived
    cdef int _taken

    def __cinit__(self):
        self._destinations = NULL

    def __init__(self, int receiver, senders, destinations, control_tos):
        cdef Py_ssize_t index
        cdef cmsghdr *cmsg
        cdef uint8_t *base
        cdef bytes address
        cdef int tos
        if self._destinations != NULL:
            raise ValueError("these sockets are set up already")
        self._receiver = receiver
        self._senders = dict(senders)
        self._destination_count = len(destinations)
        self._destinations = <sockaddr_in *>PyMem_Malloc(
            max(1, self._destination_count) * sizeof(sockaddr_in)
        )
        if self._destinations == NULL:
            raise MemoryError()
        memset(
            self._destinations, 0, max(1, self._destination_count) * sizeof(sockaddr_in)
        )
        for index in range(self._destination_count):
            address, udp_port = destinations[index]
            if len(address) != 4:
                raise ValueError(f"{address!r} is no IPv4 address")
            self._destinations[index].sin_family = AF_INET
            self._destinations[index].sin_port = htons(udp_port)
            memcpy(&self._destinations[index].sin_addr, <char *>address, 4)
        memset(&self._outgoing, 0, sizeof(msghdr))
        self._outgoing.msg_iov = &self._outgoing_part
        self._outgoing.msg_iovlen = 1
        memset(self._segment_control, 0, sizeof(self._segment_control))
        cmsg = <cmsghdr *>self._segment_control
        cmsg.cmsg_len = CMSG_LEN(sizeof(uint16_t))
        cmsg.cmsg_level = IPPROTO_UDP
        cmsg.cmsg_type = UDP_SEGMENT
        self._has_control_tos = control_tos is not None
        tos = control_tos or 0
        memset(self._tos_control, 0, sizeof(self._tos_control))
        cmsg = <cmsghdr *>self._tos_control
        cmsg.cmsg_len = CMSG_LEN(sizeof(int32_t))
        cmsg.cmsg_level = IPPROTO_IP
        cmsg.cmsg_type = IP_TOS
        memcpy(CMSG_DATA(cmsg), &tos, sizeof(int32_t))
        self._buffers = [memoryview(bytearray(BUFFER_BYTES)) for _ in range(ARRIVALS)]
        self.buffer = self._buffers[0]
        for index in range(ARRIVALS):
            # The list keeps the bytes where they are.
            base = _first_byte(self._buffers[index])
            self._incoming_parts[index].iov_base = base
            self._incoming_parts[index].iov_len = BUFFER_BYTES
            memset(&self._incoming[index], 0, sizeof(mmsghdr))
            self._incoming[index].msg_hdr.msg_iov = &self._incoming_parts[index]
            self._incoming[index].msg_hdr.msg_iovlen = 1
            self._incoming[index].msg_hdr.msg_name = &self._sources[index]
            self._incoming[index].msg_hdr.msg_control = &self._incoming_control[index]

    def __dealloc__(self):
        PyMem_Free(self._destinations)

    cpdef int send(
        self,
        data,
        Py_ssize_t segment_size,
        Py_ssize_t destination,
        int source_port,
        bint control,
    ) except -1:
        """Send *data* as segments of *segment_size*; return 0 or the error's number.

        Raises:
            ValueError: If the destination or the segment size is out of range.
            KeyError: If there is no such source port.
        """
        cdef Py_buffer view
        cdef ssize_t sent
        cdef int descriptor = self._senders[source_port]
        cdef cmsghdr *cmsg
        cdef uint16_t segment
        if destination < 0 or destination >= self._destination_count:
            raise ValueError(f"destination {destination} is not known")
        if segment_size < 1 or segment_size > _LARGEST_SEGMENT:
            raise ValueError(f"segments of {segment_size} bytes do not exist")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        self._outgoing_part.iov_base = view.buf
        self._outgoing_part.iov_len = view.len
        self._outgoing.msg_name = &self._destinations[destination]
        self._outgoing.msg_namelen = sizeof(sockaddr_in)
        self._outgoing.msg_control = NULL
        self._outgoing.msg_controllen = 0
        if control:
            if self._has_control_tos:
                self._outgoing.msg_control = self._tos_control
                self._outgoing.msg_controllen = CMSG_SPACE(sizeof(int32_t))
        elif view.len > segment_size:
            segment = <uint16_t>segment_size
            cmsg = <cmsghdr *>self._segment_control
            memcpy(CMSG_DATA(cmsg), &segment, sizeof(uint16_t))
            self._outgoing.msg_control = self._segment_control
            self._outgoing.msg_controllen = CMSG_SPACE(sizeof(uint16_t))
        with nogil:
            sent = sendmsg(descriptor, &self._outgoing, MSG_DONTWAIT)
        PyBuffer_Release(&view)
        return 0 if sent >= 0 else errno

    cpdef tuple receive(self):
        """Put what has arrived into ``buffer``; None if nothing has.

        Returns:
            Length; segment size (0: one packet); whether it is marked "congestion
            experienced"; UDP source port of the sender.

        Raises:
            OSError: If the socket cannot be used any more.
        """
        cdef int index, count
        cdef msghdr *header
        cdef cmsghdr *cmsg
        cdef int32_t value
        cdef int segment_size = 0
        cdef bint marked = False
        if self._taken >= self._arrived:
            for index in range(ARRIVALS):
                header = &self._incoming[index].msg_hdr
                header.msg_namelen = sizeof(sockaddr_in)
                header.msg_controllen = CONTROL_BYTES
            with nogil:
                count = recvmmsg(
                    self._receiver, self._incoming, ARRIVALS, MSG_DONTWAIT, NULL
                )
            self._taken = 0
            self._arrived = max(count, 0)
            if count < 0 and errno not in (EAGAIN, EINTR, ECONNREFUSED):
                raise OSError(errno, os.strerror(errno))
            if count <= 0:
                return None
        index = self._taken
        self._taken += 1
        self.buffer = self._buffers[index]
        header = &self._incoming[index].msg_hdr
        cmsg = CMSG_FIRSTHDR(header)
        while cmsg != NULL:
            if cmsg.cmsg_level == IPPROTO_IP and cmsg.cmsg_type == IP_TOS:
                marked = CMSG_DATA(cmsg)[0] & _CE == _CE
            elif cmsg.cmsg_len >= CMSG_LEN(sizeof(int32_t)):
                memcpy(&value, CMSG_DATA(cmsg), sizeof(int32_t))
                if cmsg.cmsg_level == IPPROTO_UDP and cmsg.cmsg_type == UDP_GRO:
                    segment_size = value
                elif cmsg.cmsg_level == SOL_SOCKET and cmsg.cmsg_type == SO_RXQ_OVFL:
                    self.socket_drops = <uint32_t>value
            cmsg = CMSG_NXTHDR(header, cmsg)
        return (
            self._incoming[index].msg_len,
            segment_size,
            marked,
            ntohs(self._sources[index].sin_port),
        )

    cpdef bint exhausted(self):
        """Tell whether the last ``receive`` from the kernel left room to spare.

        Then nothing more has arrived, and there is no need to ask.
        """
        return self._taken >= self._arrived and self._arrived < ARRIVALS


def poll(int epoll, long long timeout_ns):
    """Wait for descriptors of *epoll*, for *timeout_ns* at most; return those ready.

    Unlike ``select.epoll.poll`` this does not round up to milliseconds.

    Raises:
        OSError: If the kernel refuses; ENOSYS before Linux 5.11.
    """
    cdef epoll_event events[READY]
    cdef int count, index
    with nogil:
        count = chakram_poll(epoll, events, READY, max(0, timeout_ns))
    if count < 0:
        if errno == EINTR:
            return []
        raise OSError(errno, os.strerror(errno))
    return [events[index].data.fd for index in range(count)]


cdef uint8_t *_first_byte(object view) except NULL:
    """Return where the bytes of *view* begin; whoever holds it keeps them there."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    cdef uint8_t *base = <uint8_t *>buffer.buf
    PyBuffer_Release(&buffer)
    return base
