"""Collectives of OTG configurations become experiments, or are refused."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from chakram.records.run_records import RankRecord
from chakram.service.otg_collectives import CollectivePlan, Times, iteration_times
from chakram.service.otg_config import OtgProblem, convert_config
from tests.unit.service.test_otg_config import PORTS, config

DEVICES = ["d0", "d1", "d2", "d3"]


def ccl(**changes: Any) -> dict[str, Any]:
    communicator = {"name": "dp", "device_names": DEVICES}
    return {
        "name": "training",
        "stages": [{"name": "reduce", "communicators": [communicator], **changes}],
    }


def whole(collectives: dict[str, Any]) -> dict[str, Any]:
    found = config()
    del found["stateful_flows"]
    return {**found, "ccl": collectives}


def plan_of(collectives: dict[str, Any]) -> CollectivePlan:
    found = convert_config(whole(collectives), PORTS).collectives
    assert found is not None
    return found


def test_defaults_are_those_of_the_proposal() -> None:
    (stage,) = plan_of(ccl()).stages
    document = stage.document("rack7", "free")
    (job,) = document["jobs"]
    assert job["placement"] == {"ports": ["h0", "h1", "h2", "h3"]}
    assert job["trace"]["streams"] == [
        # 160 Gbit, every 1000 ms.
        {"op": "all_reduce", "size": "20000000000B", "count": 1, "start": "1000ms"}
    ]
    assert document["collectives"] == {"all_reduce": "ring"}
    assert document["iterations"] == {"warmup": 0, "measured": 10, "sync": "free"}
    assert document["transport"] == {
        "path_mtu": 4096,
        "ecn": "ect1",
        "dscp": {"data": 24, "ack": 24},
    }


@pytest.mark.parametrize(
    ("algorithm", "op", "size", "name", "factor"),
    [
        ({"choice": "halving_doubling"}, "all_reduce", 4000, "halving_doubling", 1.5),
        ({"choice": "dual_tree"}, "all_reduce", 4000, "double_binary_tree", 1.5),
        ({"phase": "reduce_scatter"}, "reduce_scatter", 4000, "ring", 0.75),
        # nccl-tests' size of an all_gather is that of all shards.
        ({"phase": "all_gather"}, "all_gather", 1000, "ring", 0.75),
        ({"choice": "all_to_all_direct"}, "all_to_all", 4000, "direct", 0.75),
        ({"choice": "point_to_point"}, "broadcast", 4000, None, 1.0),
    ],
)
def test_algorithms_are_those_of_chakram(
    algorithm: dict[str, Any], op: str, size: int, name: str | None, factor: float
) -> None:
    names = DEVICES[:2] if name is None else DEVICES
    generation = {"data_size": 4, "data_size_unit": "kilobyte"}
    communicator = {"name": "c", "device_names": names, "generation": generation}
    collectives = ccl(algorithm=algorithm, communicators=[communicator])
    (stage,) = plan_of(collectives).stages
    (found,) = stage.communicators
    (stream,) = found.trace(0)["streams"]
    assert (stream["op"], stream["size"]) == (op, f"{size}B")
    assert found.algorithm == name
    assert found.bus_factor == factor


def test_communicators_of_a_stage_are_jobs_with_one_policy() -> None:
    policy = {
        "qps_per_peer": 4,
        "chunk_size_kb": 64,
        "ib_mtu": 1024,
        "encapsulation": "ipv4",
        "connection_type": {
            "choice": "reliable_connection",
            "reliable_connection": {
                "dscp": 30,
                "ecn": "ect_0",
                "start_udp_src_port": 50_000,
            },
        },
    }
    pairs = [
        {"name": name, "device_names": names, "rocev2": policy}
        for name, names in (("a", ["d0", "d1"]), ("b", ["d3", "d2"]))
    ]
    pairs[1]["algorithm"] = {"choice": "all_to_all_direct"}
    (stage,) = plan_of(ccl(communicators=pairs)).stages
    document = stage.document("rack7", "barrier")
    assert [job["placement"]["ports"] for job in document["jobs"]] == [
        ["h0", "h1"],
        ["h3", "h2"],
    ]
    assert document["collectives"] == {"all_reduce": "ring", "all_to_all": "direct"}
    assert document["transport"] == {
        "path_mtu": 1024,
        "ecn": "ect0",
        "dscp": {"data": 30, "ack": 30},
        "queue_pairs": {"count": 4, "message_size": "65536B"},
        "source_ports": list(range(50_000, 50_064)),
    }


def test_stages_repeat_as_asked() -> None:
    collectives = ccl()
    collectives["stages"] *= 3
    names = ("prefill", "decode", "route")
    collectives["stages"] = [
        {**each, "name": name}
        for name, each in zip(names, collectives["stages"], strict=True)
    ]
    collectives["stage_loop_count"] = 2
    assert [stage for stage, _ in plan_of(collectives).order] == [0, 1, 2, 0, 1, 2]
    collectives |= {"stage_mode": "llm", "llm_index": 1}
    assert plan_of(collectives).order == [(0, 1), (1, 1), (2, 1), (1, 2), (2, 2)]


def communicator(**changes: Any) -> dict[str, Any]:
    return ccl(communicators=[{"name": "c", "device_names": DEVICES, **changes}])


@pytest.mark.parametrize(
    ("collectives", "status", "found"),
    [
        ({"name": "x"}, 400, "ccl.stages: is empty"),
        ({**ccl(), "name": 5}, 400, "ccl.name: is not a text"),
        ({**ccl(), "transport": "uet"}, 501, "ccl.transport: uet is not supported"),
        ({**ccl(), "stage_loop_count": 0}, 400, "ccl.stage_loop_count: is not 1 to"),
        ({**ccl(), "stage_mode": "llm"}, 400, "ccl.llm_index: is not below 1"),
        ({**ccl(), "more": 1}, 501, "ccl.more: is not supported"),
        ({**ccl(), "stages": 5}, 400, "ccl.stages: is not a list"),
        (ccl(communicators=[]), 400, "ccl.stages[0].communicators: is empty"),
        (ccl(bg_flow_names=["f"]), 501, "ccl.stages[0].bg_flow_names: is not"),
        (ccl(experiment="x"), 400, "ccl.stages[0].experiment: has its own jobs"),
        (communicator(device_names=["d0"]), 400, "device_names: is not a list of 2"),
        (communicator(device_names=["d0", "d9"]), 400, "device_names: d9 has no port"),
        (communicator(device_names=["d0", "d0"]), 400, "a port is listed twice"),
        (communicator(device_names=[{}, "d0"]), 400, "device_names: {} has no port"),
        (
            communicator(algorithm={"choice": "all_to_all_via_proxy"}),
            501,
            "algorithm.choice: all_to_all_via_proxy is not supported, only ring",
        ),
        (
            communicator(algorithm={"choice": "dual_tree", "phase": "all_gather"}),
            501,
            "dual_tree has only allreduce",
        ),
        (
            communicator(algorithm={"choice": "point_to_point"}),
            400,
            "point_to_point has 2 ranks",
        ),
        (
            communicator(generation={"data_size": 10**12}),
            400,
            "generation.data_size: is above 1 TiB",
        ),
        (
            communicator(generation={"compute_gap": {"choice": "random"}}),
            501,
            "compute_gap.choice: random is not supported",
        ),
        (
            {**ccl(), "sync_rank_interval_ms": 5},
            501,
            "ccl.sync_rank_interval_ms: is not supported",
        ),
        (
            communicator(rocev2={"encapsulation": "ipv6"}),
            501,
            "rocev2.encapsulation: the fabric has ipv4 addresses",
        ),
        (communicator(rocev2={"ib_mtu": 1000}), 501, "rocev2.ib_mtu: is not one of"),
        (
            ccl(duration={"choice": "fixed_seconds", "fixed_seconds": {"seconds": 0}}),
            400,
            "duration.fixed_seconds.seconds: is not 1 to",
        ),
        (
            {**ccl(), "stages": [{**ccl()["stages"][0], "name": "a"}] * 2},
            400,
            "ccl.stages[1].name: a is used twice",
        ),
        (
            ccl(communicators=[{"name": "c", "device_names": DEVICES}] * 2),
            400,
            "ccl.stages[0].communicators[1].name: c is used twice",
        ),
        (
            {
                **ccl(),
                "stages": [
                    {**ccl()["stages"][0], "name": f"s{number}"} for number in range(3)
                ],
                "stage_loop_count": 400,
            },
            400,
            "ccl: needs more than 1000 runs",
        ),
        ({**ccl(), "tail_latency_cdf": {"enable": True}}, 501, "enable: is not"),
    ],
)
def test_mistakes_have_their_places(
    collectives: dict[str, Any], status: int, found: str
) -> None:
    with pytest.raises(OtgProblem) as caught:
        convert_config(whole(collectives), PORTS)
    assert caught.value.status == status
    assert any(found in each for each in caught.value.errors), caught.value.errors


def test_what_stages_cannot_share_is_refused() -> None:
    two = [
        {"name": name, "device_names": names}
        for name, names in (("a", ["d0", "d1"]), ("b", ["d1", "d2"]))
    ]
    for change, found in (
        ({}, "a port has one rank in each stage"),
        ({"rocev2": {"qps_per_peer": 2}}, "all must have the same rocev2"),
        ({"algorithm": {"choice": "dual_tree"}}, "all_reduce must have one algorithm"),
    ):
        changed = copy.deepcopy(two)
        if change:
            changed[1] |= {"device_names": ["d2", "d3"], **change}
        with pytest.raises(OtgProblem) as caught:
            convert_config(whole(ccl(communicators=changed)), PORTS)
        assert any(found in each for each in caught.value.errors)
    both = {**config(("f", 1, 0)), "ccl": ccl()}
    with pytest.raises(OtgProblem, match="collectives and flows need separate"):
        convert_config(both, PORTS)


def test_time_to_read_a_configuration_grows_with_its_length() -> None:
    names = [f"n{number}" for number in range(20_000)]
    stages = [{"name": name} for name in names]
    pairs = [{"qp_name": name} for name in names]
    long = whole({"name": "t", "stages": stages})
    long["devices"][0]["rocev2"]["ipv4_interfaces"][0]["peers"][0]["qps"] = pairs
    began_s = time.process_time()
    with pytest.raises(OtgProblem) as caught:
        convert_config(long, PORTS)
    assert "ccl: needs more than 1000 runs" in caught.value.errors
    assert time.process_time() - began_s < 4


def test_metrics_are_those_of_nccl_tests() -> None:
    (stage,) = plan_of(
        communicator(
            generation={
                "data_size": 8,
                "data_size_unit": "megabit",
                "compute_gap": {"fixed": {"ms": 2}},
            }
        )
    ).stages
    (of,) = stage.communicators
    assert of.gap_ms == 2
    found = Times([12_000_000, 16_000_000], 2_000_000).metrics(of, 10**9)
    assert found == pytest.approx(
        {
            "iteration_count": 2,
            "jct": 0.032,
            "avg_jct": 0.016,
            "max_jct": 0.018,
            "min_jct": 0.014,
            "reduce_time": 0.004,
            "trans_time": 0.028,
            "training_time": 0.032,
            "max_tail_latency_us": 16_000,
            "alg_bw": 0.5,
            "bus_bw": 0.75,
            # Two times 12 Mbit through ports of 1 Gbit/s.
            "ideal_jct": 0.024,
            "jct_percent": 100 * 32 / 24,
            "alg_bw_percent": 75.0,
            "bus_bw_percent": 75.0,
        }
    )
    assert Times([]).metrics(of, None) == {"iteration_count": 0}
    assert "ideal_jct" not in Times([5]).metrics(of, None)
    assert "alg_bw" not in Times([5]).metrics(None, None)
    assert iteration_times([]) == {}


def test_iterations_last_from_the_first_start_to_the_last_end() -> None:
    ranks = [
        made_rank(rank, iteration, start_ns=1000 * iteration, end_ns=end_ns)
        for rank, iteration, end_ns in ((0, 1, 1500), (1, 1, 1700), (0, 2, 2400))
    ]
    assert iteration_times(ranks) == {"moe": Times([700, 400])}
    assert iteration_times(ranks, 100) == {"moe": Times([7, 4])}


def made_rank(rank: int, iteration: int, *, start_ns: int, end_ns: int) -> RankRecord:
    return RankRecord(
        number=rank,
        job="moe",
        rank=rank,
        iteration=iteration,
        measured=True,
        start_ns=start_ns,
        end_ns=end_ns,
        **dict.fromkeys(("compute_ns", "communication_ns", "exposed_ns", "idle_ns"), 0),
    )
