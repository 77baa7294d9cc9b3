"""Outcomes of a packet that arrives at a port."""

from __future__ import annotations

QUEUED, DELIVERED = 0, 1
INGRESS_LIMIT, HEADROOM_FULL, EGRESS_LIMIT, WRED, NO_ROUTE = 2, 3, 4, 5, 6
LINK_DOWN, WATCHDOG, LINK_LOSS, CORRUPTED = 7, 8, 9, 10

DROP_REASONS = {
    INGRESS_LIMIT: "ingress limit",
    HEADROOM_FULL: "headroom full",
    EGRESS_LIMIT: "egress limit",
    WRED: "WRED",
    NO_ROUTE: "no route",
    LINK_DOWN: "link down",
    WATCHDOG: "watchdog",
    LINK_LOSS: "lost on the link",
    CORRUPTED: "corrupted on the link",
}
