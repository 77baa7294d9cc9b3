"""Two network namespaces with nothing but a pair of interfaces between them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.fabric.labs.namespaces import (
    close_namespaces,
    host_sysctls,
    make_namespaces,
)
from chakram.fabric.labs.netlink_requests import add_address, new_veth, set_link
from chakram.topology.addressing import plan_addresses
from chakram.topology.topology import HOST_INTERFACE
from chakram.topology.topology_helpers import single_switch

if TYPE_CHECKING:
    from collections.abc import Iterator

_INDEX = 2
_PREFIX_LENGTH = 15


@dataclass(frozen=True, slots=True)
class End:
    """One of the two: path of its namespace, and its address."""

    netns: str
    address: str


@contextmanager
def veth_pair(mtu: int) -> Iterator[tuple[End, End]]:
    """Make the namespaces; they are gone after the block.

    Raises:
        PrivilegeError: If this process may not.
    """
    topology = single_switch(2, None)
    plan = plan_addresses(topology)
    addresses = [plan.host(host).address for host in topology.hosts]
    made, _ = make_namespaces({"a": host_sysctls("ipv4"), "b": host_sysctls("ipv4")})
    try:
        a, b = made.values()
        a.netlink.execute(
            [
                new_veth(
                    HOST_INTERFACE,
                    index=_INDEX,
                    mac=None,
                    master=None,
                    mtu=mtu,
                    peer_name=HOST_INTERFACE,
                    peer_index=_INDEX,
                    peer_mac=None,
                    peer_namespace=b.descriptor,
                )
            ]
        )
        for end, address in zip((a, b), addresses, strict=True):
            end.netlink.execute(
                [
                    set_link(_INDEX, up=True, what="interface eth0"),
                    add_address(address, prefix_length=_PREFIX_LENGTH, index=_INDEX),
                ]
            )
        first, second = (
            End(f"/proc/{os.getpid()}/fd/{end.descriptor}", address)
            for end, address in zip((a, b), addresses, strict=True)
        )
        yield first, second
    finally:
        close_namespaces(made)
