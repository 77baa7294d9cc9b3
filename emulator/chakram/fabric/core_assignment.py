"""Who works on which core, where one machine is generator and fabric at once.

A kernel switch costs about as much per packet as its sender and receiver: left alone,
the kernel does that work on the core of whoever sent, and what is sent next waits. So
the cores of a machine with a lab are halved: data-plane processes keep to the first
half, and the kernel takes packets through the switches on the other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

_GROUP_BITS = 32


def data_plane_cores(usable: Collection[int]) -> tuple[int, ...]:
    """Return the cores, of those that are *usable*, for data-plane processes."""
    cores = sorted(usable)
    return tuple(cores[: (len(cores) + 1) // 2])


def forwarding_cores(usable: Collection[int]) -> tuple[int, ...]:
    """Return the cores that take packets through the switches; none of a single one."""
    return tuple(sorted(usable)[len(data_plane_cores(usable)) :])


def shard_core(usable: Collection[int], *, number: int, shards: int) -> int | None:
    """Return the core of one of several data-plane processes.

    None if it should not keep to one: there are more processes than cores.
    """
    cores = sorted(usable)
    return cores[number] if number < shards <= len(cores) else None


def core_mask(cores: Sequence[int]) -> str:
    """Return *cores* as the kernel writes sets of them: hexadecimal, in 32s."""
    mask = sum(1 << core for core in set(cores))
    groups = []
    while True:
        groups.append(mask & (1 << _GROUP_BITS) - 1)
        mask >>= _GROUP_BITS
        if not mask:
            break
    first, *rest = reversed(groups)
    return ",".join([f"{first:x}", *(f"{group:08x}" for group in rest)])
