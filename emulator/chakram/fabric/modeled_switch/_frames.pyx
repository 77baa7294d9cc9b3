# cython: language_level=3, boundscheck=False, wraparound=False
"""Transfer of frames through a ring shared with the kernel and batched system calls.

The kernel writes each frame into the ring immediately (TPACKET_V2), on the core of its
sender. Receiving a frame therefore takes one copy and no system call. Frames are copied
out of the ring, because a frame that waits there would block all frames behind it.

Source: Documentation/networking/packet_mmap.rst and include/uapi/linux/if_packet.h.
"""

from libc.errno cimport EAGAIN, EINTR, ENOBUFS, errno
from libc.stdint cimport uint16_t, uint32_t, uint8_t
from libc.string cimport memcpy, memset

from chakram.fabric.modeled_switch.frame_io cimport SocketFrames

import mmap
import socket
import struct

from chakram.fabric.modeled_switch.frame_io import BATCH as _BATCH_OF_ALL
from chakram.fabric.modeled_switch.frame_io import Frames, receiving_socket, sending_socket

cdef extern from "sys/socket.h" nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/socket.h>
    #include <linux/if_packet.h>
    #include <time.h>
    #define CHAKRAM_ACQUIRE(pointer) __atomic_load_n(pointer, __ATOMIC_ACQUIRE)
    #define CHAKRAM_RELEASE(pointer, value) \
        __atomic_store_n(pointer, value, __ATOMIC_RELEASE)
    static long long chakram_now(clockid_t clock) {
        struct timespec now;
        clock_gettime(clock, &now);
        return now.tv_sec * 1000000000LL + now.tv_nsec;
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
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    int sendmmsg(int descriptor, mmsghdr *messages, unsigned int count, int flags)
    int MSG_DONTWAIT
    int CLOCK_MONOTONIC
    int CLOCK_REALTIME
    uint32_t CHAKRAM_ACQUIRE(uint32_t *pointer)
    void CHAKRAM_RELEASE(uint32_t *pointer, uint32_t value)
    long long chakram_now(int clock)

cdef extern from "linux/if_packet.h" nogil:
    struct tpacket2_hdr:
        uint32_t tp_status
        uint32_t tp_len
        uint32_t tp_snaplen
        uint16_t tp_mac
        uint32_t tp_sec
        uint32_t tp_nsec
    struct sockaddr_ll:
        unsigned short sll_family
        uint16_t sll_protocol
        int sll_ifindex
    int TP_STATUS_KERNEL
    int TP_STATUS_USER
    int TPACKET2_HDRLEN

cdef extern from "net/if.h" nogil:
    unsigned int if_nametoindex(const char *name)

cdef enum:
    BATCH = 64
    AF_PACKET = 17
    # Aligned sizeof(struct tpacket2_hdr): offset of the sender's address.
    ADDRESS_OFFSET = 32
    # Number of frames between two measurements of the offset between the real-time and
    # the monotonic clock.
    LOOKS = 1024

_SOL_PACKET = 263
_PACKET_RX_RING = 5
_PACKET_VERSION = 10
_TPACKET_V2 = 1
_ALIGNMENT = 16
_BLOCK_BYTES = 1 << 16
_RING_BYTES = 16 << 20


cdef class RingFrames(SocketFrames):
    """Frames of the given interfaces, through a packet ring."""

    cdef object _ring
    cdef uint8_t *_frames
    cdef Py_ssize_t _slot_bytes
    cdef Py_ssize_t _block_bytes
    cdef int _block_slots
    cdef int _blocks
    cdef int _block
    cdef int _slot
    cdef int _apart_looks
    cdef long long _apart_ns
    cdef int _first_index
    cdef list _number_of
    cdef int[::1] _number_at
    cdef int[::1] _indexes
    cdef mmsghdr _messages[BATCH]
    cdef iovec _parts[BATCH]
    cdef sockaddr_ll _addresses[BATCH]
    cdef int _count
    cdef int _descriptor

    def __init__(self, interfaces, *, frame_bytes, places):
        cdef int index
        Frames.__init__(self, frame_bytes=frame_bytes, places=places)
        indexes = [socket.if_nametoindex(name) for name in interfaces]
        self._first_index = min(indexes)
        numbers = [-1] * (max(indexes) - self._first_index + 1)
        for number, at in enumerate(indexes):
            numbers[at - self._first_index] = number
        from array import array
        self._number_at = array("i", numbers)
        self._indexes = array("i", indexes)
        self._sender = sending_socket()
        self._descriptor = self._sender.fileno()
        self.receiver = receiving_socket()
        self._open_ring()
        memset(self._messages, 0, sizeof(self._messages))
        memset(self._addresses, 0, sizeof(self._addresses))
        for index in range(BATCH):
            self._addresses[index].sll_family = AF_PACKET
            self._messages[index].msg_hdr.msg_name = &self._addresses[index]
            self._messages[index].msg_hdr.msg_namelen = sizeof(sockaddr_ll)
            self._messages[index].msg_hdr.msg_iov = &self._parts[index]
            self._messages[index].msg_hdr.msg_iovlen = 1

    cdef object _open_ring(self):
        cdef unsigned char[::1] view
        wanted = TPACKET2_HDRLEN + _ALIGNMENT + self.frame_bytes
        self._slot_bytes = -(-wanted // _ALIGNMENT) * _ALIGNMENT
        self._block_bytes = _BLOCK_BYTES
        while self._block_bytes < self._slot_bytes:
            self._block_bytes *= 2
        self._block_slots = self._block_bytes // self._slot_bytes
        self._blocks = _RING_BYTES // self._block_bytes
        self.receiver.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        self.receiver.setsockopt(
            _SOL_PACKET,
            _PACKET_RX_RING,
            struct.pack(
                "=4I",
                self._block_bytes,
                self._blocks,
                self._slot_bytes,
                self._blocks * self._block_slots,
            ),
        )
        self._ring = mmap.mmap(
            self.receiver.fileno(), self._blocks * self._block_bytes
        )
        view = self._ring
        self._frames = &view[0]

    cpdef bint receive(self, Py_ssize_t place) except -1:
        """Store the next received frame at *place*. Return False if there is none."""
        cdef uint8_t *frame
        cdef tpacket2_hdr *header
        cdef sockaddr_ll *address
        cdef Py_ssize_t length
        cdef int at
        while True:
            frame = (
                self._frames
                + self._block * self._block_bytes
                + self._slot * self._slot_bytes
            )
            header = <tpacket2_hdr *>frame
            if not CHAKRAM_ACQUIRE(&header.tp_status) & TP_STATUS_USER:
                return False
            address = <sockaddr_ll *>(frame + ADDRESS_OFFSET)
            at = address.sll_ifindex - self._first_index
            length = header.tp_len
            if at >= 0 and at < self._number_at.shape[0]:
                at = self._number_at[at]
            else:
                at = -1
            if at >= 0:
                self.port = at
                self.time_ns = (
                    header.tp_sec * 1000000000LL + header.tp_nsec - self._apart()
                )
                if length > self.frame_bytes or header.tp_snaplen < length:
                    self.length = 0
                else:
                    self.length = length
                    memcpy(
                        &self.memory[place * self.frame_bytes],
                        frame + header.tp_mac,
                        length,
                    )
            CHAKRAM_RELEASE(&header.tp_status, TP_STATUS_KERNEL)
            self._slot += 1
            if self._slot == self._block_slots:
                self._slot = 0
                self._block += 1
                if self._block == self._blocks:
                    self._block = 0
            if at >= 0:
                return True

    cdef long long _apart(self) noexcept:
        """Return the offset of the ring's real-time clock from the monotonic clock."""
        self._apart_looks -= 1
        if self._apart_looks < 0:
            self._apart_looks = LOOKS
            self._apart_ns = chakram_now(CLOCK_REALTIME) - chakram_now(CLOCK_MONOTONIC)
        return self._apart_ns

    cpdef send(self, Py_ssize_t place, Py_ssize_t length, int port):
        """Queue a frame for *port*, to be sent by the next ``flush``.

        If ``BATCH`` frames are already queued, send them first.
        """
        if self._count == BATCH:
            self.flush()
        self._parts[self._count].iov_base = &self.memory[place * self.frame_bytes]
        self._parts[self._count].iov_len = length
        self._addresses[self._count].sll_ifindex = self._indexes[port]
        self._count += 1

    cpdef flush(self):
        """Send all queued frames."""
        cdef int done = 0
        cdef int sent
        while done < self._count:
            sent = sendmmsg(
                self._descriptor, &self._messages[done], self._count - done,
                MSG_DONTWAIT,
            )
            if sent > 0:
                done += sent
            elif errno != EINTR:
                # The kernel refused the first frame. Continue with the others.
                self.refused += 1
                done += 1
        self._count = 0
