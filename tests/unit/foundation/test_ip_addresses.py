from __future__ import annotations

import pytest

from chakram.foundation.ip_addresses import (
    family_of,
    is_ipv6,
    socket_text,
    why_unusable,
)


def test_the_family_of_an_address_has_a_name() -> None:
    assert (family_of("198.18.0.1"), family_of("2001:2::1")) == ("ipv4", "ipv6")
    assert is_ipv6("::1")
    assert not is_ipv6("127.0.0.1")


def test_ipv6_addresses_have_brackets_before_a_port() -> None:
    assert socket_text("198.18.0.1", 4791) == "198.18.0.1:4791"
    assert socket_text("2001:2::1", 4791) == "[2001:2::1]:4791"


@pytest.mark.parametrize("text", ["198.18.0.1", "127.0.0.1", "2001:2::1", "::1"])
def test_host_addresses_are_accepted(text: str) -> None:
    assert why_unusable(text) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fe80::1", "link-local"),
        ("2001:2::1%eth0", "link-local"),
        ("::ffff:198.18.0.1", "IPv4"),
        ("ff02::1", "not the address of a single port"),
        ("224.0.0.1", "not the address of a single port"),
        ("0.0.0.0", "not the address of a single port"),
        ("255.255.255.255", "not the address of a single port"),
        ("::", "not the address of a single port"),
    ],
)
def test_non_host_addresses_are_refused_with_a_reason(text: str, reason: str) -> None:
    assert reason in (why_unusable(text) or "")


def test_invalid_address_is_refused() -> None:
    with pytest.raises(ValueError, match="h1"):
        why_unusable("h1")
