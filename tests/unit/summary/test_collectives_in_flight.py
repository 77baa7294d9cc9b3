"""Collectives in flight per group, derived from finished ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from chakram.records.collective_assembly import CollectiveJoiner
from chakram.records.named_rows import OperationTable
from chakram.records.run_records import CollectiveIdentity, CollectiveRecord
from chakram.summary.collectives_in_flight import CollectivesInFlight
from tests.small_run import small_plan, small_rows

SECOND_NS = 10**9


def made(iterations: int = 4) -> CollectivesInFlight:
    return CollectivesInFlight(
        OperationTable(small_plan()).identities, {"moe": iterations}
    )


def ended(iteration: int, *groups: str) -> Iterable[CollectiveRecord]:
    joiner = CollectiveJoiner(OperationTable(small_plan()), warmup=1)
    for record in joiner.add(small_rows(iteration)):
        if not groups or record.identity.key.group in groups:
            yield record


def test_every_group_is_at_its_first_collective_first() -> None:
    work = made()
    # All messages between two ranks are one group.
    assert work.text(most=9) == (
        "world all_reduce 1/1, ep0 all_to_all 1/1, p2p send_recv 1/1, "
        "ep1 all_to_all 1/1"
    )
    assert work.left_ns(SECOND_NS) is None


def test_most_delayed_groups_are_listed_and_the_rest_counted() -> None:
    work = made()
    work.take(ended(0, "world", "ep1"))
    assert work.text(most=2) == "ep0 all_to_all 1/1, p2p send_recv 1/1, 2 more"


def test_remaining_time_extrapolates_completed_work() -> None:
    work = made(iterations=4)
    work.take(ended(0))
    assert work.left_ns(SECOND_NS) == 3 * SECOND_NS
    # Large ones are most of it.
    work.take(ended(1, "world"))
    left_ns = work.left_ns(2 * SECOND_NS)
    assert left_ns is not None
    assert 2 * SECOND_NS < left_ns < 3 * SECOND_NS


def test_finished_collectives_are_not_in_flight() -> None:
    work = made(iterations=1)
    work.take(ended(0, "ep0"))
    assert "ep0" not in work.text(most=9)
    work.take(ended(0, "world", "ep1", "p2p:0>1"))
    assert work.text() == ""
    assert work.left_ns(SECOND_NS) == 0


def test_background_job_is_not_part_of_the_remaining_work() -> None:
    work = CollectivesInFlight(OperationTable(small_plan()).identities, {})
    work.take(ended(0))
    work.take(ended(1))
    assert work.text().startswith("world all_reduce 1/1")
    assert work.left_ns(SECOND_NS) is None


def of_job(job: str) -> list[CollectiveIdentity]:
    return [
        replace(each, key=each.key._replace(job=job))
        for each in OperationTable(small_plan()).identities
    ]


def test_only_finite_jobs_count_as_remaining_work() -> None:
    mine, others = of_job("mine"), of_job("background")
    work = CollectivesInFlight([*others, *mine], {"mine": 2})
    records = list(ended(0))

    work.take(
        record._replace(identity=identity)
        for record in records
        for identity in mine
        if identity.key == record.identity.key._replace(job="mine")
    )
    # One of two iterations: the other job does not count.
    assert work.left_ns(SECOND_NS) == SECOND_NS
    # Of several jobs each group is named with its own; the one behind is first.
    assert work.text(most=1) == "background/world all_reduce 1/1, 7 more"


def test_collective_without_bytes_counts_as_one_byte() -> None:
    empty = [replace(each, input_bytes=0) for each in of_job("moe")]
    work = CollectivesInFlight(empty, {"moe": 4})
    work.take(
        record._replace(identity=replace(record.identity, input_bytes=0))
        for record in ended(0)
    )
    assert work.left_ns(SECOND_NS) == 3 * SECOND_NS
