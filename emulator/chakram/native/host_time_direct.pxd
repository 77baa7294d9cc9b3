# Compiled version of the function in host_time.py: see prefetch_lines.pxd.

cdef extern from *:
    """
    #pragma GCC diagnostic ignored "-Wunused-function"
    #include <time.h>
    static CYTHON_INLINE long long chakram_host_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (long long) now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    cpdef long long host_ns "chakram_host_ns"() noexcept
