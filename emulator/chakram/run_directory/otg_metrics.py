"""Counters of a run, named as in the Open Traffic Generator's RoCEv2 models.

The module joins the last sample of every queue pair with both ends and their ports, the
counters of the other end, and the times of the messages.
docs/reference/run-directory.md explains each name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chakram.records.row_layout import PORT_FIELDS
from chakram.run_directory.queue_pair_names import COUNTED, PORT_SUMS, flow_name
from chakram.run_directory.schemas import plain_names
from chakram.summary.retransmissions import Traffic

_KEY = ["job", "rank", "qpn"]
_BUNDLE = ["job", "rank", "peer", "group", "channel"]
_SPAN = ("first_sent_ns_min", "last_acked_ns_max")
_OF_PORTS = tuple(
    name for name in PORT_FIELDS if name not in ("time_ns", "port", "shard")
)


def queue_pair_metrics(
    ends: pa.Table,
    samples: pa.Table,
    flows: pa.Table,
    *,
    ports: Mapping[int, Mapping[str, Any]],
    family: str,
    are_divided: bool = False,
    since_ns: Mapping[str, int] | None = None,
) -> pa.Table:
    """Return one row of counters per queue pair, in the order of *ends*.

    Times refer to the messages that the queue pair carried. If several queue pairs
    carry parts of each message, each queue pair has the times of whole messages.

    Args:
        ends: Table ``queue_pair_ends``.
        samples: Table ``queue_pairs``. Queue pairs without samples have null counters.
        flows: Table ``flows``, with the columns job, src, qpn, times and ``fct_ns``.
        ports: Ports of ``plan.json``, by number.
        family: Address family of all ports.
        are_divided: Whether the run divided each message among the queue pairs between
            two ranks.
        since_ns: Time from which to count, by job. A job must have no message in
            progress at its time.
    """
    if not ends.num_rows:
        return pa.table({})
    if since_ns:
        samples = _counted_since(plain_names(samples), since_ns)
        flows = plain_names(flows)
        flows = flows.filter(pc.invert(_are_older(flows, "first_sent_ns", since_ns)))
    ends = _with_recorded(plain_names(ends), are_divided=are_divided)
    last = _last(samples)
    sums = [("first_sent_ns", "min"), ("last_acked_ns", "max"), ("fct_ns", "mean")]
    times = plain_names(flows).group_by(["job", "src", "qpn"]).aggregate(sums)
    order = pa.array(range(ends.num_rows), pa.int64())
    table = ends.append_column("order", order)
    table = table.join(last, keys=_KEY)
    table = table.join(
        times, keys=["job", "rank", "recorded"], right_keys=["job", "src", "qpn"]
    )
    arrived = last.select([*_KEY, "data_frames_rx"]).rename_columns([*_KEY, "arrived"])
    table = table.join(arrived, keys=["job", "peer", "peer_qpn"], right_keys=_KEY)
    # Packets arrived here while the other end was sending.
    incoming = times.select(["job", "src", "qpn", *_SPAN]).rename_columns(
        ["job", "src", "qpn", *(f"incoming_{name}" for name in _SPAN)]
    )
    table = table.join(
        incoming,
        keys=["job", "peer", "peer_recorded"],
        right_keys=["job", "src", "qpn"],
    )
    table = table.sort_by("order").combine_chunks()
    named = table.select(["job", "group", "channel", "index", "rank", "peer"])
    columns: dict[str, Any] = {
        "flow_name": [flow_name(**row) for row in named.to_pylist()]
    }
    numbers = {name: table[name].to_pylist() for name in ("port", "peer_port")}
    for name, column in (("port_tx", "port"), ("port_rx", "peer_port")):
        columns[name] = [ports[number]["host"] for number in numbers[column]]
    columns["src_qp"], columns["dest_qp"] = table["qpn"], table["peer_qpn"]
    for name, column in (("src", "port"), ("dest", "peer_port")):
        addresses = [ports[number]["address"] for number in numbers[column]]
        columns[f"{name}_{family}"] = addresses
    columns |= {name: table[name] for name in COUNTED}
    columns["frame_delta"] = pc.subtract(table["data_frames_tx"], table["arrived"])
    columns["data_tx_rate"] = _rates(table, samples, "tx_bytes", _SPAN)
    incoming_span = tuple(f"incoming_{name}" for name in _SPAN)
    columns["data_rx_rate"] = _rates(table, samples, "rx_bytes", incoming_span)
    columns["flow_completion_time_ns"] = pc.round(table["fct_ns_mean"]).cast(pa.int64())
    columns["flow_completion_time"] = pc.divide(table["fct_ns_mean"], 1e6)
    columns["first_timestamp"] = table["first_sent_ns_min"]
    columns["last_timestamp"] = table["last_acked_ns_max"]
    return pa.table(columns)


def port_metrics(
    ends: pa.Table,
    samples: pa.Table,
    port_samples: pa.Table,
    *,
    ports: Mapping[int, Mapping[str, Any]],
) -> pa.Table:
    """Return one row per port: the port's counters, and the sums of its queue pairs.

    Args:
        ends: Table ``queue_pair_ends``.
        samples: Table ``queue_pairs``.
        port_samples: Table ``ports``.
        ports: Ports of ``plan.json``, by number.
    """
    if not ends.num_rows:
        return pa.table({})
    own = port_samples.group_by(["port", "shard"]).aggregate(
        [(name, "max") for name in _OF_PORTS]
    )
    own = _summed(own, "port", [f"{name}_max" for name in _OF_PORTS], _OF_PORTS)
    pairs = plain_names(ends).select([*_KEY, "port"]).join(_last(samples), keys=_KEY)
    pairs = _summed(pairs, "port", COUNTED, tuple(PORT_SUMS.values()))
    numbers = pa.table({"port": pa.array(sorted(ports), pa.int32())})
    table = numbers.join(own, keys="port").join(pairs, keys="port").sort_by("port")
    return table.add_column(
        1, "name", [[ports[number]["host"] for number in table["port"].to_pylist()]]
    )


TRAFFIC_COLUMNS = (
    "data_frames_tx",
    "data_frames_retransmitted",
    "retransmitted_nak",
    "retransmitted_timeout",
    "retransmitted_rnr",
    "ecn_ce_rx",
    "ack_timeouts",
    "nak_sequence_tx",
    "nak_reordered_tx",
    "nak_reordered_rx",
)
"""Counters of queue pairs that describe traffic and the causes of retransmissions."""


def traffic_of(samples: pa.Table, port_samples: pa.Table) -> Traffic | None:
    """Return the traffic of a run's queue pairs, or None if it was not counted.

    Args:
        samples: Table ``queue_pairs``, with at least the key columns and
            ``TRAFFIC_COLUMNS``.
        port_samples: Table ``ports``, with the columns port, shard and
            ``invalid_icrc``.
    """
    if not samples.num_rows:
        return None
    last = _last(samples, TRAFFIC_COLUMNS)
    sums = {name: pc.sum(last[name]).as_py() or 0 for name in TRAFFIC_COLUMNS}
    corrupted = port_samples.group_by(["port", "shard"]).aggregate(
        [("invalid_icrc", "max")]
    )
    return Traffic(
        packets=sums["data_frames_tx"] - sums["data_frames_retransmitted"],
        retransmitted=sums["data_frames_retransmitted"],
        for_nak=sums["retransmitted_nak"],
        for_timeout=sums["retransmitted_timeout"],
        for_rnr=sums["retransmitted_rnr"],
        timeouts=sums["ack_timeouts"],
        naks=sums["nak_sequence_tx"],
        reordered=sums["nak_reordered_tx"] + sums["nak_reordered_rx"],
        marked=sums["ecn_ce_rx"],
        corrupted=pc.sum(corrupted["invalid_icrc_max"]).as_py() or 0,
    )


def _with_recorded(ends: pa.Table, *, are_divided: bool) -> pa.Table:
    """Append the QPN under which ``flows`` records the messages, for both ends.

    The table ``flows`` records the queue pair that carried the message. For a divided
    message, it records the first of several queue pairs.
    """
    if not are_divided:
        return ends.append_column("recorded", ends["qpn"]).append_column(
            "peer_recorded", ends["peer_qpn"]
        )
    first = ends.filter(pc.equal(ends["index"], 0)).select([*_BUNDLE, "qpn"])
    first = first.rename_columns([*_BUNDLE, "recorded"])
    order = pa.array(range(ends.num_rows), pa.int64())
    table = ends.append_column("order", order).join(first, keys=_BUNDLE)
    other = table.select([*_KEY, "recorded"]).rename_columns([*_KEY, "peer_recorded"])
    table = table.join(other, keys=["job", "peer", "peer_qpn"], right_keys=_KEY)
    return table.sort_by("order").drop_columns(["order"])


def _summed(
    table: pa.Table, key: str, columns: Sequence[str], names: Sequence[str]
) -> pa.Table:
    """Return the sums of *columns* by *key*, renamed to *names*."""
    sums = table.group_by(key).aggregate([(name, "sum") for name in columns])
    sums = sums.select([key, *(f"{name}_sum" for name in columns)])
    return sums.rename_columns([key, *names])


def _are_older(
    table: pa.Table, column: str, since_ns: Mapping[str, int]
) -> pa.ChunkedArray:
    """Return a mask of the rows that are older than the *since_ns* of their job."""
    older = pa.scalar(False)
    for job, time_ns in since_ns.items():
        is_older = pc.less(table[column], time_ns)
        older = pc.or_(older, pc.and_(pc.equal(table["job"], job), is_older))
    return older


def _counted_since(samples: pa.Table, since_ns: Mapping[str, int]) -> pa.Table:
    """Return samples whose counters start from 0 at the *since_ns* of their job."""
    names = {name: f"{name}_before" for name in COUNTED}
    before = _last(samples.filter(_are_older(samples, "time_ns", since_ns)))
    before = before.rename_columns([*_KEY, *names.values()])
    samples = samples.join(before, keys=_KEY)
    for name, other in names.items():
        growth = pc.subtract(samples[name], pc.fill_null(samples[other], 0))
        at = samples.schema.get_field_index(name)
        samples = samples.set_column(at, name, pc.max_element_wise(growth, 0))
    return samples


def _last(samples: pa.Table, names: Sequence[str] = COUNTED) -> pa.Table:
    """Return the last counters of each queue pair, which are also the largest."""
    found = (
        plain_names(samples).group_by(_KEY).aggregate([(name, "max") for name in names])
    )
    found = found.select([*_KEY, *(f"{name}_max" for name in names)])
    return found.rename_columns([*_KEY, *names])


def _rates(
    table: pa.Table, samples: pa.Table, counter: str, span: Sequence[str]
) -> pa.ChunkedArray:
    """Return the rate of each queue pair in Gbit/s, in the order of *table*.

    The counter includes parts of messages that were not acknowledged. If it still grew
    after the last acknowledgment, the rate is its increase between two samples, divided
    by the time between them.

    Args:
        table: Last counters and the times *span*, in the column ``order``.
        samples: Table ``queue_pairs``.
        counter: Column of the counter.
        span: Columns of the times of the first packet and the last acknowledgment.
    """
    began, ended = span
    known = table.select([*_KEY, "order", counter, began, ended])
    known = known.rename_columns([*_KEY, "order", "nbytes", "began", "ended"])
    found = plain_names(samples.select([*_KEY, "time_ns", counter]))
    found = found.join(known, keys=_KEY, join_type="inner")
    nbytes = found[counter]
    is_after = pc.fill_null(pc.greater_equal(found["time_ns"], found["ended"]), False)
    for name, condition, column in (
        ("acked_bytes", is_after, counter),
        ("first_bytes", pc.greater(nbytes, 0), counter),
        ("first_ns", pc.greater(nbytes, 0), "time_ns"),
        ("last_ns", pc.equal(nbytes, found["nbytes"]), "time_ns"),
    ):
        least = found.filter(condition).group_by("order").aggregate([(column, "min")])
        least = least.select(["order", f"{column}_min"])
        known = known.join(least.rename_columns(["order", name]), keys="order")
    known = known.sort_by("order")
    is_partial = pc.or_(
        pc.is_null(known["ended"]),
        pc.fill_null(pc.greater(known["nbytes"], known["acked_bytes"]), False),
    )
    growth = pc.subtract(known["nbytes"], known["first_bytes"])
    return pc.if_else(
        is_partial,
        _gigabits(growth, pc.subtract(known["last_ns"], known["first_ns"])),
        _gigabits(known["nbytes"], pc.subtract(known["ended"], known["began"])),
    )


def _gigabits(nbytes: pa.ChunkedArray, time_ns: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return rates in Gbit/s, or null if no time passed."""
    positive = pc.if_else(pc.greater(time_ns, 0), time_ns, None)
    bits = pc.multiply(pc.cast(nbytes, pa.float64()), 8.0)
    return pc.divide(bits, pc.cast(positive, pa.float64()))
