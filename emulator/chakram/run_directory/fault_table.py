"""The table ``faults``: injected faults, their times, and when traffic recovered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from chakram.records.fault_recovery import SentAcross, recovered_ns
from chakram.run_directory.added_flow_columns import paths_of_text
from chakram.run_directory.growing_table import read_table
from chakram.run_directory.schemas import FAULTS, from_rows, plain_names

if TYPE_CHECKING:
    from chakram.records.run_records import LinkRecord


_BOTH_WAYS = ("down", "flap")
_KEYS = ["job", "src", "dst", "path"]
_COLUMNS = [*_KEYS, "collective", "bytes", "first_sent_ns", "last_acked_ns"]


def links_of(fault: Mapping[str, Any], links: Sequence[LinkRecord]) -> list[LinkRecord]:
    """Return the link directions that a fault in ``run.json`` affects."""
    return [
        each
        for each in links
        if each.link == fault["link"]
        and (fault["kind"] in _BOTH_WAYS or each.port in fault["ports"])
    ]


def faults_table(
    folder: Path,
    *,
    links: Sequence[LinkRecord],
    host_of: Mapping[tuple[str, int], str],
    link_faults: Sequence[Mapping[str, Any]] = (),
    packet_faults: Sequence[Mapping[str, Any]] = (),
) -> pa.Table:
    """Return the table of a run's injected faults, with the schema ``FAULTS``.

    Args:
        folder: Run directory, which contains the flows.
        links: Links of the fabric.
        host_of: Host of each rank, by job and rank.
        link_faults: Entries of ``link_faults`` in ``run.json``.
        packet_faults: Entries of ``packet_faults`` in ``run.json``.

    Raises:
        OSError: If flows cannot be read.
    """
    rows: list[dict[str, object]] = []
    traffic: _Traffic | None = None
    for index, fault in enumerate(link_faults):
        hit = links_of(fault, links)
        ways = {each.direction for each in hit}
        start_ns, end_ns = fault["at_ns"], fault["until_ns"]
        back_ns = None
        if start_ns is not None and end_ns is not None:
            traffic = traffic or _Traffic(folder, links, host_of)
            across = traffic.across({(each.link, each.direction) for each in hit})
            back_ns = recovered_ns(across, start_ns, end_ns)
        rows.append(
            {
                "entry": f"faults.links[{index}]",
                "kind": fault["kind"],
                "fault": fault["fault"],
                "link": fault["link"],
                "direction": ways.pop() if len(ways) == 1 else None,
                "start_ns": start_ns,
                "end_ns": end_ns,
                "recovered_ns": back_ns,
            }
        )
    rows += [
        {"entry": f"faults.packets[{index}]", **fault}
        for index, fault in enumerate(packet_faults)
    ]
    return from_rows(rows, FAULTS)


def crossed_links(
    keys: Iterable[tuple[Any, ...]],
    links: Sequence[LinkRecord],
    host_of: Mapping[tuple[str, int], str],
) -> dict[tuple[Any, ...], set[tuple[str, str]]]:
    """Return the directions of links that messages cross.

    Args:
        keys: Job, sender, receiver and path of messages.
        links: Links of the fabric.
        host_of: Host of each rank, by job and rank.
    """
    place_of = {each.port: (each.link, each.direction) for each in links}
    link_of: dict[str, str] = {}
    for each in links:
        if (each.kind, each.direction) == ("host", "up") and each.port:
            link_of.setdefault(each.port.rpartition(":")[0], each.link)
    crossed = {}
    for key in keys:
        job, src, dst, path = key
        ends = ((host_of.get((job, src)), "up"), (host_of.get((job, dst)), "down"))
        ways = () if path is None else paths_of_text(path)
        crossed[key] = {
            *((link_of[host], way) for host, way in ends if host in link_of),
            *(place_of[port] for way in ways for port in way if port in place_of),
        }
    return crossed


class _Traffic:
    """The messages of a run, and the link directions that they crossed."""

    def __init__(
        self,
        folder: Path,
        links: Sequence[LinkRecord],
        host_of: Mapping[tuple[str, int], str],
    ) -> None:
        flows = read_table(folder, "flows", column_names=_COLUMNS)
        # Messages without payload belong to barriers and have no rate.
        table = None if flows is None else flows.filter(pc.field("bytes") > 0)
        names = [] if table is None else plain_names(table).select(_COLUMNS).columns
        self._rows = list(zip(*(each.to_pylist() for each in names), strict=True))
        keys = {row[: len(_KEYS)] for row in self._rows}
        self._crossed = crossed_links(keys, links, host_of)

    def across(self, places: set[tuple[str, str]]) -> list[SentAcross]:
        """Return the messages that crossed one of the given link directions."""
        hit = {key for key, crossed in self._crossed.items() if crossed & places}
        return [
            SentAcross((job, src, dst), (collective, size), first_ns, last_ns)
            for job, src, dst, path, collective, size, first_ns, last_ns in self._rows
            if (job, src, dst, path) in hit
        ]
