"""Damaged packets, as an attacker or a broken switch might send them.

Packets of real conversations are changed where it hurts: in the opcode, the lengths,
the numbers, the end. Most of them still name an existing queue pair, because a packet
for an unknown one is dropped early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chakram.roce.opcodes import Opcode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random


_OPCODES = tuple(range(256))
_KNOWN = tuple(int(opcode) for opcode in Opcode)


def mutants(
    seeds: Sequence[bytes], rng: Random, *, qpns: Sequence[int]
) -> Iterator[bytes]:
    """Yield damaged *seeds* without end, most of them for one of *qpns*."""
    random = rng.random

    def below(end: int) -> int:
        # Several times as fast as `Random.randrange`, and as even as it needs to be.
        return int(random() * end)

    def choose(values: Sequence[Any]) -> Any:
        return values[int(random() * len(values))]

    while True:
        data = bytearray(choose(seeds))
        for _ in range(1 + below(3)):
            kind = below(9)
            if kind == 0:
                data[0] = choose(_KNOWN)
            elif kind == 1:
                data[0] = choose(_OPCODES)
            elif kind == 2 and len(data) > 12:
                # A PSN that is near, or anywhere.
                psn = below(64) - 8 if below(2) else below(1 << 24)
                data[9:12] = (psn & 0xFFFFFF).to_bytes(3, "big")
            elif kind == 3:
                del data[below(len(data)) :]
            elif kind == 4:
                data += bytes(below(300))
            elif kind == 5 and len(data) > 4:
                # Pad and version, the partition, the bits of congestion.
                data[1 + below(4)] = below(256)
            elif kind == 6 and len(data) > 12:
                at = 12 + below(len(data) - 12)
                data[at : at + 4] = below(1 << 32).to_bytes(4, "big")
            elif kind == 7 and len(data) > 8:
                data[5:8] = choose((*qpns, 1, below(1 << 24))).to_bytes(3, "big")
            elif data:
                data[below(len(data))] ^= 1 << below(8)
            if not data:
                break
        yield bytes(data)
