"""The summary of a run as one JSON document, for ``--json`` and for reports.

``results`` and ``average_bus_bandwidth`` have the layout of nccl-tests' JSON (times in
us, bandwidths in GB/s), so that existing readers work. Keys that Chakram adds have
units in their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import NoneType
from typing import TYPE_CHECKING, Any

from chakram.console.collective_tables import DIVIDED, redop
from chakram.foundation.errors import ResultsError
from chakram.run_directory.manifest import KILLED, RUNNING
from chakram.summary.run_summary import SIMULATE, Summary, SummaryRow

if TYPE_CHECKING:
    from chakram.summary.retransmissions import Traffic
    from chakram.topology.topology import Topology

NCCL_TESTS_JSON_VERSION = 3
"""Version of nccl-tests' file layout that the keys of ``results`` follow."""


def summary_document(summary: Summary) -> dict[str, Any]:
    """Return the whole summary as plain dictionaries, lists, numbers and strings."""
    facts = asdict(summary.facts)
    facts["banners"] = list(summary.banners)
    return {
        "version": NCCL_TESTS_JSON_VERSION,
        "run": facts,
        "results": [_result(row) for row in summary.rows],
        "average_bus_bandwidth": _gigabytes(summary.average_busbw),
        "iterations": [asdict(iteration) for iteration in summary.iterations],
        "schedule_slips": [asdict(slip) for slip in summary.slips],
        "ranks": [asdict(rank) for rank in summary.ranks],
        "links": [{**asdict(link), "bytes": link.bytes} for link in summary.links],
        "uplinks": asdict(summary.uplinks) if summary.uplinks else None,
        "messages": asdict(summary.messages) if summary.messages else None,
        "generator_bound": None
        if summary.facts.world == SIMULATE
        else {
            "collectives": summary.generator_bound,
            "of": summary.verdicts,
            "wait_share": summary.generator_wait_share,
        },
        "generator": asdict(summary.generator) if summary.generator else None,
        "keeping_up": asdict(summary.keeping_up) if summary.keeping_up else None,
        # These values are unknown unless the run recorded its own end.
        "unfinished_collectives": None
        if summary.facts.status in (RUNNING, KILLED)
        else summary.unfinished,
        "packets": summary.packets if summary.is_counted else None,
        "retransmitted_packets": summary.retransmitted if summary.is_counted else None,
        "ecn_marked_packets": summary.marked if summary.is_counted else None,
        "retransmissions": _retransmissions(summary.traffic),
    }


def fabric_document(
    topology: Topology,
    description: str,
    faults: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return a fabric with its description as plain values.

    Args:
        topology: Topology of the fabric.
        description: Description of the fabric in words.
        faults: Declared faults by link, in words, or None if they are unknown.
    """
    return {
        "fabric": description,
        "hosts": list(topology.hosts),
        "switches": list(topology.switches),
        "links": [
            {
                "name": link.name,
                "ends": [str(link.a), str(link.b)],
                "rate_bps": link.rate_bps,
                "delay_ns": link.delay_ns,
                **({} if faults is None else {"faults": faults.get(link.name, [])}),
            }
            for link in topology.links
        ],
    }


_NUMBER = (int, float)
_MEMBERS: dict[str, dict[str, tuple[type, ...]]] = {
    "results": {
        **{"job": (str,), "collective": (str,), "nranks": (int,), "size": (int,)},
        **{"time_ns": _NUMBER, "cv": (*_NUMBER, NoneType), "samples": (int,)},
    },
    "iterations": {
        **{"job": (str,), "mean_ns": _NUMBER, "cv": (*_NUMBER, NoneType)},
        "iterations": (int,),
    },
    "ranks": {"job": (str,), "rank": (int,)},
    "links": {"link": (str,), "direction": (str,)},
}
"""Required keys of the members of each list in the document."""


def check_run_document(document: Mapping[str, Any], source: str) -> None:
    """Check that a parsed document has all keys that are used later.

    Args:
        document: A JSON object.
        source: Name of the document, for error messages.

    Raises:
        ResultsError: If a member is missing, or has the wrong type.
    """
    run = document.get("run")
    if not isinstance(run, dict) or not isinstance(run.get("world"), str):
        raise _lacking(source, "run.world")
    banners = run.get("banners", [])
    if not isinstance(banners, list) or not all(isinstance(b, str) for b in banners):
        raise _lacking(source, "run.banners")
    for name, kinds in _MEMBERS.items():
        members = document.get(name)
        if not isinstance(members, list):
            raise _lacking(source, name)
        for place, member in enumerate(members):
            for key, types in kinds.items():
                value = member.get(key, ...) if isinstance(member, dict) else ...
                if not isinstance(value, types) or isinstance(value, bool):
                    raise _lacking(source, f"{name}[{place}].{key}")


def _lacking(source: str, key: str) -> ResultsError:
    return ResultsError(
        source,
        f"is not the JSON output of a run: {key} is missing or invalid",
        "print it again with `chakram show --json`",
    )


def _retransmissions(traffic: Traffic | None) -> dict[str, int] | None:
    """Return the causes of retransmissions."""
    if traffic is None:
        return None
    return {
        "nak_packets": traffic.for_nak,
        "timeout_packets": traffic.for_timeout,
        "rnr_packets": traffic.for_rnr,
        "timeouts": traffic.timeouts,
        "naks": traffic.naks,
        "naks_lost": traffic.lost,
        "naks_reordered": traffic.reordered,
        "icrc_errors": traffic.corrupted,
    }


_AS_IT_IS = (
    "nranks",
    "groups",
    "per_iteration",
    "iterations",
    "samples",
    "trace_size_bytes",
    "time_ns",
    "min_ns",
    "p99_ns",
    "max_ns",
    "mean_over_ranks_ns",
    "cv",
    "skew_ns",
    "bound_ns",
    "bound_share",
    "alone_ns",
    "alone_share",
)
"""Fields of a row that its document contains under the same names."""


def _result(row: SummaryRow) -> dict[str, Any]:
    count = row.size_bytes // row.nranks if row.op in DIVIDED else row.size_bytes
    return {
        "size": row.size_bytes,
        "count": count,
        "type": "uint8",
        "redop": redop(row.op),
        "root": -1 if row.root is None else row.root,
        "out_of_place": {
            "time": row.time_ns / 1000,
            "alg_bw": _gigabytes(row.algbw),
            "bus_bw": _gigabytes(row.busbw),
            "nwrong": row.wrong,
        },
        "job": row.job,
        "collective": str(row.op),
        "algorithm": row.algorithm,
        **{name: getattr(row, name) for name in _AS_IT_IS},
        "predictions": {
            source: asdict(prediction) for source, prediction in row.predictions.items()
        },
        "flow_completion": asdict(row.completion) if row.completion else None,
        "packets": row.packets,
        "retransmitted_packets": row.retransmitted,
        "ecn_marked_packets": row.marked,
        "generator_bound": row.generator_bound,
        "generator_wait_share": row.generator_wait_share,
    }


def _gigabytes(bandwidth: float | None) -> float | None:
    return None if bandwidth is None else bandwidth / 1e9
