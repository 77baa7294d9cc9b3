"""Links that fail in a run over the kernel's switches, and in its simulation."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING

import pytest

from tests.e2e.runs import completed, moe, write_experiment
from tests.e2e.traffic_totals import check_complete

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.run_directory.reader import RunResults

pytestmark = pytest.mark.usefixtures("netns")


def lossy(results: RunResults) -> set[tuple[str, str]]:
    """Return links and directions that have dropped something."""
    return {(link.link, link.direction) for link in results.links() if link.drops}


def usual_bps(results: RunResults, src: int) -> float:
    """Return the median rate of large messages of a rank."""
    rows = results.table("flows", "src", "bytes", "fct_ns").to_pylist()
    return median(
        row["bytes"] * 8e9 / row["fct_ns"]
        for row in rows
        if row["src"] == src and row["bytes"] >= 60_000
    )


def test_links_fail_in_a_run_as_in_its_simulation(tmp_path: Path) -> None:
    faults = [
        # The other leaf is not informed and continues to send to that spine.
        {"kind": "down", "link": "leaf0-spine1", "for": "200ms"},
        {
            "kind": "loss",
            "link": "h3-leaf1",
            "direction": "down",
            "probability": 0.15,
            "when": {"iteration": 1},
        },
        {"kind": "degrade", "link": "h1-leaf0", "direction": "up", "rate": "100Mbit"},
    ]
    experiment = write_experiment(
        tmp_path,
        [moe(4, layers=1, all_to_all="128KiB", all_reduce="128KiB")],
        {
            "kind": "namespaces",
            "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}},
            "links": {"host": {"rate": "400Mbit"}, "uplink": {"rate": "400Mbit"}},
            "dilation": 2,
        },
        iterations={"warmup": 0, "measured": 3},
        transport={"congestion_control": "fixed_rate", "local_ack_timeout": 14},
        faults={"links": faults},
        agents={"shards": 1},
        predict=["simulate"],
        seed=5,
    )
    (tmp_path / "simulated").mkdir()
    copy = tmp_path / "simulated" / experiment.name
    copy.write_bytes(experiment.read_bytes())

    ran = completed(experiment).results
    simulated = completed(copy, "--runs", copy.parent / "runs", verb="simulate").results

    check_complete(ran, ranks=4, iterations=3)
    # The prediction beside the run is the simulation, faults and all.
    times = defaultdict(list)
    for record in simulated.collectives():
        times[record.identity.key].append(record.duration_ns)
    means = {key: round(fmean(own)) for key, own in times.items()}
    assert ran.predictions() == {"simulate": means}
    # On a busy machine, leaf0 sends to the link before it is informed.
    assert lossy(ran) - {("leaf0-spine1", "up")} == lossy(simulated)
    assert ("h3-leaf1", "down") in lossy(ran)
    assert {link for link, _ in lossy(ran)} == {"leaf0-spine1", "h3-leaf1"}
    for results in (ran, simulated):
        down, loss, slow = results.manifest.link_faults
        origin_ns = min(rank.start_ns for rank in results.ranks())
        assert down["ports"] == ["leaf0:up1"]
        assert down["until_ns"] - down["at_ns"] == 400_000_000
        assert abs(slow["at_ns"] - origin_ns) < 10**8
        begun_ns = min(rank.start_ns for rank in results.ranks() if rank.iteration == 1)
        assert 0 < loss["at_ns"] - begun_ns < 5 * 10**9
        # Half the rate of the port, since its bucket fills while a busy sender waits.
        assert usual_bps(results, 1) < (60e6 if results is simulated else 100e6)
