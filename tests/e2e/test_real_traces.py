"""Real traces in folders and archives, replayed by real processes.

Every byte is accounted for: what the flows of a run carried is compared with closed
forms, written down here again, and with the programs that the trace was lowered to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chakram.collectives.algorithms import algorithm
from chakram.config.experiment import load_experiment
from chakram.preparation.job_loading import load_jobs
from chakram.program.operations import (
    CollectiveOperation,
    ReceiveOperation,
    SendOperation,
)
from tests.e2e.runs import completed, fabric, write_experiment
from tests.e2e.traffic_totals import ALGORITHMS, CLOSED_FORMS, check_complete, sent
from tests.raw_traces import expected_bytes
from tests.schedules import sent_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chakram.program.operations import RankProgram
    from chakram.run_directory.reader import RunResults


FOLDER = "moe_mixtral_ep4_tp2_8r"
ARCHIVE = "moe_mixtral_ep8_tp2_pp2_32r.tar.gz"


def check_links(results: RunResults) -> None:
    """Assert that the bytes sent by ranks crossed the links of their hosts."""
    through = {
        (link.link, link.direction): link.bytes
        for link in results.links()
        if link.kind == "host"
    }
    for rank, (_, nbytes) in sent(results).items():
        assert through[f"h{rank}-s0", "up"] > nbytes
    for record in results.links():
        assert record.bytes > 0
        assert not record.drops


def in_each_way(kind: str, op: str, nranks: int) -> object:
    """Return a way to replay a microbenchmark; most of the 24 only go on in soak.

    All are simulated in every check, with the same bytes.
    """
    quick = (kind, op, nranks) in {
        ("loopback", "all_reduce", 8),
        ("namespaces", "all_to_all", 16),
    }
    marks = () if quick else (pytest.mark.soak,)
    return pytest.param(kind, op, nranks, marks=marks)


@pytest.mark.parametrize(
    ("kind", "op", "nranks"),
    [
        in_each_way(kind, op, nranks)
        for kind in ("namespaces", "loopback")
        for op in CLOSED_FORMS
        for nranks in (4, 8, 16)
    ],
    indirect=["kind"],
)
def test_microbenchmark_sends_the_bytes_of_its_closed_form(
    tmp_path: Path, chakram_data: Path, kind: str, op: str, nranks: int
) -> None:
    trace = chakram_data / "traces/astra_sim_microbenchmarks" / op / f"{nranks}npus_1MB"
    experiment = write_experiment(
        tmp_path,
        [{"name": "job", "trace": {"path": str(trace)}}],
        fabric(kind, nranks),
        collectives=ALGORITHMS,
    )

    results = completed(experiment).results

    check_complete(results, ranks=nranks)
    assert sent(results) == dict.fromkeys(range(nranks), CLOSED_FORMS[op](nranks))
    (record,) = (each for each in results.collectives() if each.identity.op == op)
    assert record.sent_bytes == nranks * CLOSED_FORMS[op](nranks)[1]
    if kind == "namespaces":
        check_links(results)


def expected(programs: Sequence[RankProgram]) -> dict[int, tuple[int, int]]:
    """Return messages and bytes that each rank has to send, barriers left out."""
    found = {}
    for program in programs:
        members = {group.name: group.ranks for group in program.groups}
        messages = nbytes = 0
        for operation in program.operations:
            if isinstance(operation, SendOperation):
                messages += 1
                nbytes += operation.size_bytes
            elif isinstance(operation, CollectiveOperation):
                if operation.op == "barrier":
                    continue
                ranks = members[operation.group]
                place = {
                    "position": ranks.index(program.rank),
                    "nranks": len(ranks),
                    "root": operation.root or 0,
                }
                how = algorithm(operation.op, operation.algorithm)
                messages += sum(1 for _ in how.sends(**place))
                nbytes += sent_bytes(how, **place, input_bytes=operation.input_bytes)
        found[program.rank] = messages, nbytes
    return found


@pytest.mark.parametrize(
    ("kind", "name", "nranks"),
    [
        ("namespaces", ARCHIVE, 32),
        pytest.param("loopback", FOLDER, 8, marks=pytest.mark.soak),
        pytest.param("namespaces", FOLDER, 8, marks=pytest.mark.soak),
        pytest.param("loopback", ARCHIVE, 32, marks=pytest.mark.soak),
    ],
    indirect=["kind"],
)
def test_mixture_of_experts_sends_the_bytes_of_its_programs(
    tmp_path: Path, chakram_data: Path, kind: str, name: str, nranks: int
) -> None:
    path = chakram_data / "traces/stage" / name
    job = {
        "name": "mixtral",
        "trace": {"path": str(path), "bytes_per_element": 2},
        "compute": {
            "from": "roofline",
            "peak": "989 TFLOPS",
            "memory": "3.35 TB/s",
            "scale": "1/1000",
        },
        "size_scale": "1/4096",
    }
    experiment = write_experiment(tmp_path, [job], fabric(kind, nranks))
    (loaded,) = load_jobs(load_experiment(experiment))

    results = completed(experiment).results

    check_complete(results, ranks=nranks)
    assert sent(results) == expected(loaded.programs)
    ops = {str(record.identity.op) for record in results.collectives()}
    assert {"all_gather", "all_reduce", "all_to_all", "reduce_scatter"} < ops
    assert ("send_recv" in ops) == any(
        isinstance(operation, ReceiveOperation)
        for program in loaded.programs
        for operation in program.operations
    )
    assert all(record.compute_ns > 0 for record in results.ranks())
    if kind == "namespaces":
        check_links(results)


@pytest.mark.soak
def test_a_hundred_thousand_nodes_replay_on_a_fabric(
    tmp_path: Path, chakram_data: Path, netns: None
) -> None:
    path = chakram_data / "traces/stage/moe_mixtral_32layers_ep8_pp4_32r.tar.gz"
    job = {
        "name": "mixtral",
        "trace": {"path": str(path), "bytes_per_element": 2},
        "compute": {"from": "none"},
        "size_scale": "1/4096",
    }
    # Bruck moves as much as a ring, in fewer steps.
    experiment = write_experiment(
        tmp_path,
        [job],
        fabric("namespaces", 32),
        collectives={"all_gather": "bruck", "all_to_all": "direct"},
    )

    results = completed(experiment).results

    check_complete(results, ranks=32)
    carried = sum(nbytes for _, nbytes in sent(results).values())
    assert carried == expected_bytes(path, ranks=32, unit=2, scale="1/4096")
    check_links(results)
