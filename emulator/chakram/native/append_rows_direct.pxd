# Compiled versions of the functions in append_rows.py: see prefetch_lines.pxd.

from cpython.array cimport array

cdef extern from *:
    """
    #pragma GCC diagnostic ignored "-Wunused-function"
    /* ``fromlist`` takes ten times as long. */
    static int chakram_store(long long *cells, PyObject *values) {
        for (Py_ssize_t at = 0; at < PyList_GET_SIZE(values); at++) {
            cells[at] = PyLong_AsLongLong(PyList_GET_ITEM(values, at));
            if (cells[at] == -1 && PyErr_Occurred())
                return -1;
        }
        return 0;
    }
    /* Macros, because Cython declares resize_smart further below. */
    #define chakram_append_row(rows, row) ( \
        (rows)->ob_exports > 0 \
        ? (PyErr_SetString(PyExc_BufferError, "rows that have a view cannot grow"), -1) \
        : resize_smart(rows, Py_SIZE(rows) + Py_SIZE(row)) < 0 ? -1 : (memcpy( \
            (rows)->data.as_longlongs + Py_SIZE(rows) - Py_SIZE(row), \
            (row)->data.as_longlongs, sizeof(long long) * Py_SIZE(row)), 0))
    #define chakram_append_values(rows, values) ( \
        (rows)->ob_exports > 0 \
        ? (PyErr_SetString(PyExc_BufferError, "rows that have a view cannot grow"), -1) \
        : resize_smart(rows, Py_SIZE(rows) + PyList_GET_SIZE(values)) < 0 ? -1 \
        : chakram_store( \
            (rows)->data.as_longlongs + Py_SIZE(rows) - PyList_GET_SIZE(values), \
            values) < 0 \
        ? (resize_smart(rows, Py_SIZE(rows) - PyList_GET_SIZE(values)), -1) : 0)
    """
    cpdef int append_row "chakram_append_row"(array rows, array row) except -1
    cpdef int append_values "chakram_append_values"(
        array rows, list values
    ) except -1
