"""Control of a lab's switch process by the lab's holder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from chakram.fabric.labs.holder_protocol import raise_error, receive_line
from chakram.fabric.labs.lab_spec import LabSpec, encode_spec
from chakram.fabric.process_control import set_niceness
from chakram.foundation.errors import FabricError

_START_S = 30.0
_ANSWER_S = 5.0
_END_S = 2.0
_FIRST = -20


class LabSwitch:
    """A process that runs the modeled switches of a lab and ends with this process.

    Attributes:
        ended: Descriptor that becomes readable when the process ends.
    """

    def __init__(self, spec: LabSpec, namespace: int, log: Path) -> None:
        """Start the process, and return once it forwards packets.

        Args:
            spec: Specification of the lab.
            namespace: Descriptor of the namespace with the ports.
            log: File for the output of the process.

        Raises:
            FabricError: If the process does not start.
        """
        self._where = f"lab {spec.name}"
        self._control, theirs = socket.socketpair()
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-P",
                        "-m",
                        "chakram.fabric.modeled_switch.switch_process",
                    ),
                    *(str(theirs.fileno()), str(namespace)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(), namespace),
                start_new_session=True,
            )
        self.ended = os.pidfd_open(self._process.pid)
        try:
            # Delays of the switch process affect all hosts, so it gets the highest
            # priority. This does not apply if this process itself runs at reduced
            # priority.
            is_niced = os.getpriority(os.PRIO_PROCESS, 0) > 0
            if not is_niced and len(os.sched_getaffinity(0)) > 1:
                with suppress(PermissionError):
                    set_niceness(self._process.pid, _FIRST)
            self._ask(encode_spec(spec), _START_S)
        except BaseException:
            self.close()
            raise

    def ask(self, request: str) -> dict[str, Any]:
        """Forward a request to the process, and return the answer of the process.

        Raises:
            FabricError: If the process has ended, or does not answer.
        """
        return self._ask(request.rstrip("\n"), _ANSWER_S)

    def close(self) -> None:
        """End the process. A second call has no effect."""
        self._control.close()
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self.ended >= 0:
            os.close(self.ended)
            self.ended = -1

    def _ask(self, line: str, limit_s: float) -> dict[str, Any]:
        self._control.settimeout(limit_s)
        answer, why = b"", ""
        try:
            self._control.sendall(line.encode() + b"\n")
            answer = receive_line(self._control)
        except OSError as error:
            why = f" ({error})"
        if not answer:
            status = None
            with suppress(subprocess.TimeoutExpired):
                # The kernel closes the socket before the process is gone.
                status = self._process.wait(_END_S)
            raise FabricError(
                self._where,
                f"the process of its switches does not answer{why}"
                if status is None
                else f"the process of its switches has ended with status {status}",
                "see holder.log in the lab's directory",
            )
        fields: dict[str, Any] = json.loads(answer)
        raise_error(fields)
        return fields
