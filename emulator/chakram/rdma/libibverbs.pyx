# cython: language_level=3, annotation_typing=False
"""RDMA verbs of libibverbs: a device, its memory, completion queues and queue pairs.

Only one thread at a time may use an object.

Python posts lists of work requests and polls batches of completions.  Both calls
release the GIL.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from posix.mman cimport (
    MAP_ANONYMOUS,
    MAP_FAILED,
    MAP_HUGETLB,
    MAP_SHARED,
    PROT_READ,
    PROT_WRITE,
    mmap,
    munmap,
)

# Declarations of the C library, and its types and constants.
from chakram.rdma.verbs cimport *

import os
from ipaddress import ip_address


cdef extern from "arpa/inet.h" nogil:
    uint32_t htonl(uint32_t)
    uint32_t ntohl(uint32_t)


cdef extern from "fcntl.h" nogil:
    int fcntl(int, int, ...)
    int F_GETFL, F_SETFL, O_NONBLOCK


WORK_FIELDS = ("id", "offset", "bytes", "remote_offset", "immediate", "is_signaled")
"""Columns of a work request. If ``remote_offset`` is -1, the request is a SEND,
otherwise a WRITE. If ``immediate`` is -1, there is no immediate data."""

COMPLETION_FIELDS = ("id", "status", "is_receive", "bytes", "immediate", "qpn")
"""Fields of a completion. ``status`` 0 means success. ``immediate`` is -1 if there is
no immediate data. ``bytes`` is valid only for receives. If a completion failed, only
``id``, ``status`` and ``qpn`` are valid."""

cdef enum:
    _PORT = 1
    _COLUMNS = 6
    _MOST = 64


def device_names():
    """Return the names of the RDMA devices of this host."""
    cdef int count = 0
    cdef ibv_device **devices = ibv_get_device_list(&count)
    if devices is NULL:
        return []
    try:
        return [ibv_get_device_name(devices[each]).decode() for each in range(count)]
    finally:
        ibv_free_device_list(devices)


def status_text(int status):
    """Return the text of libibverbs for the status of a completion."""
    return ibv_wc_status_str(status).decode()


cdef _failed(str what):
    """Raise the OSError of the last call."""
    raise OSError(errno, f"{what}: {os.strerror(errno)}")


cdef _check(int error, str what):
    """Raise an OSError if a call that returns an error number has failed."""
    if error:
        number = error if error > 0 else errno
        raise OSError(number, f"{what}: {os.strerror(number)}")


cdef class Device:
    """An open RDMA device with its protection domain.

    Args:
        name: Name of the device, e.g. ``mlx5_0``.

    Attributes:
        name: Name of the device.
        firmware: Version of the device's firmware.
        max_message_bytes: Maximum size of a message.
        rate_limits_kbps: Lowest and highest rate limit of a queue pair, or zeros.
        path_mtu: Active InfiniBand MTU, in bytes of payload.
        is_ethernet: Whether the link is Ethernet, i.e. the device speaks RoCE.
        is_active: Whether the port is active.

    Raises:
        LookupError: If there is no such device.
        OSError: If the device cannot be opened.
    """

    cdef ibv_context *_context
    cdef ibv_pd *_pd
    cdef readonly str name, firmware
    cdef readonly int64_t max_message_bytes
    cdef readonly int path_mtu
    cdef readonly tuple rate_limits_kbps
    cdef readonly bint is_ethernet, is_active

    def __cinit__(self, str name):
        cdef int count = 0
        cdef ibv_device **devices = ibv_get_device_list(&count)
        cdef int each
        self.name = name
        if devices is not NULL:
            try:
                for each in range(count):
                    if ibv_get_device_name(devices[each]).decode() == name:
                        self._context = ibv_open_device(devices[each])
                        if self._context is NULL:
                            _failed(f"cannot open {name}")
            finally:
                ibv_free_device_list(devices)
        if self._context is NULL:
            raise LookupError(name)
        self._pd = ibv_alloc_pd(self._context)
        if self._pd is NULL:
            _failed(f"{name}: no protection domain")
        cdef ibv_device_attr attributes
        cdef ibv_device_attr_ex extended
        cdef ibv_port_attr port
        memset(&port, 0, sizeof(port))
        _check(ibv_query_device(self._context, &attributes), f"cannot query {name}")
        _check(ibv_query_port(self._context, _PORT, &port), f"cannot query {name}")
        self.firmware = attributes.fw_ver.decode(errors="replace")
        self.max_message_bytes = port.max_msg_sz
        self.path_mtu = 128 << port.active_mtu
        self.is_ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET
        self.is_active = port.state == IBV_PORT_ACTIVE
        self.rate_limits_kbps = (0, 0)
        memset(&extended, 0, sizeof(extended))
        if not ibv_query_device_ex(self._context, NULL, &extended):
            pacing = extended.packet_pacing_caps
            if pacing.supported_qpts & 1 << IBV_QPT_RC:
                self.rate_limits_kbps = (
                    pacing.qp_rate_limit_min,
                    pacing.qp_rate_limit_max,
                )

    cdef int _open(self) except -1:
        """Raise ValueError if the device is closed."""
        if self._context is NULL:
            raise ValueError("it is closed")
        return 0

    def gids(self):
        """Return the addresses in the GID table, by index, without empty entries."""
        cdef ibv_gid gid
        self._open()
        found = {}
        for index in range(256):
            if ibv_query_gid(self._context, _PORT, index, &gid):
                break
            raw = bytes(gid.raw[:16])
            if any(raw):
                address = ip_address(raw)
                found[index] = str(address.ipv4_mapped or address)
        return found

    def close(self):
        """Release the device. Release its other objects before you call this method."""
        if self._pd is not NULL:
            ibv_dealloc_pd(self._pd)
            self._pd = NULL
        if self._context is not NULL:
            ibv_close_device(self._context)
            self._context = NULL

    def __dealloc__(self):
        if self._pd is not NULL:
            ibv_dealloc_pd(self._pd)
        if self._context is not NULL:
            ibv_close_device(self._context)


@cython.no_gc_clear
cdef class Memory:
    """A registered memory region, which supports the buffer protocol.

    Args:
        device: Device that accesses the region.
        size_bytes: Size of the region.
        huge_page_bytes: Size of the huge pages to use. If 0, use normal pages.

    Attributes:
        address: Start of the region, for the peer.
        remote_key: Key of the region, for the peer.

    Raises:
        OSError: If the memory cannot be registered, for example because of the limit of
            locked memory (``ulimit -l``).
    """

    cdef Device _device
    cdef ibv_mr *_region
    cdef void *_start
    cdef size_t _size, _mapped
    cdef readonly int64_t address

    def __cinit__(
        self,
        Device device not None,
        size_t size_bytes,
        *,
        size_t huge_page_bytes=0,
    ):
        cdef int kind = MAP_SHARED | MAP_ANONYMOUS
        device._open()
        self._device = device
        self._size = self._mapped = size_bytes
        if huge_page_bytes:
            kind |= MAP_HUGETLB
            self._mapped += -size_bytes % huge_page_bytes
        self._start = mmap(
            NULL,
            self._mapped,
            PROT_READ | PROT_WRITE,
            kind,
            -1,
            0,
        )
        if self._start == MAP_FAILED:
            self._start = NULL
            _failed(f"no memory of {size_bytes} B")
        self._region = ibv_reg_mr(
            device._pd,
            self._start,
            size_bytes,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
        )
        if self._region is NULL:
            _failed(f"cannot register {size_bytes} B")
        self.address = <int64_t>self._start

    cdef int _open(self) except -1:
        """Raise ValueError if the region is closed."""
        if self._region is NULL:
            raise ValueError("it is closed")
        return 0

    @property
    def remote_key(self):
        self._open()
        return self._region.rkey

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self._start, self._size, 0, flags)

    def __len__(self):
        return self._size

    def close(self):
        """Release the region."""
        if self._region is not NULL:
            ibv_dereg_mr(self._region)
            self._region = NULL

    def __dealloc__(self):
        if self._region is not NULL:
            ibv_dereg_mr(self._region)
        if self._start is not NULL:
            munmap(self._start, self._mapped)


@cython.no_gc_clear
cdef class CompletionQueue:
    """A completion queue with a descriptor for idle waits.

    Args:
        device: Device that writes the completions.
        depth: Maximum number of completions that wait in the queue.

    Raises:
        OSError: If the queue cannot be created.
    """

    cdef Device _device
    cdef ibv_comp_channel *_channel
    cdef ibv_cq *_queue
    cdef ibv_wc[64] _completions

    def __cinit__(self, Device device not None, int depth):
        device._open()
        self._device = device
        self._channel = ibv_create_comp_channel(device._context)
        if self._channel is NULL:
            _failed("no channel for completions")
        flags = fcntl(self._channel.fd, F_GETFL)
        fcntl(self._channel.fd, F_SETFL, flags | O_NONBLOCK)
        self._queue = ibv_create_cq(device._context, depth, NULL, self._channel, 0)
        if self._queue is NULL:
            _failed(f"no completion queue of depth {depth}")

    cdef int _open(self) except -1:
        """Raise ValueError if the queue is closed."""
        if self._queue is NULL:
            raise ValueError("it is closed")
        return 0

    def fileno(self):
        """Return a descriptor that is readable after ``arm`` if completions arrive."""
        self._open()
        return self._channel.fd

    def arm(self):
        """Make the descriptor readable at the next completion. Poll after this call."""
        cdef ibv_cq *queue
        cdef void *context
        self._open()
        while ibv_get_cq_event(self._channel, &queue, &context) == 0:
            ibv_ack_cq_events(queue, 1)
        _check(ibv_req_notify_cq(self._queue, 0), "cannot arm the completion queue")

    def poll(self):
        """Return up to 64 completions as tuples of ``COMPLETION_FIELDS``."""
        cdef int count, each
        cdef ibv_wc *done
        self._open()
        with nogil:
            count = ibv_poll_cq(self._queue, _MOST, self._completions)
        if count < 0:
            _failed("cannot poll completions")
        found = []
        for each in range(count):
            done = &self._completions[each]
            found.append(
                (
                    <int64_t>done.wr_id,
                    done.status,
                    (done.opcode & IBV_WC_RECV) != 0,
                    done.byte_len,
                    ntohl(done.imm_data) if done.wc_flags & IBV_WC_WITH_IMM else -1,
                    done.qp_num,
                )
            )
        return found

    def close(self):
        """Release the queue. Release its queue pairs before you call this method."""
        if self._queue is not NULL:
            ibv_destroy_cq(self._queue)
            self._queue = NULL
        if self._channel is not NULL:
            ibv_destroy_comp_channel(self._channel)
            self._channel = NULL

    def __dealloc__(self):
        self.close()


cdef int _post_receives(
    ibv_qp *pair,
    ibv_srq *shared,
    ibv_recv_wr *receives,
    int room,
    Memory memory,
    int count,
    int64_t first_id,
    int64_t offset,
    int size_bytes,
) except -1:
    """Post receives to *shared*, unless it is NULL, or to *pair*. See ``QueuePair``."""
    cdef int each, error
    cdef ibv_recv_wr *bad = NULL
    cdef ibv_sge part
    memory._open()
    if not 0 < count <= room:
        raise ValueError(f"{count} receives do not fit")
    if not (
        0 <= offset <= <int64_t>memory._size
        and 0 <= size_bytes <= <int64_t>memory._size - offset
    ):
        raise ValueError(f"{size_bytes} B are outside the memory region")
    part.addr = <uintptr_t>memory._start + <uint64_t>offset
    part.length = size_bytes
    part.lkey = memory._region.lkey
    with nogil:
        for each in range(count):
            receives[each].wr_id = <uint64_t>(first_id + each)
            receives[each].next = &receives[each + 1] if each + 1 < count else NULL
            receives[each].sg_list = &part
            receives[each].num_sge = 1 if size_bytes > 0 else 0
        if shared is not NULL:
            error = ibv_post_srq_recv(shared, receives, &bad)
        else:
            error = ibv_post_recv(pair, receives, &bad)
    if error:
        _check(error, f"cannot post after {bad - receives} receives")
    return 0


@cython.no_gc_clear
cdef class SharedReceives:
    """A receive queue that queue pairs share.

    Args:
        device: Device that uses the queue.
        memory: Region for the received data.
        depth: Maximum number of posted receives.

    Raises:
        OSError: If the queue cannot be created. Some devices do not support such
            queues.
    """

    cdef Device _device
    cdef Memory _memory
    cdef ibv_srq *_queue
    cdef ibv_recv_wr *_receives
    cdef int _depth

    def __cinit__(self, Device device not None, Memory memory not None, int depth):
        cdef ibv_srq_init_attr initial
        device._open()
        self._device, self._memory, self._depth = device, memory, depth
        self._receives = <ibv_recv_wr *>calloc(max(1, depth), sizeof(ibv_recv_wr))
        if self._receives is NULL:
            raise MemoryError
        memset(&initial, 0, sizeof(initial))
        initial.attr.max_wr = depth
        initial.attr.max_sge = 1
        self._queue = ibv_create_srq(device._pd, &initial)
        if self._queue is NULL:
            _failed(f"no shared queue of {depth} receives")

    cdef int _open(self) except -1:
        """Raise ValueError if the queue is closed."""
        if self._queue is NULL:
            raise ValueError("it is closed")
        return 0

    def post_receives(
        self, int count, int64_t first_id, *, int64_t offset=0, int size_bytes=0
    ):
        """Post *count* receives for any of the queue pairs: see ``QueuePair``."""
        self._open()
        _post_receives(
            NULL,
            self._queue,
            self._receives,
            self._depth,
            self._memory,
            count,
            first_id,
            offset,
            size_bytes,
        )

    def close(self):
        """Release the queue. Release its queue pairs before you call this method."""
        if self._queue is not NULL:
            ibv_destroy_srq(self._queue)
            self._queue = NULL

    def __dealloc__(self):
        self.close()
        free(self._receives)


@cython.no_gc_clear
cdef class QueuePair:
    """A reliably connected queue pair, which reads and writes one memory region.

    Args:
        device: Device of the queue pair.
        memory: Region for the local data.
        completions: Completion queue of the queue pair.
        send_depth: Maximum number of posted sends without completion.
        receive_depth: Maximum number of posted receives.
        shared: Receive queue of several queue pairs. If None, the queue pair has a
            separate queue.

    Attributes:
        qpn: Queue pair number, which the device has chosen.

    Raises:
        OSError: If the queue pair cannot be created.
    """

    cdef Device _device
    cdef Memory _memory
    cdef CompletionQueue _completions
    cdef SharedReceives _shared
    cdef ibv_qp *_pair
    cdef ibv_send_wr *_sends
    cdef ibv_sge *_parts
    cdef ibv_recv_wr *_receives
    cdef int _send_depth, _receive_depth
    cdef uint64_t _remote_address
    cdef uint32_t _remote_key

    def __cinit__(
        self,
        Device device not None,
        Memory memory not None,
        CompletionQueue completions not None,
        *,
        int send_depth,
        int receive_depth,
        SharedReceives shared=None,
    ):
        cdef ibv_qp_init_attr initial
        cdef ibv_qp_attr attributes
        device._open()
        memory._open()
        completions._open()
        self._device, self._memory, self._completions = device, memory, completions
        self._send_depth, self._receive_depth = send_depth, receive_depth
        self._sends = <ibv_send_wr *>calloc(max(1, send_depth), sizeof(ibv_send_wr))
        self._parts = <ibv_sge *>calloc(max(1, send_depth), sizeof(ibv_sge))
        self._receives = <ibv_recv_wr *>calloc(
            max(1, receive_depth), sizeof(ibv_recv_wr)
        )
        if self._sends is NULL or self._parts is NULL or self._receives is NULL:
            raise MemoryError
        memset(&initial, 0, sizeof(initial))
        initial.send_cq = initial.recv_cq = completions._queue
        initial.qp_type = IBV_QPT_RC
        if shared is not None:
            shared._open()
            self._shared = shared
            initial.srq = shared._queue
        initial.cap.max_send_wr = send_depth
        initial.cap.max_recv_wr = receive_depth
        initial.cap.max_send_sge = initial.cap.max_recv_sge = 1
        self._pair = ibv_create_qp(device._pd, &initial)
        if self._pair is NULL:
            _failed(f"no queue pair with {send_depth} sends, {receive_depth} receives")
        memset(&attributes, 0, sizeof(attributes))
        attributes.qp_state = IBV_QPS_INIT
        attributes.port_num = _PORT
        attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE
        _check(
            ibv_modify_qp(
                self._pair,
                &attributes,
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
            ),
            "the queue pair does not become initialized",
        )

    cdef int _open(self) except -1:
        """Raise ValueError if the queue pair is closed."""
        if self._pair is NULL:
            raise ValueError("it is closed")
        return 0

    @property
    def qpn(self):
        self._open()
        return self._pair.qp_num

    def connect(
        self,
        *,
        remote_qpn,
        remote_gid,
        gid_index,
        path_mtu,
        send_psn,
        receive_psn,
        traffic_class,
        remote_address,
        remote_key,
        timeout=14,
        retries=7,
        rnr_retries=7,
        rnr_timer=12,
        rate_kbps=0,
    ):
        """Connect the queue pair to another one, so that both can send.

        Args:
            remote_qpn: Number of the other queue pair.
            remote_gid: Address of the other end.
            gid_index: Index of the local address in the GID table.
            path_mtu: Maximum payload of a packet: 256, 512, 1024, 2048 or 4096.
            send_psn: PSN of the first packet sent.
            receive_psn: PSN of the first packet received.
            traffic_class: DSCP << 2 | ECN.
            remote_address: Start of the remote memory region.
            remote_key: Key of the remote memory region.
            timeout: Time without acknowledgment, as 4.096 us << timeout.
            retries: Number of retries after timeouts and NAKs.
            rnr_retries: Number of retries after RNR NAKs. 7 means no limit.
            rnr_timer: Code of the delay in RNR NAKs (InfiniBand, table 45).
            rate_kbps: Rate limit, which the device enforces. If 0, there is none.

        Raises:
            OSError: If the device refuses the attributes.
        """
        cdef ibv_qp_attr attributes
        cdef ibv_qp_rate_limit_attr limit
        cdef bytes raw = _raw_gid(remote_gid)
        self._open()
        self._remote_address = remote_address
        self._remote_key = remote_key
        memset(&attributes, 0, sizeof(attributes))
        attributes.qp_state = IBV_QPS_RTR
        attributes.path_mtu = path_mtu.bit_length() - 8
        attributes.dest_qp_num = remote_qpn
        attributes.rq_psn = receive_psn
        attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer = rnr_timer
        attributes.ah_attr.is_global = 1
        attributes.ah_attr.port_num = _PORT
        memcpy(attributes.ah_attr.grh.dgid.raw, <const char *>raw, 16)
        attributes.ah_attr.grh.sgid_index = gid_index
        attributes.ah_attr.grh.hop_limit = 64
        attributes.ah_attr.grh.traffic_class = traffic_class
        _check(
            ibv_modify_qp(
                self._pair,
                &attributes,
                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
            ),
            f"the queue pair cannot receive from {remote_gid}",
        )
        attributes.qp_state = IBV_QPS_RTS
        attributes.timeout = timeout
        attributes.retry_cnt = retries
        attributes.rnr_retry = rnr_retries
        attributes.sq_psn = send_psn
        attributes.max_rd_atomic = 1
        _check(
            ibv_modify_qp(
                self._pair,
                &attributes,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
            ),
            f"the queue pair cannot send to {remote_gid}",
        )
        if rate_kbps:
            memset(&limit, 0, sizeof(limit))
            limit.rate_limit = rate_kbps
            _check(
                ibv_modify_qp_rate_limit(self._pair, &limit),
                f"the queue pair cannot be limited to {rate_kbps} kbit/s",
            )

    def post(self, const int64_t[::1] rows):
        """Post a list of work requests in one call.

        Args:
            rows: The fields of ``WORK_FIELDS`` of all work requests, one after another,
                for example an ``array("q")``.

        Raises:
            ValueError: If the list is longer than the queue, or a row is outside the
                local memory region. The device checks the remote region.
            OSError: If the device refuses a row, for example because the queue is
                full. The message contains the number of rows that were posted.
        """
        cdef int each, error
        cdef int count = rows.shape[0] // _COLUMNS
        cdef ibv_send_wr *bad = NULL
        cdef ibv_send_wr *work
        cdef const int64_t *row
        cdef uint64_t start = <uintptr_t>self._memory._start
        cdef int64_t size = self._memory._size
        self._open()
        self._memory._open()
        if not 0 < count <= self._send_depth or rows.shape[0] % _COLUMNS:
            raise ValueError(f"{rows.shape[0]} integers are no list of work requests")
        for each in range(count):
            row = &rows[each * _COLUMNS]
            if not (0 <= row[1] <= size and 0 <= row[2] <= size - row[1]):
                raise ValueError(f"row {each} is outside the memory region")
            if row[2] > self._device.max_message_bytes or row[4] > 0xFFFFFFFF:
                raise ValueError(f"row {each} has too many bytes or immediate bits")
        with nogil:
            for each in range(count):
                row = &rows[each * _COLUMNS]
                work = &self._sends[each]
                self._parts[each].addr = start + <uint64_t>row[1]
                self._parts[each].length = <uint32_t>row[2]
                self._parts[each].lkey = self._memory._region.lkey
                work.wr_id = <uint64_t>row[0]
                work.next = &self._sends[each + 1] if each + 1 < count else NULL
                work.sg_list = &self._parts[each]
                work.num_sge = 1 if row[2] > 0 else 0
                work.send_flags = IBV_SEND_SIGNALED if row[5] else 0
                if row[3] < 0:
                    work.opcode = IBV_WR_SEND_WITH_IMM if row[4] >= 0 else IBV_WR_SEND
                else:
                    work.opcode = (
                        IBV_WR_RDMA_WRITE_WITH_IMM if row[4] >= 0 else IBV_WR_RDMA_WRITE
                    )
                    work.wr.rdma.remote_addr = self._remote_address + <uint64_t>row[3]
                    work.wr.rdma.rkey = self._remote_key
                work.imm_data = htonl(<uint32_t>row[4])
            error = ibv_post_send(self._pair, self._sends, &bad)
        if error:
            _check(error, f"cannot post after {bad - self._sends} work requests")

    def post_receives(
        self, int count, int64_t first_id, *, int64_t offset=0, int size_bytes=0
    ):
        """Post *count* receives with consecutive identifiers.

        A receive of a WRITE with immediate data needs no memory. With *size_bytes*,
        each receive has room for a SEND at *offset* of the memory region.

        Raises:
            ValueError: If the queue has no room for the receives.
            OSError: If the device refuses the receives.
        """
        self._open()
        _post_receives(
            self._pair,
            NULL,
            self._receives,
            self._receive_depth,
            self._memory,
            count,
            first_id,
            offset,
            size_bytes,
        )

    def close(self):
        """Release the queue pair."""
        if self._pair is not NULL:
            ibv_destroy_qp(self._pair)
            self._pair = NULL

    def __dealloc__(self):
        self.close()
        free(self._sends)
        free(self._parts)
        free(self._receives)


cdef bytes _raw_gid(address):
    """Return the 16 bytes of the GID of an IP address."""
    parsed = ip_address(address)
    if parsed.version == 4:
        return bytes(10) + b"\xff\xff" + parsed.packed
    return parsed.packed
