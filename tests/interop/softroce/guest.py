"""Program inside the guest: queue pairs of Soft-RoCE, controlled over TCP.

The host sends one JSON object per line and gets one back. This is run by the
distribution's Python, which has pyverbs; it needs nothing of this project but
``guest_pair.py`` and ``messages.py`` beside it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from guest_pair import Pair
from pyverbs import enums as e
from pyverbs.device import Context
from pyverbs.pd import PD

NAP_S = 0.0005
COUNTERS = Path("/sys/class/infiniband/rxe0/ports/1/hw_counters")


class Guest:
    """The device, with one public method per request of the host."""

    def __init__(self) -> None:
        self.context = Context(name="rxe0")
        self.pd = PD(self.context)
        self.pairs: list[Pair] = []

    def gid_index(self, address: str) -> int:
        """Return the index of an address among the GIDs of the device."""
        for index in range(16):
            if str(self.context.query_gid(1, index)) == address:
                return index
        raise LookupError(f"no GID of rxe0 is {address}")

    def hello(self) -> dict[str, Any]:
        return {"release": os.uname().release}

    def execute(self, script: str) -> dict[str, Any]:
        """Run *script* in a shell up to the first failure; return its output."""
        done = subprocess.run(
            ["sh", "-ec", script],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{script}: {done.stderr}")
        return {"said": done.stdout}

    def counters(self) -> dict[str, Any]:
        return {each.name: int(each.read_text()) for each in COUNTERS.iterdir()}

    def open(self, pairs: list[dict[str, Any]]) -> dict[str, Any]:
        self.pairs = [Pair(self, order) for order in pairs]
        return {"pairs": [pair.describe() for pair in self.pairs]}

    def connect(
        self, pairs: list[dict[str, Any]], post_receives: bool = True
    ) -> dict[str, Any]:
        for pair, order in zip(self.pairs, pairs, strict=True):
            pair.connect(self, order)
            if post_receives:
                pair.post_receives()
        return {}

    def exchange(
        self,
        memory: list[dict[str, int]],
        limit_s: float,
        receives_after_s: float | None,
        last_request: str,
    ) -> dict[str, Any]:
        """Send everything, and take everything; return how that went.

        What is posted on a queue pair that fails is completed too, as flushed.
        """
        began_s = time.monotonic()
        missing = 0
        for pair, place in zip(self.pairs, memory, strict=True):
            pair.post_sends(place["address"], place["key"])
            if last_request:
                pair.post_request(last_request, place["address"], place["key"])
                missing += 1
            missing += len(pair.outgoing) + len(pair.receives())
        if receives_after_s is not None:
            time.sleep(receives_after_s)
            for pair in self.pairs:
                pair.post_receives()
        sends: list[list[Any]] = [[] for _ in self.pairs]
        receives: list[list[Any]] = [[] for _ in self.pairs]
        statuses: list[Counter[int]] = [Counter() for _ in self.pairs]
        failed = []
        while missing and time.monotonic() - began_s < limit_s:
            came = 0
            for number, pair in enumerate(self.pairs):
                for done in pair.poll():
                    came += 1
                    statuses[number][done.status] += 1
                    if done.status != e.IBV_WC_SUCCESS:
                        failed.append(f"message {done.wr_id}: status {done.status}")
                    elif done.opcode & e.IBV_WC_RECV:
                        receives[number].append(done)
                    else:
                        sends[number].append(done)
            missing -= came
            if not came:
                time.sleep(NAP_S)
        elapsed_s = time.monotonic() - began_s
        for pair, done in zip(self.pairs, sends, strict=True):
            numbers = [each.wr_id for each in done]
            if numbers != [message.number for message in pair.outgoing]:
                failed.append(f"sent {len(done)} of {len(pair.outgoing)}")
        wrong = [
            fault
            for pair, done in zip(self.pairs, receives, strict=True)
            for fault in pair.faults(done)
        ]
        return {
            "seconds": elapsed_s,
            "missing": missing,
            "failed": failed[:5],
            "statuses": {
                pair.verb: counted
                for pair, counted in zip(self.pairs, statuses, strict=True)
            },
            "wrong": wrong[:5],
            "check_seconds": time.monotonic() - began_s - elapsed_s,
        }

    def close(self) -> dict[str, Any]:
        for pair in self.pairs:
            pair.close()
        self.pairs = []
        return {}


def main() -> None:
    """Serve one host until it hangs up."""
    guest = Guest()
    with socket.create_server(("", int(sys.argv[1]))) as server:
        connection, _ = server.accept()
    with connection, connection.makefile("r") as lines:
        for line in lines:
            order = json.loads(line)
            try:
                answer = getattr(guest, order.pop("do"))(**order)
            except Exception:  # noqa: BLE001 - it is the host's to see
                answer = {"error": traceback.format_exc()}
            connection.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
