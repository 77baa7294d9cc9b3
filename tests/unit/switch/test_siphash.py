"""SipHash-2-4 compared with the published vectors."""

from __future__ import annotations

import pytest

from chakram.switch.siphash import siphash

KEY = (0x0706050403020100, 0x0F0E0D0C0B0A0908)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 0x726FDB47DD0E0E31),
        (1, 0x74F839C593DC67FD),
        (7, 0xAB0200F58B01D137),
        (8, 0x93F5F5799A932462),
        (15, 0xA129CA6149BE45E5),
        (16, 0x3F2ACC7F57C29BDB),
        (63, 0x958A324CEB064572),
    ],
)
def test_published_vectors(size: int, expected: int) -> None:
    assert siphash(KEY, bytes(range(size))) == expected


def test_both_halves_of_the_key_count() -> None:
    hashes = {siphash(key, b"flow") for key in ((1, 2), (1, 3), (2, 2), (2, 1))}
    assert len(hashes) == 4
