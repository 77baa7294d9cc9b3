"""Runs use the paths of their simulation, because the kernel's hash is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chakram.fabric.labs.namespaces import takes_hash_seeds
from tests.e2e.runs import completed, moe, write_experiment

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.run_directory.reader import RunResults

pytestmark = pytest.mark.usefixtures("netns")


def uplink_bytes(results: RunResults) -> dict[tuple[str, str], int]:
    """Return the bytes on links between switches, by link and direction."""
    return {
        (link.link, link.direction): link.bytes
        for link in results.links()
        if link.kind == "uplink"
    }


def paths(results: RunResults) -> dict[tuple[object, ...], str | None]:
    """Return the path of every queue pair that had a message."""
    rows = results.table("flows", "job", "src", "dst", "qpn", "path").to_pylist()
    found: dict[tuple[object, ...], str | None] = {}
    for row in rows:
        *key, path = row.values()
        assert found.setdefault(tuple(key), path) == path
    return found


# What the kernel does with packets of IPv6: see netns/test_kernel_paths.py.
@pytest.mark.parametrize(
    "family", ["ipv4", pytest.param("ipv6", marks=pytest.mark.soak)]
)
def test_uplinks_carry_the_predicted_bytes(tmp_path: Path, family: str) -> None:
    """The shape of ``configs/quickstart.yaml``, with fewer bytes."""
    if not takes_hash_seeds():
        pytest.skip("this kernel does not say how it hashes: it is before Linux 6.11")
    experiment = write_experiment(
        tmp_path,
        [moe(8, ep=4, dp=2, layers=2, all_to_all="512KiB", all_reduce="2MiB")],
        {
            "kind": "namespaces",
            "addressing": family,
            "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 4}},
            "links": {"host": {"rate": "500Mbit"}, "uplink": {"rate": "1Gbit"}},
        },
        transport={"congestion_control": "fixed_rate", "path_mtu": 4096},
        # That of a simulation, as far as queue pair numbers tell.
        agents={"shards": 1},
        seed=5,
    )
    (tmp_path / "simulated").mkdir()
    copy = tmp_path / "simulated" / experiment.name
    copy.write_bytes(experiment.read_bytes())

    ran = completed(experiment).results
    simulated = completed(copy, "--runs", copy.parent / "runs", verb="simulate").results

    counted, predicted = uplink_bytes(ran), uplink_bytes(simulated)
    assert counted == pytest.approx(predicted, rel=0.02)
    # The hash is not even, so that no other draw is as near.
    assert max(predicted.values()) > 1.2 * min(predicted.values())
    assert paths(ran) == paths(simulated)
    assert any(paths(ran).values())
    assert None not in paths(ran).values()


def test_paths_chosen_by_an_unknown_kernel_hash_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "chakram.fabric.labs.namespaces.takes_hash_seeds", lambda: False
    )
    experiment = write_experiment(
        tmp_path,
        [moe(4)],
        {
            "kind": "namespaces",
            "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}},
        },
    )
    assert set(paths(completed(experiment).results).values()) == {None}


def test_an_external_fabric_is_simulated_with_the_hash_that_it_names(
    tmp_path: Path,
) -> None:
    hosts = [
        {
            "name": f"h{number}",
            "agent": f"192.0.2.{number}:7411",
            "ports": [{"open": "udp:ens1", "address": f"198.18.0.{number}/24"}],
        }
        for number in range(1, 9)
    ]
    loads = []
    for ecmp in ("drawn", "crc16", "crc32", "ns3"):
        folder = tmp_path / ecmp
        folder.mkdir()
        fabric = {
            "kind": "external",
            "defaults": {"rate": "1Gbit", "mtu": 4200},
            "hosts": hosts,
            "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 4}},
            "links": {"host": {"rate": "1Gbit"}, "uplink": {"rate": "2Gbit"}},
            "ecmp": ecmp,
            "tls": {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"},
        }
        job = moe(8, ep=4, dp=2, all_to_all="64KiB", all_reduce="64KiB")
        experiment = write_experiment(folder, [job], fabric)
        results = completed(experiment, verb="simulate").results
        found = uplink_bytes(results)
        # Others meet, but as much goes from leaf to leaf.
        loads.append(tuple(found.values()))
        assert None not in paths(results).values()
    assert len(set(loads)) == len(loads)
    totals = [sum(load) for load in loads]
    assert max(totals) < 1.02 * min(totals)
