"""The kernel program that steers packets to the processes of a port."""

from __future__ import annotations

import struct

import pytest

from chakram.roce.headers import Bth, Packet, encode_packet
from chakram.roce.opcodes import Opcode
from chakram_agent.divided_ports import steering_program


def chosen(program: bytes, packet: bytes) -> int:
    """Return the result of classic BPF for a packet, see the kernel's filter.rst."""
    code = list(struct.iter_unpack("=HBBI", program))
    register = at = 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == 0x30:  # load a byte; beyond the packet all is over
            if constant >= len(packet):
                return 0
            register = packet[constant]
        elif operation == 0x54:
            register &= constant
        elif operation == 0x15:
            at += if_true if register == constant else if_false
        else:
            assert operation == 0x06
            return int(constant)


def packet_for(qpn: int) -> bytes:
    bth = Bth(opcode=Opcode.SEND_ONLY, destination_qpn=qpn, psn=7)
    return encode_packet(Packet(bth=bth, payload=b"abcd"))


@pytest.mark.parametrize("shards", [(0, 1), (1, 17, 33, 62), (63, 2)])
def test_packets_go_to_the_shard_of_their_queue_pair(shards: tuple[int, ...]) -> None:
    program = steering_program(shards)

    # The last six bits of a queue pair's number name its shard.
    for number in (0, 1, 5, (1 << 18) - 1):
        for index, shard in enumerate(shards):
            assert chosen(program, packet_for(number << 6 | shard)) == index


def test_packets_of_unknown_queue_pairs_go_to_the_first_shard() -> None:
    program = steering_program((1, 17, 33))

    assert chosen(program, packet_for(5 << 6 | 2)) == 0
    assert chosen(program, b"short") == 0
    assert chosen(program, b"") == 0
