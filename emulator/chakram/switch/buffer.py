# cython: annotation_typing=False, language_level=3
"""Buffer memory accounts, which count the bytes that one class of a port occupies.

Every packet in a switch is charged to two accounts. The account of the packet's ingress
port and class determines when senders of lossless classes are paused. The account of
its egress port and queue limits lossy classes. An account fills its reserved part, then
its share of the pool up to its limit, then its headroom. It releases headroom first.

Source of the dynamic limit: A. Choudhury, E. Hahne, "Dynamic queue length thresholds
for shared-memory packet switches" (IEEE/ACM Transactions on Networking, 1998).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.switch.settings import BufferLimit, PoolSettings

__all__ = ["FITS", "NEEDS_HEADROOM", "REFUSED", "Account", "Pool"]

FITS, NEEDS_HEADROOM, REFUSED = 0, 1, 2

_FITS, _NEEDS_HEADROOM, _REFUSED = FITS, NEEDS_HEADROOM, REFUSED


class Pool:
    """A memory pool, shared by accounts.

    Attributes:
        name: Name of the pool.
        used_bytes: Shared bytes in use.
        headroom_used_bytes: Bytes of headroom in use.
        peak_bytes: Maximum of ``used_bytes``.
    """

    __slots__ = (
        "_headroom_bytes",
        "_shares_headroom",
        "headroom_used_bytes",
        "name",
        "peak_bytes",
        "shared_bytes",
        "used_bytes",
    )

    def __init__(self, settings: PoolSettings) -> None:
        self.name = settings.name
        self.shared_bytes = settings.shared_bytes
        self._shares_headroom = settings.headroom_bytes is not None
        self._headroom_bytes = settings.headroom_bytes or 0
        self.used_bytes = 0
        self.headroom_used_bytes = 0
        self.peak_bytes = 0

    def check(self) -> list[str]:
        """Return a list of the inconsistencies in the pool's state."""
        wrong: list[str] = []
        if not 0 <= self.used_bytes <= self.shared_bytes:
            wrong.append(
                f"pool {self.name}: {self.used_bytes} of {self.shared_bytes} used"
            )
        if self._shares_headroom and (
            not 0 <= self.headroom_used_bytes <= self._headroom_bytes
        ):
            wrong.append(
                f"pool {self.name}: {self.headroom_used_bytes} of "
                f"{self._headroom_bytes} bytes of headroom used"
            )
        return wrong


class Account:
    """Account of the memory that one class of one port occupies.

    Attributes:
        pool: Pool that contains the shared bytes of the account.
        used_bytes: Reserved and shared bytes in use.
        headroom_used_bytes: Bytes of headroom in use.
        peak_bytes: Maximum of ``used_bytes`` + ``headroom_used_bytes``.
        headroom_peak_bytes: Maximum of ``headroom_used_bytes``.
    """

    __slots__ = (
        "_alpha_shift",
        "_has_alpha",
        "_headroom_bytes",
        "_reserved_bytes",
        "_static_bytes",
        "_xon_bytes",
        "_xon_offset_bytes",
        "headroom_peak_bytes",
        "headroom_used_bytes",
        "peak_bytes",
        "pool",
        "used_bytes",
    )

    def __init__(self, limit: BufferLimit, pool: Pool) -> None:
        self.pool = pool
        self._reserved_bytes = limit.reserved_bytes
        self._has_alpha = limit.alpha_shift is not None
        self._alpha_shift = limit.alpha_shift or 0
        self._static_bytes = limit.static_bytes
        self._headroom_bytes = limit.headroom_bytes
        self._xon_bytes = limit.xon_bytes
        self._xon_offset_bytes = limit.xon_offset_bytes
        self.used_bytes = 0
        self.headroom_used_bytes = 0
        self.peak_bytes = 0
        self.headroom_peak_bytes = 0

    def threshold_bytes(self) -> int:
        """Return the current limit on the account's share of the pool."""
        if not self._has_alpha:
            return self._static_bytes
        free_bytes = self.pool.shared_bytes - self.pool.used_bytes
        if free_bytes <= 0:
            return 0
        shift = self._alpha_shift
        if shift < 0:
            return free_bytes >> -shift
        if free_bytes > _NO_LIMIT >> shift:
            return _NO_LIMIT
        return free_bytes << shift

    def shared_bytes(self) -> int:
        """Return how many bytes of the pool the account uses."""
        shared_bytes = self.used_bytes - self._reserved_bytes
        return shared_bytes if shared_bytes > 0 else 0

    def room_for(self, size_bytes: int) -> int:
        """Return how *size_bytes* fit: ``FITS``, ``NEEDS_HEADROOM`` or ``REFUSED``."""
        after = self.used_bytes + size_bytes - self._reserved_bytes
        if after <= 0:
            return _FITS
        pool = self.pool
        more = after if after < size_bytes else size_bytes
        if (
            after <= self.threshold_bytes()
            and pool.used_bytes + more <= pool.shared_bytes
        ):
            return _FITS
        if self.headroom_used_bytes + size_bytes > self._headroom_bytes:
            return _REFUSED
        if (
            pool._shares_headroom
            and pool.headroom_used_bytes + size_bytes > pool._headroom_bytes
        ):
            return _REFUSED
        return _NEEDS_HEADROOM

    def charge(self, size_bytes: int, room: int) -> None:
        """Add *size_bytes*, for which ``room_for`` has just returned *room*."""
        pool = self.pool
        if room == _NEEDS_HEADROOM:
            self.headroom_used_bytes += size_bytes
            pool.headroom_used_bytes += size_bytes
            if self.headroom_used_bytes > self.headroom_peak_bytes:
                self.headroom_peak_bytes = self.headroom_used_bytes
        else:
            shared_bytes = self.used_bytes + size_bytes - self._reserved_bytes
            self.used_bytes += size_bytes
            if shared_bytes > 0:
                pool.used_bytes += (
                    shared_bytes if shared_bytes < size_bytes else size_bytes
                )
            if pool.used_bytes > pool.peak_bytes:
                pool.peak_bytes = pool.used_bytes
        if self.used_bytes + self.headroom_used_bytes > self.peak_bytes:
            self.peak_bytes = self.used_bytes + self.headroom_used_bytes

    def release(self, size_bytes: int) -> None:
        """Release *size_bytes*."""
        pool = self.pool
        rest = size_bytes
        if self.headroom_used_bytes > 0:
            freed = rest
            if freed > self.headroom_used_bytes:
                freed = self.headroom_used_bytes
            self.headroom_used_bytes -= freed
            pool.headroom_used_bytes -= freed
            rest -= freed
        shared_bytes = self.used_bytes - self._reserved_bytes
        self.used_bytes -= rest
        if shared_bytes > 0:
            pool.used_bytes -= shared_bytes if shared_bytes < rest else rest

    def wants_pause(self) -> bool:
        """Return whether the sender of the class must be paused."""
        return (
            self.headroom_used_bytes > 0
            or self.shared_bytes() >= self.threshold_bytes()
        )

    def allows_resume(self) -> bool:
        """Return whether the sender of the class may resume."""
        if self.headroom_used_bytes > 0:
            return False
        shared_bytes = self.shared_bytes()
        if shared_bytes == 0:
            return True
        limit_bytes = self.threshold_bytes() - self._xon_offset_bytes
        if limit_bytes < self._xon_bytes:
            limit_bytes = self._xon_bytes
        return shared_bytes <= limit_bytes


_NO_LIMIT = 1 << 60
