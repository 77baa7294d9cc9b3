# C types for the compiled form of node_bytes.py.

cimport cython

cdef int FIRST_NOT_PLAIN, GROUP, GROUP_NUMBER, INVOLVED, ON_CPU, OP_TYPE
cdef int _COUNT
cdef int _WIDTH
cdef int _EDGES
cdef long long _NO_VALUE
cdef int _NOWHERE
cdef unsigned long long _INT64_MAX
cdef unsigned long long _WORD_MASK
cdef int _VARINT
cdef int _FIXED64
cdef int _LENGTH_DELIMITED
cdef int _FIXED32
cdef unsigned long long _LAST_TYPE
cdef int _INT32
cdef int _INT64
cdef int _UINT32
cdef int _UINT64
cdef int _BOOL
cdef int _STRING
cdef int _BYTES
cdef int _BOOL_LIST


cdef class NodeBytes:
    # Dependencies of several nodes, one after another.
    cdef unsigned long long[::1] _data
    cdef unsigned long long[::1] _control
    cdef int _edges
    cdef int _control_edges
    # The read position in the current node, and the content of the node.
    cdef Py_ssize_t _at
    cdef unsigned long long _node_id
    cdef unsigned long long _start
    cdef unsigned long long _duration
    cdef int _node_type
    cdef Py_ssize_t _name_at
    cdef Py_ssize_t _name_end
    cdef Py_ssize_t _group_at
    cdef Py_ssize_t _group_end
    cdef Py_ssize_t _op_type_at
    cdef Py_ssize_t _op_type_end
    cdef int _seen
    cdef int _odd
    # Values of the attributes, lengths of their names, and all names.
    cdef long long[::1] _numbers
    cdef const unsigned char[::1] _lengths
    cdef const unsigned char[::1] _names_of

    @cython.locals(tag="unsigned long long", field="unsigned long long",
                   wire_type="int", value="unsigned long long", at="Py_ssize_t",
                   left="unsigned long long", stop="Py_ssize_t")
    @cython.final
    cdef bint _read(self, const unsigned char* data, Py_ssize_t start,
                    Py_ssize_t end) noexcept
    @cython.locals(value="unsigned long long")
    @cython.final
    cdef bint _read_ids(self, const unsigned char* data, Py_ssize_t stop,
                        bint control) noexcept
    @cython.locals(tag="unsigned long long", wire_type="int",
                   length="unsigned long long", left="unsigned long long")
    @cython.final
    cdef bint _read_texts(self, const unsigned char* data, Py_ssize_t stop) noexcept
    @cython.locals(name_at="Py_ssize_t", name_end="Py_ssize_t", value_at="Py_ssize_t",
                   value_end="Py_ssize_t", arm="int", number="unsigned long long",
                   tag="unsigned long long", field="int", wire_type="int",
                   length="unsigned long long", at="Py_ssize_t",
                   left="unsigned long long", end="Py_ssize_t", which="int", bit="int")
    @cython.final
    cdef bint _read_attribute(self, const unsigned char* data, Py_ssize_t start,
                              Py_ssize_t stop) noexcept
    @cython.locals(of_values="int", tag="unsigned long long",
                   field="unsigned long long", wire_type="int",
                   length="unsigned long long", left="unsigned long long",
                   end="Py_ssize_t")
    @cython.final
    cdef bint _read_list(self, const unsigned char* data, Py_ssize_t stop,
                         int arm) noexcept
    @cython.locals(number="long long")
    @cython.final
    cdef void _set_number(self, int which, int arm,
                          unsigned long long stored) noexcept
    @cython.locals(which="int", place="int", begin="int")
    @cython.final
    cdef int _which(self, const unsigned char* data, Py_ssize_t at,
                    Py_ssize_t length) noexcept
    @cython.locals(at="Py_ssize_t", value="unsigned long long", shift="int",
                   byte="unsigned long long")
    @cython.final
    cdef unsigned long long _varint(self, const unsigned char* data,
                                    Py_ssize_t end) noexcept


@cython.locals(bits="unsigned char", at="Py_ssize_t")
cdef bint _is_ascii(const unsigned char* data, Py_ssize_t start,
                    Py_ssize_t end) noexcept

@cython.locals(at="Py_ssize_t")
cdef bint _all_true(const unsigned char* data, Py_ssize_t start,
                    Py_ssize_t end) noexcept

cdef int _wire_type_of(int arm) noexcept
