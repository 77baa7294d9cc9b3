"""Reports of chrony and PTP, and pings that contradict them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from chakram.control.time_daemons import time_source, wall_ahead_ns
from chakram.control.wall_clock_sync import (
    TimeSource,
    disagreement,
    parse_time_status,
    parse_tracking,
)

TRACKING = (
    "0A630002,10.99.0.2,3,1795890000.123,-0.000250000,0.000001,0.00002,-1.5,"
    "0.001,0.02,0.000400000,0.000100000,64.2,Normal\n"
)
PTP = """sending: GET TIME_STATUS_NP
\t0c42a1.fffe.d1d3b2-0 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP
\t\tmaster_offset              -37
\t\tingress_time               1795890000000000000
\t\tgmPresent                  true
"""


def test_bound_of_chrony_is_offset_dispersion_and_half_the_delay() -> None:
    assert parse_tracking(TRACKING) == TimeSource(
        name="chrony", is_synchronized=True, offset_ns=250_000, bound_ns=550_000
    )


@pytest.mark.parametrize(
    ("text", "other"),
    [("0A630002,10.99.0.2", "7F7F0101,"), ("Normal", "Not synchronised")],
)
def test_chrony_without_a_reference_is_not_synchronized(text: str, other: str) -> None:
    found = parse_tracking(TRACKING.replace(text, other))
    assert found is not None
    assert not found.is_synchronized


@pytest.mark.parametrize(
    "text",
    [
        *("", "506 Cannot talk to daemon", "a,b", TRACKING.replace("0.0004", "x")),
        *(TRACKING.replace("0.000400000", each) for each in ("nan", "inf", "1e300")),
    ],
)
def test_other_output_is_no_report_of_chrony(text: str) -> None:
    assert parse_tracking(text) is None


def test_ptp_reports_an_offset_without_a_bound() -> None:
    found = TimeSource(name="ptp", is_synchronized=True, offset_ns=-37)
    assert parse_time_status(PTP) == found
    assert parse_time_status("sending: GET TIME_STATUS_NP\n") is None


def test_ptp_is_asked_if_chrony_does_not_follow_a_clock() -> None:
    async def output(command: Sequence[str]) -> str:
        return PTP if command[0] == "pmc" else TRACKING.replace("Normal", never)

    never = "Not synchronised"
    found = asyncio.run(time_source(output))
    assert found is not None
    assert found.name == "ptp"
    never = "Normal"
    assert asyncio.run(time_source(output)) == parse_tracking(TRACKING)


def test_wall_clock_is_read_between_two_readings_of_the_other_clock() -> None:
    monotonic = iter([0, 100, 200, 204, 300, 350, 400, 410, 500, 999])
    wall = iter([1_000, 1_202, 1_300, 1_400, 1_500])
    ahead_ns = wall_ahead_ns(lambda: next(monotonic), lambda: next(wall))
    assert ahead_ns == 1_202 - 202


def test_pings_that_contradict_the_bounds_of_both_hosts_are_told() -> None:
    here = parse_tracking(TRACKING)
    around = {"uncertainty_ns": 100_000, "sources": (here, here)}
    assert disagreement("h1", ahead_ns=1_200_000, **around) is None
    told = disagreement("h1", ahead_ns=-1_200_001, **around)
    assert told is not None
    assert told.startswith(
        "agent h1: pings show that its wall clock is 1.2ms behind the controller's, "
        "but chrony bounds the difference to 1.2ms"
    )
    ptp = parse_time_status(PTP)
    for one in (None, ptp):
        assert (
            disagreement("h1", ahead_ns=10**9, uncertainty_ns=0, sources=(here, one))
            is None
        )


def test_a_daemon_that_hangs_is_given_up_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = tmp_path / "pid"
    program = tmp_path / "chronyc"
    program.write_text(f"#!/bin/sh\necho $$ > {began}\nexec /bin/sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asyncio.run(time_source()) is None
    with pytest.raises(ProcessLookupError):
        os.kill(int(began.read_text()), 0)
