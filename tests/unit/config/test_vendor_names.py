"""DCQCN's knobs by the names of vendors, both ways, knob by knob."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

import pytest
import yaml

from chakram.config import vendor_names
from chakram.config.congestion import knobs_of
from chakram.config.vendor_names import VendorValues
from chakram.roce.congestion.parameters import SHARE_UNIT
from chakram.roce.congestion.profiles.dcqcn_vendors import DCQCN_VENDORS
from chakram.roce.congestion.profiles.vendors import VendorNumber
from tests.unit.config.test_dcqcn import (
    PROFILES,
    DcqcnKnobs,
    DcqcnSettings,
    dcqcn_parameters,
)

LINE = 100 * 10**9
VENDORS = DCQCN_VENDORS.sets
# Half of the unit in which a set of names counts a knob, in our integers.
HALF_UNITS = {
    "nvidia": {"gain_q20": 512, "alpha_initial_q20": 512, "max_cut_q20": 5243},
    "mlx5": {"gain_q20": 512, "alpha_initial_q20": 512, "max_cut_q20": 5243},
    "intel": {
        "additive_increase_bps": LINE // 2000,
        "hyper_increase_bps": LINE // 2000,
    },
    "hpcc-ns3": {},
    "otg": {"gain_q20": 512, "alpha_initial_q20": 512, "max_cut_q20": 5243},
    "keysight": {
        "gain_q20": 512,
        "alpha_initial_q20": 512,
        "max_cut_q20": 5243,
        "byte_counter_bytes": 32,
    },
}


def from_vendor(numbers: Mapping[str, VendorNumber]) -> VendorValues:
    return vendor_names.from_vendor(DCQCN_VENDORS, numbers)


def to_vendor(
    parameters: tuple[tuple[str, int], ...], vendor: str = "nvidia"
) -> dict[str, VendorNumber | None]:
    return vendor_names.to_vendor(DCQCN_VENDORS, parameters, vendor)


def knob_named(name: str) -> str:
    return vendor_names.knob_named(DCQCN_VENDORS, name)


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_knob_of_a_profile_goes_there_and_back(profile: str, vendor: str) -> None:
    parameters = dcqcn_parameters(DcqcnSettings(profile=profile), LINE)
    # What a vendor's units are too coarse for is left out.
    named = {
        name: number
        for name, number in to_vendor(parameters, vendor).items()
        if number is not None
    }
    assert len(named) == len({knob_named(name) for name in named}) >= 6
    # Over another profile, so that what is not said is another value.
    other: str = "dcqcn-intel" if profile == "dcqcn-hpcc-ns3" else "dcqcn-hpcc-ns3"
    again = dict(dcqcn_parameters(DcqcnSettings(profile=other, vendor=named), LINE))
    elsewhere = dict(dcqcn_parameters(DcqcnSettings(profile=other), LINE))
    knobs = {knob_named(name) for name in named}
    values = knobs_of("dcqcn", parameters)
    for (key, before), knob in zip(
        parameters[1:], DcqcnKnobs.model_fields, strict=True
    ):
        if knob in knobs:
            half = HALF_UNITS[vendor].get(key, 500_000 if key.endswith("_bps") else 0)
            assert abs(again[key] - before) <= half, (knob, getattr(values, knob))
        else:
            assert again[key] == elsewhere[key]


def test_the_nics_defaults_are_what_its_profile_holds() -> None:
    numbers = {
        "rpg_ai_rate": 5,
        "rpg_hai_rate": 50,
        "rpg_min_rate": 1,
        "rate_to_set_on_first_cnp": 0,
        "rpg_time_reset": 300,
        "rate_reduce_monitor_period": 4,
        "dce_tcp_rtt": 1,
        "min_time_between_cnps": 4,
        "rpg_byte_reset": 32767,
        "rpg_threshold": 1,
        "rpg_min_dec_fac": 50,
        "initial_alpha_value": 1023,
        "dce_tcp_g": 1019,
        "rpg_gd": 11,
        "clamp_tgt_rate": 0,
        "clamp_tgt_rate_after_time_inc": 1,
    }
    profile = dcqcn_parameters(DcqcnSettings(profile="dcqcn-nvidia"), LINE)
    assert to_vendor(profile) == numbers
    elsewhere = DcqcnSettings(
        profile="dcqcn-paper",
        vendor=numbers,
        overrides=DcqcnKnobs(
            hyper_scaled=False, release_at_line=True, cnp_scope="port"
        ),
    )
    assert dcqcn_parameters(elsewhere, LINE) == profile
    firmware = {f"{name}_P1".upper(): number for name, number in numbers.items()}
    assert from_vendor(firmware).values == from_vendor(numbers).values
    kernel = {knob_named(name): number for name, number in numbers.items()}
    assert kernel == {
        knob_named(name): number for name, number in to_vendor(profile, "mlx5").items()
    }


def test_the_drivers_and_the_models_defaults_are_what_their_profiles_hold() -> None:
    intel = dcqcn_parameters(DcqcnSettings(profile="dcqcn-intel"), LINE)
    assert to_vendor(intel, "intel") == {
        "dcqcn_min_dec_factor": 1,
        "dcqcn_min_rate_MBps": 0,
        "dcqcn_F": 5,
        "dcqcn_T": 55,
        "dcqcn_B": 150_000,
        "dcqcn_rai_factor": 1,
        "dcqcn_hai_factor": 5,
        "dcqcn_rreduce_mperiod": 50,
    }
    hpcc = dcqcn_parameters(DcqcnSettings(profile="dcqcn-hpcc-ns3"), LINE)
    # What the model's own script prints for 100 Gbit/s.
    assert to_vendor(hpcc, "hpcc-ns3") == {
        "ALPHA_RESUME_INTERVAL": 1,
        "RATE_DECREASE_INTERVAL": 4,
        "CLAMP_TARGET_RATE": 0,
        "RP_TIMER": 300,
        "EWMA_GAIN": 0.00390625,
        "FAST_RECOVERY_TIMES": 1,
        "RATE_AI": "20Mb/s",
        "RATE_HAI": "200Mb/s",
        "MIN_RATE": "1000Mb/s",
    }


@pytest.mark.parametrize(
    ("name", "number", "knob", "value"),
    [
        # The least share of the rate that a cut leaves: 95 is gentler than 50.
        ("rpg_min_dec_fac", 95, "max_cut", Fraction(1, 20)),
        ("rp_min_dec_fac", 80, "max_cut", Fraction(1, 5)),
        ("dcqcn_min_dec_factor", 1, "max_cut", Fraction(99, 100)),
        ("rpg_gd", 12, "cut_shift", 2),
        ("dce_tcp_g", 1019, "alpha_gain", Fraction(5, 1024)),
        ("rp_clamp_tgt_rate_ati", 1, "clamp_target_after_increase", True),
        ("np_min_time_between_cnps", 4, "cnp_interval", 4_000),
        ("RPG_AI_RATE_P2", 5, "additive_increase", 5_000_000),
        ("dcqcn_rai_factor", 2, "additive_increase", Fraction(1, 500)),
        ("dcqcn_B", 150_000, "byte_counter", 150_000),
        ("EWMA_GAIN", 0.0625, "alpha_gain", Fraction(1, 16)),
        ("RATE_AI", "50Mb/s", "additive_increase", 50_000_000),
        ("RATE_HAI", "0.1Gbps", "hyper_increase", 100_000_000),
        ("RP_TIMER", "900", "increase_period", 900_000),
        ("CLAMP_TARGET_RATE", 1, "clamp_target", True),
        ("dcqcn_min_rate_MBps", 40, "min_rate", 40_000_000),
        ("dcqcn_min_rate", 40, "min_rate", 40_000_000),
        ("alpha_g", 1019, "alpha_gain", Fraction(5, 1024)),
        ("minimum_rate_limmit", 0.002, "min_rate", Fraction(1, 50_000)),
        ("minimum_rate_limit", 1e-05, "min_rate", Fraction(1, 10**7)),
        ("maximum_rate_decrement_at_time", 10, "max_cut", Fraction(1, 10)),
        ("initial_rate_after_first_cnp", 0, "first_cnp_rate", 0),
        ("cnp_delay_timer", 55, "cnp_interval", 55_000),
        ("rate_increment_byte_counter", 32767, "byte_counter", 32767),
        ("min_rate_limit", 1, "min_rate", 1_000_000),
        ("rate_decrement_factor", 50, "max_cut", Fraction(1, 2)),
    ],
)
def test_a_name_means_a_knob(
    name: str, number: float | str, knob: str, value: object
) -> None:
    assert from_vendor({name: number}).values == {knob: value}


def test_what_is_so_anyway_may_be_said() -> None:
    # No highest rate is what the line is.
    assert from_vendor({"rpg_max_rate": 0, "rp_max_rate": 0}).values == {}
    assert from_vendor({"enable_dcqcn": 1, "dcqcn_enable": 1}).values == {}


# Both as their schemas have them by default.
OTG = """
enable_dcqcn: true
alpha_g: 1019
initial_alpha: 1023
alpha_update_period: 21
rate_reduction_time_period: 21
initial_rate_after_first_cnp: 0.002
minimum_rate_limmit: 0.002
maximum_rate_decrement_at_time: 10
clamp_target_rate: false
rate_increment_time: 250
rate_increment_byte_counter: 32767
rate_increment_threshold: 25
additive_increment_rate: 0.001
hyper_increment_rate: 0.001
cnp_delay_timer: 55
"""
KEYSIGHT = """
alpha_factor: 1019
alpha_interval: 21
initial_alpha: 1023
rate_after_first_cnp: 10000
rate_decrement_factor: 50
min_rate_limit: 1
rate_decrement_coefficient: 11
rate_decrement_interval: 21
clamp_target_rate: false
rate_increment_interval: 300
rate_increment_byte_counter: 32767
rate_increment_threshold: 1
additive_rate_increment: 5
hyper_rate_increment: 50
time_between_cnps: 4
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            OTG,
            {
                "alpha_period_ns": 21_000,
                "decrease_period_ns": 21_000,
                "first_cnp_rate_bps": 2_000_000,
                "min_rate_bps": 2_000_000,
                "max_cut_q20": round(SHARE_UNIT / 10),
                "clamps_target": 0,
                "increase_period_ns": 250_000,
                "byte_counter_bytes": 32_767,
                "recovery_stages": 25,
                "additive_increase_bps": 1_000_000,
                "hyper_increase_bps": 1_000_000,
                "cnp_interval_ns": 55_000,
            },
        ),
        (
            KEYSIGHT,
            {
                "alpha_period_ns": 21_000,
                "decrease_period_ns": 21_000,
                "first_cnp_rate_bps": 10_000_000_000,
                "min_rate_bps": 1_000_000,
                "max_cut_q20": SHARE_UNIT // 2,
                "cut_shift": 1,
                "clamps_target": 0,
                "increase_period_ns": 300_000,
                "byte_counter_bytes": 32_767 * 64,
                "recovery_stages": 1,
                "additive_increase_bps": 5_000_000,
                "hyper_increase_bps": 50_000_000,
                "cnp_interval_ns": 4_000,
            },
        ),
    ],
    ids=["otg", "keysight"],
)
def test_settings_of_testers_can_be_pasted(text: str, expected: dict[str, int]) -> None:
    settings = DcqcnSettings.model_validate({"vendor": yaml.safe_load(text)})
    parameters = dict(dcqcn_parameters(settings, LINE))
    assert {name: parameters[name] for name in expected} == expected
    assert parameters["gain_q20"] == SHARE_UNIT * 5 // 1024
    assert parameters["alpha_initial_q20"] == SHARE_UNIT * 1023 // 1024


@pytest.mark.parametrize(
    "vendor",
    [
        {"rpg_ai": 5},
        {"rpg_gd": 10},
        {"rpg_gd": 10.5},
        {"rpg_max_rate": 100},
        {"enable_dcqcn": 0},
        {"additive_increment_rate": 101},
        {"maximum_rate_decrement_at_time": 0},
        {"rate_increment_byte_counter": 0.5},
        {"dce_tcp_g": 1024},
        {"rpg_ai_rate": -1},
        {"rpg_ai_rate": "fast"},
        {"rpg_min_dec_fac": 100},
        {"clamp_tgt_rate": 2},
        {"initial_alpha_value": 1025},
        {"rpg_threshold": "1.5"},
        {"EWMA_GAIN": 2},
        {"dcqcn_rai_factor": 1001},
        {"RATE_AI": True},
    ],
)
def test_numbers_that_no_device_shows_are_refused(
    vendor: dict[str, int | float | str],
) -> None:
    (mistake,) = from_vendor(vendor).mistakes
    assert re.search(r"is (not known|out of range|not a number)", mistake.found)
    assert mistake.path == next(iter(vendor))


def test_two_names_of_one_knob_are_refused() -> None:
    (mistake,) = from_vendor({"rpg_time_reset": 300, "RP_TIMER": 900}).mistakes
    assert mistake.path == "RP_TIMER"
    assert mistake.found == "rpg_time_reset sets the same parameter"


def test_the_names_that_are_known_are_those_of_the_same_vendor() -> None:
    (mistake,) = from_vendor({"dcqcn_X": 1}).mistakes
    assert str(mistake.hint).startswith("known: dcqcn_B, dcqcn_F, dcqcn_T")
    with pytest.raises(ValueError, match="unknown vendor 'acme'"):
        to_vendor((), "acme")
