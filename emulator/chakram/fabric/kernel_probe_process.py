"""Child process of ``machine_probe`` that tests the kernel features that labs need.

The process prints one JSON list of (name, works, reason) and ends. The kernel then
removes the namespaces of the process.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import TYPE_CHECKING

from chakram.fabric.labs.user_namespace import enter_new_user_namespace, has_net_admin
from chakram.foundation.errors import ChakramError
from chakram.foundation.ip_addresses import IPV4

if TYPE_CHECKING:
    from chakram.fabric.labs.namespaces import Namespace


_BRIDGE_INDEX = 100
_PORT_INDEX = 101
_RATE_BPS = 10**9
_LIMIT_BYTES = 1 << 20

_Result = tuple[str, bool, str]

# Queue disciplines that labs do not need, but that show the abilities of this kernel.
_FURTHER_QUEUES = (
    ("netem", "link delays"),
    ("fq", "pacing by the kernel"),
    ("red", "ECN marking by the kernel"),
)


def main() -> int:
    """Run all probes. Return 0 regardless of their results."""
    sys.stdout.write(json.dumps(_try_all()))
    return 0


def _try_all() -> list[_Result]:
    try:
        how = "as root"
        if not has_net_admin():
            enter_new_user_namespace()
            how = "in a user namespace"
        return _try_lab(how)
    except ChakramError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return [("namespaces", False, error.found + hint)]


def _try_lab(how: str) -> list[_Result]:
    # Imported late: pyroute2 takes 0.15 s to import, and entering a user namespace
    # requires a process with one thread.
    from chakram.fabric.labs.namespaces import (
        close_namespaces,
        host_sysctls,
        make_namespaces,
        switch_sysctls,
    )

    made, notes = make_namespaces(
        {"a": switch_sysctls(IPV4, 1, 0), "b": host_sysctls(IPV4)}
    )
    try:
        results = [("namespaces", True, how)]
        results += _try_devices(made["a"], made["b"])
        for setting in ("fib_multipath_hash_policy", "fib_multipath_hash_seed"):
            missing = next((note for note in notes if setting in note), None)
            results.append((setting, missing is None, missing or "settable"))
        return results
    finally:
        close_namespaces(made)


def _try_devices(near: Namespace, far: Namespace) -> list[_Result]:
    from chakram.fabric.labs.kernel_faults import attach_drop_program
    from chakram.fabric.labs.netlink_requests import new_bridge, new_veth
    from chakram.fabric.labs.shaping import shape

    bridge = new_bridge("br0", index=_BRIDGE_INDEX, mac="02:cb:00:00:00:00", mtu=1500)
    pair = new_veth(
        "port",
        index=_PORT_INDEX,
        mac=None,
        master=None,
        mtu=1500,
        peer_name="eth0",
        peer_index=_PORT_INDEX,
        peer_mac=None,
        peer_namespace=far.descriptor,
    )
    results = [
        _result("veth", near.netlink.errno_of(pair), "interface pairs"),
        _result("bridge", near.netlink.errno_of(bridge), "switches within one subnet"),
    ]
    if not results[0][1]:
        return results
    root, shaping_class, leaf = shape(
        _PORT_INDEX, rate_bps=_RATE_BPS, limit_bytes=_LIMIT_BYTES
    )
    number = near.netlink.errno_of(root) or near.netlink.errno_of(shaping_class)
    results.append(_result("htb", number, "link rates"))
    results.append(
        _result("bfifo", near.netlink.errno_of(leaf), "queues limited in bytes")
    )
    refused = (near.netlink.errno_of(each) for each in attach_drop_program(_PORT_INDEX))
    number = next(filter(None, refused), 0)
    results.append(_result("bpf-filter", number, "link faults (faults.links)"))
    results += [_try_queue(far, kind, purpose) for kind, purpose in _FURTHER_QUEUES]
    return results


def _try_queue(namespace: Namespace, kind: str, purpose: str) -> _Result:
    from pyroute2.netlink import rtnl
    from pyroute2.netlink.rtnl.tcmsg import tcmsg

    from chakram.fabric.labs.netlink_requests import create

    message = tcmsg()
    message["index"] = _PORT_INDEX
    message["handle"] = 0x10000
    message["parent"] = 0xFFFF_FFFF
    message["attrs"] = [("TCA_KIND", kind)]
    number = namespace.netlink.errno_of(
        create(message, rtnl.RTM_NEWQDISC, kind, replace=True)
    )
    # A discipline that exists may fail for lack of options, but only a missing
    # discipline causes ENOENT.
    return _result(kind, number if number == errno.ENOENT else 0, purpose)


def _result(name: str, number: int, purpose: str) -> _Result:
    if number == 0:
        return (name, True, purpose)
    if number in (errno.ENOENT, errno.EOPNOTSUPP):
        return (name, False, f"not provided by this kernel: no {purpose}")
    return (name, False, f"{os.strerror(number)}: no {purpose}")


if __name__ == "__main__":
    sys.exit(main())
