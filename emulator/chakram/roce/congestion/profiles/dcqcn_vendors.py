"""Names and units that NIC vendors and simulators use for DCQCN parameters.

An experiment may use any of six sets of names:

* NVIDIA's tools (``rpg_ai_rate``). Firmware configuration spells these in capitals,
  with ``_P1`` appended.
* the Linux kernel, for the same parameters (``rp_ai_rate``,
  ``np_min_time_between_cnps``)
* module parameters of Intel's driver (``dcqcn_T``)
* HPCC's ns-3 model, also used by astra-sim and SimAI (``RP_TIMER``)
* ports of the Open Traffic Generator (``additive_increment_rate``, in percent of the
  line rate)
* emulated NICs of Keysight's AI data center builder (``additive_rate_increment``, in
  Mbit/s)

Only the last two sets share names, and these two sets count bytes differently. The set
that contains the largest number of the given names is tried first. Parameters without a
name in the set keep the value of the profile.

Sources:

* mlx5 driver (cong.c) and NVIDIA's parameter page
* IEEE 802.1Qau for ``rpg_min_dec_fac``, the minimum share of the rate that remains
  after a cut
* irdma driver
* HPCC ns-3 (third.cc, rdma-hw.cc)
* Open Traffic Generator models (Rocev2.DCQCN, Rocev2.CNP), and the mapping of
  Keysight's names to them
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from chakram.roce.congestion.parameters import SHARE_UNIT
from chakram.roce.congestion.profiles.vendors import VendorName, Vendors

_MEGABIT = 10**6
_US = 1_000


def _in_units(value: int, unit: Fraction | int) -> int | None:
    """Return a value in whole units, or None if a nonzero value rounds to 0."""
    units = round(Fraction(value) / unit)
    return units if units or not value else None


def _megabits(knob: str) -> VendorName:
    key = f"{knob}_bps"
    return VendorName(
        knob, lambda n: round(n * _MEGABIT), lambda p: _in_units(p[key], _MEGABIT)
    )


def _lowest_megabits() -> VendorName:
    # The absence of a minimum rate is 1 bit/s in a plan, but 0 for vendors.
    usual = _megabits("min_rate")
    return VendorName(
        usual.knob,
        usual.read,
        lambda p: 0 if p["min_rate_bps"] <= 1 else usual.write(p),
    )


def _as_text(megabits: VendorName) -> VendorName:
    def write(parameters: Mapping[str, int]) -> str | None:
        number = megabits.write(parameters)
        return None if number is None else f"{number}Mb/s"

    return VendorName(megabits.knob, megabits.read, write)


def _mss(knob: str) -> VendorName:
    # The vendor adds this many MSS to a window per round trip. One MSS is taken as a
    # thousandth of the line rate.
    key = f"{knob}_bps"
    return VendorName(
        knob,
        lambda n: n / 1000 if n <= 1000 else None,
        lambda p: _in_units(p[key], Fraction(p["line_rate_bps"], 1000)),
    )


def _percent(knob: str) -> VendorName:
    key = f"{knob}_bps"
    return VendorName(
        knob,
        lambda n: n / 100 if n <= 100 else None,
        lambda p: round(100 * p[key] / p["line_rate_bps"], 12),
    )


def _microseconds(knob: str) -> VendorName:
    key = f"{knob}_ns"
    return VendorName(knob, lambda n: round(n * _US), lambda p: _in_units(p[key], _US))


def _count(knob: str, key: str) -> VendorName:
    return VendorName(
        knob, lambda n: int(n) if n.denominator == 1 else None, lambda p: p[key]
    )


def _cache_lines(knob: str) -> VendorName:
    key = f"{knob}_bytes"
    return VendorName(
        knob,
        lambda n: int(n) * 64 if n.denominator == 1 else None,
        lambda p: _in_units(p[key], 64),
    )


def _flag(knob: str, key: str) -> VendorName:
    return VendorName(
        knob, lambda n: bool(n) if n in {0, 1} else None, lambda p: p[key]
    )


def _taken_by_a_cut() -> VendorName:
    return VendorName(
        "max_cut",
        lambda n: n / 100 if 0 < n <= 100 else None,
        lambda p: round(p["max_cut_q20"] * 100 / SHARE_UNIT),
    )


def _left_by_a_cut() -> VendorName:
    return VendorName(
        "max_cut",
        lambda n: 1 - n / 100 if 0 <= n < 100 else None,
        lambda p: 100 - round(p["max_cut_q20"] * 100 / SHARE_UNIT),
    )


_PARTS = 1024
_PART = Fraction(SHARE_UNIT, _PARTS)
_GD_OF_ALPHA = 10
_NVIDIA: dict[str, VendorName] = {
    "rpg_ai_rate": _megabits("additive_increase"),
    "rpg_hai_rate": _megabits("hyper_increase"),
    "rpg_min_rate": _lowest_megabits(),
    "rate_to_set_on_first_cnp": _megabits("first_cnp_rate"),
    "rpg_time_reset": _microseconds("increase_period"),
    "rate_reduce_monitor_period": _microseconds("decrease_period"),
    "dce_tcp_rtt": _microseconds("alpha_period"),
    "min_time_between_cnps": _microseconds("cnp_interval"),
    "rpg_byte_reset": _count("byte_counter", "byte_counter_bytes"),
    "rpg_threshold": _count("recovery_stages", "recovery_stages"),
    "rpg_min_dec_fac": _left_by_a_cut(),
    "initial_alpha_value": VendorName(
        "alpha_initial",
        lambda n: n / _PARTS if n <= _PARTS else None,
        lambda p: _in_units(p["alpha_initial_q20"], _PART),
    ),
    # The share of alpha that an update keeps.
    "dce_tcp_g": VendorName(
        "alpha_gain",
        lambda n: (_PARTS - n) / _PARTS if n < _PARTS else None,
        lambda p: (
            None
            if (forgotten := _in_units(p["gain_q20"], _PART)) is None
            else _PARTS - forgotten
        ),
    ),
    # A cut removes the fraction alpha / 2**(rpg_gd - 10), because the vendor's alpha is
    # in units of 1/1024.
    "rpg_gd": VendorName(
        "cut_shift",
        lambda n: (
            int(n) - _GD_OF_ALPHA
            if n.denominator == 1 and _GD_OF_ALPHA < n <= _GD_OF_ALPHA + 20
            else None
        ),
        lambda p: p["cut_shift"] + _GD_OF_ALPHA,
    ),
    "clamp_tgt_rate": _flag("clamp_target", "clamps_target"),
    "clamp_tgt_rate_after_time_inc": _flag(
        "clamp_target_after_increase", "clamps_target_after_increase"
    ),
}
_AS_HERE = {
    # 0 means the line rate, which is also the limit here.
    "rpg_max_rate": 0,
    "rp_max_rate": 0,
    "enable_dcqcn": 1,
    "dcqcn_enable": 1,
    "dcqcn_cc_cfg_valid": 1,
}
"""Values that match the fixed behavior of Chakram, by vendor name."""
_OTHER_SPELLINGS = {
    # The spelling in the driver's notes, and the correct spelling of a misspelled name.
    "dcqcn_min_rate": "dcqcn_min_rate_MBps",
    "minimum_rate_limit": "minimum_rate_limmit",
}


def _kernel_name(name: str) -> str:
    if name == "min_time_between_cnps":
        return f"np_{name}"
    short = name.removeprefix("rpg_").replace("_after_time_inc", "_ati")
    return f"rp_{short}"


_SETS: dict[str, dict[str, VendorName]] = {
    "nvidia": _NVIDIA,
    "mlx5": {_kernel_name(name): meaning for name, meaning in _NVIDIA.items()},
    "intel": {
        "dcqcn_min_dec_factor": _left_by_a_cut(),
        # In Mbit/s, despite the name.
        "dcqcn_min_rate_MBps": _lowest_megabits(),
        "dcqcn_F": _count("recovery_stages", "recovery_stages"),
        "dcqcn_T": _microseconds("increase_period"),
        "dcqcn_B": _count("byte_counter", "byte_counter_bytes"),
        "dcqcn_rai_factor": _mss("additive_increase"),
        "dcqcn_hai_factor": _mss("hyper_increase"),
        "dcqcn_rreduce_mperiod": _microseconds("decrease_period"),
    },
    "hpcc-ns3": {
        "ALPHA_RESUME_INTERVAL": _microseconds("alpha_period"),
        "RATE_DECREASE_INTERVAL": _microseconds("decrease_period"),
        "RP_TIMER": _microseconds("increase_period"),
        "CLAMP_TARGET_RATE": _flag("clamp_target", "clamps_target"),
        "FAST_RECOVERY_TIMES": _count("recovery_stages", "recovery_stages"),
        "EWMA_GAIN": VendorName(
            "alpha_gain",
            lambda n: n if 0 < n <= 1 else None,
            lambda p: p["gain_q20"] / SHARE_UNIT,
        ),
        "RATE_AI": _as_text(_megabits("additive_increase")),
        "RATE_HAI": _as_text(_megabits("hyper_increase")),
        "MIN_RATE": _as_text(_lowest_megabits()),
    },
    "otg": {
        "alpha_g": _NVIDIA["dce_tcp_g"],
        "initial_alpha": _NVIDIA["initial_alpha_value"],
        "alpha_update_period": _microseconds("alpha_period"),
        "rate_reduction_time_period": _microseconds("decrease_period"),
        "initial_rate_after_first_cnp": _percent("first_cnp_rate"),
        "minimum_rate_limmit": _percent("min_rate"),
        "maximum_rate_decrement_at_time": _taken_by_a_cut(),
        "rate_decrement_coefficient": _NVIDIA["rpg_gd"],
        "clamp_target_rate": _NVIDIA["clamp_tgt_rate"],
        "rate_increment_time": _microseconds("increase_period"),
        "rate_increment_byte_counter": _NVIDIA["rpg_byte_reset"],
        "rate_increment_threshold": _NVIDIA["rpg_threshold"],
        "additive_increment_rate": _percent("additive_increase"),
        "hyper_increment_rate": _percent("hyper_increase"),
        "cnp_delay_timer": _microseconds("cnp_interval"),
    },
    "keysight": {
        "alpha_factor": _NVIDIA["dce_tcp_g"],
        "initial_alpha": _NVIDIA["initial_alpha_value"],
        "alpha_interval": _microseconds("alpha_period"),
        "rate_decrement_interval": _microseconds("decrease_period"),
        "rate_after_first_cnp": _megabits("first_cnp_rate"),
        "min_rate_limit": _lowest_megabits(),
        "rate_decrement_factor": _taken_by_a_cut(),
        "rate_decrement_coefficient": _NVIDIA["rpg_gd"],
        "clamp_target_rate": _NVIDIA["clamp_tgt_rate"],
        "rate_increment_interval": _microseconds("increase_period"),
        "rate_increment_byte_counter": _cache_lines("byte_counter"),
        "rate_increment_threshold": _NVIDIA["rpg_threshold"],
        "additive_rate_increment": _megabits("additive_increase"),
        "hyper_rate_increment": _megabits("hyper_increase"),
        "time_between_cnps": _microseconds("cnp_interval"),
    },
}
"""Vendor names and their meaning, by set."""


def _usual(name: str) -> str:
    """Return *name* in the spelling of the keys of the vendor sets.

    Names from firmware configuration are in capitals and end with a port number.
    """
    if name.isupper() and re.search(r"_P[12]\Z", name):
        name = name[:-3].lower()
    return _OTHER_SPELLINGS.get(name, name)


DCQCN_VENDORS = Vendors(sets=_SETS, as_here=_AS_HERE, usual=_usual)
"""Vendor names for the parameters of DCQCN."""
