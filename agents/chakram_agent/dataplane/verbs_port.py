"""An endpoint on an RDMA NIC, as a line of the data plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram_agent.dataplane.loop import Line
from chakram_agent.dataplane.port_base import Port

if TYPE_CHECKING:
    from chakram.plan.transport import TransportPlan
    from chakram.replay.endpoint import Endpoint
    from chakram_agent.dataplane.verbs_engine import VerbsEngine


class VerbsPort(Port):
    """A port without packets, because the NIC sends and receives them."""

    def __init__(self, engine: VerbsEngine) -> None:
        super().__init__()
        self._engine = engine

    def fileno(self) -> int:
        """Return a descriptor that is readable when completions have arrived."""
        return self._engine.fileno()

    def close(self) -> None:
        """Release all objects of the device, which ends the traffic."""
        self._engine.close()


class VerbsLine(Line):
    """A line whose engine passes messages to an RDMA NIC."""

    def __init__(
        self, endpoint: Endpoint, engine: VerbsEngine, transport: TransportPlan
    ) -> None:
        super().__init__(endpoint, VerbsPort(engine), transport)
        self._verbs = engine

    def receive(self) -> bool:
        """Take the completions, and return whether there were any."""
        return self._verbs.take_completions()

    def send(self, now_ns: int) -> bool:
        """Pass messages to the NIC, and return whether there were any."""
        if self._verbs.is_behind:
            self._verbs.take_completions()
        return self._verbs.hand_over() or self._verbs.is_behind


def open_verbs_line(
    endpoint: Endpoint, engine: VerbsEngine, transport: TransportPlan
) -> VerbsLine:
    """Open the NIC of an endpoint. The caller must be in the endpoint's namespace.

    Raises:
        ChakramError: If the device cannot be used.
    """
    try:
        engine.bind()
        return VerbsLine(endpoint, engine, transport)
    except BaseException:
        engine.close()
        raise
