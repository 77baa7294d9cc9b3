"""The critical path from the last end over releasers, without gaps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from chakram.analysis.critical_path import (
    Message,
    Operation,
    Part,
    Path,
    Piece,
    critical_path,
    message_parts,
)
from chakram.analysis.lost_time_causes import Cause, SentPackets, Surroundings, explain
from chakram.analysis.run_causes import why_document
from chakram.records.run_records import LinkRecord

if TYPE_CHECKING:
    from collections.abc import Mapping


def compute(
    rank: int, number: int, times_ns: tuple[int, int, int], **other: object
) -> Operation:
    ready_ns, start_ns, end_ns = times_ns
    fields = {
        "rank": rank,
        "operation": number,
        "kind": "compute",
        "name": f"c{number}",
        "group": None,
        "k": None,
        "ready_ns": ready_ns,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "nominal_ns": end_ns - start_ns,
        "cause_number": None,
        "held_by": None,
        "end_cause": None,
        "end_rank": None,
        "end_number": None,
    }
    return Operation(**(fields | other))  # type: ignore[arg-type] # any of its fields


def share(
    rank: int, number: int, times_ns: tuple[int, int, int], **other: object
) -> Operation:
    known = {
        "kind": "collective",
        "name": "ring",
        "group": "world",
        "k": 0,
        "nominal_ns": None,
    }
    return compute(rank, number, times_ns, **(known | other))


def message(src: int, dst: int, **other: object) -> Message:
    """Return a message of 100 ns: 10 posted late, 1 to 10 of each part, in order."""
    fields = dict.fromkeys(Message._fields, 0) | {
        "group": "world",
        "src": src,
        "dst": dst,
        "collective": "all_reduce",
        "bytes": 8192,
        "packets": 2,
        "ready_ns": 100,
        "posted_ns": 110,
        "cause": "operation",
        "cause_rank": None,
        "departed_ns": 131,
        "received_ns": 165,
        "last_acked_ns": 180,
        "own_port_ns": 1,
        "window_ns": 2,
        "pace_ns": 3,
        "pause_ns": 4,
        "transfer_ns": 5,
        "repair_ns": 6,
        "queue_ns": 7,
        "switch_pause_ns": 8,
        "serialise_ns": 9,
        "propagate_ns": 10,
        "queue_port": None,
        "pause_port": None,
        "slow_ns": 0,
        "slow_port": None,
        "path": None,
    }
    return Message(**(fields | other))  # type: ignore[arg-type] # any of its fields


class Known:
    """Given records; all ranks start at *starts_ns*."""

    def __init__(
        self,
        operations: list[Operation],
        messages: list[Message],
        starts_ns: Mapping[int, int],
        *,
        is_virtual: bool = True,
    ) -> None:
        self.is_virtual = is_virtual
        self._operations = operations
        self._messages = messages
        self._starts_ns = starts_ns

    def last(self) -> Operation:
        return max(self._operations, key=lambda each: (each.end_ns, -each.rank))

    def start_ns(self, rank: int) -> int | None:
        return self._starts_ns.get(rank)

    def first_start_ns(self) -> int:
        return min(self._starts_ns.values())

    def operation(self, rank: int, number: int) -> Operation | None:
        found = (
            each
            for each in self._operations
            if (each.rank, each.operation) == (rank, number)
        )
        return next(found, None)

    def share(self, rank: int, group: str, k: int) -> Operation | None:
        found = (
            each
            for each in self._operations
            if (each.rank, each.group, each.k) == (rank, group, k)
        )
        return next(found, None)

    def message(
        self, group: str, k: int, src: int, dst: int, number: int
    ) -> Message | None:
        key = (group, k, src, dst, number)
        found = (
            each
            for each in self._messages
            if (each.group, each.k, each.src, each.dst, each.number) == key
        )
        return next(found, None)

    def ahead_of(self, message: Message) -> Message | None:
        found = [
            each
            for each in self._messages
            if (each.src, each.qpn) == (message.src, message.qpn)
            and message.ready_ns < (each.departed_ns or 0) < (message.departed_ns or 0)
        ]
        return max(found, key=lambda each: each.departed_ns or 0, default=None)


def walked(known: Known) -> list[tuple[Part, int, int]]:
    path = critical_path(known, job="j", iteration=0, last=known.last())
    for before, after in zip(path.pieces, path.pieces[1:], strict=False):
        assert before.end_ns == after.start_ns
    assert path.pieces[0].start_ns == known.first_start_ns()
    assert path.pieces[-1].end_ns == known.last().end_ns
    return [(piece.part, piece.time_ns, piece.rank) for piece in path.pieces]


def test_a_path_goes_over_streams_and_dependencies_to_the_first_start() -> None:
    operations = [
        compute(1, 0, (50, 50, 150)),
        compute(1, 1, (50, 150, 400), held_by=0),
        compute(1, 2, (400, 400, 500), cause_number=1),
    ]
    assert walked(Known(operations, [], {0: 20, 1: 50})) == [
        (Part.START_SKEW, 30, 1),
        (Part.COMPUTE, 100, 1),
        (Part.COMPUTE, 250, 1),
        (Part.COMPUTE, 100, 1),
    ]


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("operations", "messages"),
    [
        ([compute(0, 0, (0, 50, 100), held_by=0)], []),
        ([compute(0, 0, (0, 0, 100), cause_number=0)], []),
        (
            [
                compute(0, 0, (0, 0, 100), cause_number=1),
                compute(0, 1, (0, 0, 90), held_by=0),
            ],
            [],
        ),
        (
            [
                share(
                    0, 0, (0, 0, 165), end_cause="received", end_rank=1, end_number=0
                ),
                share(1, 0, (0, 0, 165)),
            ],
            [
                message(1, 0, cause="message", cause_rank=0, cause_number=0),
                message(0, 1, cause="message", cause_rank=1, cause_number=0),
            ],
        ),
    ],
    ids=["held by itself", "caused by itself", "circle", "circle of messages"],
)
def test_a_circle_of_damaged_records_ends_the_path(
    operations: list[Operation], messages: list[Message]
) -> None:
    walked(Known(operations, messages, {0: 0, 1: 0}))


def test_a_path_crosses_messages_and_names_every_part_of_them() -> None:
    first = compute(1, 0, (0, 0, 100))
    sender = share(1, 1, (100, 100, 180), cause_number=0)
    receiver = share(
        0, 1, (20, 20, 165), end_cause="received", end_rank=1, end_number=0
    )
    last = compute(0, 2, (165, 165, 200), cause_number=1)
    found = walked(
        Known([first, sender, receiver, last], [message(1, 0)], {0: 0, 1: 0})
    )
    assert found == [
        (Part.COMPUTE, 100, 1),
        (Part.HOST, 10, 1),
        (Part.OWN_PORT, 1, 1),
        (Part.WINDOW, 2, 1),
        (Part.PACE, 3, 1),
        (Part.PAUSE, 4, 1),
        (Part.TRANSFER, 5, 1),
        (Part.REPAIR, 6, 1),
        (Part.QUEUE, 7, 1),
        (Part.SWITCH_PAUSE, 8, 1),
        (Part.SERIALISE, 9, 1),
        (Part.PROPAGATE, 10, 1),
        (Part.COMPUTE, 35, 0),
    ]


def test_the_end_of_a_sender_is_an_acknowledgement() -> None:
    sender = share(
        1, 0, (100, 100, 180), end_cause="acknowledged", end_rank=0, end_number=0
    )
    found = walked(Known([sender], [message(1, 0)], {1: 70}))
    assert found[0] == (Part.SCHEDULE, 30, 1)
    assert found[-1] == (Part.ACK, 15, 1)


def test_a_chain_of_messages_ends_at_the_rank_that_began_it() -> None:
    relayed = message(
        1,
        2,
        number=4,
        ready_ns=165,
        posted_ns=165,
        departed_ns=186,
        received_ns=220,
        cause="message",
        cause_rank=0,
        cause_number=0,
    )
    operations = [
        share(0, 0, (100, 100, 180)),
        share(1, 0, (90, 90, 230)),
        share(2, 0, (90, 90, 220), end_cause="received", end_rank=1, end_number=4),
    ]
    known = Known(operations, [message(0, 1), relayed], {0: 100, 1: 90, 2: 90})
    known._operations[1] = share(1, 0, (90, 90, 210))
    found = walked(known)
    assert [rank for _, _, rank in found] == [0] * 12 + [1] * 10
    assert found[0] == (Part.START_SKEW, 10, 0)


@pytest.mark.parametrize("is_virtual", [True, False])
def test_ready_message_waits_for_earlier_ones_of_its_queue_pair(
    *, is_virtual: bool
) -> None:
    """Rank 1 is late, and one of its messages waits for another."""
    first = message(
        *(1, 2),
        ready_ns=100,
        posted_ns=100,
        departed_ns=160,
        received_ns=180,
        **dict.fromkeys(("pace_ns", "pause_ns", "window_ns", "repair_ns"), 0),
        own_port_ns=20,
        transfer_ns=40,
        generator_wait_ns=15,
    )
    # Ready because of another message, when the first one is half sent; its own
    # transfer, which it repeats, begins when that is gone.
    second = first._replace(
        number=1,
        ready_ns=130,
        posted_ns=130,
        departed_ns=210,
        received_ns=230,
        own_port_ns=20,
        transfer_ns=35,
        repair_ns=25,
        generator_wait_ns=0,
        cause="message",
        cause_rank=0,
        cause_number=0,
        **dict.fromkeys(("queue_ns", "switch_pause_ns"), 0),
        serialise_ns=12,
        propagate_ns=8,
    )
    early = message(0, 1, departed_ns=110, received_ns=130)
    operations = [
        compute(1, 0, (0, 0, 100)),
        share(1, 1, (100, 100, 240), cause_number=0),
        share(0, 0, (90, 90, 130)),
        share(2, 0, (0, 0, 230), end_cause="received", end_rank=1, end_number=1),
    ]
    operations[1] = operations[1]._replace(end_ns=220)
    starts_ns = dict.fromkeys(range(3), 0)
    messages = [early, first, second]
    found = walked(Known(operations, messages, starts_ns, is_virtual=is_virtual))
    own_port = [(Part.OWN_PORT, 20, 1)]
    if not is_virtual:
        own_port = [(Part.GENERATOR, 15, 1), (Part.OWN_PORT, 5, 1)]
    assert found == [
        (Part.COMPUTE, 100, 1),
        *own_port,
        (Part.TRANSFER, 40, 1),
        (Part.REPAIR, 15, 1),
        (Part.TRANSFER, 35, 1),
        (Part.SERIALISE, 12, 1),
        (Part.PROPAGATE, 8, 1),
    ]
    messages[2] = second._replace(repair_ns=None)
    found = walked(Known(operations, messages, starts_ns, is_virtual=is_virtual))
    assert found[-1] == (Part.UNKNOWN, 70, 1)


def test_message_without_a_credit_waits_for_its_order() -> None:
    held = message(1, 0, ready_ns=100, cause="grant", cause_rank=0, cause_number=0)
    operations = [
        share(1, 0, (40, 40, 90)),
        share(0, 0, (40, 40, 165), end_cause="received", end_rank=1, end_number=0),
    ]
    assert walked(Known(operations, [held], {0: 40, 1: 40}))[0] == (Part.ORDER, 60, 1)


def test_time_without_records_is_unknown() -> None:
    lost = share(0, 0, (0, 0, 165), end_cause="received", end_rank=1, end_number=7)
    after = compute(0, 1, (500, 500, 600), cause_number=3)
    assert walked(Known([after], [], {0: 100})) == [
        (Part.UNKNOWN, 400, 0),
        (Part.COMPUTE, 100, 0),
    ]
    # A message that is not there leaves the whole share to its host.
    assert walked(Known([lost], [], {0: 0})) == [(Part.HOST, 165, 0)]


def test_network_runs_use_the_records_of_the_sender() -> None:
    seen = message(
        1,
        0,
        received_ns=None,
        queue_ns=None,
        switch_pause_ns=None,
        serialise_ns=None,
        propagate_ns=None,
        generator_wait_ns=11,
    )
    parts = message_parts(seen, is_virtual=False)
    assert parts[:3] == [(Part.GENERATOR, 10), (Part.GENERATOR, 1), (Part.OWN_PORT, 0)]
    assert parts[-1] == (Part.REPAIR, 6)
    operations = [
        share(1, 0, (100, 100, 190)),
        share(0, 0, (90, 90, 177), end_cause="received", end_rank=1, end_number=0),
        compute(0, 1, (177, 177, 300), cause_number=0),
    ]
    found = walked(Known(operations, [seen], {0: 100, 1: 100}, is_virtual=False))
    assert (Part.NETWORK, 46, 1) in found


def test_time_of_messages_on_nics_is_that_of_the_network() -> None:
    own = (
        "own_port_ns",
        "window_ns",
        "pace_ns",
        "pause_ns",
        "transfer_ns",
        "repair_ns",
    )
    seen = message(
        1,
        0,
        departed_ns=None,
        generator_wait_ns=14,
        **dict.fromkeys(own),
        **dict.fromkeys(
            ("queue_ns", "switch_pause_ns", "serialise_ns", "propagate_ns")
        ),
    )
    waited_ns = seen.posted_ns - seen.ready_ns
    assert seen.received_ns is not None
    assert message_parts(seen, is_virtual=False) == [
        (Part.GENERATOR, waited_ns),
        (Part.GENERATOR, 14 - waited_ns),
        (Part.NETWORK, seen.received_ns - seen.ready_ns - 14),
    ]
    # A simulation without parts does not say where the time went.
    assert message_parts(seen, is_virtual=True) == [(Part.HOST, waited_ns)]


@pytest.mark.parametrize("received_ns", [90, 400])
def test_clocks_that_disagree_never_send_a_path_forward(received_ns: int) -> None:
    operations = [
        share(1, 0, (100, 100, 190)),
        share(0, 0, (95, 95, 177), end_cause="received", end_rank=1, end_number=0),
    ]
    odd = message(1, 0, received_ns=received_ns)
    walked(Known(operations, [odd], {0: 80, 1: 80}, is_virtual=False))


# Causes.


def link(port: str, name: str, direction: str, **other: object) -> LinkRecord:
    fields = {
        "link": name,
        "kind": "uplink",
        "direction": direction,
        "bytes_before": 0,
        "bytes_after": 1000,
        "port": port,
        "rate_bps": 10**9,
        "drops": 0,
        "marked": 0,
        "paused_ns": 0,
        "down_ns": 0,
    }
    return LinkRecord(**(fields | other))  # type: ignore[arg-type] # any of its fields


LINKS = (
    link("h0:eth0", "h0-leaf0", "up", kind="host"),
    link("leaf0:p0", "h0-leaf0", "down", kind="host"),
    link("leaf0:up0", "leaf0-spine0", "up", equal_cost="leaf0#0"),
    link("spine0:p0", "leaf0-spine0", "down"),
    link("leaf0:up1", "leaf0-spine1", "up", equal_cost="leaf0#0"),
    link("spine1:p0", "leaf0-spine1", "down"),
    link("spine0:p1", "leaf1-spine0", "down"),
    link("leaf1:up0", "leaf1-spine0", "up"),
    link("h1:eth0", "h1-leaf1", "up", kind="host"),
    link("leaf1:p0", "h1-leaf1", "down", kind="host"),
)


def cause_of(
    part: Part,
    sent: Message | None,
    *changed: LinkRecord,
    slow: str = "",
    least_bps: int = 10**6,
    fixed: bool = False,
    links: tuple[LinkRecord, ...] = LINKS,
) -> tuple[str, str]:
    """Return the cause of 1,000 ns of *part*, of 10,000 on the path."""
    now = {each.port: each for each in (*links, *changed)}
    around = Surroundings(
        links=tuple(now.values()),
        slow_ports=frozenset({slow} - {""}),
        hosts={("j", 0): "h0", ("j", 1): "h1"},
        rates_bps={("j", 0): 10**12, ("j", 1): 10**12},
        path_mtu=4096,
        overhead_bytes=58,
        least_rate_bps=least_bps,
        has_fixed_rate=fixed,
    )
    pieces = (
        Piece(Part.PROPAGATE, 0, 9000, 0),
        Piece(part, 9000, 10_000, 0, None, sent),
    )
    why = explain([Path(job="j", iteration=0, pieces=pieces)], around)
    assert why.time_ns == 10_000
    assert sum(why.parts_ns.values()) == 10_000
    assert why.first is not None
    return why.first.cause, why.first.place


WAITS = ("own port", "rank 0")
SENT = message(0, 1, path="leaf0:up0 spine0:p1", queue_port="leaf0:up0")


def test_unknown_links_are_not_called_slow() -> None:
    """Fabrics without a topology tell neither the links nor their rates."""
    assert cause_of(Part.TRANSFER, SENT, links=()) == WAITS


def test_constant_pacing_at_the_port_rate_waits_for_the_port() -> None:
    at_line_rate = SENT._replace(rate_at_start_bps=10**12)
    assert cause_of(Part.PACE, at_line_rate, least_bps=10**12) == WAITS
    # Congestion control begins there, and goes below.
    assert cause_of(Part.PACE, at_line_rate) == ("congestion control", "rank 0")


def test_fixed_rate_is_no_minimum_rate() -> None:
    sent = SENT._replace(rate_at_start_bps=10**6)
    assert cause_of(Part.PACE, sent, fixed=True) == ("congestion control", "all_reduce")


@pytest.mark.parametrize(
    ("part", "sent", "changed", "slow", "expected"),
    [
        (Part.GENERATOR, SENT, (), "", ("generator slow", "h0")),
        (Part.START_SKEW, None, (), "", ("late rank", "rank 0")),
        (Part.REPAIR, SENT, (), "", ("loss", "toward h1")),
        (
            Part.REPAIR,
            SENT,
            (link("spine0:p1", "leaf1-spine0", "down", drops=3),),
            "",
            ("loss", "leaf1-spine0 down"),
        ),
        (
            Part.PACE,
            SENT._replace(rate_at_start_bps=1_050_000),
            (),
            "",
            ("congestion control at minimum rate", "all_reduce"),
        ),
        (Part.OWN_PORT, SENT, (), "", WAITS),
        (Part.OWN_PORT, SENT, (), "h0:eth0", ("slow link", "h0-leaf0 up")),
        (
            Part.PACE,
            SENT._replace(rate_at_start_bps=5_000_000),
            (link("leaf1:p0", "h1-leaf1", "down", marked=8),),
            "",
            ("congestion control", "h1-leaf1 down"),
        ),
        (Part.PAUSE, SENT, (), "", ("pause", "leaf0-spine0 up")),
        (
            Part.PAUSE,
            SENT,
            (
                link("leaf0:up0", "leaf0-spine0", "up", paused_ns=9),
                link("spine0:p1", "leaf1-spine0", "down", paused_ns=9),
            ),
            "",
            ("pause", "h1-leaf1 down"),
        ),
        (
            Part.SERIALISE,
            SENT._replace(slow_ns=1000, slow_port="leaf0:up0"),
            (),
            "",
            ("slow link", "leaf0-spine0 up"),
        ),
        (Part.TRANSFER, SENT, (), "", ("slow link", "h0-leaf0 up")),
        (Part.QUEUE, SENT, (), "leaf0:up0", ("slow link", "leaf0-spine0 up")),
        (
            Part.QUEUE,
            SENT,
            (
                link(
                    "leaf0:up1",
                    "leaf0-spine1",
                    "up",
                    equal_cost="leaf0#0",
                    down_ns=5,
                ),
            ),
            "",
            ("dead uplink", "leaf0-spine1 up"),
        ),
        (
            Part.QUEUE,
            SENT,
            (
                link(
                    "leaf0:up1",
                    "leaf0-spine1",
                    "up",
                    equal_cost="leaf0#0",
                    bytes_after=0,
                    down_ns=None,
                ),
            ),
            "",
            ("hash imbalance", "leaf0"),
        ),
        (
            Part.QUEUE,
            SENT,
            (
                link(
                    "leaf0:up1",
                    "leaf0-spine1",
                    "up",
                    equal_cost="leaf0#0",
                    bytes_after=200,
                ),
            ),
            "",
            ("hash imbalance", "leaf0"),
        ),
        (Part.QUEUE, SENT, (), "", ("contention", "leaf0-spine0 up")),
        (Part.OWN_PORT, SENT, (), "", ("own port", "rank 0")),
        (Part.WINDOW, SENT, (), "", ("window", "rank 0")),
    ],
)
def test_a_cause_is_the_first_rule_that_holds(
    part: Part,
    sent: Message | None,
    changed: tuple[LinkRecord, ...],
    slow: str,
    expected: tuple[str, str],
) -> None:
    assert cause_of(part, sent, *changed, slow=slow) == expected


def test_lost_time_exceeds_the_nominal_time() -> None:
    operation = compute(3, 7, (0, 0, 1000), nominal_ns=400)
    pieces = (Piece(Part.COMPUTE, 0, 1000, 3, operation),)
    why = explain([Path(job="j", iteration=0, pieces=pieces)], Surroundings())
    assert why.causes == (
        Cause(cause="slow compute", place="rank 3, c7", lost_ns=600, share=0.6),
    )
    assert why.by_rank == ((3, 600),)
    assert why.by_collective == (("c7", 600),)


def test_lost_time_of_several_jobs_is_kept_apart() -> None:
    """Jobs number their ranks and groups separately."""
    paths = [
        Path(
            job=job,
            iteration=0,
            pieces=(
                Piece(Part.COMPUTE, 0, 400 + lost_ns, 3, operation),
                Piece(Part.WINDOW, 400 + lost_ns, 430 + lost_ns, 10, None, SENT),
            ),
        )
        for job, lost_ns in (("j", 600), ("k", 250), ("k", 150))
        for operation in [compute(3, 7, (0, 0, 400 + lost_ns), nominal_ns=400)]
    ]
    why = explain(paths, Surroundings())
    assert why.by_rank == (
        ("j rank 3", 600),
        ("k rank 3", 400),
        ("k rank 10", 60),
        ("j rank 10", 30),
    )
    message = f"{SENT.collective} {SENT.group}#{SENT.k}"
    assert why.by_collective == (
        ("j c7", 600),
        ("k c7", 400),
        (f"k {message}", 60),
        (f"j {message}", 30),
    )
    document = why_document(why)
    assert {each["job"] for each in document["path"]} == {"j"}
    assert document["lost_by_rank_ns"] == dict(why.by_rank)
    assert document["lost_by_collective_ns"] == dict(why.by_collective)
    assert explain(paths[1:], Surroundings()).by_rank == ((3, 400), (10, 60))


def test_congestion_control_of_several_jobs_is_kept_apart() -> None:
    around = Surroundings(
        hosts={("j", 0): "h0", ("k", 0): "h1"},
        rates_bps={("j", 0): 10**12, ("k", 0): 10**12},
        least_rate_bps=10**9,
    )
    sent = SENT._replace(rate_at_start_bps=10**9)
    pieces = (Piece(Part.PACE, 0, 1000, 0, None, sent),)
    paths = [Path(job=job, iteration=0, pieces=pieces) for job in "jk"]
    places = {each.place for each in explain(paths, around).causes}
    assert places == {f"j {SENT.collective}", f"k {SENT.collective}"}


@pytest.mark.parametrize(("rate_bps", "lost_ns"), [(10**9, 0), (4 * 10**8, 60)])
def test_transfer_by_a_port_slower_than_others_like_it_is_lost(
    rate_bps: int, lost_ns: int
) -> None:
    """5 bytes before the last packet take 40 ns at the rate of the others."""
    links = [
        link(f"h{at}:eth0", f"h{at}-leaf0", "up", kind="host", rate_bps=10**9)
        for at in range(1, 4)
    ]
    own = link("h0:eth0", "h0-leaf0", "up", kind="host", rate_bps=rate_bps)
    took_ns = 40 * 10**9 // rate_bps
    piece = Piece(Part.TRANSFER, 0, took_ns, 0, None, SENT._replace(packets=2))
    around = Surroundings(
        links=[own, *links],
        hosts={("j", 0): "h0"},
        rates_bps={("j", 0): rate_bps},
        path_mtu=5,
    )
    why = explain([Path(job="j", iteration=0, pieces=(piece,))], around)
    assert why.lost_ns == lost_ns


def test_causes_below_three_percent_are_not_reported() -> None:
    pieces = (
        Piece(Part.PROPAGATE, 0, 971, 0),
        Piece(Part.WINDOW, 971, 1000, 0, None, SENT),
    )
    why = explain([Path(job="j", iteration=0, pieces=pieces)], Surroundings())
    assert [each.lost_ns for each in why.causes] == [29]
    assert why.first is None
    assert why.unknown_share == 0


# Runs on a network.

SEEN = message(
    0,
    1,
    path="leaf0:up0 spine0:p1",
    transfer_ns=100,
    departed_ns=200,
    received_ns=700,
    queue_ns=None,
)
"""Its way took 600 ns: 100 until it departed, 500 after that."""


def seen(part: Part, time_ns: int, of: Message = SEEN, **around: Any) -> list[Cause]:
    """Return the causes of a piece of a run on a network, of 10,000 ns."""
    known = {
        "links": LINKS,
        "hosts": {("j", 0): "h0", ("j", 1): "h1"},
        "rates_bps": {("j", 0): 8 * 10**9},  # a byte per ns
        "path_mtu": 40,
        "overhead_bytes": 10,
        "ways_ns": {("j", 0, 1, 8192): 150},
    }
    pieces = (
        Piece(Part.PROPAGATE, 0, 10_000 - time_ns, 0),
        Piece(part, 10_000 - time_ns, 10_000, 0, None, of),
    )
    path = Path(job="j", iteration=3, pieces=pieces)
    return list(explain([path], Surroundings(**(known | around))).causes)


def one(causes: list[Cause]) -> tuple[str, str, int]:
    (cause,) = causes
    return cause.cause, cause.place, cause.lost_ns


def test_excess_time_of_a_path_is_charged_to_its_fullest_link() -> None:
    links = {each.port: each for each in LINKS}
    links["spine0:p1"] = link("spine0:p1", "leaf1-spine0", "down", bytes_after=2000)
    found = seen(Part.NETWORK, 500, links=tuple(links.values()))
    assert one(found) == ("contention", "leaf1-spine0 down", 450)
    # Of two that are as full the first has the queue.
    links["leaf0:up0"] = link("leaf0:up0", "leaf0-spine0", "up", bytes_after=1950)
    found = seen(Part.NETWORK, 500, links=tuple(links.values()))
    assert one(found) == ("contention", "leaf0-spine0 up", 450)
    assert seen(Part.NETWORK, 500, ways_ns={("j", 0, 1, 8192): 600}) == []
    assert seen(Part.NETWORK, 500, ways_ns={}) == []
    # No more is lost there than the time after it had departed.
    assert seen(Part.TRANSFER, 100) == []
    assert one(seen(Part.TRANSFER, 100, ways_ns={("j", 0, 1, 8192): 70}))[2] == 30


@pytest.mark.parametrize(
    ("window_bytes", "changes", "expected"),
    [
        # 50 ns of the way, 50 bytes, and two bursts of two packets are 250 bytes.
        (249, {}, ("window", "rank 0")),
        (250, {}, ("contention", "h0-leaf0 up")),
        (250, {"retransmitted": 1}, ("loss", "toward h1")),
        (0, {}, ("window", "rank 0")),
    ],
)
def test_full_window_that_is_large_enough_is_charged_to_the_network(
    window_bytes: int, changes: dict[str, int], expected: tuple[str, str]
) -> None:
    sent = SEEN._replace(packets=3, **changes)
    found = seen(Part.WINDOW, 800, sent, window_bytes=window_bytes, burst_packets=2)
    assert one(found) == (*expected, 800)


def test_time_of_the_generator_is_charged_to_no_other_cause() -> None:
    unsure = {("j", 3, "world", 0)}
    for part in (Part.NETWORK, Part.WINDOW):
        assert seen(part, 500, unsure=unsure) == []
        assert seen(part, 500, unsure={("j", 2, "world", 0)}) != []
    assert seen(Part.REPAIR, 500, unsure=unsure) != []


def test_time_that_the_generator_distorted_is_counted() -> None:
    pieces = tuple(
        Piece(part, start, start + 100, 0, None, SENT)
        for start, part in ((0, Part.NETWORK), (100, Part.REPAIR))
    )
    path = Path(job="j", iteration=3, pieces=pieces)
    group = SENT.group, SENT.k
    unsure = Surroundings(unsure={("j", 3, *group)})
    assert explain([path], unsure).distorted_share == 0.5
    assert explain([path], Surroundings()).distorted_share == 0


def test_link_slower_than_its_peers_is_slow() -> None:
    changed = link("spine0:p1", "leaf1-spine0", "down", rate_bps=8 * 10**8)
    links = tuple(changed if each.port == changed.port else each for each in LINKS)
    assert one(seen(Part.NETWORK, 500, links=links))[:2] == (
        "slow link",
        "leaf1-spine0 down",
    )
    # Comparable links are those between the same tiers, whatever their names.
    names = dict(
        zip(dict.fromkeys(each.link for each in LINKS), "abcdef", strict=False)
    )
    links = tuple(
        replace(
            each,
            link=names[each.link],
            rate_bps=changed.rate_bps if each.link == changed.link else each.rate_bps,
        )
        for each in LINKS
    )
    assert one(seen(Part.NETWORK, 500, links=links))[0] == "slow link"
    # So is what is before a message at such a port.
    changed = link("h0:eth0", "h0-leaf0", "up", kind="host", rate_bps=10**8)
    links = tuple(changed if each.port == changed.port else each for each in LINKS)
    assert one(seen(Part.OWN_PORT, 500))[:2] == ("own port", "rank 0")
    found = seen(Part.OWN_PORT, 500, links=links)
    assert one(found)[:2] == ("slow link", "h0-leaf0 up")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["leaf0:up0 spine0:p1", "leaf0:up1 spine1:p1"], "dead uplink"),
        (["leaf0:up0 spine0:p1"], "hash imbalance"),
        ([None], "hash imbalance"),
    ],
)
def test_an_uplink_without_bytes_is_dead_if_the_hash_chose_it(
    paths: list[str | None], expected: str
) -> None:
    counted = {"down_ns": None, "kind": "uplink", "equal_cost": "leaf0#0"}
    links = {each.port: each for each in LINKS}
    for spine, count in enumerate((5000, 10)):
        port = f"leaf0:up{spine}"
        links[port] = link(
            port, f"leaf0-spine{spine}", "up", bytes_after=count, **counted
        )
    sent = [SentPackets("j", 0, 1, path, 100, 0) for path in paths]
    (cause,) = seen(Part.NETWORK, 500, links=tuple(links.values()), sent=sent)
    assert (cause.cause, cause.place) == (
        expected,
        "leaf0-spine1 up" if expected == "dead uplink" else "leaf0",
    )
    # A message that the hash sent there names it, whatever else is full.
    if paths[-1] and expected == "dead uplink":
        chosen = SEEN._replace(path=paths[-1])
        (cause,) = seen(
            Part.NETWORK, 500, chosen, links=tuple(links.values()), sent=sent
        )
        assert (cause.cause, cause.place) == ("dead uplink", "leaf0-spine1 up")


def test_loss_is_located_at_the_largest_share_of_retransmissions() -> None:
    path = "leaf0:up0 spine0:p1"
    sent = [SentPackets("j", 0, 1, path, 100, 5), SentPackets("j", 1, 0, "", 100, 0)]
    alike = "h0-leaf0 up or leaf0-spine0 up or leaf1-spine0 down or h1-leaf1 down"
    assert one(seen(Part.REPAIR, 9, sent=sent))[:2] == ("loss", alike)
    others = [SentPackets("j", 0, 2, path, 100, 0), *sent]
    assert one(seen(Part.REPAIR, 9, sent=others))[:2] == ("loss", "h1-leaf1 down")


def test_delay_that_a_port_makes_up_is_not_lost() -> None:
    # Its two packets before the last take 100 ns at the rate of the port.
    fast = SEEN._replace(packets=3, transfer_ns=40, pace_ns=0)
    assert one(seen(Part.OWN_PORT, 90, fast)) == ("own port", "rank 0", 30)
    assert seen(Part.OWN_PORT, 60, fast) == []
    slow = SEEN._replace(packets=3, transfer_ns=120)
    assert one(seen(Part.OWN_PORT, 90, slow)) == ("own port", "rank 0", 90)
    assert one(seen(Part.OWN_PORT, 90, fast, ways_ns={})) == ("own port", "rank 0", 90)


def test_the_packets_of_a_nic_are_unknown() -> None:
    unknown = SEEN._replace(packets=None, transfer_ns=None)
    assert one(seen(Part.WINDOW, 90, unknown))[2] == 90


def test_pace_at_the_rate_of_the_port_is_not_lost() -> None:
    ahead = SEEN._replace(packets=3, transfer_ns=40, pace_ns=90)
    assert one(seen(Part.PACE, 90, ahead))[2] == 30
    assert seen(Part.PACE, 60, ahead) == []
    # The time that pacing makes up is not also made up by the port.
    assert one(seen(Part.OWN_PORT, 90, ahead)) == ("own port", "rank 0", 90)


def test_a_place_with_a_fault_is_named_with_it() -> None:
    done = {"h0-leaf0 up": "it has 1Gbit", "h1-leaf1 down": "it is down"}
    (cause,) = seen(Part.NETWORK, 500, faults=done)
    assert (cause.place, cause.fault) == ("h0-leaf0 up", "it has 1Gbit")
    assert str(cause) == "contention at h0-leaf0 up (injected: it has 1Gbit)"


def test_declared_pause_is_not_traced_further() -> None:
    paused = [
        link(each.port, each.link, each.direction, kind=each.kind, paused_ns=9)
        for each in LINKS
        if each.port is not None
    ]
    waiting = SEEN._replace(pause_port="leaf0:up0")
    known = {"links": tuple(paused)}
    (cause,) = seen(Part.SWITCH_PAUSE, 9, waiting, **known)
    assert cause.place == "h1-leaf1 down"
    for port, place in (
        ("leaf0:up0", "leaf0-spine0 up"),
        ("spine0:p1", "leaf1-spine0 down"),
    ):
        storm = frozenset({port})
        (cause,) = seen(Part.SWITCH_PAUSE, 9, waiting, storm_ports=storm, **known)
        assert cause.place == place
