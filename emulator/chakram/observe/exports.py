"""What a run recorded, as others want it: by node, by pair of ranks, by link."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from chakram.errors import ResultsError
from chakram.results.readers.ns3 import FIRST_PORT, PORT, PORTS, FlowTime

if TYPE_CHECKING:
    from chakram.observe.run_results import RunResults


_SUMMED = ("messages", "bytes")
_OF_PAIR = ("job", "src", "dst")


def _flows(results: RunResults, *names: str) -> pa.Table:
    """Return the messages of measured iterations.

    Raises:
        ResultsError: If none was recorded.
    """
    table = results.table("flows", *names, "measured").filter(pc.field("measured"))
    if not table.num_rows:
        raise ResultsError(
            str(results.path),
            "has no messages of measured iterations",
            "of large jobs they are not recorded; the run may have ended before",
        )
    return table.unify_dictionaries()


def flow_times(results: RunResults) -> list[FlowTime]:
    """Return the messages of measured iterations as ns-3 has them, by their end.

    A node is a port.  Times are undilated and begin with the first message.  What a
    message would have taken alone is its bound; where none is known, the shortest time
    of a message of its size between these two.

    Raises:
        ResultsError: If none was recorded, or nobody knows the ports of ranks.
    """
    names = ["job", "src", "dst", "bytes", "posted_ns", "fct_ns"]
    bounds = ["bound_ns"] if "bound_ns" in results.columns("flows") else []
    table = _flows(results, *names, *bounds).sort_by("posted_ns")
    transport = results.message_transport()
    if transport is None:
        raise ResultsError(str(results.path), "has no plan: ports are not known")
    dilation = results.manifest.dilation
    begin_ns = table["posted_ns"][0].as_py()
    count: dict[tuple[int, int], int] = {}
    found: list[FlowTime] = []
    shortest_ns: dict[tuple[int, int, int], int] = {}
    for row in table.to_pylist():
        src, dst = (
            transport.ports[row["job"], row[end]].number for end in ("src", "dst")
        )
        number = count.get((src, dst), 0)
        count[src, dst] = number + 1
        fct_ns = row["fct_ns"] // dilation
        kind = (src, dst, row["bytes"])
        shortest_ns[kind] = min(shortest_ns.get(kind, fct_ns), fct_ns)
        bound_ns = row.get("bound_ns")
        found.append(
            FlowTime(
                *(src, dst, (FIRST_PORT + number) % PORTS, PORT, row["bytes"]),
                (row["posted_ns"] - begin_ns) // dilation,
                fct_ns,
                -1 if bound_ns is None else bound_ns // dilation,
            )
        )
    return sorted(
        (
            each
            if each.alone_ns >= 0
            else each._replace(
                alone_ns=shortest_ns[each.src, each.dst, each.size_bytes]
            )
            for each in found
        ),
        key=lambda each: each.end_ns,
    )


def pairs_csv(results: RunResults) -> bytes:
    """Return messages and bytes of all pairs of ranks, over the measured iterations.

    Raises:
        ResultsError: If no message was recorded.
    """
    grouped = _flows(results, *_OF_PAIR, "bytes").group_by(list(_OF_PAIR))
    table = grouped.aggregate([("bytes", "count"), ("bytes", "sum")])
    table = table.rename_columns([*_OF_PAIR, *_SUMMED])
    order = [(name, "ascending") for name in _OF_PAIR]
    job = table["job"].cast(pa.string())
    return _csv(table.set_column(0, "job", job).sort_by(order))


def links_csv(results: RunResults) -> bytes:
    """Return what went through each direction of every link."""
    table = results.table("links")
    own = [name for name in table.column_names if name not in ("run_id", "world")]
    return _csv(table.select(own))


def _csv(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(
        table, buffer, pyarrow.csv.WriteOptions(quoting_style="needed")
    )
    return buffer.getvalue()
