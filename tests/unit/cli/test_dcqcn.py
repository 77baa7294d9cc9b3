"""``chakram dcqcn``."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from chakram.cli import main


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["dcqcn", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_profile_is_shown_in_every_spelling(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = shown(
        capsys,
        *("dcqcn-nvidia", "--rate", "10Gbit", "--set", "min_rate=0.5%"),
        *("--vendor", "rpg_ai_rate=10"),
    )
    assert found["profile"] == "dcqcn-nvidia with min_rate 0.5%, rpg_ai_rate 10"
    assert found["knobs"]["min_rate"] == "50Mbit"
    assert found["in_percent"]["additive_increase"] == "0.1%"
    assert found["vendors"]["mlx5"]["rp_min_rate"] == 50
    assert found["vendors"]["hpcc-ns3"]["RATE_AI"] == "10Mb/s"
    assert found["vendors"]["otg"]["additive_increment_rate"] == 0.1
    assert found["vendors"]["keysight"]["additive_rate_increment"] == 10
    assert found["sources"]


def test_whole_numbers_and_flags_are_read_as_in_a_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {"cut_shift": 2, "recovery_stages": 3, "hyper_scaled": False}
    sets = [f"--set={name}={str(value).lower()}" for name, value in given.items()]

    assert shown(capsys, *sets)["knobs"].items() >= given.items()


def test_what_a_vendors_units_are_too_coarse_for_is_not_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = shown(capsys, "dcqcn-nvidia", "--rate", "100Gbit")

    assert found["knobs"]["additive_increase"] == "5Mbit"
    # Thousandths of the line; 0 would be no increase at all.
    assert found["vendors"]["intel"]["dcqcn_rai_factor"] is None

    tiny = {
        "min_rate": "100kbit",
        "additive_increase": "400kbit",
        "increase_period": "400ns",
        "alpha_initial": "1/4096",
        "alpha_gain": "1/4096",
    }
    found = shown(capsys, *(f"--set={name}={value}" for name, value in tiny.items()))

    for vendor, names in {
        "nvidia": "rpg_min_rate rpg_ai_rate rpg_time_reset initial_alpha_value",
        "mlx5": "rp_min_rate rp_dce_tcp_g",
        "hpcc-ns3": "MIN_RATE RATE_AI RP_TIMER",
        "keysight": "additive_rate_increment min_rate_limit",
    }.items():
        assert {found["vendors"][vendor][name] for name in names.split()} == {None}


def test_rates_are_shown_as_they_scale(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, "dcqcn-paper", "--rate", "400Gbit", "--scaled-from", "40Gbit")
    assert found["knobs"]["additive_increase"] == "400Mbit"


def test_no_lowest_rate_is_what_vendors_call_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = shown(capsys, "dcqcn-nvidia", "--set=min_rate=0%")["vendors"]

    assert found["nvidia"]["rpg_min_rate"] == found["keysight"]["min_rate_limit"] == 0
    assert found["hpcc-ns3"]["MIN_RATE"] == "0Mb/s"


def test_people_get_a_table_with_one_vendors_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["dcqcn", "dcqcn-intel"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"dcqcn_T +55 *\n", text)
    assert "rpg_" not in text
    assert "irdma driver" in text


@pytest.mark.parametrize("names", ["mlx5", "otg", "keysight"])
def test_no_name_is_cut_short(names: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dcqcn", "--as", names]) == 0
    assert "\N{HORIZONTAL ELLIPSIS}" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["dcqcn-acme"], "there is no profile 'dcqcn-acme' (one of dcqcn-paper"),
        (["--as", "acme"], "there is no vendor 'acme' (one of nvidia"),
        (["--set", "min_rate"], "--set: 'min_rate' has no value"),
        (["--set", "min_rate=5"], "--set min_rate: 5 is neither a rate nor"),
        (["--set", "speed=5"], "--set speed: unknown key (known: additive_increase"),
        (["--vendor", "rpg_gd=1"], "--vendor rpg_gd: 1 is out of range"),
        (["--vendor", "rpg_x=1"], "--vendor rpg_x: is not known (known: "),
        (["--vendor", "rpg_gd=a"], "--vendor rpg_gd: 'a' is not a number (rates in"),
        (["--set", "min_rate=5", "--set", "speed=1"], "2 mistakes"),
        (["--rate", "1"], "--rate: '1' has no unit"),
        (
            ["dcqcn-hpcc-ns3", "--rate", "100Mbit"],
            "profile dcqcn-hpcc-ns3: min_rate of 1Gbit/s is above the line rate of",
        ),
        (
            ["--set", "min_rate=20Gbit", "--rate", "10Gbit"],
            "--set min_rate: min_rate of 20Gbit/s is above the line rate of 10Gbit/s",
        ),
        (
            ["--vendor", "rpg_min_rate=20000", "--rate", "10Gbit"],
            "--vendor rpg_min_rate: min_rate of 20Gbit/s is above the line rate",
        ),
        (
            ["--vendor", "rpg_time_reset=300", "--vendor", "RP_TIMER=900"],
            "--vendor RP_TIMER: rpg_time_reset sets the same parameter",
        ),
    ],
)
def test_mistakes_are_told(
    arguments: list[str], found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dcqcn", *arguments]) == 2
    assert found in capsys.readouterr().err


def test_all_mistakes_of_a_command_line_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--set", "byte_counter=5B", "--vendor", "rpg_x=1", "--vendor", "rpg_gd=1"]
    assert main(["dcqcn", "dcqcn-hpcc-ns3", "--rate", "100Mbit", *given]) == 2
    first, *told = capsys.readouterr().err.splitlines()
    assert first == "chakram: error: chakram dcqcn: 4 mistakes"
    assert [line.removeprefix("  - ").split(": ")[0] for line in told] == [
        "--vendor rpg_x",
        "--vendor rpg_gd",
        "profile dcqcn-hpcc-ns3",
        "--set byte_counter",
    ]


def test_every_knob_is_shown_with_its_share_of_the_line_and_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["dcqcn", "dcqcn-nvidia", "--rate", "10Gbit", "--as", "nvidia"]) == 0
    text = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in text.splitlines()]

    assert rows[0] == "dcqcn-nvidia, line rate 10Gbit/s"
    for row in (
        "cut_shift 1 rpg_gd 11",
        "additive_increase 5Mbit 0.05% rpg_ai_rate 5",
        "first_cnp_rate 0bit 0% rate_to_set_on_first_cnp 0",
        "clamp_target false clamp_tgt_rate 0",
        "clamp_target_after_increase true clamp_tgt_rate_after_time_inc 1",
        # The vendor has no such knob.
        "cnp_scope port",
        "units of nvidia: rates in Mbit/s, times in us",
    ):
        assert row in rows
    assert "- means that" not in text


def test_what_is_too_little_for_a_vendors_units_is_a_dash(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tiny = ["--set", "min_rate=100kbit"]
    assert main(["dcqcn", "dcqcn-nvidia", *tiny, "--as", "nvidia"]) == 0
    text = capsys.readouterr().out

    assert re.search(r"rpg_min_rate +- *\n", text)
    assert "- means that the value is too small for these units" in text


@pytest.mark.parametrize(
    ("number", "is_known"), [(10, False), (11, True), (30, True), (31, False)]
)
def test_a_cut_is_a_power_of_two(
    number: int, is_known: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    # Alpha counts in 1024ths there, of which 2**(n - 10) are left out.
    status = main(["dcqcn", "--vendor", f"rpg_gd={number}", "--json"])
    told = capsys.readouterr()
    if is_known:
        assert status == 0
        assert json.loads(told.out)["knobs"]["cut_shift"] == number - 10
    else:
        assert status == 2
        assert f"--vendor rpg_gd: {number} is out of range" in told.err
