"""Inputs of ``chakram compare``: runs, and result files of other programs.

===================  ==========================================================
input                recognized by
===================  ==========================================================
run                  a folder with ``run.json``
repeated runs        a folder of run folders, each one repetition
PARAM replay         a folder of ``replayedCommsPerf*.json``, or one such file
Chakram JSON         ``run`` and ``results`` in the output of ``--json``
nccl-tests           other JSON, or text with ``algbw`` and ``busbw``
ns-3                 a ``fct.txt`` with eight fields in the first line
ASTRA-sim            any other text: console output or log
===================  ==========================================================

Times are undilated.
"""

from __future__ import annotations

import re
from collections import Counter as Counted
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.compute as pc

from chakram.analysis.comparison import (
    EXPLAINING,
    NOMINAL,
    Counter,
    Key,
    Side,
    Times,
    differing_settings,
    stated_times,
    times_of,
)
from chakram.analysis.lost_time_causes import explain
from chakram.analysis.run_causes import paths_of, surroundings_of
from chakram.analysis.slower_links import Fastest, Pair
from chakram.collectives.ops import CollectiveOp
from chakram.console.summary_document import check_run_document
from chakram.formats.astra_sim import COLLECTIVE_NODE, is_flow_file, is_log, read_log
from chakram.formats.nccl_tests import NcclTest, read_nccl_json, read_nccl_text
from chakram.formats.ns3 import read_flow_times
from chakram.formats.param_replay import Replayed, read_replayed
from chakram.foundation.bounded_reading import parse_json, read_bounded
from chakram.foundation.errors import InputError, ResultsError
from chakram.foundation.grouping import spans
from chakram.run_directory.fault_table import crossed_links
from chakram.run_directory.manifest import MANIFEST
from chakram.run_directory.reader import RunResults, open_run, runs_in
from chakram.run_directory.schemas import plain_names
from chakram.summary.run_summary import COMPLETE, SIMULATE, Summary

_MOST_BYTES = 1 << 28
_PARAM_FILES = "replayedCommsPerf*.json"
_PERCENTS = (50, 99, 100)
_NO_JOB = ""
_FIRST_AND_LAST = ("first_sent_ns", "last_acked_ns")
_JSON = re.compile(rb"\s*(\{|\[\s*[\]{])")
"""Pattern for the start of JSON. It excludes log lines that begin with a bracket."""


Samples = dict["Key", dict[int, list[float]]]
"""Times in ns by quantity and iteration."""


def read_side(path: Path) -> Side:
    """Read one side of a comparison from a folder or file.

    Raises:
        ChakramError: If *path* contains nothing that can be compared.
    """
    if path.is_dir():
        if replays := sorted(path.glob(_PARAM_FILES)):
            return _of_replay(str(path), [_json(each) for each in replays])
        runs = runs_in(path)
        if (runs[0] / MANIFEST).exists():
            return side_of_runs(path, [open_run(each) for each in runs])
        raise ResultsError(
            str(path),
            "contains no run",
            "name a run directory, a folder of run directories, or a results file of "
            "another program",
        )
    data = _data(path)
    if _JSON.match(data):
        document = _json(path)
        if isinstance(document, list):
            return _of_replay(str(path), [document])
        if isinstance(document, dict) and "run" in document and "results" in document:
            return _of_document(document, str(path))
        return _of_test(read_nccl_json(document, str(path)), str(path))
    if is_flow_file(data):
        return _of_flows(data, str(path))
    if b"algbw" in data and b"busbw" in data:
        return _of_test(read_nccl_text(data, str(path)), str(path))
    if not is_log(data):
        raise ResultsError(
            str(path),
            "is no result that can be compared",
            "name a run directory, output of `run --json`, nccl-tests or ns-3, or "
            "console.txt or log.log of ASTRA-sim",
        )
    return _of_log(data, str(path))


def _data(path: Path) -> bytes:
    return read_bounded(
        path,
        limit_bytes=_MOST_BYTES,
        error=ResultsError,
        size_hint="name a results file",
    )


def _json(path: Path) -> Any:
    return parse_json(_data(path), str(path), error=ResultsError)


def run_settings(results: RunResults) -> dict[str, Any]:
    """Return the settings, traces, versions and host of a run by key."""
    manifest = results.manifest
    traces = {
        job: {key: each.get(key) for key in ("sha256", "trace")}
        for job, each in manifest.traces.items()
    }
    found = {
        "experiment": {
            key: value
            for key, value in manifest.experiment.items()
            if key not in ("name", "description", "runs", "lab", "metrics")
        },
        "world": manifest.world,
        "traces": traces,
        "versions": manifest.versions,
        "host": manifest.host,
    }
    settings = flattened(found)
    return {key.removeprefix("experiment."): each for key, each in settings.items()}


def flattened(value: Any, before: str = "") -> dict[str, Any]:
    """Flatten nested mappings and lists into keys as in ``--set``."""
    if isinstance(value, dict) and value:
        return {
            name: each
            for key, inner in value.items()
            for name, each in flattened(
                inner, f"{before}.{key}" if before else str(key)
            ).items()
        }
    if isinstance(value, list | tuple) and any(
        isinstance(each, dict | list) for each in value
    ):
        return {
            name: each
            for place, inner in enumerate(value)
            for name, each in flattened(inner, f"{before}[{place}]").items()
        }
    return {before: value}


def side_of_runs(path: Path, runs: Sequence[RunResults]) -> Side:
    """Combine repeated runs of one experiment into one side, named *path*."""
    samples: dict[Key, list[dict[int, list[float]]]] = defaultdict(list)
    labels: dict[Key, str] = {}
    explained = True
    for results in runs:
        found = _samples(results, labels)
        explained = _add_causes(results, found) and explained
        for key, each in found.items():
            samples[key].append(each)
    exact = all(results.manifest.world == SIMULATE for results in runs)
    summaries = [results.summary() for results in runs]
    counters = [_counters(summary) for summary in summaries]
    common = set.intersection(*map(set, counters))
    kind = "simulation" if exact else "run"
    settings = [run_settings(results) for results in runs]
    differing = sorted(
        key
        for key in {
            key for each in settings for key in differing_settings(settings[0], each)
        }
        if key != "seed" and not key.startswith(("host.", "versions."))
    )
    mixed = f"its runs have different settings: {', '.join(differing[:4])}"
    return Side(
        name=str(path),
        kind=kind if len(runs) == 1 else f"{len(runs)} {kind}s",
        times={
            # A cause that is missing from a run cost no time in that run.
            key: _times([*each, *[{0: [0.0]}] * (len(runs) - len(each))], exact=exact)
            for key, each in samples.items()
            if len(each) == len(runs) or key[0] in EXPLAINING
        },
        explained=explained,
        fastest=_fastest(runs),
        labels=labels,
        counters={
            name: Counter(
                fmean(each[name].value for each in counters), counters[0][name].unit
            )
            for name in counters[0]
            if name in common
        },
        settings=settings[0],
        notes=tuple(
            dict.fromkeys(
                (
                    *([mixed] if differing else []),
                    *(each for summary in summaries for each in summary.banners),
                )
            )
        ),
    )


def _times(repetitions: Sequence[Mapping[int, list[float]]], *, exact: bool) -> Times:
    """Return the statistics of a quantity over the iterations of some runs."""
    means = [[fmean(each) for each in one.values()] for one in repetitions]
    counts = [len(each) for one in repetitions for each in one.values()]
    return times_of(means, exact=exact, per_iteration=fmean(counts))


def _samples(results: RunResults, labels: dict[Key, str]) -> Samples:
    """Return the undilated times of a run's measured iterations, and fill *labels*."""
    found: Samples = defaultdict(lambda: defaultdict(list))
    dilation = results.manifest.dilation
    ranks = [rank for rank in results.ranks(whole=True) if rank.measured]
    for rank in ranks:
        time_ns = (rank.end_ns - rank.start_ns) / dilation
        found["rank", rank.number][rank.iteration].append(time_ns)
    times = (((r.job, r.iteration), r.start_ns, r.end_ns) for r in ranks)
    for (job, iteration), (start_ns, end_ns) in spans(times).items():
        time_ns = (end_ns - start_ns) / dilation
        found["iteration", job][iteration].append(time_ns)
    _add_collectives(results, found, labels)
    _add_flows(results, found)
    return found


def _add_causes(results: RunResults, found: Samples) -> bool:
    """Add the lost time of iterations by cause. Return False if it is unknown."""
    causes: Samples = defaultdict(dict)
    iterations: dict[str, list[int]] = defaultdict(list)
    try:
        around = surroundings_of(results)
        for path in paths_of(results):
            iterations[path.job].append(path.iteration)
            why = explain([path], around)
            lost_ns: Counted[Key] = Counted()
            lost_ns["part", path.job, NOMINAL] = why.time_ns - why.lost_ns
            for each in why.causes:
                lost_ns["part", path.job, each.cause] += each.lost_ns
                lost_ns["cause", path.job, each.cause, each.place] = each.lost_ns
            for key, time_ns in lost_ns.items():
                causes[key][path.iteration] = [time_ns / results.manifest.dilation]
    except InputError:
        return False
    for key, lost in causes.items():
        for iteration in iterations[key[1]]:
            found[key][iteration] = lost.get(iteration, [0.0])
    return True


def _add_collectives(
    results: RunResults, found: Samples, labels: dict[Key, str]
) -> None:
    dilation = results.manifest.dilation
    # Simulators without process groups merge collectives of several groups by name.
    places: dict[tuple[int, Key, str], int] = defaultdict(int)
    ends_ns: dict[tuple[int, Key], list[int]] = defaultdict(list)
    for record in sorted(results.collectives(), key=lambda each: each.start_ns):
        identity = record.identity
        if not record.is_judged:
            continue
        time_ns = record.duration_ns / dilation
        job, group, k = identity.key
        kind = ("size", str(identity.op), identity.nranks, identity.size_bytes)
        key = ("instance", job, group, k)
        for quantity in (kind, (*kind, job), key):
            found[quantity][record.iteration].append(time_ns)
        labels[key] = f"{identity.name} ({job}, group {group}, k {k})"
        seen = (record.iteration, (job, group), identity.name)
        named = ("named", identity.name, places[seen])
        places[seen] += 1
        ends_ns[record.iteration, named] += (record.start_ns, record.end_ns)
    for (iteration, named), times_ns in ends_ns.items():
        time_ns = (max(times_ns) - min(times_ns)) / dilation
        found[named][iteration].append(time_ns)


def _add_flows(results: RunResults, found: Samples) -> None:
    names = ["iteration", "job", "src", "dst", "bytes"]
    table = results.table("flows", *names, "measured", "fct_ns")
    table = table.filter(pc.field("measured")).unify_dictionaries()
    if not table.num_rows:
        return
    dilation = results.manifest.dilation
    transport = results.message_transport()
    ports = {} if transport is None else transport.ports
    grouped = table.group_by(names).aggregate([("fct_ns", "list")])
    every: dict[int, list[float]] = defaultdict(list)
    for row in grouped.to_pylist():
        times_ns = [time_ns / dilation for time_ns in row["fct_ns_list"]]
        job, src, dst = row["job"], row["src"], row["dst"]
        iteration, size_bytes = row["iteration"], row["bytes"]
        found["pair", job, src, dst, size_bytes][iteration] += times_ns
        ends = ports.get((job, src)), ports.get((job, dst))
        if ends[0] is not None and ends[1] is not None:
            key = ("ports", ends[0].number, ends[1].number, size_bytes)
            found[key][iteration] += times_ns
        every[iteration] += times_ns
    whole = {each for key in found if key[0] == "iteration" for each in found[key]}
    for iteration in sorted(whole & set(every)):
        for percent, value in _percentiles(every[iteration]).items():
            found["fct", percent][iteration].append(value)


def _fastest(runs: Sequence[RunResults]) -> dict[Pair, Fastest]:
    """Return the fastest of the largest messages of each pair of ranks."""
    found: dict[Pair, Fastest] = {}
    ends = ["job", "src", "dst"]
    for results in runs:
        transport = results.message_transport()
        if transport is None or "path" not in results.columns("flows"):
            return {}
        table = results.table(
            "flows", *ends, "path", "bytes", "measured", *_FIRST_AND_LAST
        )
        table = table.filter(pc.field("measured") & (pc.field("bytes") > 0))
        table = plain_names(table).append_column(
            "time_ns", pc.subtract(*(table[name] for name in _FIRST_AND_LAST[::-1]))
        )
        rows = (
            table.group_by([*ends, "path", "bytes"])
            .aggregate([("time_ns", "min"), ("time_ns", "count")])
            .to_pylist()
        )
        keys = {(*(row[name] for name in ends), row["path"]) for row in rows}
        hosts = {place: port.host for place, port in transport.ports.items()}
        crossed = crossed_links(keys, results.links(), hosts)
        for row in rows:
            pair = row["job"], row["src"], row["dst"]
            links = frozenset(map(" ".join, crossed[*pair, row["path"]]))
            time_ns = row["time_ns_min"]
            if time_ns is not None:
                one = Fastest(
                    bytes=row["bytes"],
                    time_ns=time_ns / results.manifest.dilation,
                    messages=row["time_ns_count"],
                    links=links,
                )
                found[pair] = one.together(found.get(pair))
    return found


def _percentiles(times_ns: list[float]) -> dict[int, float]:
    """Return nearest-rank percentiles, and sort *times_ns* in place."""
    times_ns.sort()
    return {
        percent: times_ns[max(0, -(-len(times_ns) * percent // 100) - 1)]
        for percent in _PERCENTS
    }


def _counters(summary: Summary) -> dict[str, Counter]:
    """Return the counters of a run, keyed by the names that sentences use."""
    found: dict[str, Counter] = {}
    if summary.packets:
        for name, count in (
            ("packets sent again", summary.retransmitted),
            ("packets marked for congestion", summary.marked),
        ):
            found[name] = Counter(count / summary.packets, "%")
    if summary.verdicts:
        share = summary.generator_bound / summary.verdicts
        found["generator-bound collectives"] = Counter(share, "%")
    if summary.uplinks is not None:
        found["busiest uplink over mean"] = Counter(summary.uplinks.max_over_mean, "")
    if summary.facts.status != COMPLETE:
        return found
    # Link counters include the warm-up, and runs may differ in their number of
    # iterations.
    iterations = max(1, summary.facts.warmup + summary.facts.measured)
    for link in summary.links:
        name = f"{link.link} {link.direction}"
        found[f"MB per iteration through {name}"] = Counter(
            link.bytes / 1e6 / iterations, ""
        )
        if link.drops is not None:
            found[f"drops per iteration at {name}"] = Counter(
                link.drops / iterations, ""
            )
    return found


def _of_document(document: Mapping[str, Any], source: str) -> Side:
    """Return a side from a ``chakram run --json`` document, which has only means."""
    check_run_document(document, source)
    times: dict[Key, Times] = {}
    exact = document["run"]["world"] == SIMULATE
    for each in document["iterations"]:
        key: Key = ("iteration", each["job"])
        times[key] = stated_times(
            each["mean_ns"], each["cv"], each["iterations"], exact=exact
        )
    # Rows that differ only in the algorithm are one quantity.
    rows: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for row in document["results"]:
        if row["collective"] != CollectiveOp.BARRIER:
            kind = ("size", row["collective"], row["nranks"], row["size"])
            rows[kind].append(row)
            rows[*kind, row["job"]].append(row)
    for key, some in rows.items():
        times[key] = _pooled(some, exact=exact)
    return Side(
        name=source,
        kind="simulation" if exact else "run",
        times=times,
        notes=tuple(document["run"].get("banners", ())),
    )


def _pooled(rows: Sequence[Mapping[str, Any]], *, exact: bool) -> Times:
    """Return the statistics of all samples in some rows of a document.

    The standard error is that of the mean over the rows, weighted by their numbers of
    samples.
    """
    found = [
        stated_times(row["time_ns"], row["cv"], row["samples"], exact=exact)
        for row in rows
    ]
    count = sum(each.samples for each in found)
    errors = [
        None if each.error_ns is None else each.error_ns * each.samples / count
        for each in found
    ]
    known = [each for each in errors if each is not None]
    return Times(
        sum(each.mean_ns * each.samples for each in found) / count,
        sqrt(sum(each**2 for each in known)) if len(known) == len(errors) else None,
        sum(each.freedom for each in found),
        found[0].cv if len(found) == 1 else None,
        count,
        sum(row.get("per_iteration") or 1 for row in rows),
    )


def _of_test(test: NcclTest, source: str) -> Side:
    times: dict[Key, Times] = {}
    for row in sorted(test.rows, key=lambda each: each.in_place):
        key = ("size", test.op, test.nranks, row.size_bytes)
        if key in times:
            continue
        if len(row.times_ns) > 1:
            times[key] = times_of([row.times_ns])
        else:
            times[key] = stated_times(row.time_ns, row.cv, test.iterations)
    return Side(name=source, kind="nccl-tests", times=times)


def _of_flows(data: bytes, source: str) -> Side:
    samples: dict[Key, list[float]] = defaultdict(list)
    flows = read_flow_times(data, source)
    for flow in flows:
        key = ("ports", flow.src, flow.dst, flow.size_bytes)
        samples[key].append(float(flow.fct_ns))
    times: dict[Key, Times] = {
        key: _times([{0: each}], exact=True) for key, each in samples.items()
    }
    percentiles = _percentiles([float(each.fct_ns) for each in flows]) if flows else {}
    times |= {
        ("fct", percent): times_of([[value]], exact=True)
        for percent, value in percentiles.items()
    }
    return Side(name=source, kind="ns-3 fct.txt", times=times)


def _of_log(data: bytes, source: str) -> Side:
    log = read_log(data, source)
    if log.stuck:
        raise ResultsError(
            source,
            f"rank {log.stuck[0]} did not finish",
            "compare with a simulation that ended",
        )
    ends_ns: dict[Key, list[int]] = defaultdict(list)
    places: dict[tuple[int, str], int] = defaultdict(int)
    for node in log.nodes:
        if node.kind == COLLECTIVE_NODE and node.end_ns is not None:
            key = ("named", node.name, places[node.rank, node.name])
            places[node.rank, node.name] += 1
            ends_ns[key] += (node.start_ns, node.end_ns)
    found: dict[Key, float] = {
        key: float(max(times_ns) - min(times_ns)) for key, times_ns in ends_ns.items()
    }
    found |= {("rank", each.rank): float(each.end_ns) for each in log.finishes}
    if log.finishes:
        found["iteration", _NO_JOB] = float(max(each.end_ns for each in log.finishes))
    times = {key: times_of([[each]], exact=True) for key, each in found.items()}
    return Side(name=source, kind="ASTRA-sim", times=times)


def _of_replay(source: str, documents: Iterable[object]) -> Side:
    ends: dict[tuple[str, int], dict[int, list[Replayed]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for document in documents:
        for each in read_replayed(document, source):
            ends[each.group, each.k][each.replay].append(each)
    instances: dict[Key, dict[int, list[float]]] = defaultdict(dict)
    sizes: Samples = defaultdict(lambda: defaultdict(list))
    labels: dict[Key, str] = {}
    for (group, k), replays in ends.items():
        for replay, shares in replays.items():
            # A collective ends when its last rank ends.
            time_ns = max(each.time_ns for each in shares)
            first = shares[0]
            key = ("instance", _NO_JOB, group, k)
            labels[key] = f"{first.op} (group {group}, k {k})"
            instances[key][replay] = [time_ns]
            kind = ("size", str(first.op), first.nranks, first.size_bytes)
            sizes[kind][replay].append(time_ns)
    return Side(
        name=source,
        kind="PARAM replay",
        times={
            key: _times([each], exact=False)
            for key, each in {**instances, **sizes}.items()
        },
        labels=labels,
    )
