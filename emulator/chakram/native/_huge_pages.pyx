# cython: language_level=3
"""Arenas for Python objects in regions that can use huge pages: see `huge_pages`.

Python maps its arenas of 1 MiB one by one, so none of them can hold a huge page. The
arenas here are parts of larger regions that start at a huge-page boundary. Freed arenas
are kept for reuse: simulations end with their process. The heap of glibc's malloc grows
with these regions.

Source: Python's C API, "Customize pymalloc Arena Allocator"; madvise(2); mallopt(3).
"""

cdef extern from * nogil:
    """
    #include <sys/mman.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    #include <unistd.h>
    #endif

    #ifdef MADV_HUGEPAGE
    #define CHAKRAM_ARENA ((size_t) 1 << 20)
    #define CHAKRAM_PAGE ((size_t) 2 << 20)
    #define CHAKRAM_REGION ((size_t) 64 << 20)
    #define CHAKRAM_REGIONS 8192
    #define CHAKRAM_HEAP ((size_t) 128 << 20)

    /* All callers of the allocator hold the GIL. */
    static PyObjectArenaAllocator chakram_usual;
    static char *chakram_regions[CHAKRAM_REGIONS];
    static int chakram_count;
    static char *chakram_next, *chakram_end;
    static void **chakram_free;  /* linked list: the first bytes point to the next */

    /* Large lists and arrays come from malloc. Make sure that its heap has free space,
       which it keeps and which can use huge pages. */
    static void chakram_extend_heap(void) {
    #ifdef __GLIBC__
        char *taken, *first, *end;
        mallopt(M_TRIM_THRESHOLD, CHAKRAM_HEAP);
        mallopt(M_TOP_PAD, CHAKRAM_HEAP);
        mallopt(M_MMAP_THRESHOLD, CHAKRAM_HEAP / 4);
        taken = malloc(CHAKRAM_HEAP / 8);
        end = sbrk(0);
        first = (char *) (((size_t) taken + CHAKRAM_PAGE - 1) & -CHAKRAM_PAGE);
        if (taken && first < end)
            madvise(first, end - first, MADV_HUGEPAGE);
        free(taken);
    #endif
    }

    static int chakram_grow(void) {
        size_t length = CHAKRAM_REGION + CHAKRAM_PAGE;
        char *start, *first;
        if (chakram_count == CHAKRAM_REGIONS)
            return 0;
        start = mmap(NULL, length, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED)
            return 0;
        first = (char *) (((size_t) start + CHAKRAM_PAGE - 1) & -CHAKRAM_PAGE);
        if (first > start)
            munmap(start, first - start);
        if (first + CHAKRAM_REGION < start + length)
            munmap(first + CHAKRAM_REGION, start + length - first - CHAKRAM_REGION);
        madvise(first, CHAKRAM_REGION, MADV_HUGEPAGE);  /* may fail: small pages then */
        chakram_regions[chakram_count++] = chakram_next = first;
        chakram_end = first + CHAKRAM_REGION;
        chakram_extend_heap();
        return 1;
    }

    static void *chakram_take(void *context, size_t size) {
        void **arena = chakram_free;
        if (size != CHAKRAM_ARENA)
            return chakram_usual.alloc(chakram_usual.ctx, size);
        if (arena) {
            chakram_free = *arena;
            return arena;
        }
        if (chakram_next == chakram_end && !chakram_grow())
            return chakram_usual.alloc(chakram_usual.ctx, size);
        arena = (void **) chakram_next;
        chakram_next += size;
        return arena;
    }

    static void chakram_give(void *context, void *arena, size_t size) {
        for (int at = 0; at < chakram_count; at++)
            if ((char *) arena >= chakram_regions[at]
                    && (char *) arena < chakram_regions[at] + CHAKRAM_REGION) {
                *(void **) arena = chakram_free;
                chakram_free = arena;
                return;
            }
        chakram_usual.free(chakram_usual.ctx, arena, size);
    }

    static void chakram_install(void) {
        PyObjectArenaAllocator ours = {NULL, chakram_take, chakram_give};
        if (chakram_usual.alloc)
            return;
        PyObject_GetArenaAllocator(&chakram_usual);
        PyObject_SetArenaAllocator(&ours);
    }
    #else
    static void chakram_install(void) {}
    #endif
    """
    void chakram_install()


def install():
    """Take all further arenas from regions that can use huge pages."""
    chakram_install()
