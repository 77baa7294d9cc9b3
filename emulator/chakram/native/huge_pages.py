"""Huge pages for the memory of large simulations.

A large simulation accesses hundreds of megabytes in random order, and nearly every
access misses the TLB. The page walk to a 4 KiB page then costs as much as the cache
miss itself, and twice as much on a virtual machine. Pages of 2 MiB are so few that the
TLB contains the entries of most of them.
"""

from __future__ import annotations

__all__ = ["use_huge_pages"]


def use_huge_pages() -> bool:
    """Allocate new objects and arrays in huge pages where the kernel allows it.

    This allocator costs up to 2 MiB and stays in use for the life of the process. It
    changes nothing else. Without glibc, arrays remain in small pages.

    Returns:
        Whether the allocator is in use. False if it is not compiled.
    """
    try:
        from chakram.native import _huge_pages
    except ImportError:  # not built, or disabled
        return False
    _huge_pages.install()
    return True
