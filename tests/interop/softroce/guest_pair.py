"""One queue pair of Soft-RoCE in the guest, for ``guest.py``."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from messages import Message, messages_of, total_bytes
from pyverbs import enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

if TYPE_CHECKING:
    from guest import Guest

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
# What the host may be asked for without serving it.
REQUESTS = {
    "read": e.IBV_WR_RDMA_READ,
    "compare_swap": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "fetch_add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
    "send_invalidate": e.IBV_WR_SEND_WITH_INV,
    "atomic_write": e.IBV_WR_ATOMIC_WRITE,
}
REQUEST_BYTES = 8
INLINE_BYTES = 64
ENTRIES_PER_POLL = 16


class Pair:
    """One queue pair, its memory, and the messages of both directions."""

    def __init__(self, guest: Guest, order: dict[str, Any]) -> None:
        self.verb: str = order["verb"]
        self.outgoing = messages_of(order["outgoing"])
        self.incoming = messages_of(order["incoming"])
        receives = self.receives()
        depth = max(len(self.outgoing) + 1, len(receives))
        self.cq = CQ(guest.context, 2 * depth)
        capabilities = QPCap(
            max_send_wr=depth, max_recv_wr=depth, max_inline_data=INLINE_BYTES
        )
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
        sent_bytes = max(REQUEST_BYTES, total_bytes(self.outgoing))
        self.sent = MR(guest.pd, sent_bytes, ACCESS)
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
        attributes.retry_cnt = order["retries"]
        attributes.rnr_retry = 7
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
            is_inline = message.size_bytes <= INLINE_BYTES
            request = SendWR(
                wr_id=message.number,
                opcode=OPCODES[self.verb, message.has_immediate],
                num_sge=1,
                imm_data=socket.htonl(message.number),
                send_flags=e.IBV_SEND_SIGNALED | is_inline * e.IBV_SEND_INLINE,
                sg=[SGE(place, message.size_bytes, self.sent.lkey)],
            )
            if self.verb == "write":
                request.set_wr_rdma(key, address + message.offset)
            self.qp.post_send(request)

    def post_request(self, name: str, address: int, key: int) -> None:
        """Send unsupported requests after all messages."""
        request = SendWR(
            wr_id=len(self.outgoing),
            opcode=REQUESTS[name],
            num_sge=1,
            # Of a SEND with invalidate it is the key.
            imm_data=key,
            send_flags=e.IBV_SEND_SIGNALED,
            sg=[SGE(self.sent.buf, REQUEST_BYTES, self.sent.lkey)],
        )
        if name in ("compare_swap", "fetch_add"):
            request.set_wr_atomic(key, address, 1, 1)
        elif name != "send_invalidate":
            request.set_wr_rdma(key, address)
        self.qp.post_send(request)

    def poll(self) -> list[Any]:
        return list(self.cq.poll(ENTRIES_PER_POLL)[1])

    def faults(self, completions: list[Any]) -> list[str]:
        """Return mistakes in received data, except for failed completions."""
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
