"""Network namespaces: made in one go, configured, held open by descriptors.

A namespace without a name lives as long as somebody has it open; so when the process
that holds the descriptors ends, however it ends, the kernel removes every interface,
queue and route of the lab.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chakram.fabric.core_assignment import core_mask
from chakram.fabric.labs.enter_namespace import CLONE_NEWNET, unshare
from chakram.fabric.labs.link_requests import set_link
from chakram.fabric.labs.netlink import NetlinkSocket
from chakram.foundation.errors import FabricError, PrivilegeError
from chakram.foundation.ip_addresses import IPV4, IPV6
from chakram.switch.kernel_hash import hash_seed

LOOPBACK_INDEX = 1
"""Number of ``lo`` in every namespace."""

_SYSCTL_ROOT = Path("/proc/sys/net")
_HASH_SEED = "ipv4/fib_multipath_hash_seed"
"""Of both families."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sysctl:
    """A kernel setting of a namespace.

    Attributes:
        path: Below ``/proc/sys/net``.
        value: What is written.
        without: What it means if the kernel has no such setting; None if nothing.
        optional: Whether it only makes things faster: whoever may not set it goes on.
    """

    path: str
    value: str
    without: str | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """An open network namespace and a routing socket in it."""

    name: str
    descriptor: int
    netlink: NetlinkSocket

    def close(self) -> None:
        """Let go of the namespace; without another user it disappears."""
        self.netlink.close()
        os.close(self.descriptor)


# Before interfaces exist, "default" decides what they get; "all" is combined with it.
_FAMILIES = {
    IPV4: (
        Sysctl(path="ipv6/conf/all/disable_ipv6", value="1"),
        Sysctl(path="ipv6/conf/default/disable_ipv6", value="1"),
        # Packets may come back another way than they went: that is what ECMP does.
        Sysctl(path="ipv4/conf/all/rp_filter", value="0"),
        Sysctl(path="ipv4/conf/default/rp_filter", value="0"),
    ),
    IPV6: (
        Sysctl(path="ipv6/conf/all/disable_ipv6", value="0"),
        Sysctl(path="ipv6/conf/default/disable_ipv6", value="0"),
        # No addresses but ours, and nobody who looks for routers or for others with
        # the same address: all of that would be packets in the middle of a run.
        Sysctl(path="ipv6/conf/default/addr_gen_mode", value="1"),
        Sysctl(path="ipv6/conf/default/accept_ra", value="0"),
        Sysctl(path="ipv6/conf/default/accept_dad", value="0"),
        Sysctl(path="ipv6/conf/default/router_solicitations", value="0"),
    ),
}


def host_sysctls(family: str) -> tuple[Sysctl, ...]:
    """Return the settings of a host, by address family.

    Source ports from 49152 on belong to queue pairs (RFC 6335, dynamic ports, as
    RoCEv2 NICs use them), so the kernel hands out lower ones, to both families.
    """
    return (
        *_FAMILIES[family],
        Sysctl(path="ipv4/ip_local_port_range", value="32768 49151"),
        # No socket here is connected, so there is none to find before the route is:
        # 1 % of what a packet takes.
        Sysctl(path="ipv4/ip_early_demux", value="0", optional=True),
    )


def switch_sysctls(
    family: str, seed: int, number: int, cores: Sequence[int] = ()
) -> tuple[Sysctl, ...]:
    """Return the settings of switch *number* in a lab with a seed.

    Args:
        family: Address family of the lab.
        seed: Of the lab.
        number: Of the switch.
        cores: Where the kernel takes its packets through (receive packet steering);
            none: where they are sent.
    """
    return (
        *_FAMILIES[family],
        Sysctl(path="core/rps_default_mask", value=core_mask(cores), optional=True),
        # Bridges would ask the firewall, which has no rules here: 7 % of the time.
        Sysctl(path="bridge/bridge-nf-call-iptables", value="0"),
        Sysctl(path="bridge/bridge-nf-call-ip6tables", value="0"),
        Sysctl(path="bridge/bridge-nf-call-arptables", value="0"),
        Sysctl(path="ipv4/conf/all/send_redirects", value="0"),
        Sysctl(path="ipv4/conf/default/send_redirects", value="0"),
        Sysctl(
            path=f"{family}/fib_multipath_hash_policy",
            value="1",  # the five-tuple: layer 3 and 4
            without="equal-cost paths are chosen by addresses alone, not by ports",
        ),
        Sysctl(
            path=_HASH_SEED,
            value=str(hash_seed(seed, number)),
            without="the seed does not decide the choice of equal-cost paths:"
            " it changes with every boot",
        ),
    )


def forwarding_sysctls(family: str) -> tuple[Sysctl, ...]:
    """Return what lets a switch whose ports are there route packets of a family."""
    path = "ipv4/ip_forward" if family == IPV4 else "ipv6/conf/all/forwarding"
    return (Sysctl(path=path, value="1"),)


def takes_hash_seeds() -> bool:
    """Tell whether seeds decide what this kernel's ECMP hashes are (Linux 6.11)."""
    return (_SYSCTL_ROOT / _HASH_SEED).exists()


def make_namespaces(
    settings: Mapping[str, Sequence[Sysctl]],
) -> tuple[dict[str, Namespace], list[str]]:
    """Make a namespace per name, with its settings and ``lo`` up.

    A thread of its own moves from one new namespace to the next and keeps each one
    open: half a millisecond each, where a child process per namespace takes forty.

    Args:
        settings: Settings by name of the namespace, in order of creation.

    Returns:
        The namespaces by name, and notes about settings that this kernel lacks.

    Raises:
        PrivilegeError: If this process may not make namespaces.
        FabricError: If the kernel has no room for so many, or refused a setting.
    """
    made: dict[str, Namespace] = {}
    notes: dict[str, None] = {}
    failure: list[BaseException] = []

    def body() -> None:
        try:
            for name, sysctls in settings.items():
                unshare(CLONE_NEWNET)
                notes.update(dict.fromkeys(write_settings(name, sysctls)))
                descriptor = os.open(
                    "/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC
                )
                made[name] = Namespace(
                    name=name, descriptor=descriptor, netlink=NetlinkSocket(name)
                )
                made[name].netlink.execute(
                    [set_link(LOOPBACK_INDEX, up=True, what="interface lo")]
                )
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            failure.append(error)

    thread = threading.Thread(target=body, name="make-namespaces")
    thread.start()
    thread.join()
    if failure:
        close_namespaces(made)
        error = failure[0]
        if isinstance(error, OSError):
            raise _cannot_make(len(made), len(settings), error) from error
        raise error
    return made, list(notes)


def write_settings(name: str, settings: Sequence[Sysctl]) -> list[str]:
    """Write settings in the namespace of this thread.

    Args:
        name: Of the namespace, for errors.
        settings: They.

    Returns:
        Notes about settings that this kernel lacks.

    Raises:
        FabricError: If the kernel refused one.
    """
    notes = [_write(name, sysctl) for sysctl in settings]
    return [note for note in notes if note is not None]


def close_namespaces(namespaces: Mapping[str, Namespace]) -> None:
    """Let go of all namespaces."""
    for namespace in namespaces.values():
        namespace.close()


def _write(name: str, sysctl: Sysctl) -> str | None:
    """Write one setting in the namespace of this thread; return a note if it lacks."""
    path = _SYSCTL_ROOT / sysctl.path
    try:
        # Not created if it is missing: this is a directory of the kernel.
        with path.open("r+", encoding="ascii") as file:
            file.write(sysctl.value)
    except FileNotFoundError:
        if sysctl.without is None:
            return None
        setting = "net." + sysctl.path.replace("/", ".")
        return f"this kernel has no {setting}: {sysctl.without}"
    except OSError as error:
        if sysctl.optional:
            return None
        raise FabricError(
            name,
            f"cannot set {path} to {sysctl.value} ({error.strerror})",
            "is /proc/sys mounted read-only, as in a container?",
        ) from error
    return None


def _cannot_make(
    made: int, wanted: int, error: OSError
) -> FabricError | PrivilegeError:
    found = f"namespace {made + 1} of {wanted}: {error.strerror}"
    if error.errno == errno.EPERM:
        return PrivilegeError(
            "fabric", found, "run as root, or use fabric kind loopback"
        )
    if error.errno == errno.ENOSPC:
        return FabricError("fabric", found, "raise sysctl user.max_net_namespaces")
    if error.errno == errno.EMFILE:
        return FabricError("fabric", found, "raise the limit of open files (ulimit -n)")
    return FabricError("fabric", found)
