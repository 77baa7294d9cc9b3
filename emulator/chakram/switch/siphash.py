"""SipHash-2-4, the keyed hash that the Linux kernel applies to flows.

Source: J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF" (2012).
"""

from __future__ import annotations

__all__ = ["siphash"]

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_WORD_BYTES = 8


def siphash(key: tuple[int, int], message: bytes) -> int:
    """Return the 64-bit hash of *message*.

    Args:
        key: The two 64-bit halves of the key, with the first bytes in the first half.
        message: Message of any length.
    """
    whole = len(message) - len(message) % _WORD_BYTES
    last = (len(message) & 0xFF) << 56 | int.from_bytes(message[whole:], "little")
    words = [
        int.from_bytes(message[at : at + _WORD_BYTES], "little")
        for at in range(0, whole, _WORD_BYTES)
    ]
    return _mixed(key[0], key[1], [*words, last])


def _mixed(k0: int, k1: int, words: list[int]) -> int:
    """Return the hash of a message that is padded to whole words."""
    v0 = k0 ^ 0x736F_6D65_7073_6575
    v1 = k1 ^ 0x646F_7261_6E64_6F6D
    v2 = k0 ^ 0x6C79_6765_6E65_7261
    v3 = k1 ^ 0x7465_6462_7974_6573
    rounds = 2
    for number in range(len(words) + 1):
        word = 0
        if number < len(words):
            word = words[number]
        else:
            v2 ^= 0xFF
            rounds = 4
        v3 ^= word
        for _ in range(rounds):
            v0 = (v0 + v1) & _MASK
            v1 = ((v1 << 13) & _MASK | v1 >> 51) ^ v0
            v0 = (v0 << 32) & _MASK | v0 >> 32
            v2 = (v2 + v3) & _MASK
            v3 = ((v3 << 16) & _MASK | v3 >> 48) ^ v2
            v0 = (v0 + v3) & _MASK
            v3 = ((v3 << 21) & _MASK | v3 >> 43) ^ v0
            v2 = (v2 + v1) & _MASK
            v1 = ((v1 << 17) & _MASK | v1 >> 47) ^ v2
            v2 = (v2 << 32) & _MASK | v2 >> 32
        v0 ^= word
    return v0 ^ v1 ^ v2 ^ v3
