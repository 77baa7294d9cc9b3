# Compiled versions of the functions in buffers.py: see prefetch_lines.pxd.

cdef extern from *:
    """
    #pragma GCC diagnostic ignored "-Wunused-function"
    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) \
        && !defined(__clang__)
    /* memcmp uses 32 bytes at a time, and stops at the first difference. */
    __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
    static int chakram_same(const char *data, const char *other, size_t length) {
        unsigned long long difference = 0, word, other_word;
        size_t at = 0;
        for (; at + 8 <= length; at += 8) {
            memcpy(&word, data + at, 8);
            memcpy(&other_word, other + at, 8);
            difference |= word ^ other_word;
        }
        return !difference
            && (at == length || !memcmp(data + at, other + at, length - at));
    }
    #else
    #define chakram_same(data, other, length) (!memcmp(data, other, length))
    #endif
    static CYTHON_INLINE unsigned int chakram_word_at(const char *at) {
        const unsigned char *bytes = (const unsigned char *) at;
        return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (unsigned int) bytes[3] << 24;
    }
    static CYTHON_INLINE unsigned long long chakram_network_word_at(const char *at) {
        const unsigned char *bytes = (const unsigned char *) at;
        return (unsigned int) bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
    }
    /* Macros, because a call would copy the descriptions of the buffers. */
    #define chakram_same_bytes(first, at, second, second_at, length) \
        chakram_same((first).data + (at), (second).data + (second_at), length)
    #define chakram_word(bytes, at) chakram_word_at((bytes).data + (at))
    #define chakram_network_word(bytes, at) \
        chakram_network_word_at((bytes).data + (at))
    """
    cpdef bint same_bytes "chakram_same_bytes"(
        const unsigned char[::1] data, Py_ssize_t at,
        const unsigned char[::1] other, Py_ssize_t other_at, Py_ssize_t length
    ) noexcept
    cpdef unsigned int word "chakram_word"(
        const unsigned char[::1] data, Py_ssize_t at
    ) noexcept
    cpdef unsigned long long network_word "chakram_network_word"(
        const unsigned char[::1] data, Py_ssize_t at
    ) noexcept
