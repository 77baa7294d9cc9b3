"""Read the counters of all switches before, during and after a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Self

from chakram.foundation.units import format_time
from chakram.telemetry.counter_history import Mark
from chakram.telemetry.link_totals import (
    FCS_BYTES,
    SwitchCounters,
    link_records,
    link_samples,
)
from chakram.telemetry.mapping import ALL_CLASSES, COUNTERS
from chakram.telemetry.otlp_receiver import OtlpReceiver
from chakram.telemetry.switch_reader import GAP_INTERVALS, SwitchReader

if TYPE_CHECKING:
    from array import array

    from chakram.records.run_records import LinkRecord
    from chakram.telemetry.targets import TelemetryPlan
    from chakram.topology.topology import Topology


_ACTIVE = (
    *("sent_packets", "sent_bytes", "queue_bytes", "drops"),
    *("pauses_received", "pauses_sent"),
)
_POLL_S = 0.02
_GRACE_NS = 3 * 10**9
_MOST_GAPS = 3


class Collector:
    """Reader of a fabric's switches. Use it as an asynchronous context manager.

    Args:
        plan: Switches to read.
        topology: Topology of the fabric.
    """

    def __init__(self, plan: TelemetryPlan, topology: Topology) -> None:
        self._topology = topology
        self._readers = {each.switch: SwitchReader(each) for each in plan.targets}
        self._receiver = (
            None
            if plan.otlp is None
            else OtlpReceiver(plan.otlp, self._readers.values())
        )
        self._before: dict[str, Mark] = {}
        self._after: dict[str, Mark] = {}
        self._start_ns = 0
        self._end_ns: int | None = None
        self._settled_ns: int | None = None
        self._unsettled: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        """Connect to the switches.

        Raises:
            ConfigError: If a package is missing.
            FabricError: If a switch does not answer, refuses a request, or lacks ports.
        """
        try:
            if self._receiver is not None:
                await self._receiver.start()
            async with asyncio.TaskGroup() as group:
                for reader in self._readers.values():
                    group.create_task(reader.start())
        except BaseExceptionGroup as errors:
            await self.close()
            raise errors.exceptions[0] from None
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading. A second call has no effect."""
        await asyncio.gather(*(reader.close() for reader in self._readers.values()))
        if self._receiver is not None:
            await self._receiver.close()

    async def begin(self) -> None:
        """Wait until the counters are current, and store them as initial counters."""
        self._before = await self._settled("before")
        self._start_ns = monotonic_ns()

    async def end(self, *, is_patient: bool = True) -> None:
        """Wait until the counters are current, and store them as final counters.

        A switch that no longer answers prolongs the wait by a few of its intervals. If
        *is_patient* is false, as after a failed run, the wait takes at most a few
        seconds.
        """
        self._end_ns = monotonic_ns()
        most_ns = None if is_patient else _GRACE_NS
        # Measure clocks first, because counters look current if a clock has drifted. If
        # a switch no longer answers, its earlier clock measurement applies.
        clocks = (reader.measure_clock() for reader in self._readers.values())
        with suppress(TimeoutError):
            async with asyncio.timeout(None if is_patient else _GRACE_NS * 1e-9):
                await asyncio.gather(*clocks, return_exceptions=True)
        self._after = await self._settled("after", most_ns)
        self._settled_ns = monotonic_ns()  # the last sample equals the totals
        await self.close()

    def links(self, directions: Sequence[LinkRecord]) -> list[LinkRecord]:
        """Return the traffic of links so far; see ``link_totals.link_records``."""
        return link_records(directions, self._topology, self._counted())

    def samples(self, ports: Sequence[str]) -> array[int]:
        """Return the samples of the run; see ``link_totals.link_samples``.

        Args:
            ports: Names of the fabric's ports, in the order of their numbers.
        """
        bounds = (reader.clock.bound_ns or 0 for reader in self._readers.values())
        return link_samples(
            ports,
            self._topology,
            self._counted(),
            start_ns=self._start_ns,
            end_ns=(self._settled_ns or monotonic_ns()) + max(bounds, default=0),
        )

    def classes(self) -> list[tuple[str, str, int, dict[str, int]]]:
        """Return the link, direction, class and current counters of outgoing traffic.

        Hosts do not report counters. The pause frames that a host received are the
        pause frames that its switch sent.

        Classes that sent nothing and were never paused are left out. The counters of
        whole ports have class ``ALL_CLASSES``.
        """
        places = {
            str(end): (link.name, direction)
            for link in self._topology.links
            for direction, end in (("up", link.a), ("down", link.b))
        }
        hosts = set(self._topology.hosts)
        of_host = {
            str(link.b): (link.name, "up")
            for link in self._topology.links
            if link.a.node in hosts
        }
        found: list[tuple[str, str, int, dict[str, int]]] = []
        for reader in self._readers.values():
            now = reader.history.mark(0)
            for port, device_port in reader.target.ports.items():
                for traffic_class in range(ALL_CLASSES, 8):
                    counters = {
                        name: value
                        for name in COUNTERS
                        for value in (now.value(device_port, traffic_class, name),)
                        if value is not None
                    }
                    is_port = traffic_class == ALL_CLASSES and counters
                    if is_port or any(counters.get(name) for name in _ACTIVE):
                        found.append((*places[port], traffic_class, counters))
                        if port in of_host and "pauses_sent" in counters:
                            pauses = {"pauses_received": counters["pauses_sent"]}
                            found.append((*of_host[port], traffic_class, pauses))
        return found

    def described(self) -> dict[str, dict[str, Any]]:
        """Return the entry of each switch for ``run.json``."""
        found: dict[str, dict[str, Any]] = {}
        for name, reader in self._readers.items():
            clock, history = reader.clock, reader.history
            found[name] = {
                "address": reader.target.address,
                "mapping": reader.target.mapping_name,
                "interval_ns": reader.target.sampled_ns,
                "refresh_ns": reader.target.mapping.refresh_ns,
                "clock_ahead_ns": clock.ahead_ns,
                "clock_bound_ns": clock.bound_ns,
                "updates": history.updates,
                "ignored": reader.ignored,
                "restarts": reader.restarts,
                "gaps": [
                    {
                        "port": each.port,
                        "start_ns": each.start_ns - clock.ahead_ns,
                        "end_ns": each.end_ns - clock.ahead_ns,
                    }
                    for each in history.gaps
                ],
                "resets": [
                    {"port": port, "time_ns": time_ns - clock.ahead_ns}
                    for port, time_ns in history.resets
                ],
                "facts": reader.facts,
            }
        return found

    def banners(self) -> list[str]:
        """Return warnings about values that the switches did not report."""
        found = [
            f"switch {name}: counters {when} the run are missing, so totals of its "
            "links are blank"
            for name, when in self._unsettled.items()
        ]
        counted = self._counted()
        for name, reader in self._readers.items():
            history = reader.history
            in_run = [
                each
                for each in history.gaps
                if each.end_ns - reader.clock.ahead_ns > self._start_ns
            ]
            if in_run:
                longest = max(in_run, key=lambda each: each.end_ns - each.start_ns)
                found.append(
                    f"switch {name}: no samples of {longest.port} for "
                    f"{format_time(longest.end_ns - longest.start_ns)}"
                    + (f", and {len(in_run) - 1} more gaps" if len(in_run) > 1 else "")
                    + " (gaps in run.json)"
                )
            # Like totals, this check depends on the order of readings, not on clocks.
            marks = counted[name]
            ports = [
                port
                for port, resets in marks.after.resets.items()
                if resets != marks.before.resets.get(port)
            ]
            if ports:
                some = ", ".join(ports[:_MOST_GAPS])
                found.append(
                    f"switch {name}: counters of {some} were reset, so their totals "
                    "are blank"
                )
            if reader.ignored:
                found.append(
                    f"switch {name}: {reader.ignored} values were not counts, e.g. "
                    f"{reader.examples[0]}"
                )
            if reader.target.address and not reader.clock.advances:
                found.append(
                    f"switch {name}: its timestamps do not advance, or it does not "
                    "answer requests for them, so samples have their times of arrival"
                )
            found += [
                f"switch {name}: port {each.port} was down for "
                f"{format_time(each.end_ns - each.start_ns)}"
                for each in history.outages
                if each.end_ns - reader.clock.ahead_ns > self._start_ns
            ]
            found += [f"switch {name}: port {port} is down" for port in history.down]
        if self._receiver is not None and self._receiver.strangers:
            found.append(
                f"OTLP: {self._receiver.strangers} values came from switches that no "
                "target names"
            )
        return found

    # ---- settling --------------------------------------------------------------------

    async def _settled(self, when: str, most_ns: int | None = None) -> dict[str, Mark]:
        """Return each switch's counters once they include everything up to now.

        Args:
            when: When the wait takes place, as a word for warnings.
            most_ns: Longest time to wait. If None, wait as long as each switch needs.
        """
        now_ns = monotonic_ns()
        marks = await asyncio.gather(
            *(
                self._settle(reader, name, now_ns, when, most_ns)
                for name, reader in self._readers.items()
            )
        )
        return dict(zip(self._readers, marks, strict=True))

    async def _settle(
        self,
        reader: SwitchReader,
        name: str,
        now_ns: int,
        when: str,
        most_ns: int | None,
    ) -> Mark:
        target, clock = reader.target, reader.clock
        refresh_ns = target.mapping.refresh_ns
        # A switch reads a counter up to ``refresh_ns`` before the counter's timestamp.
        due_ns = clock.to_device(now_ns) + refresh_ns + (clock.bound_ns or 0)
        limit_ns = (
            now_ns
            + refresh_ns
            + target.mapping.of_classes_ns
            + GAP_INTERVALS * target.sampled_ns
            + _GRACE_NS
        )
        if most_ns is not None:
            limit_ns = min(limit_ns, now_ns + most_ns)
        later_ns = target.mapping.of_classes_ns
        while not reader.history.is_complete(due_ns, later_ns):
            if monotonic_ns() > limit_ns:
                self._unsettled.setdefault(name, when)
                break
            await asyncio.sleep(_POLL_S)
        return reader.history.mark(due_ns, later_ns)

    def _counted(self) -> dict[str, SwitchCounters]:
        return {
            name: SwitchCounters(
                ports=reader.target.ports,
                before=self._before.get(name, Mark()),
                after=self._after[name]
                if name in self._after
                else reader.history.mark(0),
                history=reader.history,
                fcs_bytes=FCS_BYTES * reader.target.mapping.octets_include_fcs,
                ahead_ns=reader.clock.ahead_ns,
                start_ns=self._start_ns,
                end_ns=self._end_ns or monotonic_ns(),
            )
            for name, reader in self._readers.items()
        }
