"""Netlink requests in the kernel's format."""

from __future__ import annotations

import socket
import struct

import pytest

from chakram.fabric.labs import netlink_requests as ask
from tests.unit.fabric.netlink_messages import (
    CHANGE,
    MAKE,
    REPLACE,
    Message,
    attributes_of,
    decoded,
    mac,
    number,
    text,
)

IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_MASTER = 1, 3, 4, 10
IFLA_TXQLEN, IFLA_LINKINFO, IFLA_NET_NS_FD = 13, 18, 28
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
IFLA_BR_STP_STATE, IFLA_BR_MCAST_SNOOPING = 5, 23
UP, NOARP, MULTICAST = 0x1, 0x80, 0x1000
MAC, OTHER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
V4, V6 = socket.AF_INET, socket.AF_INET6


@pytest.mark.parametrize(
    ("silent", "flags", "change"),
    [(False, UP, UP), (True, UP | NOARP, UP | NOARP | MULTICAST)],
)
def test_a_bridge_is_up_and_neither_spans_trees_nor_listens_for_groups(
    silent: bool, flags: int, change: int
) -> None:
    request = ask.new_bridge("br0", index=100, mac=MAC, mtu=1500, silent=silent)

    found = decoded(request)
    assert request.what == "bridge br0"
    assert (found.kind, found.flags) == ("NEWLINK", MAKE)
    assert found.fields == {"index": 100, "flags": flags, "change": change}
    info = attributes_of(found.attributes.pop(IFLA_LINKINFO))
    assert found.attributes == {
        IFLA_IFNAME: text("br0"),
        IFLA_ADDRESS: mac(MAC),
        IFLA_MTU: number(1500),
    }
    assert info[IFLA_INFO_KIND].rstrip(b"\0") == b"bridge"
    assert attributes_of(info[IFLA_INFO_DATA]) == {
        IFLA_BR_STP_STATE: number(0),
        IFLA_BR_MCAST_SNOOPING: b"\0",
    }


def veth(
    *,
    master: int | None = None,
    macs: tuple[str | None, str | None] = (None, None),
    silent: bool = False,
) -> tuple[Message, dict[str, int], dict[int, bytes]]:
    """Return the request for a pair, and the fields and attributes of its far end."""
    request = ask.new_veth(
        "p0",
        index=101,
        mac=macs[0],
        master=master,
        mtu=4200,
        peer_name="eth0",
        peer_index=102,
        peer_mac=macs[1],
        peer_namespace=7,
        silent=silent,
    )
    assert request.what == "interface p0"
    found = decoded(request)
    info = attributes_of(found.attributes.pop(IFLA_LINKINFO))
    assert info[IFLA_INFO_KIND].rstrip(b"\0") == b"veth"
    peer = attributes_of(info[IFLA_INFO_DATA])[VETH_INFO_PEER]
    _, _, index, flags, change = struct.unpack_from("=BxHiII", peer)
    fields = {"index": index, "flags": flags, "change": change}
    return found, fields, attributes_of(peer[16:])


def test_a_pair_has_names_numbers_and_an_mtu_and_only_the_near_end_is_up() -> None:
    near, far, attributes = veth()

    assert (near.kind, near.flags) == ("NEWLINK", MAKE)
    assert near.fields == {"index": 101, "flags": UP, "change": UP}
    assert near.attributes == {
        IFLA_IFNAME: text("p0"),
        IFLA_MTU: number(4200),
        IFLA_TXQLEN: number(1000),
    }
    assert far == {"index": 102, "flags": 0, "change": 0}
    assert attributes == {
        IFLA_IFNAME: text("eth0"),
        IFLA_MTU: number(4200),
        IFLA_TXQLEN: number(1000),
        IFLA_NET_NS_FD: number(7),
    }


def test_a_pair_has_the_addresses_and_the_bridge_that_are_given() -> None:
    near, _, attributes = veth(master=100, macs=(MAC, OTHER_MAC))

    assert near.attributes[IFLA_ADDRESS] == mac(MAC)
    assert near.attributes[IFLA_MASTER] == number(100)
    assert attributes[IFLA_ADDRESS] == mac(OTHER_MAC)


def test_silent_pair_sends_no_arp() -> None:
    near, far, _ = veth(silent=True)

    assert near.fields["flags"] == UP | NOARP
    assert near.fields["change"] == UP | NOARP | MULTICAST
    assert far == {"index": 102, "flags": NOARP, "change": NOARP | MULTICAST}


@pytest.mark.parametrize(("up", "flags"), [(True, {"flags": UP}), (False, {})])
def test_changing_the_state_of_a_link_changes_nothing_else(
    up: bool, flags: dict[str, int]
) -> None:
    request = ask.set_link(7, up=up, what="interface x")

    assert request.what == "interface x"
    assert decoded(request) == Message(
        kind="NEWLINK",
        flags=CHANGE,
        fields={"index": 7, "change": UP, **flags},
        attributes={},
    )


@pytest.mark.parametrize(
    ("address", "family", "flags"),
    # IPv6 would first ask whether anybody else has it: IFA_F_NODAD.
    [("198.18.0.1", V4, {}), ("2001:2::1", V6, {"flags": 2})],
)
def test_address_is_usable_at_once(
    address: str, family: int, flags: dict[str, int]
) -> None:
    request = ask.add_address(address, prefix_length=24, index=7)

    packed = socket.inet_pton(family, address)
    assert request.what == f"address {address}/24"
    assert decoded(request) == Message(
        kind="NEWADDR",
        flags=MAKE,
        fields={"family": family, "prefix_length": 24, "index": 7, **flags},
        # IFA_ADDRESS and IFA_LOCAL.
        attributes={1: packed, 2: packed},
    )


@pytest.mark.parametrize(("address", "family"), [("198.18.0.1", V4), ("2001:2::1", V6)])
def test_neighbor_entry_is_permanent(address: str, family: int) -> None:
    request = ask.add_neighbor(address, mac=MAC, index=7)

    assert request.what == f"neighbor {address}"
    assert decoded(request) == Message(
        kind="NEWNEIGH",
        flags=REPLACE,
        # NUD_PERMANENT
        fields={"family": family, "index": 7, "state": 0x80},
        # NDA_DST and NDA_LLADDR
        attributes={1: socket.inet_pton(family, address), 2: mac(MAC)},
    )


def test_a_bridge_learns_of_an_address_behind_a_port() -> None:
    request = ask.add_forwarding_entry(MAC, port=9)

    assert request.what == f"forwarding entry {MAC}"
    assert decoded(request) == Message(
        kind="NEWNEIGH",
        flags=REPLACE,
        # AF_BRIDGE, NUD_NOARP and NTF_MASTER
        fields={"family": 7, "index": 9, "state": 0x40, "flags": 4},
        attributes={2: mac(MAC)},
    )


# RT_TABLE_MAIN, RTPROT_STATIC, RTN_UNICAST; the scope, the universe, is 0.
ROUTE = {"table": 254, "protocol": 4, "type": 1}
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_MULTIPATH = 1, 4, 5, 9


@pytest.mark.parametrize(
    ("replace", "flags"), [(False, MAKE), (True, REPLACE)], ids=["new", "replaced"]
)
def test_a_route_has_one_next_hop(replace: bool, flags: set[str]) -> None:
    request = ask.add_route(
        "198.18.1.0",
        prefix_length=24,
        next_hops=[("198.19.0.1", 7)],
        replace=replace,
    )

    assert request.what == "route to 198.18.1.0/24"
    assert decoded(request) == Message(
        kind="NEWROUTE",
        flags=flags,
        fields={"family": V4, "dst_len": 24, **ROUTE},
        attributes={
            RTA_DST: bytes([198, 18, 1, 0]),
            RTA_GATEWAY: bytes([198, 19, 0, 1]),
            RTA_OIF: number(7),
        },
    )


def test_the_default_route_has_no_destination() -> None:
    found = decoded(
        ask.add_route(
            ask.ANY_ADDRESS["ipv6"], prefix_length=0, next_hops=[("2001:2::1", 7)]
        )
    )

    assert found.fields == {"family": V6, **ROUTE}
    assert RTA_DST not in found.attributes


def test_several_next_hops_share_the_load_evenly() -> None:
    found = decoded(
        ask.add_route(
            "198.18.1.0",
            prefix_length=24,
            next_hops=[("198.19.0.1", 7), ("198.19.0.3", 8)],
        )
    )

    assert set(found.attributes) == {RTA_DST, RTA_MULTIPATH}
    hops = found.attributes[RTA_MULTIPATH]
    # struct rtnexthop: length, flags, hops (weight less one), interface; the gateway.
    assert hops == b"".join(
        struct.pack("=HBBi", 16, 0, 0, index)
        + struct.pack("=HH", 8, RTA_GATEWAY)
        + bytes([198, 19, 0, last])
        for index, last in ((7, 1), (8, 3))
    )


def test_queue_is_removed_by_its_position() -> None:
    request = ask.remove_queue(7, parent=0xFFFFFFFF, what="htb")

    assert request.what == "htb"
    assert decoded(request) == Message(
        kind="DELQDISC",
        flags=CHANGE,
        fields={"index": 7, "parent": 0xFFFFFFFF},
        attributes={},
    )
