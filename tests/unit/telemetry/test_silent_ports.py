"""A port is silent if others were reported several times since it was."""

from __future__ import annotations

from chakram.telemetry.silent_ports import PortReports

S = 10**9
P0, P1, CLASSES = ("p0", True), ("p1", True), ("p0", False)


def test_a_port_is_silent_after_two_and_a_half_intervals() -> None:
    reports = PortReports(interval_ns=S, class_refresh_ns=0)
    reports.begin(S)
    reports.add([P0, P1], S)
    found = []
    for now_s in range(2, 6):
        reports.add([P0], now_s * S)
        found.append(reports.has_silent(now_s * S))
    assert found == [False, False, True, True]
    reports.begin(6 * S)
    assert not reports.has_silent(6 * S)
    reports.add([P0, P1], 6 * S)
    assert not reports.has_silent(8 * S)


def test_nothing_is_silent_if_all_are_late() -> None:
    """A busy machine takes longer than an interval for the reports of all ports."""
    reports = PortReports(interval_ns=S, class_refresh_ns=0)
    ports = [(f"p{number}", True) for number in range(100)]
    for now_s, port in enumerate(3 * ports, start=1):
        # Leaves of a port arrive one after the other.
        for leaf in range(10):
            reports.add([port], now_s * S + leaf)
        assert not reports.has_silent(now_s * S + 10)


def test_counters_of_classes_may_be_reported_more_rarely() -> None:
    reports = PortReports(interval_ns=S, class_refresh_ns=10 * S)
    reports.add([P0, CLASSES], S)
    silent = []
    for now_s in range(2, 40):
        reports.add([P0], now_s * S)
        if reports.has_silent(now_s * S):
            silent.append(now_s)
    assert silent[0] == 27


def test_without_reports_nothing_is_silent() -> None:
    reports = PortReports(interval_ns=1, class_refresh_ns=0)
    reports.begin(0)
    assert not reports.has_silent(100 * S)
