"""Preflights over labs with a manually added fault."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from chakram.config.experiment import Experiment, parse_experiment
from chakram.preflight.report import PairReport, PreflightReport
from tests import preflight_draws
from tests.leaks import own_lab
from tests.support import missing_program, missing_root, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from chakram.fabric.labs.lab_spec import LabState

LAB = own_lab("pft")
STAR = "{single_switch: {hosts: 3}}"
CLOS = "{clos: {leaves: 2, spines: 2, hosts_per_leaf: 1}}"


def experiment(topology: str, *, family: str = "ipv4", **keys: str) -> Experiment:
    """Return an experiment over a lab at 20 Mbit/s."""
    wanted = ", ".join(
        f"{key}: {value}" for key, value in {"duration": "20ms", **keys}.items()
    )
    return parse_experiment(
        f"""
version: 1
name: preflight
jobs: [{{name: j, trace: {{synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}}}}]
fabric:
  kind: namespaces
  addressing: {family}
  topology: {topology}
  links: {{host: {{rate: 20Mbit}}, uplink: {{rate: 20Mbit}}}}
transport: {{path_mtu: 2048}}
preflight: {{{wanted}}}
"""
    )


async def preflight_of(
    wanted: Experiment, folder: Path, fault: Callable[[LabState], None]
) -> PreflightReport:
    """Return the report of a lab that *fault* has worked on."""

    @contextmanager
    def disturbed(lab: LabState) -> Iterator[None]:
        fault(lab)
        yield

    return await preflight_draws.preflight_of(wanted, folder, disturbed, lab_name=LAB)


def ip(lab: LabState, switch: str, *words: str) -> None:
    """Change a switch with iproute2."""
    require("root", missing_root())
    require("netns", missing_program("ip"))
    (found,) = (each for each in lab.switches if each.name == switch)
    assert found.netns_name is not None
    subprocess.run(
        ["ip", "-n", found.netns_name, *words], check=True, capture_output=True
    )


def sound(lab: LabState) -> None:
    """Change nothing in the lab."""


def failures(report: PreflightReport) -> list[tuple[str, str]]:
    return [(each.check, each.where) for each in report.failures]


def pair(report: PreflightReport, source: str, destination: str) -> PairReport:
    (found,) = (
        each
        for each in report.pairs
        if (each.source, each.destination) == (source, destination)
    )
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "family", [pytest.param("ipv4", marks=pytest.mark.soak), "ipv6"]
)
async def test_intact_lab_has_no_failures(tmp_path: Path, family: str) -> None:
    report = await preflight_of(
        experiment(STAR, family=family, min_rate="0.3"), tmp_path, sound
    )

    assert failures(report) == []
    assert len(report.pairs) == 6
    for each in report.pairs:
        assert each.probes_arrived == each.probes_sent > 0
        assert each.packet_bytes == 4200
        assert each.path_mtu == 4096
        assert each.rate_share is not None
        assert 0.3 < each.rate_share < 1.1
        assert each.round_trip_p50_ns is not None


@pytest.mark.asyncio
async def test_a_host_link_of_a_smaller_mtu_is_named(tmp_path: Path) -> None:
    report = await preflight_of(
        experiment(STAR, pairs="none"),
        tmp_path,
        lambda lab: ip(
            lab, "s0", "link", "set", lab.host("h1").switch_interface, "mtu", "1500"
        ),
    )

    assert failures(report) == [("mtu", "h1 <-> all others")]
    (finding,) = report.failures
    assert finding.found == (
        "packets of 2112 bytes (path MTU 2048) do not arrive, but those of path MTU "
        "1024 do; no ICMP error arrives: the path silently drops large packets"
    )
    assert pair(report, "h0", "h1").path_mtu == 1024
    assert pair(report, "h0", "h2").path_mtu == 4096


@pytest.mark.soak
@pytest.mark.asyncio
async def test_missing_host_is_named_and_others_are_measured(
    tmp_path: Path,
) -> None:
    report = await preflight_of(
        experiment(STAR, min_rate="0.3"),
        tmp_path,
        lambda lab: ip(
            lab, "s0", "link", "set", lab.host("h2").switch_interface, "down"
        ),
    )

    assert failures(report) == [("reach", "h2 <-> all others")]
    assert pair(report, "h0", "h1").goodput_bps is not None
    assert pair(report, "h1", "h0").goodput_bps is not None
    assert pair(report, "h0", "h2").goodput_bps is None


@pytest.mark.asyncio
async def test_short_packets_of_one_spine_are_named_by_source_port_and_router(
    tmp_path: Path,
) -> None:
    def shorten(lab: LabState) -> None:
        (leaf,) = (each for each in lab.switches if each.name == "leaf0")
        (uplink,) = (p.interface for p in leaf.ports if p.link == "leaf0-spine1")
        ip(lab, "leaf0", "link", "set", uplink, "mtu", "1500")

    report = await preflight_of(experiment(CLOS, pairs="none"), tmp_path, shorten)

    found = {finding.where: finding.found for finding in report.failures}
    assert {finding.check for finding in report.failures} == {"mtu"}
    # leaf0 routes: it says what the next hop has no room for; back, it is the veth pair
    # that drops what is too long for its other end, without a word.
    up = next(text for where, text in found.items() if "h0" in where)
    assert "from UDP source port" in up
    assert "(of 8), but those of path MTU 1024 do" in up
    assert any("reports an MTU of 1500" in text for text in found.values())
