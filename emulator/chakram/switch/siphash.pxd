# C types for compiling siphash.py.

cimport cython

cdef unsigned long long _MASK


@cython.locals(
    v0="unsigned long long",
    v1="unsigned long long",
    v2="unsigned long long",
    v3="unsigned long long",
    word="unsigned long long",
    rounds=int,
    number=Py_ssize_t,
    _=int,
)
cdef unsigned long long _mixed(
    unsigned long long k0, unsigned long long k1, list words
) except? 0
