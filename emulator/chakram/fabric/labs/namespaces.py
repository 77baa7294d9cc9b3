"""Creation and configuration of network namespaces, which descriptors keep open.

A namespace without a name exists as long as a process holds it open. When the process
with the descriptors ends for any reason, the kernel removes every interface, queue and
route of the lab.
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
from chakram.fabric.labs.netlink import NetlinkSocket
from chakram.fabric.labs.netlink_requests import set_link
from chakram.foundation.errors import FabricError, PrivilegeError
from chakram.foundation.ip_addresses import IPV4, IPV6
from chakram.foundation.open_file_limit import allow_descriptors
from chakram.switch.kernel_hash import hash_seed

LOOPBACK_INDEX = 1
"""Interface number of ``lo`` in every namespace."""

_DESCRIPTORS = 2
"""Number of descriptors per namespace: the namespace itself, and its routing socket."""
_SYSCTL_ROOT = Path("/proc/sys/net")
_HASH_SEED = "ipv4/fib_multipath_hash_seed"
"""Setting that applies to both address families."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sysctl:
    """A kernel setting of a namespace.

    Attributes:
        path: Path below ``/proc/sys/net``.
        value: Value to write.
        without: Consequence if the kernel lacks the setting, or None if there is none.
        optional: Whether the setting only improves speed, so that a refusal is ignored.
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
        """Release the namespace, which disappears unless another process uses it."""
        self.netlink.close()
        os.close(self.descriptor)


# New interfaces take the value of "default". The kernel combines the value of "all"
# with each interface's own value.
_FAMILIES = {
    IPV4: (
        Sysctl(path="ipv6/conf/all/disable_ipv6", value="1"),
        Sysctl(path="ipv6/conf/default/disable_ipv6", value="1"),
        # With ECMP, packets may arrive on a different path than the return path.
        Sysctl(path="ipv4/conf/all/rp_filter", value="0"),
        Sysctl(path="ipv4/conf/default/rp_filter", value="0"),
    ),
    IPV6: (
        Sysctl(path="ipv6/conf/all/disable_ipv6", value="0"),
        Sysctl(path="ipv6/conf/default/disable_ipv6", value="0"),
        # Disable automatic addresses, router solicitations and duplicate address
        # detection, because their packets would disturb a run.
        Sysctl(path="ipv6/conf/default/addr_gen_mode", value="1"),
        Sysctl(path="ipv6/conf/default/accept_ra", value="0"),
        Sysctl(path="ipv6/conf/default/accept_dad", value="0"),
        Sysctl(path="ipv6/conf/default/router_solicitations", value="0"),
    ),
}


def host_sysctls(family: str) -> tuple[Sysctl, ...]:
    """Return the settings of a host for an address family.

    Queue pairs use source ports of 49152 or higher (dynamic ports of RFC 6335), as
    RoCEv2 NICs do. The kernel therefore assigns lower ports to other sockets, in both
    families.
    """
    return (
        *_FAMILIES[family],
        Sysctl(path="ipv4/ip_local_port_range", value="32768 49151"),
        # No socket here is connected, so early demux finds none. Disabling it saves 1 %
        # of the time per packet.
        Sysctl(path="ipv4/ip_early_demux", value="0", optional=True),
    )


def switch_sysctls(
    family: str, seed: int, number: int, cores: Sequence[int] = ()
) -> tuple[Sysctl, ...]:
    """Return the settings of switch *number* in a lab.

    Args:
        family: Address family of the lab.
        seed: Seed of the lab.
        number: Number of the switch.
        cores: Cores on which the kernel forwards its packets (receive packet steering).
            Empty to forward on the core of the sender.
    """
    return (
        *_FAMILIES[family],
        Sysctl(path="core/rps_default_mask", value=core_mask(cores), optional=True),
        # Otherwise bridges consult the firewall, which takes 7 % of the time although
        # it has no rules here.
        Sysctl(path="bridge/bridge-nf-call-iptables", value="0"),
        Sysctl(path="bridge/bridge-nf-call-ip6tables", value="0"),
        Sysctl(path="bridge/bridge-nf-call-arptables", value="0"),
        Sysctl(path="ipv4/conf/all/send_redirects", value="0"),
        Sysctl(path="ipv4/conf/default/send_redirects", value="0"),
        Sysctl(
            path=f"{family}/fib_multipath_hash_policy",
            value="1",  # hash the five-tuple: layers 3 and 4
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
    """Return the settings that enable routing in a switch for an address family."""
    path = "ipv4/ip_forward" if family == IPV4 else "ipv6/conf/all/forwarding"
    return (Sysctl(path=path, value="1"),)


def takes_hash_seeds() -> bool:
    """Return whether seeds determine this kernel's ECMP hashes (since Linux 6.11)."""
    return (_SYSCTL_ROOT / _HASH_SEED).exists()


def make_namespaces(
    settings: Mapping[str, Sequence[Sysctl]],
) -> tuple[dict[str, Namespace], list[str]]:
    """Create one namespace per name, with its settings and with ``lo`` up.

    A separate thread creates one namespace after another and keeps each of them open.
    That takes half a millisecond per namespace. A child process would take 40 ms. Each
    namespace needs two descriptors, so the limit of open files rises.

    Args:
        settings: Settings by namespace name, in order of creation.

    Returns:
        The namespaces by name, and notes about settings that this kernel lacks.

    Raises:
        PrivilegeError: If this process may not create namespaces.
        FabricError: If the kernel cannot create all namespaces, or refuses a setting.
    """
    allow_descriptors(_DESCRIPTORS * len(settings))
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
                try:
                    netlink = NetlinkSocket(name)
                except BaseException:
                    os.close(descriptor)
                    raise
                made[name] = Namespace(
                    name=name, descriptor=descriptor, netlink=netlink
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
        name: Name of the namespace, for error messages.
        settings: Settings to write.

    Returns:
        Notes about settings that this kernel lacks.

    Raises:
        FabricError: If the kernel refuses a setting.
    """
    notes = [_write(name, sysctl) for sysctl in settings]
    return [note for note in notes if note is not None]


def close_namespaces(namespaces: Mapping[str, Namespace]) -> None:
    """Release all namespaces."""
    for namespace in namespaces.values():
        namespace.close()


def _write(name: str, sysctl: Sysctl) -> str | None:
    """Write a setting in this thread's namespace. Return a note if it is missing."""
    path = _SYSCTL_ROOT / sysctl.path
    try:
        # Open without creating the file, because the kernel owns this directory.
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
        return FabricError(
            "fabric",
            found,
            "raise the hard limit of open files (ulimit -Hn) to more than "
            f"{_DESCRIPTORS * wanted}, or use fewer hosts and switches",
        )
    return FabricError("fabric", found)
