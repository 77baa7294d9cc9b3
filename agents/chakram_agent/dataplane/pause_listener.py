"""Hearing pause frames that a fabric sends to a port."""

from __future__ import annotations

import socket
from collections.abc import Collection

from chakram.foundation.errors import EnvironmentProblem
from chakram.switch.pause_frames import ETHERTYPE_PAUSE, pause_ns, paused_classes
from chakram.switch.profiles import DSCP_IS_CLASS

_LONGEST_BYTES = 128


class PauseListener:
    """The pause frames (IEEE 802.1Qbb) that come to an interface.

    Where data have several classes, they rest once all of these are paused: until then
    what is paused waits at the switch's end, whose port is told, too, and the others go
    on.

    Args:
        interface: Its name, in the network namespace of this thread.
        rate_bps: Of the port; None: it has none.
        data_dscps: Of data.
        ack_dscp: Of answers.

    Raises:
        EnvironmentProblem: If this process may not listen there.
    """

    def __init__(
        self,
        interface: str,
        *,
        rate_bps: int | None,
        data_dscps: Collection[int],
        ack_dscp: int,
    ) -> None:
        self._rate_bps = rate_bps
        self._answers = DSCP_IS_CLASS[ack_dscp]
        # Until when each class of data is paused.
        self._until_ns = {DSCP_IS_CLASS[dscp]: 0 for dscp in data_dscps}
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

    def take(self, now_ns: int) -> list[tuple[bool, bool, int]]:
        """Return what has come: whether data, and answers, rest, and until when."""
        found: list[tuple[bool, bool, int]] = []
        while True:
            try:
                frame = self._socket.recv(_LONGEST_BYTES)
            except BlockingIOError:
                return found
            for klass, quanta in paused_classes(frame):
                until_ns = now_ns + pause_ns(quanta, self._rate_bps)
                if klass in self._until_ns:
                    self._until_ns[klass] = until_ns
                    until_ns = min(self._until_ns.values())
                found.append(
                    (klass in self._until_ns, klass == self._answers, until_ns)
                )

    def close(self) -> None:
        """Hear nothing more."""
        self._socket.close()
