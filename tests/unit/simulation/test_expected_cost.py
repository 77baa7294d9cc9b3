"""Expected costs of simulations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from chakram.cli import main
from chakram.collectives.groups import world_group
from chakram.simulation import expected_cost
from chakram.simulation.expected_cost import Cost, cost_at_level, cost_of_packets
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import collective, make_plan, program
from tests.unit.simulation.test_coarse_levels import EXPERIMENT

GIB = 1 << 30
MINUTE_NS = 60 * 10**9


def test_cheap_simulations_need_no_note() -> None:
    cheap = Cost(messages=10, time_ns=MINUTE_NS - 1, memory_bytes=2 * GIB)
    assert cheap.note(memory_bytes=4 * GIB) is None


@pytest.mark.parametrize(
    ("time_ns", "memory_bytes", "text"),
    [
        (7 * MINUTE_NS, 0, "7m00s"),
        (7 * MINUTE_NS, 2 * GIB, "7m00s"),
        (10**9, 3 * GIB, "1s and 3GiB"),
    ],
)
def test_long_or_large_simulations_have_a_note(
    time_ns: int, memory_bytes: int, text: str
) -> None:
    cost = Cost(messages=10, time_ns=time_ns, memory_bytes=memory_bytes)
    assert cost.note(memory_bytes=4 * GIB) == (
        f"10 messages: the simulation may take about {text}"
    )


def test_costs_grow_with_messages_and_packets() -> None:
    star = single_switch(4, 10**9)

    def cost(count: int, size_bytes: int) -> Cost:
        group = world_group(4)
        rows = [collective("all_to_all", size_bytes) for _ in range(count)]
        return cost_of_packets(
            make_plan([program(rank, group, rows) for rank in range(4)], star), star
        )

    one, longer, two = cost(1, 4_096), cost(1, 4_096_000), cost(2, 4_096)
    # A rank sends to three others.
    assert (one.messages, longer.messages, two.messages) == (12, 12, 24)
    assert two.time_ns == 2 * one.time_ns
    assert longer.time_ns > 2 * one.time_ns
    assert one.memory_bytes == two.memory_bytes > 0


def test_flows_take_longer_than_whole_messages() -> None:
    message, flow = (cost_at_level(level, 100) for level in ("message", "flow"))
    assert flow.time_ns > message.time_ns > 0
    assert cost_at_level("packet", 100).time_ns == 0


def test_memory_of_level_flow_grows_with_the_messages_in_flight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected_cost, "_IN_FLIGHT_BYTES", 1 << 40)
    path = tmp_path / "experiment.yaml"
    command = ["simulate", str(path), "--runs", str(tmp_path), "--level"]
    # The ranks of a group of four send three messages at the same time, or one.
    for algorithm, count in (("direct", 12), ("ring", 4)):
        trace = {"synth": "collectives", "ranks": 4}
        trace["streams"] = [{"op": "all_gather", "size": "1MiB"}]
        jobs = [{"name": "j", "trace": trace}]
        document = EXPERIMENT | {"jobs": jobs, "collectives": {"all_gather": algorithm}}
        path.write_text(yaml.safe_dump(document))
        assert main([*command, "flow"]) == 0
        assert f"s and {count}TiB\n" in capsys.readouterr().err
        assert main([*command, "message"]) == 0
        assert "may take about" not in capsys.readouterr().err


@pytest.mark.parametrize("level", ["packet", "message", "flow"])
def test_simulate_reports_the_cost_first(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    level: str,
) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    command = ["simulate", str(path), "--level", level, "--runs", str(tmp_path)]
    assert main(command) == 0
    assert "may take about" not in capsys.readouterr().err
    monkeypatch.setattr(expected_cost, "_LONG_NS", 0)
    assert main(command) == 0
    assert re.search(
        r"\d+ messages: the simulation may take about \d+s\n", capsys.readouterr().err
    )
