"""Packets of a capture file as tshark decodes them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

_FIELDS = (
    "frame.number",
    "frame.len",
    "frame.protocols",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.flow",
    "udp.length",
    "infiniband.bth.opcode",
    "infiniband.bth.padcnt",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.reth.dmalen",
    "infiniband.immdt",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.invariant.crc",
    "_ws.malformed",
)
_UDP_BYTES, _BTH_BYTES, _RETH_BYTES, _SHORT_BYTES = 8, 12, 16, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """One packet; None means that it lacks the field."""

    number: int
    frame_bytes: int
    source: str
    destination: str
    udp_bytes: int
    opcode: int
    pad_bytes: int
    qpn: int
    ack_request: bool
    psn: int
    dma_length_bytes: int | None
    immediate: int | None
    syndrome: int | None
    msn: int | None
    icrc: bytes

    @property
    def queue_pair(self) -> tuple[str, str, int]:
        """Sender, receiver, and the receiver's number."""
        return self.source, self.destination, self.qpn

    @property
    def payload_bytes(self) -> int:
        """Payload that belongs to its message."""
        carried = self.udp_bytes - _UDP_BYTES - _BTH_BYTES - self.pad_bytes
        carried -= _SHORT_BYTES  # the ICRC
        carried -= _RETH_BYTES if self.dma_length_bytes is not None else 0
        return carried - _SHORT_BYTES * (self.immediate is not None)


def decode(path: Path) -> list[Decoded]:
    """Return every packet of a capture; all must be whole RoCEv2 packets."""
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "separator=|"]
    for name in _FIELDS:
        command += ["-e", name]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return [_packet(line.split("|")) for line in done.stdout.splitlines()]


def _packet(values: list[str]) -> Decoded:
    fields = dict(zip(_FIELDS, values, strict=True))
    ip = "ipv6" if fields["ipv6.src"] else "ip"
    assert fields["frame.protocols"].startswith(f"eth:ethertype:{ip}:udp:infiniband")
    assert _number(fields["ipv6.flow"]) in (None, 0)  # as equal-cost paths need it
    assert not fields["_ws.malformed"]
    # Immediate data is listed twice.
    immediate = fields["infiniband.immdt"].partition(",")[0]
    return Decoded(
        number=int(fields["frame.number"]),
        frame_bytes=int(fields["frame.len"]),
        source=fields[f"{ip}.src"],
        destination=fields[f"{ip}.dst"],
        udp_bytes=int(fields["udp.length"]),
        opcode=int(fields["infiniband.bth.opcode"]),
        pad_bytes=int(fields["infiniband.bth.padcnt"]),
        qpn=int(fields["infiniband.bth.destqp"], 16),
        ack_request=fields["infiniband.bth.a"] in ("1", "True"),
        psn=int(fields["infiniband.bth.psn"]),
        dma_length_bytes=_number(fields["infiniband.reth.dmalen"]),
        immediate=int(immediate, 16) if immediate else None,
        syndrome=_number(fields["infiniband.aeth.syndrome"]),
        msn=_number(fields["infiniband.aeth.msn"]),
        icrc=int(fields["infiniband.invariant.crc"], 16).to_bytes(4, "big"),
    )


def _number(text: str) -> int | None:
    return int(text, 0) if text else None
