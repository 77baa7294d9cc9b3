"""Lossless ports that connect endpoints in one process without the kernel, for tests.

``memory:`` ports find each other by address in a ``MemoryNetwork``. They carry encoded
packets, so they exercise the encoder and the parser like a real port.
"""

from __future__ import annotations

import os
from collections import deque

from chakram.foundation.ip_addresses import address_halves
from chakram_agent.dataplane.port_base import Port
from chakram_agent.dataplane.port_options import PortCapabilities, PortOptions

_BUFFER_BYTES = 65_536
_QUEUED_BURSTS = 4096


class MemoryNetwork:
    """The network that connects the ``memory:`` ports of one process."""

    def __init__(self) -> None:
        self.ports: dict[tuple[str, int], MemoryPort] = {}


class MemoryPort(Port):
    """A port that puts its bursts directly into the queue of another port."""

    def __init__(self, network: MemoryNetwork, options: PortOptions) -> None:
        super().__init__()
        self._bytes = bytearray(_BUFFER_BYTES)
        self.buffer = memoryview(self._bytes)
        self._network = network
        self._address = (options.address, options.udp_port)
        self._destinations = list(options.destinations)
        self._halves = address_halves(options.address)
        self._arrived: deque[tuple[bytes, int, int, bool, tuple[int, int]]] = deque()
        # An eventfd that counts queued bursts, so that the loop can poll this port like
        # any other.
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        network.ports[self._address] = self

    @property
    def capabilities(self) -> PortCapabilities:
        """Capabilities of this port."""
        return PortCapabilities(segmentation=True, coalescing=True)

    def fileno(self) -> int:
        """Return a descriptor that is readable when a burst has arrived."""
        return self._event

    def send_burst(
        self,
        view: memoryview,
        segment_size: int,
        destination: int,
        source_port: int,
        kind: int,
        marked: bool = False,
    ) -> bool:
        """Queue one burst at its destination, or return False if the queue is full."""
        receiver = self._network.ports.get(self._destinations[destination])
        if receiver is None:
            return True  # as on a network, the sender gets no error
        if len(receiver._arrived) >= _QUEUED_BURSTS:
            self.send_retries += 1
            return False
        receiver._arrived.append(
            (bytes(view), segment_size, source_port, marked, self._halves)
        )
        os.eventfd_write(receiver._event, 1)
        return True

    def receive_burst(self) -> bool:
        """Store the next arrival in the attributes. Return False if there is none."""
        if not self._arrived:
            return False
        os.eventfd_read(self._event)
        data, self.segment_size, self.source_port, self.marked, source = (
            self._arrived.popleft()
        )
        self.source_high, self.source_low = source
        self.length = len(data)
        self._bytes[: len(data)] = data
        return True

    def close(self) -> None:
        """Remove this port from the network."""
        if self._network.ports.pop(self._address, None) is not None:
            os.close(self._event)
