"""Utilization of a data plane while its ranks are measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from chakram_agent.counter_updates import LONGEST_WAIT_NS, Utilization


class Endpoint:
    measures = False

    def is_measuring(self) -> bool:
        return self.measures


def made_plane(endpoints: int) -> Any:
    lines = [SimpleNamespace(endpoint=Endpoint()) for _ in range(endpoints)]
    return SimpleNamespace(lines=lines, busy_ns=0)


def test_only_time_in_which_a_rank_is_measured_counts() -> None:
    plane = made_plane(2)
    found = Utilization(plane)
    # Time, how busy the plane has been, whether a rank of the second port is measured.
    for now_ns, busy_ns, measures in (
        (1000, 700, True),  # of unknown duration
        (2000, 1600, False),
        (4000, 2600, True),
        (5000, 3400, True),
        (9000, 3400, False),
    ):
        plane.busy_ns = busy_ns
        plane.lines[1].endpoint.measures = measures
        found.look(now_ns)
    assert (found.measured_ns, found.measured_busy_ns) == (3000, 1800)


def test_nothing_measured_is_no_time() -> None:
    found = Utilization(made_plane(0))
    found.look(1)
    found.look(2)
    assert (found.measured_ns, found.measured_busy_ns) == (0, 0)


def test_a_process_that_looks_too_late_was_stopped() -> None:
    found = Utilization(made_plane(0))
    for now_ns in (0, LONGEST_WAIT_NS, 3 * LONGEST_WAIT_NS):
        found.look(now_ns)
    assert found.stopped_ns == 0
    found.look(13 * LONGEST_WAIT_NS)
    assert found.stopped_ns == 9 * LONGEST_WAIT_NS
