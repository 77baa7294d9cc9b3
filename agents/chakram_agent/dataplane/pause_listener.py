"""Listener for the pause frames that the fabric sends to a port."""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection

from chakram.foundation.errors import EnvironmentProblem
from chakram.switch.pause_frames import ETHERTYPE_PAUSE, pause_ns, paused_classes
from chakram.switch.profiles import DSCP_IS_CLASS

_LONGEST_BYTES = 128


class PauseListener:
    """Listener for the pause frames (IEEE 802.1Qbb) that arrive at an interface.

    If data use several classes, the port pauses data only while all of these classes
    are paused. Until then, packets of a paused class wait in the switch model, because
    its port for this host obeys the same pause frames. The other classes continue.

    Args:
        interface: Name of the interface, in the network namespace of this thread.
        rate_bps: Rate of the port. None if it is unlimited.
        data_dscps: DSCPs of data packets.
        ack_dscp: DSCP of ACKs and NAKs.

    Raises:
        EnvironmentProblem: If this process may not listen on the interface.
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
        # End of the pause of each data class.
        self._until_ns = {DSCP_IS_CLASS[dscp]: 0 for dscp in data_dscps}
        self._interface = interface
        try:
            self._socket = socket.socket(
                socket.AF_PACKET,
                socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
                0,
            )
        except OSError as error:
            raise self._cannot_receive(error) from error
        try:
            self._socket.bind((interface, ETHERTYPE_PAUSE))
        except OSError as error:
            self._socket.close()
            raise self._cannot_receive(error) from error

    def _cannot_receive(self, error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(
            f"port udp:{self._interface}",
            f"cannot receive pause frames ({error.strerror})",
            "grant CAP_NET_RAW, or leave out ,pauses",
        )

    def fileno(self) -> int:
        """Return a descriptor that is readable when a frame has arrived."""
        return self._socket.fileno()

    def take(self, now_ns: int) -> list[tuple[bool, bool, int]]:
        """Return the pauses in new frames.

        Each tuple contains whether the pause applies to data, whether it applies to
        ACKs and NAKs, and its end in ns.

        Raises:
            EnvironmentProblem: If the socket is no longer usable.
        """
        found: list[tuple[bool, bool, int]] = []
        while True:
            try:
                frame = self._socket.recv(_LONGEST_BYTES)
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno != errno.ENETDOWN:
                    raise self._cannot_receive(error) from error
                # The kernel reports each outage once. Frames arrive again afterward.
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
        """Stop listening."""
        self._socket.close()
