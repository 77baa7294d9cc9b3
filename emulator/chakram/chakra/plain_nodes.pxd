# C types of plain_nodes.py, for the compiled form.

cimport cython

from chakram.core.columns cimport NameTable, NodeIndex

cdef int _ROWS
cdef int _EDGES
cdef long long _NO_VALUE
cdef int _NOWHERE
cdef unsigned long long _INT64_MAX
cdef unsigned long long _WORD_MASK
cdef int _VARINT
cdef int _FIXED64
cdef int _LENGTH_DELIMITED
cdef int _FIXED32
cdef int _COMP
cdef int _LOAD
cdef int _STORE
cdef int _COLL
cdef int _SEND_NODE
cdef int _RECV_NODE
cdef int _INVALID
cdef int _STORAGE
cdef int _DATA_OP
cdef int _COMPUTE
cdef int _MEMORY
cdef int _COLLECTIVE
cdef int _PASS
cdef int _SEND
cdef int _RECEIVE
cdef int _HAS_OPS
cdef int _HAS_TENSOR
cdef int _HAS_STREAM
cdef int _HAS_TYPE
cdef int _HAS_SIZE
cdef int _HAS_SOURCE
cdef int _HAS_DESTINATION
cdef int _HAS_TAG
cdef int _HAS_GROUP
cdef int _HAS_GROUP_NUMBER
cdef int _HAS_ON_CPU
cdef int _HAS_RANKS
cdef int _HAS_ROOT
cdef int _HAS_SPLITS
cdef int _OF_COMPUTE
cdef int _OF_COMM
cdef int _INT32
cdef int _INT64
cdef int _UINT32
cdef int _UINT64
cdef int _BOOL
cdef int _STRING
cdef int _BYTES


@cython.final
cdef class PlainNodes:
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
    # How far the columns are filled, and what the builder has before them.
    cdef int _rows
    cdef int _comm
    cdef int _edges
    cdef int _control_edges
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
    cdef unsigned long long[::1] _data
    cdef long long[::1] _data_ends
    cdef unsigned long long[::1] _control
    cdef long long[::1] _control_ends
    # The node at hand: how far it is read, what it holds, what that means.
    cdef Py_ssize_t _at
    cdef unsigned long long _node_id
    cdef unsigned long long _start
    cdef unsigned long long _duration
    cdef int _node_type
    cdef Py_ssize_t _name_at
    cdef Py_ssize_t _name_end
    cdef Py_ssize_t _group_at
    cdef Py_ssize_t _group_end
    cdef int _seen
    cdef int _odd
    cdef long long _ops_count
    cdef long long _tensor_size
    cdef long long _tensor_size_of_message
    cdef long long _stream
    cdef long long _stated_stream
    cdef long long _on_cpu
    cdef long long _comm_type
    cdef long long _comm_size
    cdef long long _source
    cdef long long _destination
    cdef long long _tag
    cdef long long _group_id
    cdef int _kind
    cdef int _op
    cdef long long _peer
    cdef int _group

    cdef _make_columns(self)
    @cython.locals(left="long long", length="unsigned long long", stop="Py_ssize_t")
    cpdef Py_ssize_t take(self, const unsigned char* data, Py_ssize_t start,
                          Py_ssize_t end, long long offset) except -1
    @cython.locals(edges="int", control_edges="int", row="int", edge="int",
                   is_kernel="bint")
    cdef bint _take_node(self, const unsigned char* data, Py_ssize_t start,
                         Py_ssize_t end, long long offset) except -1
    cdef _note_kernel(self)
    cdef _flush(self)
    @cython.locals(tag="unsigned long long", field="unsigned long long",
                   wire_type="int", value="unsigned long long", at="Py_ssize_t",
                   stop="Py_ssize_t")
    cdef bint _read(self, const unsigned char* data, Py_ssize_t start,
                    Py_ssize_t end) noexcept
    @cython.locals(value="unsigned long long")
    cdef bint _read_ids(self, const unsigned char* data, Py_ssize_t stop,
                        bint control) noexcept
    @cython.locals(tag="unsigned long long", length="unsigned long long")
    cdef bint _read_texts(self, const unsigned char* data, Py_ssize_t stop) noexcept
    @cython.locals(name_at="Py_ssize_t", name_end="Py_ssize_t", value_at="Py_ssize_t",
                   value_end="Py_ssize_t", arm="int", number="unsigned long long",
                   tag="unsigned long long", field="unsigned long long",
                   wire_type="int", length="unsigned long long", at="Py_ssize_t",
                   end="Py_ssize_t", bit="int")
    cdef bint _read_attribute(self, const unsigned char* data, Py_ssize_t start,
                              Py_ssize_t stop) noexcept
    @cython.locals(of_values="int", tag="unsigned long long",
                   length="unsigned long long", end="Py_ssize_t")
    cdef bint _read_list(self, const unsigned char* data, Py_ssize_t stop,
                         int arm) noexcept
    @cython.locals(number="long long")
    cdef void _set_number(self, int bit, int arm,
                          unsigned long long stored) noexcept
    @cython.locals(at="Py_ssize_t", value="unsigned long long", shift="int",
                   byte="unsigned long long")
    cdef unsigned long long _varint(self, const unsigned char* data,
                                    Py_ssize_t end) noexcept
    @cython.locals(node_type="int", seen="int")
    cdef bint _mean(self, const unsigned char* data) except -1
    @cython.locals(needed="int")
    cdef bint _mean_collective(self) noexcept
    @cython.locals(seen="int", own="long long", own_bit="int", other="long long",
                   other_bit="int")
    cdef bint _mean_message(self) noexcept
    @cython.locals(key="bytes")
    cdef int _group_number(self, const unsigned char* data) except -2


@cython.locals(bits="unsigned char", at="Py_ssize_t")
cdef bint _is_ascii(const unsigned char* data, Py_ssize_t start,
                    Py_ssize_t end) noexcept

cdef int _wire_type_of(int arm) noexcept

@cython.locals(bit="int", name="const unsigned char*", place="int")
cdef int _attribute_bit(const unsigned char* data, Py_ssize_t at,
                        Py_ssize_t length) noexcept
