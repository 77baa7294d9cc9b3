"""Invariants of a switch model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from chakram.switch.packet_slots import INGRESS, SIZE
from chakram.switch.settings import CLASSES

if TYPE_CHECKING:
    from chakram.switch.model import SwitchModel

__all__ = ["check_model"]


def check_model(model: SwitchModel, now_ns: int) -> list[str]:
    """Return violations of accounts, queues and pauses; empty if there are none.

    Every packet that waits is in exactly two accounts, with what it occupies; at a host
    in one.
    """
    ports = model.ports()
    wrong = [text for port in ports for text in port.check(now_ns)]
    incoming: Counter[tuple[int, int]] = Counter()
    outgoing: Counter[tuple[int, int]] = Counter()
    for port in ports:
        for klass in range(CLASSES):
            for slot in port.slots(klass):
                occupied = port.occupied(model.packets.get(slot, SIZE))
                outgoing[port.number, klass] += occupied
                incoming[model.packets.get(slot, INGRESS), klass] += occupied
    for port in ports:
        for side, accounts, waiting in (
            ("ingress", port.ingress, incoming),
            ("egress", port.egress, outgoing),
        ):
            for klass, account in enumerate(accounts):
                held = account.used_bytes + account.headroom_used_bytes
                if held != waiting[port.number, klass]:
                    wrong.append(
                        f"{port.name} class {klass}: {side} account of {held} bytes "
                        f"for {waiting[port.number, klass]} that wait"
                    )
    for pool in model.pools:
        wrong += pool.check()
        accounts = [
            account
            for port in ports
            for account in (*port.ingress, *port.egress)
            if account.pool is pool
        ]
        shared = sum(account.shared_bytes() for account in accounts)
        if shared != pool.used_bytes:
            wrong.append(f"pool {pool.name}: {shared} used, not {pool.used_bytes}")
        headroom = sum(account.headroom_used_bytes for account in accounts)
        if headroom != pool.headroom_used_bytes:
            wrong.append(
                f"pool {pool.name}: {headroom} of headroom used, not "
                f"{pool.headroom_used_bytes}"
            )
    return wrong
