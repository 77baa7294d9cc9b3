# Compiled versions of the functions in prefetch.py. A module imports the functions from
# prefetch.py; its .pxd file cimports the functions of the same names from this file.
# This file has another name so that prefetch.py is not compiled.

cdef extern from *:
    """
    /* Cython generates a Python wrapper of each function in every module. */
    #pragma GCC diagnostic ignored "-Wunused-function"
    static CYTHON_INLINE void chakram_prefetch(PyObject *thing, int lines) {
        for (int line = 0; line < lines; line++)
            __builtin_prefetch((char *) thing + 64 * line);
    }
    #define chakram_prefetch_item(things, at, lines) \
        chakram_prefetch(PyList_GET_ITEM(things, at), lines)
    #define chakram_prefetch_place(things, at) \
        __builtin_prefetch(&PyList_GET_ITEM(things, at))
    #define chakram_prefetch_part(things, at, first, lines) \
        chakram_prefetch( \
            (PyObject *) ((char *) PyList_GET_ITEM(things, at) + 64 * (first)), lines)
    #define chakram_prefetch_cell(cells, at) __builtin_prefetch((cells).data + 8 * (at))
    """
    cpdef void prefetch "chakram_prefetch"(object thing, int lines) noexcept
    cpdef void prefetch_item "chakram_prefetch_item"(
        list things, Py_ssize_t at, int lines
    ) noexcept
    cpdef void prefetch_place "chakram_prefetch_place"(
        list things, Py_ssize_t at
    ) noexcept
    cpdef void prefetch_part "chakram_prefetch_part"(
        list things, Py_ssize_t at, int first, int lines
    ) noexcept
    cpdef void prefetch_cell "chakram_prefetch_cell"(
        long long[::1] cells, Py_ssize_t at
    ) noexcept
