"""How long traffic continues without its agent, in virtual time."""

from __future__ import annotations

from chakram_agent.hang_watchdog import LAPSED, LEASE_NS, Lease

TRAFFIC_ENDS_NS = 2_000_000_000
NOTICING_NS = 100_000_000
"""What a process may take to look again: it sleeps for half of that at most."""


def armed() -> Lease:
    lease = Lease()
    lease.arm()
    return lease


def test_traffic_is_over_in_time() -> None:
    assert LEASE_NS + NOTICING_NS < TRAFFIC_ENDS_NS


def test_lease_expires_a_fixed_time_after_the_last_stamp() -> None:
    lease = armed()
    assert lease.holds(stamp_ns=5, now_ns=5 + LEASE_NS - 1)
    assert lease.holds(stamp_ns=9, now_ns=5 + LEASE_NS)
    assert not lease.holds(stamp_ns=9, now_ns=9 + LEASE_NS)


def test_lease_counts_only_when_armed() -> None:
    lease = Lease()
    assert lease.holds(stamp_ns=0, now_ns=10 * LEASE_NS)
    lease.arm()
    assert not lease.holds(stamp_ns=0, now_ns=10 * LEASE_NS)


def test_stamp_does_not_revive_an_expired_lease() -> None:
    lease = armed()
    assert not lease.holds(stamp_ns=0, now_ns=LEASE_NS)
    lease.arm()
    assert not lease.holds(stamp_ns=LEASE_NS, now_ns=LEASE_NS)
    assert lease.lapsed


def test_agent_can_end_the_lease() -> None:
    # Early after boot -1 is not long ago.
    assert not armed().holds(stamp_ns=LAPSED, now_ns=5)


def test_stamp_after_the_reading_is_no_lapse() -> None:
    assert armed().holds(stamp_ns=7, now_ns=5)


def test_agent_and_shard_suspended_together_do_not_resume() -> None:
    for agent_is_first in (True, False):
        agent, shard = armed(), armed()
        stamp_ns, now_ns = 0, 2 * LEASE_NS
        if not agent_is_first:
            assert not shard.holds(stamp_ns=stamp_ns, now_ns=now_ns)
        # As the agent does: it looks at its own last stamp before it writes another.
        holds = agent.holds(stamp_ns=stamp_ns, now_ns=now_ns)
        stamp_ns = now_ns if holds else LAPSED
        assert not shard.holds(stamp_ns=stamp_ns, now_ns=now_ns + 1)
