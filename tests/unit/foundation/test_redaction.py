"""Redacted texts have no names, and the same name is always replaced alike."""

from __future__ import annotations

import pytest

from chakram.foundation.redaction import Redactor

PLANTED = {
    "hosts": ("gpu-node17", "gpu-node17.corp.example.com", "rail2-leaf4"),
    "users": ("jdoe",),
}


def redacted(text: str, home: str = "/home/jdoe") -> str:
    redactor = Redactor(text, hosts=PLANTED["hosts"], users=PLANTED["users"], home=home)
    return redactor.redact(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("agent gpu-node17 (10.1.2.3:7411)", "agent h1 (addr1:7411)"),
        ("GPU-NODE17.corp.example.com failed", "h1 failed"),
        ("gpu-node17.corp.example.com is gpu-node17", "h1 is h1"),
        ("agent-rail2-leaf4.log", "agent-h1.log"),
        ("from 10.1.2.3 to 10.1.2.4 and 10.1.2.3", "from addr1 to addr2 and addr1"),
        ("address: 198.18.1.1/24", "address: addr1/24"),
        ("[2001:db8::1]:4791 2001:DB8:0::1", "[addr1]:4791 addr1"),
        ("to fe80::1%eth0: refused", "to addr1%eth0: refused"),
        ("2001:db8::7: refused", "addr1: refused"),
        ("::ffff:10.1.2.3", "addr1"),
        ("lladdr 0c:42:A1:03:00:65 up", "lladdr mac1 up"),
        ("0c42.a103.0065, 0c-42-a1-03-00-65", "mac1, mac2"),
        ("/home/jdoe/run /home/ann/x", "~/run /home/user1/x"),
        (r"C:\Users\ann\x by ann", r"C:\Users\user1\x by user1"),
        ("jdoe's run", "user1's run"),
    ],
)
def test_names_are_replaced(text: str, expected: str) -> None:
    assert redacted(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:9464 ::1 0.0.0.0",
        "at 12:34:56 and 2026-11-28T01:02:03+00:00",
        "protobuf 4.25.1, kernel 6.1.0-18, 300.1.2.3",
        "localhost root 1:2 a::b::c x:y:z std::vector",
        "digest 5c73e7d0-50b5-4fa8-acb0-e4bb3472e734",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert redacted(text) == text


def test_a_replacement_is_no_word_of_the_text() -> None:
    assert redacted("h1 sends to gpu-node17 at 10.1.2.3, addr1") == (
        "h1 sends to h2 at addr2, addr1"
    )


def test_a_name_inside_another_word_stays() -> None:
    assert (
        redacted("jdoerr xgpu-node17 gpu-node170") == "jdoerr xgpu-node17 gpu-node170"
    )


def test_without_names_only_addresses_are_replaced() -> None:
    text = "root at 10.0.0.1 in /x"
    redactor = Redactor(text, hosts=(), users=(), home="/")
    assert redactor.redact(text) == "root at addr1 in /x"
    assert redactor.counts == {"addr": 1}
