"""What runs inside the guest: queue pairs of Soft-RoCE, told what to do over TCP.

The host sends one JSON object per line and gets one back. This is run by the
distribution's Python, which has pyverbs; it needs nothing of this project but
``messages.py`` beside it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from messages import Message, messages_of, total_bytes
from pyverbs import enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
MTUS = {1024: e.IBV_MTU_1024, 4096: e.IBV_MTU_4096}
OPCODES = {
    ("write", False): e.IBV_WR_RDMA_WRITE,
    ("write", True): e.IBV_WR_RDMA_WRITE_WITH_IMM,
    ("send", False): e.IBV_WR_SEND,
    ("send", True): e.IBV_WR_SEND_WITH_IMM,
}
RECEIVED = {
    "write": {e.IBV_WC_RECV_RDMA_WITH_IMM},
    "send": {e.IBV_WC_RECV},
}
ENTRIES_PER_POLL = 16
NAP_S = 0.0005
COUNTERS = Path("/sys/class/infiniband/rxe0/ports/1/hw_counters")


class Pair:
    """One queue pair, its memory, and the messages of both directions."""

    def __init__(self, guest: Guest, order: dict[str, Any]) -> None:
        self.verb: str = order["verb"]
        self.outgoing = messages_of(order["outgoing"])
        self.incoming = messages_of(order["incoming"])
        receives = self.receives()
        depth = max(1, len(self.outgoing), len(receives))
        self.cq = CQ(guest.context, 2 * depth)
        capabilities = QPCap(max_send_wr=depth, max_recv_wr=depth)
        self.qp = QP(
            guest.pd,
            QPInitAttr(
                qp_type=e.IBV_QPT_RC,
                scq=self.cq,
                rcq=self.cq,
                cap=capabilities,
                sq_sig_all=1,
            ),
        )
        self.kept = MR(guest.pd, max(1, total_bytes(self.incoming)), ACCESS)
        self.sent = MR(guest.pd, max(1, total_bytes(self.outgoing)), ACCESS)
        for message in self.outgoing:
            self.sent.write(message.contents(), message.size_bytes, message.offset)

    def describe(self) -> dict[str, int]:
        return {
            "qpn": self.qp.qp_num,
            "address": self.kept.buf,
            "key": self.kept.rkey,
        }

    def connect(self, guest: Guest, order: dict[str, Any]) -> None:
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = ACCESS
        attributes.path_mtu = MTUS[order["path_mtu"]]
        attributes.dest_qp_num = order["qpn"]
        attributes.rq_psn = order["send_psn"]
        attributes.sq_psn = order["receive_psn"]
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer = order["rnr_timer"]
        attributes.timeout = order["timeout"]
        attributes.retry_cnt = attributes.rnr_retry = 7
        route = GlobalRoute(
            dgid=GID(order["gid"]),
            sgid_index=guest.gid_index(order["own_gid"]),
            hop_limit=64,
            traffic_class=order["traffic_class"],
        )
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attributes)

    def receives(self) -> list[Message]:
        """Return the messages that take a receive."""
        return [
            message
            for message in self.incoming
            if self.verb == "send" or message.has_immediate
        ]

    def post_receives(self) -> None:
        for message in self.receives():
            # A WRITE brings its own place along; but pyverbs wants one to be named.
            is_send = self.verb == "send"
            place = self.kept.buf + (message.offset if is_send else 0)
            size_bytes = message.size_bytes if is_send else 1
            self.qp.post_recv(
                RecvWR(
                    wr_id=message.number,
                    num_sge=1,
                    sg=[SGE(place, size_bytes, self.kept.lkey)],
                )
            )

    def post_sends(self, address: int, key: int) -> None:
        for message in self.outgoing:
            place = self.sent.buf + message.offset
            request = SendWR(
                wr_id=message.number,
                opcode=OPCODES[self.verb, message.has_immediate],
                num_sge=1,
                imm_data=socket.htonl(message.number),
                send_flags=e.IBV_SEND_SIGNALED,
                sg=[SGE(place, message.size_bytes, self.sent.lkey)],
            )
            if self.verb == "write":
                request.set_wr_rdma(key, address + message.offset)
            self.qp.post_send(request)

    def poll(self) -> list[Any]:
        return list(self.cq.poll(ENTRIES_PER_POLL)[1])

    def faults(self, completions: list[Any]) -> list[str]:
        """Return what is wrong with what has come, but for completions that failed."""
        expected = self.receives()
        found = []
        if len(completions) != len(expected):
            found.append(f"{len(completions)} of {len(expected)} messages were told of")
        for message, done in zip(expected, completions, strict=False):
            told = (done.wr_id, done.byte_len, done.opcode in RECEIVED[self.verb])
            if told != (message.number, message.size_bytes, True):
                found.append(f"{message}: the completion says {told}, {done.opcode}")
            has_immediate = bool(done.wc_flags & e.IBV_WC_WITH_IMM)
            if has_immediate != message.has_immediate:
                found.append(f"{message}: immediate data: {has_immediate}")
            elif has_immediate and socket.ntohl(done.imm_data) != message.number:
                found.append(f"{message}: immediate {socket.ntohl(done.imm_data)}")
        for message in self.incoming:
            kept = self.kept.read(message.size_bytes, message.offset)
            if kept != message.contents():
                found.append(f"{message}: wrong contents")
        return found

    def close(self) -> None:
        for each in (self.qp, self.cq, self.kept, self.sent):
            each.close()


class Guest:
    """The device, and what the host asks for: each public method is an order."""

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
        """Let a shell run *script* up to the first failure; return what it said."""
        done = subprocess.run(
            ["sh", "-ec", script],
            capture_output=True,
            text=True,
            timeout=60,
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
        receives_after_s: float | None = None,
    ) -> dict[str, Any]:
        """Send everything, and take everything; return how that went."""
        began_s = time.monotonic()
        for pair, place in zip(self.pairs, memory, strict=True):
            pair.post_sends(place["address"], place["key"])
        if receives_after_s is not None:
            time.sleep(receives_after_s)
            for pair in self.pairs:
                pair.post_receives()
        sends: list[list[Any]] = [[] for _ in self.pairs]
        receives: list[list[Any]] = [[] for _ in self.pairs]
        failed = []
        missing = sum(len(pair.outgoing) + len(pair.receives()) for pair in self.pairs)
        while missing and not failed and time.monotonic() - began_s < limit_s:
            came = 0
            for number, pair in enumerate(self.pairs):
                for done in pair.poll():
                    came += 1
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
            "failed": failed[:5],
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
