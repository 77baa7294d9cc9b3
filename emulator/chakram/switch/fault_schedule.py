"""Schedule that starts, changes and ends link faults at their configured times."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from chakram.switch.port import NEVER

if TYPE_CHECKING:
    from chakram.switch.faults import LinkFault


class _Port(Protocol):
    """Interface of a port, as in ``chakram.switch.port.Port``."""

    @property
    def peer(self) -> int: ...
    @property
    def rate_bps(self) -> int: ...
    @property
    def quanta_ns(self) -> int: ...


class _Links(Protocol):
    """Links that faults apply to: a ``SwitchModel``, or the links of a kernel lab."""

    def ports(self) -> Sequence[_Port]: ...
    def port(self, number: int) -> _Port: ...
    def set_link(self, number: int, is_up: bool, now_ns: int) -> None: ...
    def set_rate(self, number: int, rate_bps: int, now_ns: int) -> None: ...
    def set_errors(self, number: int, *, loss: float, corruption: float) -> None: ...
    def pause(self, number: int, klass: int, duration_ns: int, now_ns: int) -> None: ...


class FaultSchedule:
    """Pending and active link faults.

    Faults of one link may overlap. The link is up if no active fault takes it down. It
    has the lowest rate of all active faults. Each fault draws losses independently of
    the other faults.

    Args:
        model: Links that the faults apply to.
        faults: See ``add``.
    """

    def __init__(self, model: _Links, faults: Sequence[LinkFault] = ()) -> None:
        self._model = model
        self._rates_bps = [port.rate_bps for port in model.ports()]
        self._lasting: list[LinkFault] = []
        self._turns: list[tuple[int, int, int, LinkFault]] = []
        self._number = 0
        self.add(faults)

    def add(self, faults: Sequence[LinkFault]) -> None:
        """Add more faults.

        Raises:
            ValueError: If the model does not have the port of a fault.
        """
        for fault in faults:
            if not 0 <= fault.port < len(self._rates_bps):
                raise ValueError(f"there is no port {fault.port}")
            self._at(fault.at_ns, fault)

    def next_ns(self) -> int:
        """Return when the next fault starts, changes or ends, or ``NEVER``."""
        return self._turns[0][0] if self._turns else NEVER

    def advance(self, now_ns: int) -> list[int]:
        """Apply due changes, and return the ports that they affect."""
        ports: list[int] = []
        while self._turns and self._turns[0][0] <= now_ns:
            time_ns, _, _, fault = heappop(self._turns)
            if fault not in self._lasting:
                self._lasting.append(fault)
            if time_ns >= fault.until_ns:
                self._lasting.remove(fault)
            else:
                self._at(self._next_turn_ns(fault, time_ns), fault)
            if fault.kind == "pause_storm":
                self._storm(fault, time_ns)
            else:
                self._apply(fault.port, time_ns)
            ports.append(fault.port)
        return ports

    def end(self, now_ns: int) -> list[int]:
        """End all faults, and return the ports that recover.

        A paused class resumes when its pause expires.
        """
        lasting, self._lasting, self._turns = self._lasting, [], []
        ports = [each.port for each in lasting if each.kind != "pause_storm"]
        for number in ports:
            self._apply(number, now_ns)
        return ports

    def _at(self, time_ns: int, fault: LinkFault) -> None:
        self._number += 1
        heappush(self._turns, (time_ns, self._number, fault.port, fault))

    def _next_turn_ns(self, fault: LinkFault, now_ns: int) -> int:
        if fault.kind == "flap":
            step_ns = (fault.period_ns or 2) // 2
        elif fault.kind == "pause_storm":
            quanta_ns = self._model.port(fault.port).quanta_ns
            step_ns = fault.until_ns if quanta_ns == NEVER else max(1, quanta_ns // 2)
        else:
            return fault.until_ns
        return min(now_ns + step_ns, fault.until_ns)

    def _storm(self, fault: LinkFault, now_ns: int) -> None:
        rest_ns = fault.until_ns - now_ns
        port = self._model.port(fault.port)
        for klass in fault.classes:
            if rest_ns > 0:
                duration_ns = min(rest_ns, port.quanta_ns)
                self._model.pause(fault.port, klass, duration_ns, now_ns)

    def _apply(self, number: int, now_ns: int) -> None:
        """Set the state of a port to the combination of all active faults."""
        port = self._model.port(number)
        ends = {number, port.peer}
        is_up = not any(
            fault.port in ends and _is_down(fault, now_ns) for fault in self._lasting
        )
        self._model.set_link(number, is_up, now_ns)
        rate_bps = self._rates_bps[number]
        passed = intact = 1.0
        for fault in self._lasting:
            if fault.port != number:
                continue
            if fault.kind == "degrade" and fault.rate_bps is not None:
                rate_bps = min(rate_bps or fault.rate_bps, fault.rate_bps)
            elif fault.kind == "loss" and fault.probability is not None:
                passed *= 1.0 - fault.probability
            elif fault.kind == "corruption" and fault.probability is not None:
                intact *= 1.0 - fault.probability
        if rate_bps != port.rate_bps:
            self._model.set_rate(number, rate_bps, now_ns)
        # A lost packet cannot be corrupted as well.
        self._model.set_errors(
            number, loss=1.0 - passed, corruption=passed * (1.0 - intact)
        )


def _is_down(fault: LinkFault, now_ns: int) -> bool:
    if fault.kind == "flap":
        half_ns = (fault.period_ns or 2) // 2
        return (now_ns - fault.at_ns) // half_ns % 2 == 0
    return fault.kind == "down"
