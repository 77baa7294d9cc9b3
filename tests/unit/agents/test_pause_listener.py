"""Effect of pause frames on a port."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from chakram.foundation.errors import EnvironmentProblem
from chakram.switch.pause_frames import pause_frame
from chakram_agent.dataplane import pause_listener
from chakram_agent.dataplane.pause_listener import PauseListener

RATE_BPS = 10**9
QUANTUM_NS = 512
"""512 bits at that rate."""
NOW_NS = 10**9


class Frames:
    """A packet socket: its received frames, and whether it can be opened."""

    def __init__(self) -> None:
        self.coming: list[bytes | OSError] = []
        self.bound: tuple[str, int] | None = None
        self.refusal: OSError | None = None
        self.is_open = True

    def bind(self, address: tuple[str, int]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.bound = address

    def recv(self, size: int) -> bytes:
        if not self.coming:
            raise BlockingIOError
        frame = self.coming.pop(0)
        if isinstance(frame, OSError):
            raise frame
        return frame[:size]

    def fileno(self) -> int:
        return 7

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Frames:
    made = Frames()
    names = ("AF_PACKET", "SOCK_RAW", "SOCK_CLOEXEC", "SOCK_NONBLOCK")
    fake: Any = SimpleNamespace(
        socket=lambda *_: made, **{name: getattr(socket, name) for name in names}
    )
    monkeypatch.setattr(pause_listener, "socket", fake)
    return made


def listening(*dscps: int, answers: int) -> PauseListener:
    return PauseListener("eth0", rate_bps=RATE_BPS, data_dscps=dscps, ack_dscp=answers)


def test_pause_applies_to_data_answers_or_both(frames: Frames) -> None:
    # Classes are DSCPs divided by 8: 3 and 6.
    listener = listening(26, answers=48)
    assert (frames.bound, listener.fileno()) == (("eth0", 0x8808), 7)
    assert listener.take(NOW_NS) == []

    frames.coming = [pause_frame(each, 100) for each in (3, 6, 0)]
    assert listener.take(NOW_NS) == [
        (True, False, NOW_NS + 100 * QUANTUM_NS),
        (False, True, NOW_NS + 100 * QUANTUM_NS),
        (False, False, NOW_NS + 100 * QUANTUM_NS),
    ]
    frames.coming = [pause_frame(3, 0)]
    assert listening(26, answers=24).take(NOW_NS) == [(True, True, NOW_NS)]
    listener.close()
    assert not frames.is_open


def test_data_of_several_classes_pauses_until_one_class_resumes(
    frames: Frames,
) -> None:
    listener = listening(26, 32, answers=48)

    # Only when both are paused there is nothing to send.
    frames.coming = [pause_frame(3, 100), pause_frame(4, 70), pause_frame(3, 50)]
    assert listener.take(NOW_NS) == [
        (True, False, 0),
        (True, False, NOW_NS + 70 * QUANTUM_NS),
        (True, False, NOW_NS + 50 * QUANTUM_NS),
    ]


def test_missing_privilege_to_listen_is_reported(frames: Frames) -> None:
    frames.refusal = PermissionError(1, "Operation not permitted")

    with pytest.raises(EnvironmentProblem) as raised:
        listening(26, answers=48)
    assert str(raised.value) == (
        "port udp:eth0: cannot receive pause frames (Operation not permitted)"
        " (grant CAP_NET_RAW, or leave out ,pauses)"
    )
    assert not frames.is_open


def test_pauses_continue_after_an_outage_of_the_interface(frames: Frames) -> None:
    listener = listening(26, answers=48)
    frames.coming = [OSError(errno.ENETDOWN, "Network is down"), pause_frame(3, 100)]
    assert listener.take(NOW_NS) == []
    assert listener.take(NOW_NS) == [(True, False, NOW_NS + 100 * QUANTUM_NS)]


def test_other_errors_of_the_socket_are_reported(frames: Frames) -> None:
    listener = listening(26, answers=48)
    frames.coming = [OSError(errno.EBADF, "Bad file descriptor")]
    with pytest.raises(EnvironmentProblem, match=r"udp:eth0: .*Bad file descriptor"):
        listener.take(NOW_NS)
