# Compiled version of the function in append_rows.py: see prefetch_lines.pxd.

from cpython.array cimport array

cdef extern from *:
    """
    #pragma GCC diagnostic ignored "-Wunused-function"
    /* A macro, because Cython declares resize_smart further below. */
    #define chakram_append_row(rows, row) ( \
        (rows)->ob_exports > 0 \
        ? (PyErr_SetString(PyExc_BufferError, "rows that have a view cannot grow"), -1) \
        : resize_smart(rows, Py_SIZE(rows) + Py_SIZE(row)) < 0 ? -1 : (memcpy( \
            (rows)->data.as_longlongs + Py_SIZE(rows) - Py_SIZE(row), \
            (row)->data.as_longlongs, sizeof(long long) * Py_SIZE(row)), 0))
    """
    cpdef int append_row "chakram_append_row"(array rows, array row) except -1
