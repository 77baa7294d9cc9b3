"""Huge pages for what a large simulation keeps in memory.

Of hundreds of megabytes that are looked at in no order nearly every look misses the
processor's table of pages, too, and the way to a page of 4 KiB costs as much as the
line of the cache behind it; on a virtual machine twice.  Pages of 2 MiB are so few that
the table knows most of them.
"""

from __future__ import annotations

__all__ = ["use_huge_pages"]


def use_huge_pages() -> bool:
    """Let objects that are made from now on live in huge pages, where the kernel may.

    It costs up to 2 MiB, stays for the life of the process, and changes nothing else.

    Returns:
        Whether Python asks for memory in that way now; not uncompiled.
    """
    try:
        from chakram.native import _huge_pages
    except ImportError:  # not built, or not wanted
        return False
    _huge_pages.install()
    return True
