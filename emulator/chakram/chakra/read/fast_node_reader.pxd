# C types for the compiled form of plain_nodes.py.

cimport cython

from chakram.chakra.read.node_parser cimport NodeBytes
from chakram.trace.graph_index cimport NameTable, NodeIndex

cdef int OPS, TENSOR, STREAM, TYPE, SIZE, SOURCE, DESTINATION, TAG
cdef int GROUP, GROUP_NUMBER, ON_CPU, OP_TYPE
cdef int OF_COMPUTE
cdef int OF_COMMUNICATION
cdef int _ROWS
cdef int _EDGES
cdef long long _NO_VALUE
cdef int _CPU_STREAM
cdef int _NOWHERE
cdef int _COMP
cdef int _LOAD
cdef int _STORE
cdef int _COLL
cdef int _SEND_NODE
cdef int _RECV_NODE
cdef int _INVALID
cdef int _TYPES
cdef int _RECORD_BYTES
cdef int _STORAGE
cdef int _DATA_OP
cdef int _COMPUTE
cdef int _MEMORY
cdef int _COLLECTIVE
cdef int _PASS
cdef int _SEND
cdef int _RECEIVE


@cython.final
cdef class PlainNodes(NodeBytes):
    cdef object _builder
    cdef NodeIndex _index
    cdef NameTable _names
    cdef long long _rank
    cdef long long _bytes_per_unit
    cdef long long _largest_size
    cdef long long _duration_unit_ns
    cdef unsigned long long _largest_time
    cdef unsigned long long _record_limit_bytes
    cdef long long _node_limit
    cdef const signed char[::1] _op_of
    cdef object _group_of
    cdef dict _group_numbers
    cdef object _on_self_control
    cdef object _on_kernel
    cdef bint _notes_kernels
    # Name prefix of each node type.
    cdef list _prefixes
    # Numbers of collected rows, and of rows that the builder already has.
    cdef int _rows
    cdef int _comm
    cdef long long _comm_base
    cdef long long _data_base
    cdef long long _control_base
    cdef bint _has_start
    cdef bint _has_stream
    # The columns.
    cdef unsigned long long[::1] _node_ids
    cdef unsigned char[::1] _kinds
    cdef int[::1] _name_numbers
    cdef long long[::1] _file_offsets
    cdef long long[::1] _durations_ns
    cdef long long[::1] _starts_ns
    cdef long long[::1] _num_ops
    cdef long long[::1] _tensor_bytes
    cdef long long[::1] _streams
    cdef int[::1] _comm_rows
    cdef signed char[::1] _ops
    cdef long long[::1] _comm_bytes
    cdef int[::1] _groups
    cdef long long[::1] _peers
    cdef long long[::1] _tags
    cdef long long[::1] _data_ends
    cdef long long[::1] _control_ends
    # The interpretation of the current node.
    cdef long long _ops_count
    cdef long long _tensor_size
    cdef long long _stream
    cdef long long _comm_size
    cdef long long _tag
    cdef int _kind
    cdef int _op
    cdef long long _peer
    cdef int _group

    cdef _make_columns(self)
    @cython.locals(left="long long", length="unsigned long long",
                   left_bytes="unsigned long long", stop="Py_ssize_t")
    cpdef Py_ssize_t take(self, const unsigned char* data, Py_ssize_t start,
                          Py_ssize_t end, long long offset) except -1
    @cython.locals(edges="int", control_edges="int", row="int", edge="int",
                   is_kernel="bint")
    cdef bint _take_node(self, const unsigned char* data, Py_ssize_t start,
                         Py_ssize_t end, long long offset) except -1
    @cython.locals(prefix="bytes", skip="int", at="Py_ssize_t", place="int")
    cdef Py_ssize_t _own_name_at(self, const unsigned char* data) except -1
    @cython.locals(key="bytes")
    cdef _note_op_type(self, const unsigned char* data, int name)
    cdef _note_kernel(self)
    cdef _flush(self)
    @cython.locals(node_type="int", tensor_size="long long", known="bint")
    cdef bint _mean(self, const unsigned char* data) except -1
    cdef bint _is_record(self, const unsigned char* data) except -1
    cdef bint _has(self, int which) noexcept
    cdef long long _number(self, int which, long long otherwise) noexcept
    @cython.locals(kind="long long")
    cdef bint _mean_collective(self) noexcept
    @cython.locals(own="int", other="int")
    cdef bint _mean_message(self) noexcept
    @cython.locals(key="bytes")
    cdef int _group_number(self, const unsigned char* data) except -2
