"""Hearing pause frames that a fabric sends to a port."""

from __future__ import annotations

import socket

from chakram.errors import EnvironmentProblem
from chakram.switch.pause_frames import ETHERTYPE_PAUSE, pause_ns, paused_classes
from chakram.switch.profiles import DSCP_IS_CLASS

__all__ = ["PauseListener"]

_LONGEST_BYTES = 128


class PauseListener:
    """The pause frames (IEEE 802.1Qbb) that come to an interface.

    Args:
        interface: Its name, in the network namespace of this thread.
        rate_bps: Of the port; None: it has none.
        dscps: Of data and of answers.

    Raises:
        EnvironmentProblem: If this process may not listen there.
    """

    def __init__(
        self, interface: str, *, rate_bps: int | None, dscps: tuple[int, int]
    ) -> None:
        self._rate_bps = rate_bps
        self._classes = [DSCP_IS_CLASS[dscp] for dscp in dscps]
        try:
            self._socket = socket.socket(
                socket.AF_PACKET,
                socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
                0,
            )
            self._socket.bind((interface, ETHERTYPE_PAUSE))
        except OSError as error:
            raise EnvironmentProblem(
                f"port udp:{interface}",
                f"cannot hear pause frames ({error.strerror})",
                "that needs CAP_NET_RAW; leave out ,pauses",
            ) from error

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when one has come."""
        return self._socket.fileno()

    def take(self) -> list[tuple[bool, bool, int]]:
        """Return what has come: whether data, and answers, rest, and for how long."""
        data, answers = self._classes
        found: list[tuple[bool, bool, int]] = []
        while True:
            try:
                frame = self._socket.recv(_LONGEST_BYTES)
            except BlockingIOError:
                return found
            found += [
                (klass == data, klass == answers, pause_ns(quanta, self._rate_bps))
                for klass, quanta in paused_classes(frame)
            ]

    def close(self) -> None:
        """Hear nothing more."""
        self._socket.close()
