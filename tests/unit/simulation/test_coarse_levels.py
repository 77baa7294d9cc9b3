"""Experiments at the message level, from their file to their run directory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram import simulate
from chakram.config.experiment import parse_experiment
from chakram.foundation.errors import ConfigError, FabricError, RunFailed
from chakram.preparation import schedule_bounds
from chakram.run_directory.reader import RunResults
from chakram.simulation import coarse_levels

EXPERIMENT: dict[str, Any] = {
    "version": 1,
    "name": "levels",
    "jobs": [
        {
            "name": "moe",
            "trace": {"synth": "moe", "ranks": 4, "ep": 2, "dp": 2, "layers": 2},
            "size_scale": "1/8",
        }
    ],
    "iterations": {"warmup": 1, "measured": 2},
    "fabric": {
        "kind": "namespaces",
        "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}},
        "links": {"host": {"rate": "1Gbit"}, "uplink": {"rate": "1Gbit"}},
    },
    "simulation": {"level": "message"},
}


def simulated(folder: Path, **changes: str) -> RunResults:
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    overrides = {key.replace("__", "."): value for key, value in changes.items()}
    return simulate(path, runs=folder / "runs", set=overrides)


AWARE = "astra-sim-aware"
TABLES = ("flows", "collectives", "ranks", "links")


def contents(results: RunResults) -> list[list[dict[str, Any]]]:
    tables = [results.table(name) for name in TABLES]
    return [table.drop_columns(["run_id"]).to_pylist() for table in tables]


def test_the_same_seed_gives_equal_tables_and_another_one_other_paths(
    tmp_path: Path,
) -> None:
    first, again, other = (
        contents(simulated(tmp_path, seed=seed)) for seed in ("1", "1", "4")
    )
    assert first == again
    assert first[3] != other[3]


def test_costs_of_astra_sim_leave_the_choice_of_paths_to_the_seed(
    tmp_path: Path,
) -> None:
    # This fabric has as many hosts as switches, but its hosts do not forward.
    first, other = (
        contents(simulated(tmp_path, seed=seed, simulation__cost_model=AWARE))
        for seed in ("1", "4")
    )
    assert first[3] != other[3]


def test_every_message_of_the_packet_level_is_simulated(tmp_path: Path) -> None:
    columns = ("iteration", "job", "group", "k", "step", "src", "dst", "bytes")
    whole, packets = (
        sorted(
            tuple(flow.values())
            for flow in simulated(tmp_path, simulation__level=level)
            .table("flows", *columns)
            .to_pylist()
        )
        for level in ("message", "packet")
    )
    assert whole
    assert whole == packets


def test_the_flow_level_is_the_same_work_in_less_time(tmp_path: Path) -> None:
    whole, fair, coarse = (
        simulated(tmp_path, simulation__level=level, simulation__batch=batch)
        for level, batch in (("message", "0.01"), ("flow", "0.01"), ("flow", "0.5"))
    )
    ends_ns = [
        max(rank.end_ns for rank in results.ranks())
        for results in (whole, fair, coarse)
    ]
    # Nothing is stored and forwarded; and shares that are older waste more.
    assert ends_ns[1] < ends_ns[0]
    assert ends_ns[1] < ends_ns[2]
    assert contents(fair)[3] == contents(whole)[3]
    assert fair.table("flows").num_rows == whole.table("flows").num_rows
    assert fair.manifest.transport.startswith("flow level: max-min fair shares")


def test_collectives_ranks_and_links_are_recorded(tmp_path: Path) -> None:
    results = simulated(tmp_path)
    assert all(record.complete for record in results.collectives())
    assert {record.iteration for record in results.ranks()} == {0, 1, 2}
    for rank in results.ranks():
        spent_ns = rank.compute_ns + rank.exposed_ns + rank.idle_ns
        assert spent_ns == rank.end_ns - rank.start_ns
    carried = sum(link.bytes for link in results.links() if link.kind == "host")
    flows = results.table("flows", "bytes", "src", "dst").to_pylist()
    assert carried > 2 * sum(flow["bytes"] for flow in flows)


@pytest.mark.parametrize("level", ["message", "flow"])
def test_no_path_has_a_link_that_is_down(level: str, tmp_path: Path) -> None:
    down = simulated(
        tmp_path,
        simulation__level=level,
        faults__links="[{kind: down, link: leaf0-spine1}]",
    )
    found = {link.link: link for link in down.links() if link.direction == "up"}
    assert found["leaf0-spine1"].bytes == 0
    assert found["leaf0-spine1"].down_ns == max(rank.end_ns for rank in down.ranks())
    assert found["leaf0-spine0"].down_ns == 0
    whole = simulated(tmp_path, simulation__level=level)
    # All traffic of the leaf has the other spine.
    carried = sum(
        link.bytes
        for link in whole.links()
        if link.link.startswith("leaf0") and link.direction == "up"
    )
    assert found["leaf0-spine0"].bytes == carried
    assert down.manifest.link_faults[0]["kind"] == "down"


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        (["h0-leaf0"], "host h0"),
        (["leaf0-spine0", "leaf0-spine1"], "host h0 to host h2"),
    ],
)
def test_hosts_without_a_path_are_named(
    names: list[str], hosts: str, tmp_path: Path
) -> None:
    faults = ", ".join(f"{{kind: down, link: {name}}}" for name in names)
    with pytest.raises(FabricError, match=f"no path leads .*{hosts}"):
        simulated(tmp_path, faults__links=f"[{faults}]")


@pytest.mark.parametrize("level", ["message", "flow"])
def test_degraded_links_have_their_rate(level: str, tmp_path: Path) -> None:
    changes = {"simulation__level": level, "fabric__links__host__rate": "1Gbit"}
    names = [f"h{host}-leaf{host // 2}" for host in range(4)]
    faults = ", ".join(
        f"{{kind: degrade, link: {name}, rate: 250Mbit}}" for name in names
    )
    degraded = simulated(tmp_path, faults__links=f"[{faults}]", **changes)
    slower = simulated(tmp_path, **changes | {"fabric__links__host__rate": "250Mbit"})
    # The lowest of several rates counts, and no fault makes a link faster.
    names.append(names[0])
    more = ", ".join(f"{{kind: degrade, link: {name}, rate: 2Gbit}}" for name in names)
    several = simulated(tmp_path, faults__links=f"[{faults}, {more}]", **changes)
    plain = simulated(tmp_path, **changes)
    faster = simulated(tmp_path, faults__links=f"[{more}]", **changes)
    times_ns = [
        [each.duration_ns for each in results.collectives()]
        for results in (degraded, slower, several, plain, faster)
    ]
    assert times_ns[0] == times_ns[1] == times_ns[2]
    assert times_ns[3] == times_ns[4] != times_ns[0]


def test_header_states_the_simulated_effects(tmp_path: Path) -> None:
    manifest = simulated(tmp_path, faults__drop="0.1").manifest
    assert manifest.transport.startswith("message level")
    text = "\n".join(manifest.banners)
    for word in ("congestion control", "PFC", "losses", "seed determines", "faults"):
        assert word in text


def test_rings_of_astra_sim_do_not_depend_on_the_seed(tmp_path: Path) -> None:
    ring = {
        "fabric__topology": "{ring: {nodes: 4}}",
        "fabric__links": "{uplink: {rate: 1Gbit}}",
        "simulation__level": "message",
    }
    found = {
        model: "\n".join(
            simulated(tmp_path, simulation__cost_model=model, **ring).manifest.banners
        )
        for model in ("chakram", AWARE)
    }
    assert "seed determines" in found["chakram"]
    assert "seed determines" not in found[AWARE]


def test_simulation_has_no_generator_verdict(tmp_path: Path) -> None:
    assert simulated(tmp_path).summary().keeping_up is None


def test_many_messages_are_not_recorded_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = simulated(tmp_path)
    monkeypatch.setattr(coarse_levels, "MOST_FLOWS", 3)
    few = simulated(tmp_path)
    assert few.table("flows").num_rows == 0
    assert [each.duration_ns for each in few.collectives()] == [
        each.duration_ns for each in whole.collectives()
    ]
    assert "are more than 3" in few.manifest.banners[2]


def test_cost_model_of_astra_sim_gives_other_times(tmp_path: Path) -> None:
    times = [
        [
            each.duration_ns
            for each in simulated(
                tmp_path, simulation__cost_model=model, **more
            ).collectives()
        ]
        for model, more in (
            ("chakram", {}),
            ("astra-sim-aware", {}),
            ("astra-sim-unaware", {}),
            ("astra-sim-aware", {"simulation__endpoint_delay": "1ms"}),
            ("astra-sim-aware", {"simulation__parts": "4"}),
        )
    ]
    assert len({tuple(each) for each in times}) == len(times)
    assert sum(times[2]) < sum(times[1]) < sum(times[3])


def test_links_count_the_messages_of_every_cost_model(tmp_path: Path) -> None:
    aware, unaware = (
        simulated(
            tmp_path,
            fabric__topology="{single_switch: {hosts: 4}}",
            fabric__links="{host: {rate: 1Gbit}}",
            simulation__cost_model=model,
        ).links()
        for model in (AWARE, "astra-sim-unaware")
    )
    assert all(each.bytes for each in aware)
    assert [each.bytes for each in aware] == [each.bytes for each in unaware]


def test_a_dilation_multiplies_all_times_of_astra_sim(tmp_path: Path) -> None:
    plain, dilated = (
        simulated(
            tmp_path,
            fabric__dilation=dilation,
            simulation__cost_model="astra-sim-aware",
            simulation__local_memory="999kB/s",
            **{"jobs[0]__compute": "{from: none}"},
        ).collectives()
        for dilation in ("1", "8")
    )
    assert [each.duration_ns for each in dilated] == [
        8 * each.duration_ns for each in plain
    ]


def test_messages_within_a_host_take_their_time_or_none(tmp_path: Path) -> None:
    def time_ns(**changes: str) -> int:
        results = simulated(tmp_path, **changes)
        return max(rank.end_ns for rank in results.ranks())

    packed = {"jobs[0]__placement__ranks_per_port": "4"}
    at_once = time_ns(**packed)
    skipped = {**packed, "jobs[0]__placement__same_host": "skip"}
    assert time_ns(**skipped) == at_once
    slow = time_ns(**skipped, **{"jobs[0]__placement__local_rate": "1Mbit"})
    assert slow > at_once


def test_messages_within_a_host_have_no_headers(tmp_path: Path) -> None:
    local = {
        "ranks_per_port": "4",
        "same_host": "skip",
        "local_rate": "1Gbit",
    }
    packets, whole = (
        simulated(
            tmp_path,
            simulation__level=level,
            **{f"jobs[0]__placement__{key}": value for key, value in local.items()},
        ).collectives()
        for level in ("packet", "message")
    )
    assert [each.duration_ns for each in whole] == [
        each.duration_ns for each in packets
    ]


@pytest.mark.parametrize(
    ("level", "endless"),
    [
        ("message", {"jobs[1]__placement__ranks_per_port": "2"}),
        ("flow", {"jobs[1]__placement__ranks_per_port": "2"}),
        ("message", {"fabric": "{kind: loopback}"}),
        ("packet", {"fabric": "{kind: loopback}"}),
    ],
)
def test_a_background_job_that_takes_no_time_is_an_error(
    level: str, endless: dict[str, str], tmp_path: Path
) -> None:
    jobs = [
        {
            "name": name,
            "trace": {"synth": "moe", "ranks": 2, "ep": 2, "dp": 1, "layers": 1},
            "compute": {"from": compute},
        }
        for name, compute in (("front", "trace"), ("back", "none"))
    ]
    jobs[1]["repeat"] = "until_others_end"
    text = yaml.safe_dump(jobs, default_flow_style=True)
    with pytest.raises(RunFailed, match=r"job back repeats .* take no time"):
        simulated(tmp_path, jobs=text, simulation__level=level, **endless)


@pytest.mark.parametrize("level", ["packet", "message"])
def test_idle_ranks_of_a_background_job_do_not_repeat(
    level: str, tmp_path: Path
) -> None:
    front = {"synth": "moe", "ranks": 2, "ep": 2, "dp": 1, "layers": 1}
    back = {"synth": "incast", "ranks": 3, "fan_in": 1, "barrier": False}
    jobs = [
        {"name": "front", "trace": front},
        {
            "name": "back",
            "trace": back,
            "placement": {"first_port": 1},
            "repeat": "until_others_end",
        },
    ]
    results = simulated(
        tmp_path,
        jobs=yaml.safe_dump(jobs, default_flow_style=True),
        iterations__sync="free",
        simulation__level=level,
    )
    counts = Counter(rank.rank for rank in results.ranks() if rank.job == "back")
    assert counts[0] > counts[2] == 3


def test_messages_within_a_host_are_sent_when_they_are_posted(tmp_path: Path) -> None:
    results = simulated(
        tmp_path,
        **{
            "jobs[0]__placement__ranks_per_port": "4",
            "jobs[0]__placement__local_rate": "1Mbit",
        },
    )
    columns = ("posted_ns", "first_sent_ns")
    flows = results.table("flows", *columns).to_pylist()
    assert flows
    assert all(flow["first_sent_ns"] == flow["posted_ns"] for flow in flows)


def test_a_cost_model_of_messages_needs_their_level(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set simulation\.level, or --level"):
        simulated(
            tmp_path,
            simulation__level="packet",
            simulation__cost_model="astra-sim-aware",
        )


def test_ns3_hosts_go_packet_by_packet_with_a_queue_pair_for_each_message(
    tmp_path: Path,
) -> None:
    more = {"simulation__level": "packet", "simulation__cost_model": "astra-sim-ns3"}
    results = simulated(tmp_path, **more)
    again = simulated(tmp_path, **more)
    assert contents(results) == contents(again)
    columns = ("iteration", "job", "group", "k", "step", "src", "dst", "bytes")
    ours, whole = (
        sorted(tuple(row.values()) for row in each.table("flows", *columns).to_pylist())
        for each in (results, simulated(tmp_path))
    )
    assert ours == whole
    for flow in results.table("flows").to_pylist():
        # Its last acknowledgment is back after two links and back again at least.
        assert flow["posted_ns"] <= flow["first_sent_ns"] < flow["last_acked_ns"]
        assert flow["fct_ns"] > flow["bytes"] * 8
    sent = sum(flow["bytes"] for flow in results.table("flows").to_pylist())
    carried = sum(link.bytes for link in results.links() if link.kind == "host")
    assert 2 * 1.036 * sent < carried < 2 * 1.2 * sent
    text = "\n".join(results.manifest.banners)
    assert "ASTRA-sim over ns-3" in text
    assert "astra-sim-ns3" in results.manifest.transport


def test_messages_within_a_host_take_their_time_with_ns3_hosts(tmp_path: Path) -> None:
    results = simulated(
        tmp_path,
        simulation__level="packet",
        simulation__cost_model="astra-sim-ns3",
        **{
            "jobs[0]__placement__ranks_per_port": "2",
            "jobs[0]__placement__same_host": "skip",
            "jobs[0]__placement__local_rate": "1Gbit",
        },
    )
    flows = results.table("flows", "src", "dst", "bytes", "fct_ns").to_pylist()
    local = [each for each in flows if each["src"] // 2 == each["dst"] // 2]
    assert 0 < len(local) < len(flows)
    assert all(each["fct_ns"] >= 8 * each["bytes"] for each in flows)
    assert min(each["fct_ns"] - 8 * each["bytes"] for each in local) == 0


INCAST = "{synth: incast, ranks: 4, fan_in: 3, receiver: 0, size: 2MiB, repeats: 2}"


def test_ns3_hosts_react_to_marks_and_windows(tmp_path: Path) -> None:
    more = {
        "simulation__level": "packet",
        "simulation__cost_model": "astra-sim-ns3",
        "jobs[0]__trace": INCAST,
        "fabric__links__host__ecn": "{kmin: 2KiB, kmax: 8KiB, pmax: 1}",
        "fabric__links__uplink__ecn": "{kmin: 2KiB, kmax: 8KiB, pmax: 1}",
    }

    def ends_ns(window: str, **changes: str) -> int:
        results = simulated(tmp_path, **more, **changes, simulation__window=window)
        return max(rank.end_ns for rank in results.ranks())

    dcqcn = "{dcqcn: {profile: dcqcn-nvidia}}"
    plain = ends_ns("off")
    slowed = ends_ns("off", transport__congestion_control=dcqcn)
    scaled = ends_ns("scaled", transport__congestion_control=dcqcn)
    fixed = ends_ns("fixed", transport__congestion_control=dcqcn)
    assert slowed > 1.1 * plain
    # A window spares queues and marks, and one that follows the rate is another one.
    assert plain < scaled < slowed
    assert plain < fixed < slowed
    assert scaled != fixed


def external(switches: str, queue: str) -> str:
    """Return a fabric of four hosts with known switches, as an override."""
    hosts = ", ".join(
        f"{{name: h{number}, agent: 'unix:/{number}', "
        f"ports: [{{open: 'udp:eth1', address: 198.18.0.{number + 1}/24}}]}}"
        for number in range(4)
    )
    return (
        "{kind: external, defaults: {rate: 1Gbit, mtu: 9000}, "
        f"hosts: [{hosts}], topology: {{single_switch: {{hosts: 4}}}}, "
        f"links: {{host: {{rate: 1Gbit, queue: {queue}}}}}, switches: {switches}}}"
    )


def test_drops_end_a_simulation_with_ns3_hosts(tmp_path: Path) -> None:
    more = {
        "simulation__level": "packet",
        "simulation__cost_model": "astra-sim-ns3",
        "jobs[0]__trace": INCAST,
    }
    with pytest.raises(RunFailed, match=r"a packet was dropped \(egress limit\)"):
        simulated(
            tmp_path,
            **more,
            simulation__window="off",
            fabric=external("{profile: fifo}", "4KiB"),
        )
    simulated(tmp_path, **more, fabric=external("{profile: ns3}", "4KiB"))
    with pytest.raises(ConfigError, match="hashes flows"):
        simulated(
            tmp_path,
            **more,
            fabric=external("{profile: ns3, balancing: random}", "4KiB"),
        )
    with pytest.raises(ConfigError, match="is a cost model of level packet"):
        simulated(tmp_path, simulation__cost_model="astra-sim-ns3")


@pytest.mark.parametrize(
    "shape",
    [
        "{single_switch: {hosts: 4}}",
        "{clos: {leaves: 3, spines: 2, hosts_per_leaf: 2}}",
        "{clos: {leaves: 2, spines: 2, uplinks: 6, hosts_per_leaf: 2}}",
        "{fat_tree: {pods: 3, leaves: 2, spines: 2, cores: 3, hosts_per_leaf: 1}}",
        "{rail: {servers: 4, ports: 2, spines: 3}}",
        "{ring: {nodes: 6}}",
        "{torus: {dimensions: [3, 4]}}",
    ],
)
def test_equal_cost_groups_are_those_of_the_topology(shape: str) -> None:
    text = yaml.safe_dump(
        EXPERIMENT | {"fabric": EXPERIMENT["fabric"] | {"topology": "SHAPE"}}
    )
    fabric = parse_experiment(text.replace("SHAPE", shape)).fabric
    topology = fabric.to_topology(fabric.nports)
    assert topology is not None
    assert coarse_levels._equal_cost(topology) == topology.equal_cost()


@pytest.mark.parametrize("local", [{}, {"same_host": "skip", "local_rate": "900Gbit"}])
def test_level_message_has_bounds_and_times_alone(
    tmp_path: Path, local: dict[str, str]
) -> None:
    changes = {
        f"jobs[0].placement.{name}": value
        for name, value in (*local.items(), ("ranks_per_port", 2 if local else 1))
    }
    changes["predict"] = "[bound, alone]"
    results = simulated(tmp_path, **{k: str(v) for k, v in changes.items()})
    rows = results.table(
        "collectives", "collective", "duration_ns", "bound_ns", "alone_ns"
    ).to_pylist()
    moved = [row for row in rows if row["collective"] != "barrier"]
    assert len(moved) > 10
    assert all(0 < row["bound_ns"] <= row["duration_ns"] for row in moved)
    assert all(row["bound_ns"] <= row["alone_ns"] for row in moved)
    flows = results.table("flows", "fct_ns", "bound_ns").to_pylist()
    # A message that meets no other one is stored whole by the switches.
    assert all(row["bound_ns"] <= row["fct_ns"] for row in flows)
    ratios = [row["bound_ns"] / row["fct_ns"] for row in flows if row["fct_ns"]]
    assert max(ratios) > 0.3


@pytest.mark.parametrize("change", [{"simulation.level": "flow"}, {"predict": "[]"}])
def test_bounds_may_be_absent(tmp_path: Path, change: dict[str, str]) -> None:
    results = simulated(tmp_path, **change)
    assert set(results.table("collectives", "bound_ns")["bound_ns"].to_pylist()) == {
        None
    }


def test_schedules_of_too_many_transfers_have_no_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_bounds, "MOST_TRANSFERS", 3)
    table = simulated(tmp_path).table("collectives", "collective", "bound_ns")
    bounded = {row["collective"] for row in table.to_pylist() if row["bound_ns"]}
    assert "all_to_all" in bounded  # of two ranks: two transfers
    assert "all_reduce" not in bounded
