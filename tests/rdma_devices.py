"""RDMA devices that move bytes in this process, for tests without a device.

The real binding is tested in a guest with Soft-RoCE (tests/interop/softroce).
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from types import ModuleType
from typing import Any

import pytest

from chakram.rdma.nic_device import Nic

_COLUMNS = 6


class Fabric:
    """All memory and queue pairs of the devices."""

    def __init__(self) -> None:
        self.empty()

    def empty(self) -> None:
        self.pairs: dict[int, DeviceQueuePair] = {}
        self.memory: dict[int, Memory] = {}
        self.next_address = 1 << 20
        self.opened = 0
        self.refusal: OSError | None = None
        self.huge_page_bytes = 0
        self.can_share = True
        self.rate_limits_kbps = (0, 0)


FABRIC = Fabric()


class Device:
    def __init__(self, name: str) -> None:
        self.name = name
        self.rate_limits_kbps = FABRIC.rate_limits_kbps
        FABRIC.opened += 1

    def close(self) -> None:
        FABRIC.opened -= 1


class Memory(bytearray):
    def __init__(
        self, device: Device, size_bytes: int, *, huge_page_bytes: int = 0
    ) -> None:
        if FABRIC.refusal is not None:
            raise FABRIC.refusal
        super().__init__(size_bytes)
        FABRIC.huge_page_bytes = huge_page_bytes
        self.address = FABRIC.next_address
        self.remote_key = len(FABRIC.memory)
        FABRIC.next_address += size_bytes
        FABRIC.memory[self.remote_key] = self

    def close(self) -> None:
        pass


class CompletionQueue:
    def __init__(self, device: Device, depth: int) -> None:
        self.depth = depth
        self.done: deque[tuple[int, int, bool, int, int, int]] = deque()
        self.armed = 0

    def poll(self) -> list[tuple[int, int, bool, int, int, int]]:
        found = list(self.done)
        self.done.clear()
        return found

    def arm(self) -> None:
        self.armed += 1

    def fileno(self) -> int:
        return 0

    def close(self) -> None:
        pass


class SharedReceives:
    """Receives of several queue pairs."""

    def __init__(self, device: Device, memory: Memory, depth: int) -> None:
        if not FABRIC.can_share:
            raise OSError(95, "Operation not supported")
        self.depth = depth
        self.receives: deque[tuple[int, int]] = deque()
        FABRIC.opened += 1

    def post_receives(
        self, count: int, first_id: int, *, offset: int = 0, size_bytes: int = 0
    ) -> None:
        self.receives.extend((first_id + each, offset) for each in range(count))
        assert len(self.receives) <= self.depth

    def close(self) -> None:
        FABRIC.opened -= 1


class DeviceQueuePair:
    """A queue pair whose messages arrive at once, and whose receives may run out."""

    def __init__(
        self,
        device: Device,
        memory: Memory,
        completions: CompletionQueue,
        shared: SharedReceives | None = None,
        **depths: int,
    ) -> None:
        self.memory, self.completions = memory, completions
        self.depths = depths
        self.qpn = 100 + len(FABRIC.pairs)
        self.shared = shared
        self.receives: deque[tuple[int, int]] = (
            deque() if shared is None else shared.receives
        )
        self.lists: list[int] = []
        self.status = 0
        self.damage = 0
        self.settings: dict[str, Any] = {}
        FABRIC.pairs[self.qpn] = self

    def connect(self, **settings: Any) -> None:
        if FABRIC.refusal is not None:
            raise FABRIC.refusal
        self.settings = settings

    def post_receives(
        self, count: int, first_id: int, *, offset: int = 0, size_bytes: int = 0
    ) -> None:
        assert self.shared is None
        self.receives.extend((first_id + each, offset) for each in range(count))

    def post(self, rows: array[int]) -> None:
        self.lists.append(len(rows) // _COLUMNS)
        peer = FABRIC.pairs[self.settings["remote_qpn"]]
        for at in range(0, len(rows), _COLUMNS):
            number, offset, size, remote, immediate, signaled = rows[at : at + _COLUMNS]
            if self.status:
                self.completions.done.append(
                    (number, self.status, False, 0, 0, self.qpn)
                )
                continue
            data = self.memory[offset : offset + size]
            if size and self.damage:
                data[0] ^= 1
            receive, place = peer.receives.popleft() if immediate >= 0 else (0, 0)
            if remote >= 0:
                memory = FABRIC.memory[self.settings["remote_key"]]
                place = self.settings["remote_address"] + remote - memory.address
            else:
                memory = peer.memory
            memory[place : place + size] = data
            if immediate >= 0:
                peer.completions.done.append(
                    (receive, 0, True, size, immediate, peer.qpn)
                )
            if signaled:
                self.completions.done.append((number, 0, False, 0, -1, self.qpn))

    def close(self) -> None:
        pass


def nic_of(device: Device, address: str | None) -> Nic:
    """Return how a device is used."""
    return Nic(
        name=device.name,
        address=address or "198.18.0.1",
        gid_index=1,
        path_mtu=1024,
        rate_bps=None,
        firmware="",
    )


def replace_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the binding of libibverbs, which needs a device."""
    FABRIC.empty()
    module: Any = ModuleType("chakram.rdma.libibverbs")
    module.Memory, module.CompletionQueue = Memory, CompletionQueue
    module.QueuePair, module.SharedReceives = DeviceQueuePair, SharedReceives
    module.status_text = lambda status: f"error {status}"
    monkeypatch.setitem(sys.modules, module.__name__, module)
