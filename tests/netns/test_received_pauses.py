"""Pause frames received by a port: affected packets and duration."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from chakram.switch.pause_frames import pause_frame
from chakram_agent.dataplane.pause_listener import PauseListener
from tests.support import missing_root, require
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE_BPS = 512 * 10**6
"""A quantum lasts 1 us."""


@pytest.fixture
def sender() -> Iterator[socket.socket]:
    require("root", missing_root())
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind(("lo", 0))
        yield sock


def heard(listener: PauseListener, now_ns: int) -> list[tuple[bool, bool, int]]:
    found: list[tuple[bool, bool, int]] = []
    wait_until(
        lambda: bool(found.extend(listener.take(now_ns)) or found), "a pause is heard"
    )
    return found


def test_data_of_several_classes_stop_when_all_are_paused(
    sender: socket.socket,
) -> None:
    listener = PauseListener("lo", rate_bps=RATE_BPS, data_dscps={26, 32}, ack_dscp=26)
    try:
        sender.send(pause_frame(3, 100))
        # Class 4 may send, and was never paused.
        assert heard(listener, 1_000)[0] == (True, True, 0)
        sender.send(pause_frame(4, 10))
        assert heard(listener, 2_000)[0] == (True, False, 12_000)
        sender.send(pause_frame(5, 10))
        assert heard(listener, 3_000)[0] == (False, False, 13_000)
        sender.send(pause_frame(3, 0))
        assert heard(listener, 4_000)[0] == (True, True, 4_000)
    finally:
        listener.close()


def test_data_of_one_class_stop_with_it(sender: socket.socket) -> None:
    listener = PauseListener("lo", rate_bps=RATE_BPS, data_dscps={26}, ack_dscp=48)
    try:
        sender.send(pause_frame(3, 100))
        assert heard(listener, 1_000)[0] == (True, False, 101_000)
        sender.send(pause_frame(6, 100))
        assert heard(listener, 1_000)[0] == (False, True, 101_000)
    finally:
        listener.close()
