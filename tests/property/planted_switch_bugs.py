"""Bugs planted in the switch model, each of which the laws must find.

``python -m tests.property.planted_switch_bugs`` prints as JSON which laws each bug
breaks, and under "" those that are broken without any.  It needs the plain form of the
model: methods of the compiled one cannot be replaced.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from chakram.switch.buffer import FITS, REFUSED, Account
from chakram.switch.fault_schedule import FaultSchedule
from chakram.switch.forwarding import Forwarding
from chakram.switch.marking import Marker
from chakram.switch.model import SwitchModel
from chakram.switch.port import HEAD, QUANTUM, TAIL, Port
from tests.property.switch_laws import LAWS

if TYPE_CHECKING:
    from collections.abc import Callable

_release = Account.release
_charge = Account.charge
_pick = Port.pick
_pop = Port.pop
_occupy = Port.occupy
_chooses = Marker.chooses
_set_errors = SwitchModel.set_errors
_set_link = SwitchModel.set_link
_send_pause = SwitchModel._send_pause
_flush = SwitchModel._flush
_choose = Forwarding._choose


def release_forgets_the_pool(self: Account, size_bytes: int) -> None:
    before = self.pool.used_bytes
    _release(self, size_bytes)
    self.pool.used_bytes = before


def headroom_is_never_used(self: Account, size_bytes: int) -> int:
    after = self.used_bytes + size_bytes - self._reserved_bytes
    return FITS if after <= self.threshold_bytes() else REFUSED


def pause_comes_with_headroom_half_full(self: Account) -> bool:
    return self.headroom_used_bytes > self._headroom_bytes * 9 // 10


def resume_comes_at_the_limit(self: Account) -> bool:
    return (
        self.headroom_used_bytes == 0 and self.shared_bytes() <= self.threshold_bytes()
    )


def limit_ignores_what_others_have(self: Account) -> int:
    return self.pool.shared_bytes if self._has_alpha else self._static_bytes


def a_packet_more_is_taken(self: Account, size_bytes: int) -> int:
    after = self.used_bytes - self._reserved_bytes
    return FITS if after <= self.threshold_bytes() else REFUSED


def turns_ignore_weights(self: Port) -> int:
    for at in range(QUANTUM, len(self.by_class), 16):
        self.by_class[at] = 4096 if self.by_class[at] else 0
    return _pick(self)


def strict_priority_is_upside_down(self: Port) -> int:
    ready = self.ready() & self._strict
    for klass in range(8):
        if ready >> klass & 1:
            return klass
    return _pick(self)


def pauses_are_ignored(self: Port) -> int:
    self.forced = 0xFF
    return _pick(self)


def the_last_but_one_leaves_first(self: Port, klass: int) -> int:
    at = klass << 4
    head = self.by_class[at | HEAD]
    after = self.packets.cells[head + 9]
    if after < 0:
        return _pop(self, klass)
    self.packets.cells[head + 9] = self.packets.cells[after + 9]
    self.packets.cells[after + 9] = head
    if self.by_class[at | TAIL] == after:
        self.by_class[at | TAIL] = head
    self.by_class[at | HEAD] = after
    return _pop(self, klass)


def pause_frames_cut_in(self: SwitchModel, port: Port, *rest: Any) -> None:
    free_ns, remainder = port.free_ns, port.rest
    port.free_ns, port.rest = rest[-1], 0
    _send_signal(self, port, *rest)
    port.free_ns, port.rest = free_ns, remainder


_send_signal = SwitchModel._send_signal


def pauses_are_not_refreshed(
    self: SwitchModel, port: Port, klass: int, now_ns: int
) -> None:
    self._send_signal(port, klass, port.quanta_ns, now_ns)


def marks_see_the_packet_itself(self: Marker, queue_bytes: int, number: int) -> bool:
    return _chooses(self, queue_bytes + 1000, number)


def marks_are_half_as_many(self: Marker, queue_bytes: int, number: int) -> bool:
    return _chooses(self, queue_bytes, number) and number % 2 == 0


def draws_repeat(self: Marker, queue_bytes: int, number: int) -> bool:
    return _chooses(self, queue_bytes, 5)


def _do_nothing(*_: object) -> None:
    pass


def links_go_down_with_full_queues(
    self: SwitchModel, number: int, is_up: bool, now_ns: int
) -> None:
    with patch.object(SwitchModel, "_flush", _do_nothing):
        _set_link(self, number, is_up, now_ns)


def the_watchdog_empties_another_queue(
    self: SwitchModel, port: Port, klass: int, reason: int, now_ns: int
) -> None:
    _flush(self, port, (klass + 1) % 8, reason, now_ns)


def errors_hit_the_other_direction(
    self: SwitchModel, number: int, *, loss: float, corruption: float
) -> None:
    _set_errors(self, self.port(number).peer, loss=loss, corruption=corruption)


def faults_do_not_end(self: FaultSchedule, number: int, now_ns: int) -> None:
    if now_ns < 100_000:
        _apply(self, number, now_ns)


_apply = FaultSchedule._apply


def the_fullest_next_hop_is_chosen(
    self: Forwarding, flow: int, node: int, destination: int
) -> int:
    place = self._set_to(node, destination)
    hops = self._sets[place + 1 : place + 1 + 2 * self._sets[place] : 2]
    return max(hops, key=lambda each: self._ports[each].queued_bytes)


BUGS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    function.__name__: (owner, method, function)
    for owner, method, function in (
        (Account, "release", release_forgets_the_pool),
        (Account, "room_for", headroom_is_never_used),
        (Account, "wants_pause", pause_comes_with_headroom_half_full),
        (Account, "allows_resume", resume_comes_at_the_limit),
        (Account, "threshold_bytes", limit_ignores_what_others_have),
        (Account, "room_for", a_packet_more_is_taken),
        (Port, "pick", turns_ignore_weights),
        (Port, "pick", strict_priority_is_upside_down),
        (Port, "pick", pauses_are_ignored),
        (Port, "pop", the_last_but_one_leaves_first),
        (SwitchModel, "_send_signal", pause_frames_cut_in),
        (SwitchModel, "_send_pause", pauses_are_not_refreshed),
        (Marker, "chooses", marks_see_the_packet_itself),
        (Marker, "chooses", marks_are_half_as_many),
        (Marker, "chooses", draws_repeat),
        (SwitchModel, "set_link", links_go_down_with_full_queues),
        (SwitchModel, "_flush", the_watchdog_empties_another_queue),
        (SwitchModel, "set_errors", errors_hit_the_other_direction),
        (FaultSchedule, "_apply", faults_do_not_end),
        (Forwarding, "_choose", the_fullest_next_hop_is_chosen),
    )
}


def broken_laws() -> list[str]:
    """Return the names of the laws that do not hold."""
    broken: list[str] = []
    for name, law in LAWS.items():
        try:
            wrong = bool(law())
        except (AssertionError, IndexError, KeyError, ValueError):
            wrong = True  # a model in disorder may stumble before anybody asks
        if wrong:
            broken.append(name)
            break
    return broken


def main() -> None:
    """Plant each bug and print the law that finds it."""
    found = {"": broken_laws()}
    for name, (owner, method, function) in BUGS.items():
        with patch.object(owner, method, function):
            found[name] = broken_laws()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
