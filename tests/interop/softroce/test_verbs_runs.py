"""Runs on RDMA NICs: the data plane of agents in a guest is Soft-RoCE."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import chakram
from chakram.cli import main
from chakram.run_directory.schemas import BLANK
from tests.interop.softroce.disturbance import LEAVING, clean, lose
from tests.interop.softroce.machine import GUEST, HOST, LIMIT_S, Machine
from tests.interop.softroce.nic_hosts import NicHosts, nic_hosts

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.slow]

SESSIONS = int(os.environ.get("CHAKRAM_NIC_SESSIONS", "200"))

TRANSPORT = {"path_mtu": 4096, "retransmit_timeout": "1s"}
HOSTS = int(os.environ.get("CHAKRAM_NIC_HOSTS", "2"))
"""Agents are slow to start in an emulated guest."""

LARGEST = "1MiB" if HOSTS == 2 else "4MiB"

FABRIC = {
    "topology": {"single_switch": {"hosts": HOSTS}},
    "links": {"host": {"rate": "1Gbit"}},
}


@pytest.fixture(scope="module")
def hosts(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NicHosts]:
    """Return two hosts whose ports are on Soft-RoCE, the same for all tests here."""
    with nic_hosts([machine], tmp_path_factory.mktemp("nics"), HOSTS) as started:
        yield started


def job(*streams: dict[str, Any], ranks: int = HOSTS, **keys: Any) -> dict[str, Any]:
    trace = {"synth": "collectives", "ranks": ranks, "streams": list(streams)}
    return {"name": "job", "trace": trace, "compute": {"from": "none"}} | keys


def bytes_of_pairs(results: Any) -> Counter[tuple[int, int, str]]:
    """Return the payload by sender, receiver and collective."""
    rows = results.table("flows", "src", "dst", "collective", "bytes").to_pylist()
    counted: Counter[tuple[int, int, str]] = Counter()
    for row in rows:
        counted[row["src"], row["dst"], row["collective"]] += row["bytes"]
    return counted


def last_run(hosts: NicHosts) -> Any:
    return chakram.open_run(max((hosts.folder / "runs").iterdir()))


def check_blanks(results: Any, *, with_wrong: bool) -> None:
    """Check that a run has no number that nothing has measured."""
    for table, names in BLANK.items():
        for name in names:
            column = results.table(table, name)[name]
            is_blank = column.null_count == len(column)
            assert is_blank == (name != "wrong" or not with_wrong), (table, name)
    for table in ("ports", "queue_pairs"):
        assert results.table(table, "time_ns").num_rows == 0


class Replayed(NamedTuple):
    """A run of collectives on NICs, its output, and what a simulation of it gives."""

    output: str
    results: Any
    expected: Any


@pytest.fixture(scope="module")
def replayed(hosts: NicHosts) -> Replayed:
    """Run all collectives on NICs, and simulate them."""
    before = hosts.objects()
    splits = hosts.folder / "splits.json"
    rows = [[0, 1 << 20, 70_001, 3], [1, 9, 0, 0], [5, 10_007, 2, 7], [1, 0, 0, 4095]]
    rows = [row[:HOSTS] for row in rows[:HOSTS]]
    splits.write_text(json.dumps({"unit": "bytes", "dispatches": [rows]}))
    experiment = hosts.experiment(
        jobs=[
            job(
                {"op": "all_reduce", "size": LARGEST, "count": 1},
                {"op": "all_reduce", "size": "4B", "count": 2},
                {"op": "all_to_all", "size": "256KiB", "count": 2},
                {"op": "all_to_all", "size": "4B", "count": 2},
                {"op": "broadcast", "size": "5001B", "count": 2},
                {"op": "all_to_all", "splits": str(splits)},
                ordering="serial",
            )
        ],
        iterations={"warmup": 0, "measured": 1},
        collectives={"all_reduce": "ring(channels=2)"},
        transport=TRANSPORT | {"credits": 2, "queue_pairs": {"count": 2}},
    )
    experiment["fabric"] |= FABRIC
    done = hosts.run(experiment)
    assert done.returncode == 0, done.stdout
    assert hosts.objects() == before
    expected = chakram.simulate(experiment, runs=hosts.folder / "simulated")
    return Replayed(done.stdout, last_run(hosts), expected)


def test_collectives_arrive_whole_and_in_order(
    hosts: NicHosts, replayed: Replayed
) -> None:
    output, results, expected = replayed
    assert bytes_of_pairs(results) == bytes_of_pairs(expected)
    assert "Out of bounds values : 0 OK (payload of " in output
    assert "# Packets: N/A, NICs send them" in output
    manifest = json.loads((results.path / "run.json").read_text())
    assert manifest["verification"]["packets"] > 100
    for number, name in enumerate(hosts.names):
        nic = manifest["nics"][name]
        assert (nic["device"], nic["port"]) == ("rxe0", number)
        assert nic["counters"]["packets_tx"] > 1000
        assert nic["settings"]["interface"] == "eth0"
        assert nic["counters"]["retries_exceeded"] == 0
    check_blanks(results, with_wrong=True)
    checked = hosts.chakram("validate", str(results.path))
    assert checked.returncode == 0, checked.stdout
    why = hosts.chakram("why", str(results.path))
    assert "Not tested by simulation:" in why.stdout
    assert "RDMA NICs sent its packets" in why.stdout


@pytest.mark.soak
def test_many_queue_pairs_share_receives_in_huge_pages(
    hosts: NicHosts, machine: Machine
) -> None:
    before = hosts.objects()
    machine.execute("sysctl -q vm.nr_hugepages=16")
    experiment = hosts.experiment(
        jobs=[job({"op": "all_reduce", "size": "128KiB", "count": 20}, ranks=2)],
        transport=TRANSPORT | {"queue_pairs": {"count": 64}},
    )
    experiment["fabric"] |= FABRIC
    for host in experiment["fabric"]["hosts"]:
        host["ports"][0]["open"] += ",huge-pages"
    done = hosts.run(experiment)
    assert done.returncode == 0, done.stdout
    results = last_run(hosts)
    expected = chakram.simulate(experiment, runs=hosts.folder / "simulated")
    assert bytes_of_pairs(results) == bytes_of_pairs(expected)
    manifest = json.loads((results.path / "run.json").read_text())
    for name in hosts.names:
        settings = manifest["nics"][name]["settings"]
        assert settings["shared_receives"] == "4096"
        assert settings["huge_pages"] == "2 of 2097152 B"
    free = machine.execute("grep HugePages_Free /proc/meminfo")
    assert free.split() == ["HugePages_Free:", "16"]
    assert hosts.objects() == before


@pytest.fixture(
    params=["collectives", pytest.param("messages", marks=pytest.mark.soak)]
)
def viewed(hosts: NicHosts, request: pytest.FixtureRequest) -> str:
    """Return the folder of a run on NICs."""
    if request.param == "collectives":
        return str(request.getfixturevalue("replayed").results.path)
    trace = {"synth": "permutation", "ranks": HOSTS, "size": "100KiB", "repeats": 3}
    messages = job() | {"trace": trace}
    experiment = hosts.experiment(jobs=[messages], transport=TRANSPORT)
    experiment["fabric"] |= FABRIC
    done = hosts.run(experiment)
    assert done.returncode == 0, done.stdout
    return str(last_run(hosts).path)


def test_every_view_of_a_run_on_nics_can_be_made(
    hosts: NicHosts, viewed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = viewed
    runs, folder = str(hosts.folder / "runs"), str(hosts.folder / "views")
    for command in (
        ("show", run),
        ("show", run, "--json"),
        ("runs", runs),
        ("compare", run, run),
        ("why", run),
        ("timeline", run, "--out", f"{folder}.timeline.json"),
        ("report", run, "--out", f"{folder}.html"),
        ("report", run, run, "--out", f"{folder}.comparison.html"),
        ("export", "fct", run, "--out", folder),
        ("export", "p2p", run, "--out", folder),
        ("export", "openmetrics", run, "--out", folder),
        ("validate", run),
    ):
        assert main(list(command)) == 0, capsys.readouterr()
        assert "unexpected" not in capsys.readouterr().out
    exported = "\n".join(
        each.read_text() for each in (hosts.folder / "views").glob("*.om")
    )
    assert "chakram_job_collectives_total" in exported
    assert "chakram_job_packets_total" not in exported
    report = (hosts.folder / "views.html").read_text()
    assert "RDMA NICs sent the packets" in report


def mixed(hosts: NicHosts, address: str, version: int, **keys: Any) -> dict[str, Any]:
    """Return an experiment on a NIC in the guest and sockets beside it."""
    experiment = hosts.experiment(
        jobs=[
            job(
                {"op": "all_reduce", "size": "64KiB", "count": 2},
                {"op": "all_to_all", "size": "3MiB", "count": 2},
                ranks=2,
            )
        ],
        transport=TRANSPORT | {"queue_pairs": {"message_size": "256KiB"}} | keys,
    )
    nic, sockets = experiment["fabric"]["hosts"][:2]
    prefix = {4: 30, 6: 64}[version]
    nic["ports"][0]["address"] = f"{GUEST[version]}/{prefix}"
    sockets["name"], sockets["agent"] = "sockets", address
    sockets["ports"] = [{"open": "udp:tap0", "address": f"{HOST[version]}/{prefix}"}]
    experiment["fabric"]["hosts"] = [nic, sockets]
    return experiment


@pytest.mark.parametrize("version", [4, pytest.param(6, marks=pytest.mark.soak)])
def test_nics_and_sockets_exchange_messages_both_ways(
    hosts: NicHosts, version: int
) -> None:
    with hosts.socket_host() as address:
        done = hosts.run(mixed(hosts, address, version))
    assert done.returncode == 0, done.stdout
    results = last_run(hosts)
    sent = bytes_of_pairs(results)
    iterations, collectives, half = 2, 2, (3 << 20) // 2
    per_rank = iterations * collectives * half
    assert sent[0, 1, "all_to_all"] == sent[1, 0, "all_to_all"] == per_rank
    packets = {
        (row["src"], row["packets"] is None)
        for row in results.table("flows", "src", "packets").to_pylist()
    }
    assert packets == {(0, True), (1, False)}
    assert "Out of bounds values : N/A (not checked)" in done.stdout


# Unit tests show the reason without a guest.
@pytest.mark.soak
def test_a_nic_that_gets_no_answer_ends_the_run_with_its_reason(
    hosts: NicHosts, machine: Machine
) -> None:
    before = hosts.objects()
    with hosts.socket_host() as address:
        experiment = mixed(hosts, address, 4, retry_limit=1, retransmit_timeout="100ms")
        # Only the NIC sends, so it is the first to give up.
        experiment["jobs"] = [job({"op": "broadcast", "size": "1MiB"}, ranks=2)]
        experiment["iterations"] = {"warmup": 0, "measured": 1, "sync": "free"}
        lose(machine, LEAVING, "loss 100%")
        try:
            done = hosts.run(experiment)
        finally:
            clean(machine)
    assert done.returncode == 4, done.stdout
    said = "is in error: rxe0 reports 'transport retry counter exceeded' (status 12)"
    assert said in " ".join(done.stdout.split())
    assert hosts.objects() == before


# Unit tests show the same without a guest.
@pytest.mark.soak
@pytest.mark.parametrize(
    ("port", "message"),
    [
        (
            {"open": "verbs:rxe0", "address": "198.18.9.9/24"},
            "RDMA device rxe0: has no GID of type RoCE v2 for 198.18.9.9",
        ),
        (
            {"open": "verbs:mlx5_9", "address": "198.18.8.1/24"},
            "RDMA device mlx5_9: does not exist (devices of this host: rxe0)",
        ),
    ],
    ids=["address", "device"],
)
def test_a_port_that_cannot_be_used_is_refused_in_one_sentence(
    hosts: NicHosts, port: dict[str, Any], message: str
) -> None:
    before = hosts.objects()
    experiment = hosts.experiment(
        jobs=[job({"op": "all_reduce", "size": "1KiB", "count": 1}, ranks=2)]
    )
    experiment["fabric"]["hosts"] = experiment["fabric"]["hosts"][:2]
    experiment["fabric"]["hosts"][0]["ports"] = [port]
    done = hosts.run(experiment)
    assert done.returncode in (2, 4), done.stdout
    assert message in " ".join(done.stdout.split())
    assert "Traceback" not in done.stdout
    assert hosts.objects() == before


@pytest.mark.soak
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("verb", ["write", "send"])
def test_verbs_and_address_families(hosts: NicHosts, version: int, verb: str) -> None:
    done = hosts.run(
        hosts.experiment(
            version=version,
            jobs=[
                job(
                    {"op": "all_reduce", "size": "64KiB", "count": 4},
                    {"op": "all_to_all", "size": "8MiB", "count": 2},
                    {"op": "all_to_all", "size": "3000001B", "count": 2},
                    ordering="serial",
                )
            ],
            transport=TRANSPORT | {"verb": verb, "credits": 2},
        )
    )
    assert done.returncode == 0, done.stdout
    assert "Out of bounds values : 0 OK" in done.stdout
    check_blanks(last_run(hosts), with_wrong=True)


SECOND = """
ip link set ifb0 mtu 4200 up
for number in 1 2; do
    ip address replace 198.18.10.$number/24 dev ifb0
done
rdma link add rxe1 type rxe netdev ifb0
"""


@pytest.mark.soak
def test_two_nics_of_one_process(hosts: NicHosts, machine: Machine) -> None:
    machine.execute(SECOND)
    try:
        streams = {"op": "all_to_all", "size": "64KiB", "count": 20}
        experiment = hosts.experiment(
            jobs=[
                job(streams, ranks=2) | {"name": "a", "placement": {"ports": [0, 2]}},
                job(streams, ranks=2) | {"name": "b", "placement": {"ports": [1, 3]}},
            ],
            agents={"shards": 1},
        )
        some = experiment["fabric"]["hosts"][:2]
        for number, host in enumerate(some, start=1):
            address = f"198.18.10.{number}/24"
            host["ports"].append({"open": "verbs:rxe1", "address": address})
        experiment["fabric"]["hosts"] = some
        done = hosts.run(experiment)
    finally:
        machine.execute("rdma link delete rxe1; ip address flush dev ifb0")
    assert done.returncode == 0, done.stdout
    assert "NIC rxe1 of h1" in done.stdout


@pytest.mark.soak
@pytest.mark.timeout(7000)
def test_sessions_leave_no_object(hosts: NicHosts) -> None:
    before = hosts.objects()
    experiment = hosts.experiment(
        jobs=[job({"op": "all_reduce", "size": "1KiB", "count": 1}, ranks=2)],
        iterations={"warmup": 0, "measured": 1},
    )
    experiment["fabric"]["hosts"] = experiment["fabric"]["hosts"][:2]
    for session in range(SESSIONS):
        done = hosts.run(experiment)
        assert done.returncode == 0, done.stdout
        assert hosts.objects() == before, session
