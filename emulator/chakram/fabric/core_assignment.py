"""Assignment of cores on machines that run both the traffic and the fabric.

A kernel switch takes about as much time per packet as the sender and the receiver. By
default, the kernel forwards packets on the sender's core, which delays the next packet.
Therefore labs split the cores of the machine. Data-plane processes use the first half.
The kernel forwards packets through the switches on the other half.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

_GROUP_BITS = 32


def data_plane_cores(usable: Collection[int]) -> tuple[int, ...]:
    """Return the part of the *usable* cores that data-plane processes use."""
    cores = sorted(usable)
    return tuple(cores[: (len(cores) + 1) // 2])


def forwarding_cores(usable: Collection[int]) -> tuple[int, ...]:
    """Return the cores for forwarding, or none if only one core is usable."""
    return tuple(sorted(usable)[len(data_plane_cores(usable)) :])


def shard_core(usable: Collection[int], *, number: int, shards: int) -> int | None:
    """Return the core for data-plane process *number* out of *shards* processes.

    Returns None if there are more processes than cores. In that case, no process is
    pinned.
    """
    cores = sorted(usable)
    return cores[number] if number < shards <= len(cores) else None


def core_mask(cores: Sequence[int]) -> str:
    """Return *cores* in the kernel's mask format: hexadecimal, in groups of 32 bits."""
    mask = sum(1 << core for core in set(cores))
    groups = []
    while True:
        groups.append(mask & (1 << _GROUP_BITS) - 1)
        mask >>= _GROUP_BITS
        if not mask:
            break
    first, *rest = reversed(groups)
    return ",".join([f"{first:x}", *(f"{group:08x}" for group in rest)])
