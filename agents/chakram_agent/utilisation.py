"""How busy a data-plane process is while its ranks are measured and communicate.

A process that is at its limit need not let anything wait that is due: its
acknowledgements come late, and windows hold the others back.  So how long due packets
waited does not show it, and neither does its share of a run, with all the time in which
ranks compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram_agent.dataplane.loop import DataPlane


class Utilisation:
    """Looks at a data plane every now and then.

    Args:
        plane: The data plane.

    Attributes:
        measured_ns: Time in which a rank communicated in a measured iteration.
        measured_busy_ns: What of that the plane was busy for.
    """

    def __init__(self, plane: DataPlane) -> None:
        self.measured_ns = 0
        self.measured_busy_ns = 0
        self._plane = plane
        self._looked_ns: int | None = None
        self._busy_ns = 0

    def look(self, now_ns: int) -> None:
        """Count the time since the last look, by what ranks do now."""
        before_ns, self._looked_ns = self._looked_ns, now_ns
        busy_before_ns, self._busy_ns = self._busy_ns, self._plane.busy_ns
        if before_ns is None:
            return
        if any(line.endpoint.is_measuring() for line in self._plane.lines):
            self.measured_ns += now_ns - before_ns
            self.measured_busy_ns += self._busy_ns - busy_before_ns
