"""The limit on open files of this process, which includes its sockets."""

from __future__ import annotations

from chakram.foundation.platform_support import module_or_none


def allow_descriptors(more: int) -> None:
    """Raise the soft limit by *more* open files, but not above the hard limit.

    Programs that this process starts inherit the limit. Some of them close all possible
    descriptors one by one, so the limit must not be much higher than necessary.
    """
    resource = module_or_none("resource")
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    wanted = soft + more
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
