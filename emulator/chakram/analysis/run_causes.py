"""Critical paths of a run and causes of its lost time, read from the run directory."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chakram.analysis.cause_ranking import Finding, Saving, Suspect, Verdict, class_of
from chakram.analysis.critical_path import (
    Message,
    Operation,
    Path,
    Piece,
    critical_path,
)
from chakram.analysis.lost_time_causes import (
    Cause,
    SentPackets,
    Surroundings,
    Why,
    explain,
)
from chakram.foundation.errors import InputError
from chakram.foundation.grouping import grouped
from chakram.run_directory.fault_table import links_of
from chakram.run_directory.manifest import KILLED, RUNNING, SIMULATE
from chakram.run_directory.reader import RunResults
from chakram.run_directory.schemas import plain_names

_MOST_QUICK_MESSAGES = 200_000
"""Maximum number of messages of a run whose causes are found within seconds."""

_MESSAGE_COLUMNS = list(Message._fields)
_ENDS = ("job", "rank", "peer", "qpn")
_COUNTED = (
    *("data_frames_tx", "data_frames_retransmitted", "data_frames_rx"),
    *("frame_sequence_error", "ack_tx", "ack_rx", "ack_timeouts"),
)


class IterationRecords:
    """The ``critical_path.Records`` of one job in one iteration, read from tables.

    Args:
        operations: Rows of ``operations``.
        flows: Rows of ``flows``.
        ranks: Rows of ``ranks``.
        is_virtual: Whether the run used virtual time.
    """

    def __init__(
        self,
        operations: pa.Table,
        flows: pa.Table,
        ranks: pa.Table,
        *,
        is_virtual: bool,
    ) -> None:
        self.is_virtual = is_virtual
        columns = (operations[name].to_pylist() for name in Operation._fields)
        self._operations = list(map(Operation._make, zip(*columns, strict=True)))
        self._by_number = {
            (each.rank, each.operation): each for each in self._operations
        }
        self._by_share = {
            (each.rank, each.group, each.k): each
            for each in self._operations
            if each.group is not None
        }
        self._flows = flows.combine_chunks()
        keys = (
            flows[name].to_pylist() for name in ("group", "k", "src", "dst", "number")
        )
        self._row_of = {key: row for row, key in enumerate(zip(*keys, strict=True))}
        # Messages of each queue pair, in order of departure.
        self._queues: dict[tuple[int, int], list[tuple[int, int]]] = {}
        departed = flows["departed_ns"].to_pylist()
        ends = zip(flows["src"].to_pylist(), flows["qpn"].to_pylist(), strict=True)
        for row, end in enumerate(ends):
            if departed[row] is not None:
                self._queues.setdefault(end, []).append((departed[row], row))
        for queue in self._queues.values():
            queue.sort()
        self._starts_ns = dict(
            zip(ranks["rank"].to_pylist(), ranks["start_ns"].to_pylist(), strict=True)
        )

    def last(self) -> Operation | None:
        """Return the operation that ended last. In a tie, prefer the lowest rank."""
        return max(
            self._operations,
            key=lambda each: (each.end_ns, -each.rank, -each.operation),
            default=None,
        )

    def last_of(self, name: str) -> Operation | None:
        """Return the operation that ended last in a collective, or None.

        Args:
            name: The name of the collective, or ``group#k``.
        """
        return max(
            (
                each
                for each in self._operations
                if name in (each.name, f"{each.group}#{each.k}")
            ),
            key=lambda each: (each.end_ns, -each.rank),
            default=None,
        )

    def start_ns(self, rank: int) -> int | None:
        """Return when the iteration of a rank started."""
        return self._starts_ns.get(rank)

    def first_start_ns(self) -> int:
        """Return the earliest start of the iteration on any rank."""
        return min(self._starts_ns.values(), default=0)

    def operation(self, rank: int, number: int) -> Operation | None:
        """Return an operation of a rank by its number in the program."""
        return self._by_number.get((rank, number))

    def share(self, rank: int, group: str, k: int) -> Operation | None:
        """Return a rank's operation in a collective or point-to-point transfer."""
        return self._by_share.get((rank, group, k))

    def message(
        self, group: str, k: int, src: int, dst: int, number: int
    ) -> Message | None:
        """Return a message of a collective by its ranks and its number."""
        row = self._row_of.get((group, k, src, dst, number))
        return None if row is None else self._at(row)

    def ahead_of(self, message: Message) -> Message | None:
        """Return the previous message of the queue pair, if *message* waited for it."""
        if message.departed_ns is None:
            return None
        queue = self._queues[message.src, message.qpn]
        at = bisect_left(queue, (message.departed_ns, -1)) - 1
        if at < 0 or queue[at][0] <= message.ready_ns:
            return None
        return self._at(queue[at][1])

    def _at(self, row: int) -> Message:
        return Message._make(
            self._flows[name][row].as_py() for name in _MESSAGE_COLUMNS
        )

    def messages(self) -> Iterator[Message]:
        """Yield all messages."""
        columns = (self._flows[name].to_pylist() for name in _MESSAGE_COLUMNS)
        yield from map(Message._make, zip(*columns, strict=True))


def iterations_of(
    results: RunResults, job: str | None = None
) -> Iterator[tuple[str, int, IterationRecords]]:
    """Yield job, iteration and records of every measured iteration.

    Raises:
        InputError: If the run did not record operations and their causes, or a table
            with them is missing.
    """
    own = ("job", "iteration", "measured")
    needed = {"flows.parquet", "operations.parquet", "ranks.parquet"}
    if missing := needed & {*results.missing()}:
        raise InputError(
            str(results.path),
            f"no longer has {' and '.join(sorted(missing))}",
            "copy the run directory again",
        )
    ranks = results.table("ranks", "job", "iteration", "rank", "start_ns")
    whole = {(each.job, each.iteration) for each in results.ranks(whole=True)}
    operations = results.table("operations", *own, *Operation._fields)
    operations = operations.filter(pc.field("measured"))
    ends = operations.filter(pc.field("kind") != "compute")["end_cause"]
    if results.incomplete and not operations.num_rows:
        return
    if not operations.num_rows or (len(ends) and ends.null_count == len(ends)):
        raise InputError(
            str(results.path),
            "has no records of operations",
            "run it, or simulate it at level packet: other levels record no causes",
        )
    has_path = "path" in results.columns("flows")
    names = [name for name in _MESSAGE_COLUMNS if has_path or name != "path"]
    flows = results.table("flows", *own, *names)
    if not has_path:
        flows = flows.append_column("path", pa.nulls(flows.num_rows, pa.string()))
    flows = flows.filter(pc.field("measured"))
    kinds = operations.select(["job", "iteration"]).group_by(["job", "iteration"])
    for row in sorted(
        kinds.aggregate([]).to_pylist(), key=lambda row: (row["job"], row["iteration"])
    ):
        place = row["job"], row["iteration"]
        # If a rank did not finish an iteration, some start times are unknown.
        if job not in (None, row["job"]) or place not in whole:
            continue
        here = (pc.field("job") == place[0]) & (pc.field("iteration") == place[1])
        tables = (table.filter(here) for table in (operations, flows, ranks))
        is_virtual = results.manifest.world == SIMULATE
        yield *place, IterationRecords(*tables, is_virtual=is_virtual)


def paths_of(
    results: RunResults, *, until: str | None = None, job: str | None = None
) -> Iterator[Path]:
    """Yield the critical path of every measured iteration.

    Args:
        results: Results of the run.
        until: Collective at whose end the paths end, by its name or as ``group#k``.
            None means the end of the iteration.
        job: Job whose paths to yield. None means all jobs except those that repeat
            until the others end.

    Raises:
        InputError: If the run has no records of operations, a table is missing, or
            there is no such job or collective.
    """
    names = results.manifest.jobs
    background = results.manifest.background_jobs if job is None else ()
    if job is not None and names and job not in names:
        raise InputError(
            "--job",
            f"{job!r} is not a job of {results.path}",
            f"its jobs are: {', '.join(names)}",
        )
    found = False
    for name, iteration, records in iterations_of(results, job):
        if name in background:
            continue
        last = records.last() if until is None else records.last_of(until)
        if last is not None:
            found = True
            yield critical_path(records, job=name, iteration=iteration, last=last)
    if not found:
        raise InputError(
            str(results.path),
            f"has no operation {until!r}"
            if until
            else "has no measured iteration that all ranks finished",
            results.incomplete
            or (
                "use a name of a collective from `chakram show`, or a group and a "
                "number, e.g. world#3"
            ),
        )


def surroundings_of(results: RunResults) -> Surroundings:
    """Return the links, hosts, rates and faults that explain a run's messages."""
    flows = results.table("flows")
    links = results.links()
    hit: dict[str, list[str]] = {}
    done: dict[str, str] = {}
    for fault in results.manifest.link_faults:
        if fault["at_ns"] is None:
            continue  # the fault never began
        hit.setdefault(fault["kind"], []).extend(fault["ports"])
        for each in links_of(fault, links):
            place = f"{each.link} {each.direction}"
            words = str(fault["fault"])
            done[place] = f"{done[place]}; {words}" if place in done else words
    slow = hit.get("degrade", [])
    if "slow_port" in flows.column_names:
        slow += pc.unique(flows["slow_port"]).drop_null().to_pylist()
    transport = results.message_transport()
    if transport is None:
        return Surroundings()
    is_virtual = results.manifest.world == SIMULATE
    return Surroundings(
        links=links,
        slow_ports=frozenset(slow),
        storm_ports=frozenset(hit.get("pause_storm", ())),
        faults=done,
        hosts={place: port.host for place, port in transport.ports.items()},
        rates_bps={place: port.rate_bps for place, port in transport.ports.items()},
        overhead_bytes=transport.overhead_bytes,
        path_mtu=transport.path_mtu,
        window_bytes=transport.window_bytes,
        burst_packets=transport.burst_packets,
        least_rate_bps=transport.least_rate_bps,
        has_fixed_rate=transport.has_fixed_rate,
        ways_ns={} if is_virtual else _ways(flows),
        sent=_sent(flows),
        repeated=_repeated(results),
        unsure=() if is_virtual else _unsure(results),
    )


def injected_faults(results: RunResults) -> list[str]:
    """Return the faults that the experiment injected, in words."""
    manifest = results.manifest
    drop = (manifest.experiment.get("faults") or {}).get("drop")
    return [
        *(f"ports drop {drop:.2%} of what they receive" for _ in range(bool(drop))),
        *(str(each["fault"]) for each in manifest.packet_faults if each["packets"]),
        *(
            str(each["fault"])
            for each in manifest.link_faults
            if each["at_ns"] is not None
        ),
    ]


def _ways(flows: pa.Table) -> dict[tuple[str, int, int, int], int]:
    """Return how long messages take on an unloaded network.

    Keys are job, sender, receiver and bytes.  The time is the recorded bound, or else
    the shortest measured time of such a message from first packet to arrival.  A time
    that exceeds 1.1 times the median over all pairs of the same job and size is
    replaced by that median.
    """
    names = ["job", "src", "dst", "bytes"]
    after_ns = pc.coalesce(flows["received_ns"], flows["last_acked_ns"])
    times_ns = pc.add(pc.subtract(after_ns, flows["departed_ns"]), flows["transfer_ns"])
    # An RDMA NIC does not report when packets leave.
    times_ns = pc.coalesce(times_ns, pc.subtract(after_ns, flows["first_sent_ns"]))
    if "bound_ns" in flows.column_names:
        times_ns = pc.coalesce(flows["bound_ns"], times_ns)
    table = plain_names(flows.select(names)).append_column("time_ns", times_ns)
    least = table.group_by(names).aggregate([("time_ns", "min")]).to_pylist()
    ways_ns = {
        tuple(row[name] for name in names): row["time_ns_min"]
        for row in least
        if row["time_ns_min"] is not None
    }
    of_size = grouped(((job, size), ns) for (job, _, _, size), ns in ways_ns.items())
    medians_ns = {key: int(median(found)) for key, found in of_size.items()}
    return {
        key: most_ns if 10 * time_ns > 11 * most_ns else time_ns
        for key, time_ns in ways_ns.items()
        for most_ns in (medians_ns[key[0], key[3]],)
    }


def _sent(flows: pa.Table) -> list[SentPackets]:
    """Return numbers of packets and retransmissions by pair of ranks and path."""
    names, counts = ["job", "src", "dst", "path"], ["packets", "retransmitted"]
    if "path" not in flows.column_names:
        flows = flows.append_column("path", pa.nulls(flows.num_rows, pa.string()))
    table = plain_names(flows.select([*names, *counts])).group_by(names)
    rows = table.aggregate([(name, "sum") for name in counts]).to_pylist()
    return [
        SentPackets(*(row.get(n, row.get(f"{n}_sum")) for n in (*names, *counts)))
        for row in rows
        if row["packets_sum"] is not None  # RDMA NICs do not count packets
    ]


def _repeated(results: RunResults) -> frozenset[tuple[str, int, int]]:
    """Return the sessions whose timeouts mostly repeated packets that had arrived.

    If the original packet was lost, one of two copies arrives.  If the original was
    only late, both copies arrive.  If ports or links dropped packets, the timeouts may
    come from lost ACKs instead.  Sessions are excluded if lost ACKs explain at least
    half of their timeouts.
    """
    # Final samples of both ends have the same time only if the run ended.
    if results.manifest.status in (RUNNING, KILLED):
        return frozenset()
    if not results.columns("queue_pairs") >= {*_ENDS, *_COUNTED}:
        return frozenset()
    table = plain_names(results.table("queue_pairs", *_ENDS, *_COUNTED))
    last = table.group_by(list(_ENDS)).aggregate([(name, "max") for name in _COUNTED])
    counts: dict[tuple[str, int, int], Counter[str]] = {}
    for row in last.to_pylist():
        own = counts.setdefault((row["job"], row["rank"], row["peer"]), Counter())
        own.update({name: row[f"{name}_max"] for name in _COUNTED})
    sockets = pc.sum(results.table("ports", "socket_drops")["socket_drops"]).as_py()
    has_lost = bool(sockets or any(results.manifest.injected.values())) or any(
        link.drops != 0 for link in results.links()
    )
    found = []
    for (job, src, dst), sent in counts.items():
        got = counts.get((job, dst, src), Counter())
        again = sent["data_frames_retransmitted"]
        taken = sent["data_frames_tx"] - again
        twice = got["data_frames_rx"] - got["frame_sequence_error"] - taken
        acks_lost = got["ack_tx"] - sent["ack_rx"] if has_lost else 0
        if 2 * twice >= again > 0 and 2 * acks_lost < sent["ack_timeouts"]:
            found.append((job, src, dst))
    return frozenset(found)


def _unsure(results: RunResults) -> frozenset[tuple[str, int, str, int]]:
    """Return the collectives whose times the traffic generator may have distorted.

    These are generator-bound collectives, or all collectives if a process was
    saturated.
    """
    names = ["job", "iteration", "group", "k"]
    table = plain_names(results.table("collectives", *names, "generator_bound"))
    agents = results.manifest.generator.values()
    if not any(shard.is_saturated for agent in agents for shard in agent.shards):
        table = table.filter(pc.field("generator_bound"))
    columns = (table[name].to_pylist() for name in names)
    return frozenset(zip(*columns, strict=True))


def why_of(
    results: RunResults, *, until: str | None = None, job: str | None = None
) -> Why:
    """Explain where the time of a run's measured iterations went.

    Raises:
        InputError: See ``paths_of``.
    """
    return explain(paths_of(results, until=until, job=job), surroundings_of(results))


def quick_why(results: RunResults) -> Why | None:
    """Return the causes of lost time if finding them takes only seconds, else None.

    None also means that no iteration was measured.
    """
    if results.manifest.rows.get("flows", 0) > _MOST_QUICK_MESSAGES:
        return None
    try:
        return why_of(results)
    except InputError:
        return None


def why_document(
    why: Why, verdict: Verdict | None = None, reason: str | None = None
) -> dict[str, Any]:
    """Return the document that ``chakram why --json`` prints.

    Args:
        why: The critical paths and the charged causes.
        verdict: Tested savings of each cause, or None if causes were not tested.
        reason: Why the causes were not tested.
    """
    if verdict is None:
        first = None if why.first is None else _charged(why.first)
        causes = [_charged(each) for each in why.causes]
    else:
        causes = [_found(each, why) for each in (*verdict.faults, *verdict.limits)]
        first = causes[0] if verdict.faults else None
    return {
        "iterations": why.iterations,
        "jobs": list(why.jobs),
        "mean_iteration_ns": why.time_ns // why.iterations if why.iterations else 0,
        "time_ns": why.time_ns,
        "lost_ns": why.lost_ns,
        "unknown_share": why.unknown_share,
        "verified": verdict is not None,
        "not_verified": reason,
        "first": first,
        "causes": causes,
        "saving_without_faults": None
        if verdict is None or verdict.joint is None
        else _saving(verdict.joint, why),
        "notes": [] if verdict is None else list(verdict.notes),
        "excluded": [
            {"cause": each.cause, "class": str(each.kind), "place": each.place}
            for each in (verdict.excluded if verdict else ())
        ],
        "charged": [_charged(each) for each in why.causes],
        "parts_ns": {str(part): time_ns for part, time_ns in why.parts_ns.items()},
        "lost_by_rank_ns": {str(rank): time_ns for rank, time_ns in why.by_rank},
        "lost_by_collective_ns": dict(why.by_collective),
        "path": []
        if why.path is None
        else [{"job": why.path.job, **_piece(each)} for each in why.path.pieces],
    }


Explained = tuple["Why", "Verdict | None", "str | None"]


def why_difference(first: Explained, second: Explained) -> dict[str, Any]:
    """Return how much longer the second run takes, and the faults that explain it.

    Times of faults that only the second run has are positive.  Times of faults that
    only the first run has are negative. Times are means per iteration. Each time refers
    to the run without the faults found before. The rest of the difference is
    unexplained.
    """
    means_ns = [
        why.time_ns // why.iterations if why.iterations else 0
        for why, _, _ in (first, second)
    ]
    found: list[dict[str, Any]] = []
    for (why, verdict, _), other, sign in (
        (second, first, 1),
        (first, second, -1),
    ):
        theirs = {
            (each.suspect.cause, each.suspect.place)
            for each in (other[1].faults if other[1] else ())
        }
        # The share of each fault refers to the time without the faults found before it.
        left_ns = float(why.time_ns // why.iterations if why.iterations else 0)
        faults = verdict.faults if verdict else ()
        for each in sorted(faults, key=lambda each: len(each.previous)):
            suspect = each.suspect
            time_ns = round(left_ns * each.after_previous.share)
            left_ns -= time_ns
            if (suspect.cause, suspect.place) not in theirs:
                found.append(
                    {
                        "cause": suspect.cause,
                        "place": suspect.place,
                        "evidence": suspect.evidence,
                        "time_ns": sign * time_ns,
                    }
                )
    difference_ns = means_ns[1] - means_ns[0]
    return {
        "verified": first[1] is not None and second[1] is not None,
        "not_verified": first[2] or second[2],
        "a_ns": means_ns[0],
        "b_ns": means_ns[1],
        "difference_ns": difference_ns,
        "causes": found,
        "unexplained_ns": difference_ns - sum(each["time_ns"] for each in found),
    }


def charge_at(why: Why, suspect: Suspect) -> int:
    """Return the lost time on the critical path that is charged to a suspect, in ns.

    Time is charged to one direction of a link, to one computation of a rank, or to one
    switch.  A suspect may be a whole link or rank, or several switches.
    """
    parts = suspect.place + " ", suspect.place + ","
    places = {suspect.place}
    if suspect.cause == "hash imbalance":
        places.update(suspect.place.partition(" and ")[0].split(", "))
    return sum(
        each.lost_ns
        for each in why.causes
        if each.cause == suspect.cause
        and (each.place in places or each.place.startswith(parts))
    )


def _found(finding: Finding, why: Why) -> dict[str, Any]:
    suspect = finding.suspect
    lost_ns = charge_at(why, suspect)
    return {
        "cause": suspect.cause,
        "class": str(suspect.kind),
        "place": suspect.place,
        "saving": _saving(finding.saving, why),
        "after_previous": _shares(finding.after_previous),
        **{
            name: [{"cause": each.cause, "place": each.place} for each in others]
            for name, others in (
                ("together_with", finding.together_with),
                ("rivals", finding.rivals),
            )
        },
        "evidence": suspect.evidence,
        "tested": suspect.remedy,
        "advice": suspect.advice,
        "lost_ns": lost_ns,
        "share": lost_ns / why.time_ns if why.time_ns else 0.0,
    }


def _saving(saving: Saving, why: Why) -> dict[str, Any]:
    mean_ns = why.time_ns / why.iterations if why.iterations else 0.0
    return {**_shares(saving), "time_ns": round(saving.share * mean_ns)}


def _shares(saving: Saving) -> dict[str, Any]:
    return {"share": saving.share, "low": saving.low, "high": saving.high}


def _charged(cause: Cause) -> dict[str, Any]:
    return {
        "cause": cause.cause,
        "class": str(class_of(cause.cause)),
        "place": cause.place,
        "lost_ns": cause.lost_ns,
        "share": cause.share,
        "fault": cause.fault,
    }


def _piece(piece: Piece) -> dict[str, Any]:
    message, operation = piece.message, piece.operation
    return {
        "part": str(piece.part),
        "rank": piece.rank,
        "start_ns": piece.start_ns,
        "end_ns": piece.end_ns,
        "operation": None if operation is None else operation.name,
        "peer": None if message is None else message.dst,
        "number": None if message is None else message.number,
    }
