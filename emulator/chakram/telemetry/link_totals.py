"""Link records, derived from the counters of the switches at the ends of links."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chakram.records.run_records import SWITCH
from chakram.telemetry.counter_history import UNKNOWN, Mark, both, grown
from chakram.telemetry.mapping import ALL_CLASSES

if TYPE_CHECKING:
    from chakram.records.run_records import LinkRecord
    from chakram.telemetry.counter_history import CounterHistory
    from chakram.topology.topology import Topology


FCS_BYTES = 4
"""Bytes per packet that switches count, but Chakram's links do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchCounters:
    """The counters of one switch during a run.

    Attributes:
        ports: The device's name of each port, by its name in the topology.
        before: Counters before the run.
        after: Counters after the run.
        history: All recorded counters and samples.
        fcs_bytes: Bytes per packet that the switch counts in addition to those of
            links.
        ahead_ns: How far the device's clock is ahead of this machine's.
        start_ns: Beginning of the run on the clock of this machine.
        end_ns: End of the run on that clock.
    """

    ports: Mapping[str, str]
    before: Mark
    after: Mark
    history: CounterHistory
    fcs_bytes: int
    ahead_ns: int
    start_ns: int = 0
    end_ns: int = 1 << 62


@dataclass(frozen=True, slots=True)
class _End:
    """One end of a link: a port of a switch that reports."""

    counters: SwitchCounters
    port: str

    def grown(self, counter: str) -> int | None:
        return grown(self.counters.before, self.counters.after, self.port, counter)

    def octets(self, way: str) -> tuple[int, int] | None:
        """Return the bytes before and after the run.

        If the switch counts packets, the FCS is subtracted from the bytes.

        A 32-bit byte counter may have wrapped and be less than the FCS of all packets
        so far. A switch may also read packets later than bytes. The result is
        nevertheless neither negative nor decreasing.
        """
        counted = self.counters
        marks = counted.before, counted.after
        octets = both(*marks, self.port, f"{way}_bytes")
        if octets is None:
            return None
        packets = both(*marks, self.port, f"{way}_packets") or (0, 0)
        first, last = (
            nbytes - counted.fcs_bytes * count
            for nbytes, count in zip(octets, packets, strict=True)
        )
        begin = max(0, first)
        return begin, begin + max(0, last - first)

    def down_ns(self) -> int:
        """Return for how long the port was down during the run."""
        counted = self.counters
        return counted.history.down_ns(
            self.port,
            counted.start_ns + counted.ahead_ns,
            counted.end_ns + counted.ahead_ns,
        )


def link_records(
    directions: Sequence[LinkRecord],
    topology: Topology,
    switches: Mapping[str, SwitchCounters],
) -> list[LinkRecord]:
    """Return the traffic of link directions whose bytes are known.

    The port that sends into a link counts its bytes, drops and marks, and the pause
    frames that it received. A host reports no counters, so the port at the far end
    counts the bytes that arrived, the drops on arrival, and the pause frames that it
    sent.

    Args:
        directions: Records without traffic (``preparation.link_records``).
        topology: Topology of the fabric.
        switches: Counters of the fabric's switches, by name.
    """
    ends = {
        port: _End(counters, device_port)
        for counters in switches.values()
        for port, device_port in counters.ports.items()
    }
    hosts = {str(topology.host_link(host).end_at(host)) for host in topology.hosts}
    far_of = {
        str(near): str(far)
        for link in topology.links
        for near, far in ((link.a, link.b), (link.b, link.a))
    }
    records = []
    for record in directions:
        port = record.port or ""
        near, far = ends.get(port), ends.get(far_of.get(port, ""))
        counted = near.octets("sent") if near else None
        if counted is None and far is not None:
            counted = far.octets("received")
        if counted is None:
            continue
        pauses = near.grown("pauses_received") if near else None
        if pauses is None and far is not None:
            pauses = far.grown("pauses_sent")
        records.append(
            replace(
                record,
                bytes_before=counted[0],
                bytes_after=counted[1],
                drops=_drops(port, near, far_of[port], far, hosts),
                marked=near.grown("marked") if near else None,
                pauses=pauses,
                paused_ns=near.grown("paused_ns") if near else None,
                down_ns=max(end.down_ns() for end in (near, far) if end) or None,
                observed=SWITCH,
            )
        )
    return records


def link_samples(
    ports: Sequence[str],
    topology: Topology,
    switches: Mapping[str, SwitchCounters],
    *,
    start_ns: int,
    end_ns: int,
) -> array[int]:
    """Return samples as rows of ``LINK_SAMPLE_FIELDS``, with ``UNKNOWN`` for null.

    Args:
        ports: Names of the fabric's ports, in the order of their numbers.
        topology: Topology of the fabric.
        switches: Counters of the fabric's switches, by name.
        start_ns: Beginning of the run on the clock of this machine.
        end_ns: End of the run on that clock.
    """
    numbers = {port: number for number, port in enumerate(ports)}
    hosts = set(topology.hosts)
    host_port = {
        str(link.b): str(link.a) for link in topology.links if link.a.node in hosts
    }
    found: list[tuple[int, ...]] = []
    for counters in switches.values():
        names = {device: port for port, device in counters.ports.items()}
        for device_ns, device_port, traffic_class, values in counters.history.samples():
            time_ns = device_ns - counters.ahead_ns
            port = names.get(device_port)
            if port is None or not start_ns <= time_ns <= end_ns:
                continue
            since = _Since(counters, device_port, traffic_class, values)
            if any(name in values for name in _OF_SENDER):
                found.append((time_ns, numbers[port], traffic_class, *since.sent()))
            is_port = traffic_class == ALL_CLASSES
            if port in host_port and (is_port or "pauses_sent" in values):
                at = numbers[host_port[port]]
                found.append((time_ns, at, traffic_class, *since.received()))
    rows = array("q")
    for row in sorted(found):
        rows.extend(row)
    return rows


_OF_SENDER = ("sent_bytes", "queue_bytes", "marked", "drops", "pauses_received")


@dataclass(frozen=True, slots=True)
class _Since:
    """A sample relative to the beginning of the run."""

    counters: SwitchCounters
    port: str
    traffic_class: int
    values: Mapping[str, int]

    def sent(self) -> tuple[int, ...]:
        """Return the fields after the class, for traffic that leaves the port."""
        return (
            self._octets("sent"),
            self.values.get("queue_bytes", UNKNOWN),
            self.values.get("queue_max_bytes", UNKNOWN),
            self._count("marked"),
            self._count("drops"),
            self._count("pauses_received"),
            self._count("paused_ns"),
        )

    def received(self) -> tuple[int, ...]:
        """Return the same fields for traffic that arrives at the port."""
        unknown = (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
        return self._octets("received"), *unknown, self._count("pauses_sent"), UNKNOWN

    def _count(self, counter: str) -> int:
        value = self.values.get(counter)
        first = self.counters.before.value(self.port, self.traffic_class, counter)
        return UNKNOWN if value is None or first is None else max(0, value - first)

    def _octets(self, way: str) -> int:
        nbytes, packets = self._count(f"{way}_bytes"), self._count(f"{way}_packets")
        if nbytes == UNKNOWN:
            return UNKNOWN
        return max(0, nbytes - self.counters.fcs_bytes * max(0, packets))


def _drops(
    near_port: str, near: _End | None, far_port: str, far: _End | None, hosts: set[str]
) -> int | None:
    """Return the drops at both ends of a direction. Hosts do not report drops.

    Return None if a switch does not report its part.
    """
    total = 0
    for port, end, counter in (
        (near_port, near, "drops"),
        (far_port, far, "ingress_drops"),
    ):
        if port in hosts:
            continue
        found = None if end is None else end.grown(counter)
        if found is None:
            return None
        total += found
    return total
