"""Attribution of fitted faults to hosts whose data planes were late.

A late host delays messages like a slow link. The fit cannot distinguish these causes.
The time for which data planes were late distinguishes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import median

from chakram.analysis.simulation_misfit import LATE
from chakram.diagnosis.design_limits import ALL_HOSTS
from chakram.diagnosis.fault_proposals import Found, Hypothesis

_AMONG_LATEST = 0.8
_AS_LATE = 3.0
"""Maximum saving by a rival, relative to the time for which a host was late."""
_WITHOUT_CORE = 0.05
_STANDS_OUT = 1.5
"""Minimum share of the time without a core at which a host stands out.

The second value is the minimum ratio of this share to the median share.
"""
_FEW_HOSTS = 3
_DOMINATES = 2.0
"""Minimum ratio of one host's delays of critical paths to those of any other host."""


def attributed(
    slow: Hypothesis, ends: Collection[str], waits: Mapping[str, float]
) -> Hypothesis:
    """Attribute a slow link to a host at its end if the host was among the latest.

    If most hosts were late, no host stands out, and the fault names all hosts.

    Args:
        slow: A slow link.
        ends: Nodes at the ends of the link.
        waits: Share of the run for which the data plane of each host was late.
    """
    limit = max(LATE, _AMONG_LATEST * max(waits.values(), default=0.0))
    host = next((each for each in ends if waits.get(each, 0.0) >= limit), None)
    if host is None:
        return slow
    evidence = _evidence(waits[host])
    usual = median(waits.values())
    if len(waits) >= _FEW_HOSTS and usual >= limit:
        host = ALL_HOSTS
        evidence = f"data planes late for {usual:.0%} of the time (median)"
    return replace(slow, cause="generator slow", place=host, evidence=evidence)


def late_receiver(
    slow: Hypothesis,
    ends: Collection[str],
    waits: Mapping[str, float],
    coreless: Mapping[str, float],
    saved: float,
) -> tuple[Hypothesis, ...]:
    """Return a host at the end of a slow link as a rival, if it may be late to receive.

    A run does not record how late a data plane is to receive.  It records how long the
    process of the data plane had no core, and how late the other hosts were to send.

    Args:
        slow: A slow link.
        ends: Nodes at the ends of the link.
        waits: Share of the run for which the data plane of each host was late to send,
            if that delayed any collective.  Otherwise empty.
        coreless: Share of the run for which the process of each host had no core.
        saved: Share of the time that the run would save without the slow link.
    """
    host = next((each for each in ends if each in coreless or each in waits), None)
    if host is None:
        return ()
    own = coreless.get(host, 0.0)
    latest = max(waits.values(), default=0.0)
    stands_out = own >= _WITHOUT_CORE and own >= _STANDS_OUT * median(coreless.values())
    if stands_out and saved <= _AS_LATE * own:
        evidence = f"process without a core for {own:.0%} of the time"
    elif saved <= _AS_LATE * latest:
        evidence = f"data planes late to send for up to {latest:.0%} of the time"
    else:
        return ()
    return (replace(slow, cause="generator slow", place=host, evidence=evidence),)


def merged(
    found: Sequence[Found], late: Mapping[str, float], charges: Mapping[str, float]
) -> list[Found]:
    """Return the faults, with those that blame all hosts merged into one.

    If one host was much later than the others, or delayed the critical paths much more,
    the merged fault names that host.  The fault that blames all hosts then becomes a
    rival.  This does not apply if another fault already names the host.

    Args:
        found: The faults.
        late: Hosts that were late much longer than others, longest first, with the
            share of the time for which each was late.
        charges: As for :func:`latest_on_paths`.
    """
    of_all = [each for each in found if each[0].place == ALL_HOSTS]
    if not of_all:
        return list(found)
    best = replace(
        of_all[0][0], assumed=tuple(a for each, _ in of_all for a in each.assumed)
    )
    rivals = tuple(rival for _, each in of_all for rival in each)
    host, evidence = next(iter(late), None), ""
    if host is not None:
        evidence = _evidence(late[host])
    else:
        host = latest_on_paths(charges)
        if host is not None:
            evidence = on_paths(charges[host])
    if host is not None and host not in {each.place for each, _ in found}:
        rivals = (best, *rivals)
        best = replace(best, place=host, evidence=evidence)
    placed = [each for each in found if each not in of_all]
    placed.insert(found.index(of_all[0]), (best, rivals))
    return placed


def latest_on_paths(charges: Mapping[str, float]) -> str | None:
    """Return the host that delayed the critical paths much more than any other.

    Args:
        charges: Share of the time for which the late data plane of a host delayed the
            critical paths, by host.
    """
    shares = [0.0, 0.0, *sorted(charges.values())]
    if shares[-1] < max(LATE, _DOMINATES * shares[-2]):
        return None
    return max(charges, key=charges.__getitem__)


def on_paths(share: float) -> str:
    """Return the evidence that a late data plane delayed the critical paths."""
    return f"data plane late for {share:.0%} of the time on the critical paths"


def _evidence(share: float) -> str:
    return f"data plane late for {share:.0%} of the time"
