"""A run of the small plan on two leaves, with everything that pages show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chakram.records.run_records import LinkRecord
from chakram.report.run.data import RunData
from chakram.report.run.flows import Flows
from chakram.run_directory.added_flow_columns import MessageColumns
from chakram.run_directory.reader import RunResults, open_run
from chakram.summary.retransmissions import Traffic
from tests.run_directories import EP1, STARTED, WORLD, begin
from tests.small_run import small_rows

if TYPE_CHECKING:
    from pathlib import Path

EXPERIMENT: dict[str, Any] = {
    "fabric": {
        "kind": "namespaces",
        "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}},
        "links": {"host": {"rate": "1Gbit"}, "uplink": {"rate": "1Gbit"}},
    },
}
FORTH = "leaf0:up0", "spine0:down1"
BACK = (("leaf1:up0", "spine0:down0"), ("leaf1:up1", "spine1:down0"))
"""What rank 1 sends goes over the first spine, what rank 3 sends over both."""


COUNTED = Traffic(
    packets=6720,
    retransmitted=30,
    for_nak=30,
    for_timeout=0,
    for_rnr=0,
    timeouts=0,
    naks=10,
    reordered=0,
    marked=80,
    corrupted=0,
)
"""What queue pairs have counted, warm-up included."""


def ways(job: str, rank: int, qpn: int) -> Sequence[Sequence[str]]:
    """Return the paths of a rank's messages; those of 0 and 2 stay at their leaf."""
    return {1: (FORTH,), 3: BACK}.get(rank, ((),))


def link(name: str, direction: str, size_bytes: int, **fields: Any) -> LinkRecord:
    return LinkRecord(
        link=name,
        kind=fields.pop("kind", "uplink"),
        direction=direction,
        bytes_before=1000,
        bytes_after=1000 + size_bytes,
        **fields,
    )


def made_run(
    folder: Path,
    *,
    iterations: Sequence[int] = (0, 0, 40_000, 80_000),
    links: Sequence[LinkRecord] = (),
    ending: dict[str, Any] | None = None,
    **fields: Any,
) -> RunResults:
    """Return a finished run.

    Args:
        folder: Where it is made.
        iterations: Of each, how much longer rank 3 takes for its all-reduce.
        links: What went through links.
        ending: Of ``RunDirectory.finish``.
        fields: Of its manifest.
    """
    directory = begin(folder, **{"experiment": EXPERIMENT, **fields})
    for iteration, slower_ns in enumerate(iterations):
        directory.add(
            small_rows(iteration, slower_ns=slower_ns, retransmitted=iteration)
        )
    known: dict[str, Any] = {
        "bound": {WORLD: 320_000, EP1: 80_000},
        "alone": {WORLD: 360_000, EP1: 90_000},
        "predictions": {"simulate": {WORLD: 350_000}},
        "flow_bound": lambda job, src, dst, size_bytes: size_bytes // 8,
        "messages": MessageColumns(ways=ways),
    }
    directory.finish(ended=STARTED, links=links, **(known | (ending or {})))
    return open_run(directory.path)


def changed_flows(data: RunData, **values: int) -> Flows:
    """Return the flows of a run with one value in all rows of some columns."""
    flows = data.flows
    columns = {name: flows[name] for name in flows.row(0)}
    for name, value in values.items():
        columns[name] = np.full(len(flows), value, np.int64)
    return Flows(columns, flows.names)


ODD_LINKS = (
    link(
        "leaf0-spine0", "up", 400, port="leaf0:up0", drops=3, marked=1234, down_ns=9000
    ),
    link("leaf0-spine1", "up", 100, port="leaf0:up1", drops=0, marked=0),
    link("leaf1-spine0", "up", 100, port="leaf1:up0", paused_ns=7000, pauses=2),
    link("leaf1-spine1", "up", 200, port="leaf1:up1"),
    link("leaf0-spine0", "down", 100, port="spine0:down0"),
    link("leaf0-spine1", "down", 300, port="spine1:down0"),
    link("leaf1-spine0", "down", 0, port="spine0:down1"),
    link("leaf1-spine1", "down", 0, port="spine1:down1"),
    link("h0-leaf0", "up", 5000, kind="host", port="h0:eth0", drops=1),
)
"""Of uplinks 800 bytes up and 400 down."""
