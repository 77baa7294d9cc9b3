"""A few labs with a planted fault, from the draws of ``tests/soak``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chakram.preflight.report import FAILED, UNPROVEN, Finding
from tests.e2e.rewriting import missing_bpf
from tests.preflight_draws import DOWN, UP, Draw, draw, judged, verdict_of
from tests.support import missing_program, require

if TYPE_CHECKING:
    from pathlib import Path

STAR = {"single_switch": {"hosts": 3}}
SOUND = Draw(seed=1, topology=STAR, hosts=3, rate_mbit=50, path_mtu=1024)


def plant(kind: str, amount: float = 0.0, *, direction: str = UP) -> Draw:
    return Draw(
        seed=1,
        topology=STAR,
        hosts=3,
        rate_mbit=50,
        path_mtu=1024,
        kind=kind,
        host="h1",
        direction=direction,
        amount=amount,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "drawn",
    [
        # Neither the length of probes of that class nor what comes back is at fault.
        pytest.param(plant("class-drop"), marks=pytest.mark.soak),
        # Acknowledgments are lost of what goes the other way: that way is sound.
        plant("loss", 0.1, direction=DOWN),
        # However late the hosts of a busy machine are.
        pytest.param(plant("slow", 0.4), marks=pytest.mark.soak),
    ],
    ids=lambda drawn: str(drawn.kind),
)
def test_a_planted_fault_is_named_with_its_port_and_nothing_else(
    tmp_path: Path, drawn: Draw
) -> None:
    require("netns", missing_program("tc"))
    require("bpf", missing_bpf())

    judgment = judged(drawn, tmp_path)

    assert judgment.verdict == "named", judgment


def finding(check: str, where: str, *pairs: tuple[str, str], verdict: str) -> Finding:
    return Finding(
        check=check, verdict=verdict, where=where, found="", hint=None, pairs=pairs
    )


FROM_H1 = (("h1", "h0"), ("h1", "h2"))
TO_H1 = (("h0", "h1"), ("h2", "h1"))


@pytest.mark.parametrize(
    ("drawn", "findings", "verdict"),
    [
        (SOUND, [], "clean"),
        (SOUND, [finding("rate", "h0 -> h1", TO_H1[0], verdict=UNPROVEN)], "unproven"),
        (SOUND, [finding("rate", "h0 -> h1", TO_H1[0], verdict=FAILED)], "accused"),
        (plant("mtu"), [], "missed"),
        (
            plant("mtu"),
            [finding("mtu", "h1 -> all others", *FROM_H1, verdict=FAILED)],
            "named",
        ),
        (
            plant("mtu"),
            [finding("mtu", "h1 -> all others", *FROM_H1, verdict=UNPROVEN)],
            "missed",
        ),
        # A pair of the port is no port, and the other direction is another fault.
        (
            plant("mtu"),
            [finding("mtu", "h1 -> h0", FROM_H1[0], verdict=FAILED)],
            "missed",
        ),
        (
            plant("mtu"),
            [finding("mtu", "all others -> h1", *TO_H1, verdict=FAILED)],
            "wrong",
        ),
        (
            plant("mtu"),
            [finding("dscp", "h1 -> all others", *FROM_H1, verdict=FAILED)],
            "wrong",
        ),
        (
            plant("mtu", direction=DOWN),
            [
                finding("mtu", "all others -> h1", *TO_H1, verdict=FAILED),
                finding("mtu", "h0 -> h2", ("h0", "h2"), verdict=FAILED),
            ],
            "wrong",
        ),
        # What is lost takes time.
        (
            plant("loss"),
            [
                finding("loss", "h1 -> all others", *FROM_H1, verdict=FAILED),
                finding("rate", "h1 -> h0", FROM_H1[0], verdict=FAILED),
            ],
            "named",
        ),
    ],
)
def test_findings_are_judged_by_the_planted_fault_alone(
    drawn: Draw, findings: list[Finding], verdict: str
) -> None:
    assert verdict_of(drawn, findings) == verdict


def test_a_seed_draws_the_same_lab_with_and_without_its_plant() -> None:
    for seed in range(50):
        sound, planted = (draw(seed, is_planted=each) for each in (False, True))
        assert sound.sections() == planted.sections()
        assert sound.kind is None
        assert planted == draw(seed, is_planted=True)
        assert planted.host in {f"h{number}" for number in range(planted.hosts + 1)}
