"""Addresses of the interfaces of a host."""

from __future__ import annotations

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg

from chakram_agent.host_ports import address_of


@pytest.mark.parametrize(
    ("attributes", "bits", "expected"),
    [
        ({"IFA_ADDRESS": "198.18.1.1", "IFA_LOCAL": "198.18.1.1"}, 24, "198.18.1.1/24"),
        ({"IFA_ADDRESS": "198.18.1.2", "IFA_LOCAL": "198.18.1.1"}, 32, "198.18.1.1/32"),
        ({"IFA_ADDRESS": "2001:2::1"}, 64, "2001:2::1/64"),
        ({"IFA_ADDRESS": "2001:2::2", "IFA_LOCAL": "2001:2::1"}, 128, "2001:2::1/128"),
    ],
)
def test_the_address_of_an_interface_is_its_own_and_not_that_of_its_peer(
    attributes: dict[str, str], bits: int, expected: str
) -> None:
    message = ifaddrmsg()
    message["prefixlen"] = bits
    message["attrs"] = list(attributes.items())
    assert address_of(message) == expected
