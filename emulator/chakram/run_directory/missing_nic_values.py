"""Values that runs on RDMA NICs do not have, because the NIC sends the packets.

A port on a NIC has no rows in the tables of ports and queue pairs.  The counters of the
device are in ``nics`` of ``run.json``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from chakram.plan.nic_queue_pairs import is_verbs, is_verified
from chakram.plan.plan import Plan
from chakram.run_directory.schemas import BLANK

if TYPE_CHECKING:
    from chakram.control.events import NicCounters

NIC_TRANSPORT_NOTE = "NICs use their own windows, pacing and congestion control"


def blank_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the columns without a value in a run with RDMA NICs, by table."""
    are_verified = all(
        is_verbs(port)
        and is_verified(
            [rank for rank in agent.ranks if rank.port == port.number],
            agent.transport,
            agent.settings,
        )
        for agent in plan.agents
        for port in agent.ports
    )
    if not are_verified:
        return dict(BLANK)
    return {
        table: tuple(name for name in names if name != "wrong")
        for table, names in BLANK.items()
    }


def nic_ranks(plan: Plan) -> list[bool]:
    """Return for each rank whether its port is on an RDMA NIC."""
    ports = {port.number for port in plan.ports() if is_verbs(port)}
    return [rank.port in ports for rank in plan.ranks()]


def nics_of(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the devices of a plan's ports, by port, for ``run.json``."""
    return {
        port.host: {"device": port.interface, "port": port.number}
        for port in plan.ports()
        if is_verbs(port)
    }


def nic_ends(plan: Plan) -> set[tuple[str, int]]:
    """Return job and rank of all ranks whose ports are on RDMA NICs."""
    return {
        (rank.program.job, rank.program.rank)
        for rank, on_nic in zip(plan.ranks(), nic_ranks(plan), strict=True)
        if on_nic
    }


def blanked(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return a table with null in all rows of some columns."""
    for name in names:
        place = table.column_names.index(name)
        kind = table.schema.field(name)
        table = table.set_column(place, kind, pa.nulls(table.num_rows, kind.type))
    return table


def with_counters(
    nics: Mapping[str, Mapping[str, Any]], found: Mapping[int, NicCounters]
) -> dict[str, dict[str, Any]]:
    """Return the devices by port, with what their agents have reported."""
    described = {}
    for port, nic in nics.items():
        described[port] = dict(nic)
        reported = found.get(nic["port"])
        if reported is not None:
            described[port]["settings"] = dict(reported.settings)
            described[port]["counters"] = dict(reported.counts)
    return described
