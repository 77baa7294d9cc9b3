"""The last steps of building: offloads of hosts, and waiting for the switches."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyroute2.ethtool.ioctl import EthtoolError, IoctlEthtool

from chakram.errors import FabricError
from chakram.fabric.netlink import ask

if TYPE_CHECKING:
    from pyroute2 import AsyncIPRoute

    from chakram.fabric.namespaces import Namespace


# Fresh namespaces may hold devices that modules put into each one (tunl0, sit0, ...)
# under the first numbers.
FIRST_INDEX = 100
"""Number of the first interface that a lab makes in a namespace."""

_OPERATIONAL = "UP"
_BRIDGE_PORT_FORWARDS = 3
_READY_WITHIN_NS = 10 * 10**9
_READY_POLL_S = 0.005


def switch_off_udp_segmentation(node: str, interface: str) -> None:
    """Have packets of a burst leave one by one; called in the node's namespace.

    Args:
        node: The host or switch, for errors.
        interface: Its interface.

    Raises:
        FabricError: If the kernel cannot.
    """
    device = IoctlEthtool(interface)
    try:
        features = device.get_features()
        features["tx-udp-segmentation"] = False
        device.set_features(features)
    except (OSError, EthtoolError, KeyError) as error:
        raise FabricError(
            f"interface {interface} of {node}",
            f"cannot switch off tx-udp-segmentation ({error!r})",
            "leave out fabric.capture",
        ) from error
    finally:
        device.close()


def wait_until_ready(switches: Iterable[Namespace]) -> None:
    """Wait until every port of every switch is up and forwards.

    The kernel brings the near end of an interface pair up and opens the ports of a
    bridge in the background; what is sent before is lost.  Hosts' ends can send from
    the moment they are up, whatever state they show.

    Raises:
        FabricError: If that takes far too long.
    """
    deadline_ns = time.monotonic_ns() + _READY_WITHIN_NS
    waiting = list(switches)
    while True:
        sockets = [each.netlink for each in waiting]
        ready = ask(sockets, _all_ready, "reading its interfaces")
        waiting = [
            each for each, is_ready in zip(waiting, ready, strict=True) if not is_ready
        ]
        if not waiting:
            return
        if time.monotonic_ns() > deadline_ns:
            names = ", ".join(each.name for each in waiting)
            raise FabricError(
                "fabric", f"ports of {names} did not come up", "see the kernel's log"
            )
        time.sleep(_READY_POLL_S)


async def _all_ready(route: AsyncIPRoute) -> bool:
    return all(
        [
            _is_ready(link)
            async for link in await route.link("dump")
            if link["index"] >= FIRST_INDEX
        ]
    )


def _is_ready(link: Any) -> bool:
    if link.get_attr("IFLA_OPERSTATE") != _OPERATIONAL:
        return False
    state = link.get_nested(
        "IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA", "IFLA_BRPORT_STATE"
    )
    return state is None or state == _BRIDGE_PORT_FORWARDS
