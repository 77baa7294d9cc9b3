"""Tables of a run directory return the recorded values."""

from __future__ import annotations

import re
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.console.collective_tables import render_table
from chakram.console.summary_document import summary_document
from chakram.records.named_rows import (
    OperationTable,
    rank_records,
)
from chakram.records.row_layout import (
    PORT_FIELDS,
    QUEUE_PAIR_FIELDS,
    SHARE_UNIT,
    RecordRows,
)
from chakram.records.run_records import CollectiveKey, LinkRecord
from chakram.run_directory.manifest import PARTIAL, RunManifest
from chakram.run_directory.reader import open_run
from chakram.run_directory.schemas import SCHEMAS
from chakram.run_directory.writer import RunDirectory
from chakram.summary.retransmissions import Traffic
from chakram.summary.run_summary import Measurements
from chakram.summary.summarize_run import summarize_run
from tests.plans import moved
from tests.run_directories import EP1, STARTED, WORLD, begin
from tests.small_run import (
    ALL_REDUCE_NS,
    ALL_TO_ALL_NS,
    completion_times,
    flow_records,
    row_of,
    small_plan,
    small_rows,
)
from tests.support import REPO_ROOT

_SAME_NAMES = [
    "iteration",
    "src",
    "dst",
    "step",
    "channel",
    "qpn",
    "ready_ns",
    "posted_ns",
    "first_sent_ns",
    "last_acked_ns",
    "fct_ns",
    "packets",
    "retransmitted",
    "generator_wait_ns",
]


def test_every_message_has_its_own_bound(tmp_path: Path) -> None:
    def bound(job: str, src: int, dst: int, size_bytes: int) -> int:
        return len(job) * 10**12 + src * 10**10 + dst * 10**8 + size_bytes

    directory = begin(tmp_path)
    for iteration in range(4):
        directory.add(small_rows(iteration))
        directory.flush()
    directory.finish(ended=STARTED, flow_bound=bound)
    rows = _flows(directory)
    assert len(rows) == 116
    assert len({row["bytes"] for row in rows}) > 1
    assert [row["bound_ns"] for row in rows] == [
        bound(row["job"], row["src"], row["dst"], row["bytes"]) for row in rows
    ]


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_flows_name_the_family_of_their_ports(tmp_path: Path, family: str) -> None:
    plan = small_plan()
    if family == "ipv6":
        agents = []
        for agent in plan.agents:
            places = [(f"2001:2::{port.number + 1}", 4791) for port in agent.ports]
            agents.append(moved(agent, places))
        plan = replace(plan, agents=tuple(agents))
    directory = RunDirectory.create(
        tmp_path,
        manifest=RunManifest(
            run_id="r", name="n", world="loopback", started_at="", family=family
        ),
        started=STARTED,
    )
    directory.begin(plan)
    directory.add(small_rows(0))
    directory.finish(ended=STARTED)
    assert {row["family"] for row in _flows(directory)} == {family}
    assert open_run(directory.path).manifest.family == family


def test_without_a_fabric_no_message_has_a_bound(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(0))
    directory.finish(ended=STARTED)
    (column,) = {row["bound_ns"] for row in _flows(directory)}
    assert column is None


def _flows(directory: RunDirectory) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = open_run(directory.path).table("flows").to_pylist()
    return rows


def test_every_table_names_its_run_in_the_metadata(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(0))
    directory.finish(ended=STARTED)
    for name in ("flows", "collectives", "ranks", "links"):
        metadata = pq.read_schema(directory.path / f"{name}.parquet").metadata
        assert metadata[b"chakram.schema_version"] == b"2"
        assert metadata[b"chakram.run_id"] == b"r1"
        assert metadata[b"chakram.table"] == name.encode()


def test_every_row_names_its_run(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(0))
    directory.flush()
    results = open_run(directory.path)
    for _ in ("parts", "one file"):
        for name in ("flows", "collectives", "ranks"):
            rows = results.table(name).select(["run_id", "world"]).to_pylist()
            assert rows
            assert all(row == {"run_id": "r1", "world": "namespaces"} for row in rows)
        directory.finish(ended=STARTED)
    for name in SCHEMAS:
        found = pq.read_schema(directory.path / f"{name}.parquet").names
        assert found[: len(SCHEMAS[name].names)] == SCHEMAS[name].names
        assert found[:2] == ["run_id", "world"]


def test_collectives_and_ranks_are_read_back_unchanged(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    written = directory.add(small_rows(1, slower_ns=7, retransmitted=2))
    assert [len(written.collectives), len(written.ranks)] == [4, 4]
    directory.finish(ended=STARTED)
    results = open_run(directory.path)
    assert results.collectives() == written.collectives
    assert results.ranks() == written.ranks
    assert [(rank.rank, rank.measured) for rank in results.ranks()] == [
        (0, True),
        (1, True),
        (2, True),
        (3, True),
    ]


def test_flow_columns_agree_with_flow_records(tmp_path: Path) -> None:
    manifest = RunManifest(run_id="r", name="r", world="loopback", started_at="")
    directory = RunDirectory.create(tmp_path, manifest=manifest, started=STARTED)
    operations = directory.begin(small_plan())
    rows = small_rows(1, generator_wait_ns=5, retransmitted=3)
    directory.add(rows)
    directory.finish(ended=STARTED)
    found = open_run(directory.path).table("flows").to_pylist()
    expected = list(flow_records(rows.flows, operations))
    assert len(found) == len(expected)
    for row, flow in zip(found, expected, strict=True):
        assert (row["job"], row["group"], row["k"]) == flow.key
        assert CollectiveOp(row["collective"]) is flow.op
        assert row["bytes"] == flow.size_bytes
        for name in _SAME_NAMES:
            assert row[name] == getattr(flow, name), name
    assert {row["cause"] for row in found} == {"start", "operation", "message"}
    assert all(
        (row["cause_rank"] is not None) == (row["cause"] == "message") for row in found
    )


def test_completion_times_are_read_back_by_collective(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    for iteration in range(3):
        directory.add(small_rows(iteration))
        directory.flush()
    directory.finish(ended=STARTED)
    times = open_run(directory.path).completion_times()
    assert {key: len(values) for key, values in times.items()} == {
        WORLD: 48,
        CollectiveKey("moe", "ep0", 0): 4,
        EP1: 4,
        CollectiveKey("moe", "p2p:0>1", 0): 2,
    }
    assert times[EP1] == array("q", [ALL_TO_ALL_NS] * 4)


def test_predictions_are_in_the_rows_of_measurements(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(1))
    directory.finish(
        ended=STARTED,
        bound={WORLD: 300_000},
        predictions={"simulate": {WORLD: 390_000, EP1: 99_000}},
    )
    results = open_run(directory.path)
    assert results.bounds() == {WORLD: 300_000}
    assert results.ceilings() == {}
    assert results.predictions() == {"simulate": {WORLD: 390_000, EP1: 99_000}}
    row = next(
        row
        for row in results.table("collectives").to_pylist()
        if row["group"] == "world"
    )
    assert (row["duration_ns"], row["bound_ns"]) == (ALL_REDUCE_NS, 300_000)


def test_summary_equals_that_of_the_records(tmp_path: Path) -> None:
    directory = begin(tmp_path, dilation=10, size_scale="1/16")
    rows = RecordRows()
    for iteration in range(4):
        rows.extend(small_rows(iteration))
    collectives = directory.add(rows).collectives
    directory.finish(ended=STARTED, bound={WORLD: ALL_REDUCE_NS // 2})
    results = open_run(directory.path)
    found = results.summary()
    operations = OperationTable(small_plan())
    expected = summarize_run(
        Measurements(
            facts=found.facts,
            collectives=collectives,
            ranks=rank_records(rows.iterations, operations, warmup=1),
            completion_times=completion_times(rows.flows, operations, warmup=1),
            messages=results.messages(),
            transport=results.message_transport(),
        ),
        bound=lambda identity: {WORLD: ALL_REDUCE_NS // 2}.get(identity.key),
    )
    assert found == expected
    assert found.facts.directory == str(directory.path)
    assert found.rows[0].bound_share == 0.5
    assert len(found.banners) == 2


def test_samples_become_tables(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.add(
        RecordRows(
            queue_pairs=array(
                "q",
                row_of(
                    QUEUE_PAIR_FIELDS,
                    time_ns=5,
                    rank=1,
                    peer=2,
                    qpn=77,
                    alpha=SHARE_UNIT // 4,
                    cnp_rx=3,
                )
                + row_of(QUEUE_PAIR_FIELDS, time_ns=6, alpha=-1),
            ),
            ports=array("q", row_of(PORT_FIELDS, time_ns=7, port=1, tx_bytes=9)),
        )
    )
    directory.finish(ended=STARTED)
    results = open_run(directory.path)

    first, second = results.table("queue_pairs").to_pylist()
    assert (first["time_ns"], first["rank"], first["peer"]) == (5, 1, 2)
    assert (first["qpn"], first["alpha"], first["cnp_rx"]) == (77, 0.25, 3)
    assert (second["time_ns"], second["alpha"]) == (6, None)
    (port,) = results.table("ports").to_pylist()
    assert (port["time_ns"], port["port"], port["tx_bytes"]) == (7, 1, 9)


def test_retransmission_reasons_of_a_run_without_deliveries_are_known(
    tmp_path: Path,
) -> None:
    directory = begin(tmp_path)
    counted = {
        "data_frames_tx": 9,
        "data_frames_retransmitted": 6,
        "retransmitted_nak": 1,
        "retransmitted_timeout": 2,
        "retransmitted_rnr": 3,
        "ecn_ce_rx": 4,
        "ack_timeouts": 5,
        "nak_sequence_tx": 8,
        "nak_reordered_tx": 1,
        "nak_reordered_rx": 2,
    }
    earlier = dict.fromkeys(counted, 1)
    directory.add(
        RecordRows(
            queue_pairs=array(
                "q",
                # Counts are from the start on: the last ones count, of every pair.
                row_of(QUEUE_PAIR_FIELDS, time_ns=5, qpn=1, **earlier)
                + row_of(QUEUE_PAIR_FIELDS, time_ns=6, qpn=1, **counted)
                + row_of(QUEUE_PAIR_FIELDS, time_ns=6, qpn=2, **earlier),
            ),
            ports=array(
                "q",
                row_of(PORT_FIELDS, time_ns=7, port=1, invalid_icrc=2)
                + row_of(PORT_FIELDS, time_ns=8, port=1, invalid_icrc=3)
                + row_of(PORT_FIELDS, time_ns=8, port=1, shard=1, invalid_icrc=4),
            ),
        )
    )
    directory.finish(PARTIAL, ended=STARTED, reason="gave up after 7 retries")

    summary = open_run(directory.path).summary()

    assert summary.traffic == Traffic(
        packets=3,
        retransmitted=7,
        for_nak=2,
        for_timeout=3,
        for_rnr=4,
        timeouts=6,
        naks=9,
        reordered=5,
        marked=5,
        corrupted=7,
    )
    text = render_table(summary)
    assert "# Packets: 3 sent, 7 retransmitted" in text
    assert (
        "# Retransmitted: 2 after 9 NAKs (4 lost, 5 reordered), 3 after 6 timeouts, "
        "4 after RNR NAKs\n"
    ) in text
    assert (
        "# Corrupted: 7 packets dropped on arrival because of a wrong ICRC\n"
    ) in text
    assert summary_document(summary)["retransmissions"]["naks_lost"] == 4


def test_retransmission_reasons_are_unknown_without_samples(
    tmp_path: Path,
) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(1, retransmitted=2))
    directory.finish(ended=STARTED)

    summary = open_run(directory.path).summary()

    assert summary.traffic is None
    assert summary.retransmitted > 0
    assert "# Retransmitted" not in render_table(summary)


def test_links_are_read_back(tmp_path: Path) -> None:
    links = [
        LinkRecord(
            link="leaf1-spine1",
            kind="uplink",
            direction="up",
            bytes_before=10,
            bytes_after=110,
        )
    ]
    directory = begin(tmp_path)
    directory.finish(ended=STARTED, links=links)
    (link,) = open_run(directory.path).links()
    assert link == links[0]
    assert link.bytes == 100


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_every_column_is_in_the_reference(name: str) -> None:
    page = (REPO_ROOT / "docs/reference/run-directory.md").read_text(encoding="utf-8")
    common, _, _ = page.partition("\n## ")
    _, _, section = page.partition(f"## {name}.parquet\n")
    section, _, _ = section.partition("\n## ")
    described = {
        column
        for line in (*common.splitlines(), *section.splitlines())
        if line.startswith("|")
        for column in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert set(SCHEMAS[name].names) <= described
