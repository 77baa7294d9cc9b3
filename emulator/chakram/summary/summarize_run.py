"""Calculation of the summary of a run from its records.

See ``chakram.summary.run_summary`` for the definitions.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.grouping import grouped, spans
from chakram.records.run_records import (
    CollectiveIdentity,
    CollectiveKey,
    CollectiveRecord,
    LinkRecord,
    RankRecord,
    generator_wait_share,
    is_generator_bound,
)
from chakram.summary.bandwidth import (
    algorithm_bandwidth,
    bus_factor,
    coefficient_of_variation,
    jain_index,
    percentile,
)
from chakram.summary.generator_advice import keeping_up
from chakram.summary.generator_health import summarize_health
from chakram.summary.result_warnings import banners
from chakram.summary.run_summary import (
    DRAW,
    SIMULATE,
    Balance,
    CompletionTimes,
    IterationSummary,
    Measurements,
    Prediction,
    RankSummary,
    SlipSummary,
    Summary,
    SummaryRow,
    Verification,
)
from chakram.summary.summarize_messages import summarize_messages

if TYPE_CHECKING:
    from chakram.summary.message_summary import MessageSummary
    from chakram.summary.retransmissions import Traffic


_TimeOf: TypeAlias = "Callable[[CollectiveIdentity], int | None]"


def summarize_run(
    measurements: Measurements,
    *,
    predictions: Mapping[str, Mapping[CollectiveKey, int]] | None = None,
    bound: Callable[[CollectiveIdentity], int | None] = lambda _: None,
    alone: Callable[[CollectiveIdentity], int | None] = lambda _: None,
) -> Summary:
    """Return the summary of a run.

    All times are in ns, and dilated like the measured times.

    Args:
        measurements: Records of the run.
        predictions: Predicted times by source (e.g. ``simulate``) and collective.
            Sources that differ only after ``DRAW`` are draws of one source.
        bound: Function that returns the lower bound on a collective's time, or None if
            it is unknown.
        alone: Function that returns the time of a collective alone on the fabric, or
            None if it is unknown.
    """
    facts = measurements.facts
    measured = [record for record in measurements.collectives if record.measured]
    complete = [record for record in measured if record.complete]
    kinds = _by_kind(complete)
    messages = measurements.messages
    due_ns = grouped(((each.job, each.size_bytes), each.due_ns) for each in messages)
    rows = tuple(
        _row(kinds[kind], measurements, predictions or {}, (bound, alone), due_ns)
        for kind in sorted(kinds)
    )
    bandwidths = [row.busbw for row in rows if row.busbw is not None]
    # A barrier moves no data, so its waits do not depend on the network.
    judged = [row for row in rows if row.op is not CollectiveOp.BARRIER]
    unfinished = sum(not record.complete for record in measurements.collectives)
    uplinks = [link.bytes for link in measurements.links if link.kind == "uplink"]
    held_up = sum(row.generator_bound for row in judged)
    wait_share = max((row.generator_wait_share for row in judged), default=0.0)
    # A simulation has no traffic generator.
    simulated = facts.world == SIMULATE
    verdicts = 0 if simulated else sum(row.samples for row in judged)
    generator = summarize_health(measurements.generator, dilation=facts.dilation)
    remedy = None
    is_saturated = generator is not None and bool(generator.saturated)
    if not simulated and (is_saturated or is_generator_bound(wait_share)):
        transport = measurements.transport
        remedy = keeping_up(
            measurements.collectives,
            ranks=measurements.ranks,
            ports=() if transport is None else transport.ports.values(),
            generator=generator,
            dilation=facts.dilation,
            stretches=facts.stretches,
        )
    # Rows cover only complete, measured collectives, but counters cover all packets.
    traffic = measurements.traffic
    counted: Sequence[Traffic | SummaryRow] = rows if traffic is None else (traffic,)
    return Summary(
        facts=facts,
        banners=banners(facts, judged, unfinished, generator, remedy),
        rows=rows,
        average_busbw=sum(bandwidths) / len(bandwidths) if bandwidths else None,
        iterations=_iterations(measurements),
        slips=_slips(complete, facts.dilation),
        ranks=_ranks(measurements.ranks, facts.dilation),
        links=tuple(_undilated(link, facts.dilation) for link in measurements.links),
        uplinks=_balance(uplinks),
        generator_bound=held_up,
        generator_wait_share=wait_share,
        verdicts=verdicts,
        unfinished=unfinished,
        packets=sum(each.packets or 0 for each in counted),
        retransmitted=sum(each.retransmitted or 0 for each in counted),
        marked=sum(each.marked or 0 for each in counted),
        messages=_messages(measurements, measured),
        generator=generator,
        keeping_up=remedy,
        traffic=traffic,
    )


def _by_kind(
    records: Iterable[CollectiveRecord],
) -> dict[tuple[object, ...], list[CollectiveRecord]]:
    """Group records by row of the table, with keys that sort like the rows."""
    number_of = {op: number for number, op in enumerate(CollectiveOp)}
    found: dict[tuple[object, ...], list[CollectiveRecord]] = {}
    # Many records share an identity, so find its row only once.
    row_of: dict[int, list[CollectiveRecord]] = {}
    for record in records:
        identity = record.identity
        row = row_of.get(id(identity))
        if row is None:
            kind = (
                identity.key.job,
                number_of[identity.op],
                identity.algorithm,
                identity.nranks,
                identity.size_bytes,
                identity.trace_size_bytes,
            )
            row = row_of[id(identity)] = found.setdefault(kind, [])
        row.append(record)
    return found


def _messages(
    measurements: Measurements, records: Sequence[CollectiveRecord]
) -> MessageSummary | None:
    if measurements.transport is None:
        return None
    marked: dict[tuple[str, int, int], int] = {}
    for record in records:
        if record.identity.op is CollectiveOp.SEND_RECV and record.critical:
            pair = record.identity.key.job, record.critical.src, record.critical.dst
            marked[pair] = marked.get(pair, 0) + record.ce
    hosts = {port.host for port in measurements.transport.ports.values()}
    # Names of hosts and switches may contain hyphens, which also separate them in names
    # of links.
    host_of = {
        link.link: link.port.partition(":")[0]
        for link in measurements.links
        if link.port and (link.kind, link.direction) == ("host", "up")
    }
    drops: dict[tuple[str, str], int] = {}
    for link in measurements.links:
        host = host_of.get(link.link) or link.link.rpartition("-")[0]
        if link.kind == "host" and host in hosts and link.drops is not None:
            drops[host, link.direction] = link.drops
    return summarize_messages(
        measurements.messages,
        measurements.transport,
        dilation=measurements.facts.dilation,
        marked=marked,
        drops=drops,
    )


def _row(
    records: Sequence[CollectiveRecord],
    measurements: Measurements,
    predictions: Mapping[str, Mapping[CollectiveKey, int]],
    references: tuple[_TimeOf, _TimeOf],
    due_ns: Mapping[tuple[str, int], Sequence[int | None]],
) -> SummaryRow:
    dilation = measurements.facts.dilation
    first = records[0].identity
    identities = {record.identity.key: record.identity for record in records}
    durations_ns = [record.duration_ns for record in records]
    mean_ns = _mean(durations_ns)
    algbw = busbw = None
    is_barrier = first.op is CollectiveOp.BARRIER
    if not is_barrier and first.nranks > 1:
        elapsed_ns = max(1, round(mean_ns))
        raw = algorithm_bandwidth(size_bytes=first.size_bytes, elapsed_ns=elapsed_ns)
        algbw = raw * dilation
        busbw = algbw * float(bus_factor(first.op, nranks=first.nranks))
    bounds, alone = (
        {
            key: time_ns
            for key, identity in identities.items()
            if (time_ns := time_of(identity)) is not None
        }
        for time_of in references
    )
    against_bound = _compared(records, bounds, limits=True)
    against_alone = (
        _compared(records, alone)
        if first.op is not CollectiveOp.SEND_RECV or not measurements.messages
        else _against_due(records, due_ns)
    )
    predicted = _predictions(records, predictions, dilation, judged=not is_barrier)

    def total(counts: Iterable[int]) -> int | None:
        return None if measurements.facts.nics else sum(counts)

    return SummaryRow(
        job=first.key.job,
        op=first.op,
        algorithm=first.algorithm,
        nranks=first.nranks,
        root=first.root,
        size_bytes=first.size_bytes,
        trace_size_bytes=first.trace_size_bytes,
        groups=len({(key.job, key.group) for key in identities}),
        per_iteration=len(identities),
        iterations=len({record.iteration for record in records}),
        samples=len(records),
        time_ns=mean_ns / dilation,
        min_ns=min(durations_ns) / dilation,
        p99_ns=percentile(durations_ns, 99) / dilation,
        max_ns=max(durations_ns) / dilation,
        mean_over_ranks_ns=_mean([r.mean_duration_ns for r in records]) / dilation,
        cv=_variation(durations_ns),
        skew_ns=None
        if first.op is CollectiveOp.SEND_RECV
        else _mean([record.start_spread_ns for record in records]) / dilation,
        algbw=algbw,
        busbw=busbw,
        bound_ns=against_bound[1] / dilation if against_bound else None,
        bound_share=against_bound[1] / against_bound[0]
        if against_bound and not is_barrier
        else None,
        alone_ns=against_alone[1] / dilation if against_alone else None,
        alone_share=against_alone[1] / against_alone[0]
        if against_alone and not is_barrier
        else None,
        predictions=predicted,
        completion=_completion(identities, measurements),
        packets=total(record.packets for record in records),
        retransmitted=total(record.retransmitted for record in records),
        marked=total(record.ce for record in records),
        generator_bound=sum(record.generator_bound for record in records),
        generator_wait_share=generator_wait_share(records),
        wrong=_wrong(records, measurements.facts.verification),
    )


def _wrong(
    records: Iterable[CollectiveRecord], verification: Verification
) -> int | None:
    """Return the number of packets with a wrong payload, or None if it is unknown."""
    wrong = sum(record.wrong for record in records)
    # A sample without wrong packets does not prove that there were none.
    is_known = verification.packets and (wrong or verification.every <= 1)
    return wrong if is_known else None


def _predictions(
    records: Sequence[CollectiveRecord],
    predictions: Mapping[str, Mapping[CollectiveKey, int]],
    dilation: int,
    *,
    judged: bool,
) -> dict[str, Prediction]:
    """Return the predictions of a row by source, with all draws of a source merged."""
    drawn: dict[str, list[tuple[float, float]]] = {}
    for name, times_ns in predictions.items():
        pair = _compared(records, times_ns)
        if pair is not None:
            drawn.setdefault(name.partition(DRAW)[0], []).append(pair)
    found = {}
    for source, pairs in drawn.items():
        measured_ns = pairs[0][0]
        times = sorted(time_ns for _, time_ns in pairs)
        # The deviation is 0 within the range of the draws.
        nearest_ns = min(max(measured_ns, times[0]), times[-1])
        is_drawn = len(times) > 1
        found[source] = Prediction(
            time_ns=median(times) / dilation,
            deviation=measured_ns / nearest_ns - 1 if judged else None,
            draws=len(times),
            least_ns=times[0] / dilation if is_drawn else None,
            most_ns=times[-1] / dilation if is_drawn else None,
        )
    return found


def _compared(
    records: Sequence[CollectiveRecord],
    times_ns: Mapping[CollectiveKey, int],
    *,
    limits: bool = False,
) -> tuple[float, float] | None:
    """Return the mean measured time and the mean given time of collectives.

    Collectives without a given time are excluded. If *limits* is true, a given time
    counts as at most the measured time.
    """
    pairs = [
        (record.duration_ns, times_ns[record.identity.key])
        for record in records
        if times_ns.get(record.identity.key)
    ]
    if not pairs or not any(measured_ns for measured_ns, _ in pairs):
        return None
    given_ns = [min(pair) if limits else pair[1] for pair in pairs]
    return _mean([pair[0] for pair in pairs]), _mean(given_ns)


def _against_due(
    records: Sequence[CollectiveRecord],
    due_ns: Mapping[tuple[str, int], Sequence[int | None]],
) -> tuple[float, float] | None:
    """Return the mean measured time of messages, and their mean time until due."""
    first = records[0].identity
    times_ns = due_ns.get((first.key.job, first.input_bytes), ())
    known_ns = [time_ns for time_ns in times_ns if time_ns is not None]
    taken_ns = _mean([record.duration_ns for record in records])
    if not known_ns or len(known_ns) < len(times_ns) or not taken_ns:
        return None
    return taken_ns, _mean(known_ns)


def _completion(
    keys: Iterable[CollectiveKey], measurements: Measurements
) -> CompletionTimes | None:
    times_ns = array("q")
    for key in keys:
        times_ns.extend(measurements.completion_times.get(key, ()))
    if not times_ns:
        return None
    dilation = measurements.facts.dilation
    ordered = sorted(times_ns)
    p50, p95, p99, p999 = (
        percentile(ordered, percent) / dilation for percent in (50, 95, 99, 99.9)
    )
    return CompletionTimes(
        flows=len(ordered),
        p50_ns=p50,
        p95_ns=p95,
        p99_ns=p99,
        p999_ns=p999,
        p100_ns=ordered[-1] / dilation,
    )


def _ranks(records: Sequence[RankRecord], dilation: int) -> tuple[RankSummary, ...]:
    by_rank = grouped(((r.job, r.rank), r) for r in records if r.measured)
    return tuple(
        RankSummary(
            job=job,
            rank=rank,
            iterations=len(own),
            iteration_ns=_mean([r.end_ns - r.start_ns for r in own]) / dilation,
            compute_ns=_mean([r.compute_ns for r in own]) / dilation,
            communication_ns=_mean([r.communication_ns for r in own]) / dilation,
            exposed_ns=_mean([r.exposed_ns for r in own]) / dilation,
            idle_ns=_mean([r.idle_ns for r in own]) / dilation,
        )
        for (job, rank), own in sorted(by_rank.items())
    )


def _variation(times_ns: Sequence[int]) -> float | None:
    """Return the coefficient of variation, or None for one time, which cannot vary."""
    return coefficient_of_variation(times_ns) if len(times_ns) > 1 else None


def _iterations(measurements: Measurements) -> tuple[IterationSummary, ...]:
    records, dilation = measurements.ranks, measurements.facts.dilation
    bounds = spans(
        ((r.job, r.iteration), r.start_ns, r.end_ns) for r in records if r.measured
    )
    by_job = grouped((job, end - start) for (job, _), (start, end) in bounds.items())
    return tuple(
        IterationSummary(
            job=job,
            iterations=len(times_ns),
            mean_ns=_mean(times_ns) / dilation,
            p50_ns=percentile(times_ns, 50) / dilation,
            p99_ns=percentile(times_ns, 99) / dilation,
            max_ns=max(times_ns) / dilation,
            cv=_variation(times_ns),
            is_background=job in measurements.background,
        )
        for job, times_ns in sorted(by_job.items())
    )


def _slips(
    records: Sequence[CollectiveRecord], dilation: int
) -> tuple[SlipSummary, ...]:
    by_job = grouped((each.identity.key.job, each.slip_ns) for each in records)
    return tuple(
        SlipSummary(
            job=job,
            collectives=len(slips_ns),
            late=sum(slip_ns > 0 for slip_ns in slips_ns),
            p50_ns=percentile(slips_ns, 50) / dilation,
            p99_ns=percentile(slips_ns, 99) / dilation,
            max_ns=max(slips_ns) / dilation,
        )
        for job, slips_ns in sorted(by_job.items())
        if any(slips_ns)
    )


def _undilated(link: LinkRecord, dilation: int) -> LinkRecord:
    """Return a link with the times and the rate of the undilated fabric."""
    if dilation == 1:
        return link
    return replace(
        link,
        paused_ns=None if link.paused_ns is None else link.paused_ns // dilation,
        down_ns=None if link.down_ns is None else link.down_ns // dilation,
        rate_bps=None if link.rate_bps is None else link.rate_bps * dilation,
    )


def _balance(loads_bytes: Sequence[int]) -> Balance | None:
    jain = jain_index(loads_bytes)
    if jain is None:
        return None
    total, count = sum(loads_bytes), len(loads_bytes)
    return Balance(
        links=count, max_over_mean=max(loads_bytes) * count / total, jain=jain
    )


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)
