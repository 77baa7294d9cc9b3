"""Loss, duplication and marking of packets by the guest's kernel."""

from __future__ import annotations

import json

from tests.interop.softroce.machine import MTU, Machine

LEAVING = "eth0"
"""Where what the guest sends passes."""
ARRIVING = "ifb0"
"""Where what we send passes, for an interface queues only what leaves."""

_REDIRECT = f"""
ip link set {ARRIVING} mtu {MTU} up
tc qdisc add dev {LEAVING} handle ffff: ingress
for protocol in ip ipv6; do
    tc filter add dev {LEAVING} parent ffff: protocol $protocol flower ip_proto udp \\
        action mirred egress redirect dev {ARRIVING}
done
"""
# Orders and answers, which are TCP, pass it by.
_DISTURB = """
tc qdisc add dev {device} root handle 1: htb
tc class add dev {device} parent 1: classid 1:1 htb rate {rate}
tc qdisc add dev {device} parent 1:1 handle 10: {discipline}
for protocol in ip ipv6; do
    tc filter add dev {device} parent 1: protocol $protocol flower ip_proto udp \\
        classid 1:1
done
"""
_CLEAN = f"""
for place in "{LEAVING} ingress" "{LEAVING} root" "{ARRIVING} root"; do
    tc qdisc del dev $place 2>/dev/null || true
done
"""


def redirect(machine: Machine) -> None:
    """Let arriving packets pass a separate device."""
    machine.execute(_REDIRECT)


def clean(machine: Machine) -> None:
    """Remove all disturbances."""
    machine.execute(_CLEAN)


def lose(machine: Machine, device: str, what: str) -> None:
    """Disturb packets on *device* with the netem option *what*, e.g. ``loss 5%``."""
    discipline = f"netem {what} limit 100000"
    machine.execute(
        _DISTURB.format(device=device, rate="10gbit", discipline=discipline)
    )


def mark(machine: Machine, device: str) -> None:
    """Mark packets at *device* with RED; its rate becomes the bottleneck.

    It has room for all that is in flight: nothing is lost but what cannot be marked.
    """
    discipline = (
        "red limit 4000000 min 20000 max 60000 avpkt 4200 burst 8 "
        "bandwidth 100mbit probability 0.2 ecn"
    )
    machine.execute(
        _DISTURB.format(device=device, rate="100mbit", discipline=discipline)
    )


def marks(machine: Machine, device: str) -> int:
    """Return how many packets RED has marked at *device*."""
    disciplines = json.loads(machine.execute(f"tc -s -j qdisc show dev {device}"))
    return sum(int(each["marked"]) for each in disciplines if each["kind"] == "red")
