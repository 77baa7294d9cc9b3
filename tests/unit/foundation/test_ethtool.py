"""Statistics of a driver, whose number can change while they are read."""

from __future__ import annotations

import struct

import pytest

from chakram.foundation import ethtool


class Driver:
    """A driver with *first* statistics, and later *then* of them."""

    def __init__(self, first: int, then: int) -> None:
        self.first = first
        self.then = then

    def ask(self, _: str, request: bytes) -> bytes:
        (command,) = struct.unpack_from("=I", request)
        if command == ethtool._GSSET_INFO:
            return struct.pack("=IIQI", command, 0, 1 << 1, self.first)
        numbers = range(self.then)
        if command == ethtool._GSTRINGS:
            head = struct.pack("=III", command, 1, self.then)
            written = b"".join((b"q%d_drops" % at).ljust(32, b"\0") for at in numbers)
        else:
            head = struct.pack("=II", command, self.then)
            written = struct.pack(f"={self.then}Q", *numbers)
        answer = head + written
        assert len(answer) <= len(request), "the kernel would write beyond the buffer"
        return answer + request[len(answer) :]


def test_statistics_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ethtool, "ask", Driver(3, 3).ask)
    assert ethtool.statistics("e0") == {"q0_drops": 0, "q1_drops": 1, "q2_drops": 2}


@pytest.mark.parametrize("then", [2, 400])
def test_statistics_whose_number_changes_are_not_read(
    then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ethtool, "ask", Driver(200, then).ask)
    assert ethtool.statistics("e0") == {}
