"""One draw from its seed to its verdict, and tables of many."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.diagnosis import namespaces, virtual
from tests.diagnosis.bases import NAMESPACES, VIRTUAL
from tests.diagnosis.draws import Draw, draw
from tests.diagnosis.judge import Verdict, judge
from tests.diagnosis.plants import NoEffect
from tests.diagnosis.virtual import CannotSimulate, Simulations

LAB_ATTEMPTS = 3
"""Draws of which a lab says that they cost too little."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of a seed.

    Attributes:
        seed: The seed.
        kind: What is planted.
        planted: All of it, in words.
        is_hit: Whether it was named.
        answer: What was named.
        where: Kind of the fabric.
        is_declared: Whether plants are in the experiment's faults.
        has_decoys: Whether something is there that costs nothing.
        saving_error: Of the saving that was printed; None: none was.
        is_saving_right: Whether the error of the saving is small enough.
        drawn_s: Seconds that the draw took.
        asked_s: Seconds that the answer took.
        simulations: How many the draw took.
    """

    seed: int
    kind: str
    planted: str
    is_hit: bool
    answer: str
    where: str = ""
    is_declared: bool = False
    has_decoys: bool = False
    saving_error: float | None = None
    is_saving_right: bool | None = None
    drawn_s: float = 0.0
    asked_s: float = 0.0
    simulations: int = 0

    def line(self) -> str:
        """Return it in a line."""
        how = "hit" if self.is_hit else "MISS"
        if self.is_hit and self.is_saving_right is False:
            how = f"saving is off by {100 * (self.saving_error or 0):.1f} points"
        return (
            f"{self.seed} {how}: {self.kind}: {self.planted}\n"
            f"     answered: {self.answer} "
            f"[{self.simulations} simulations in {self.drawn_s:.1f} s, "
            f"asked for {self.asked_s:.1f} s]"
        )


def judged(
    seed: int,
    folder: Path,
    *,
    world: str = VIRTUAL,
    clean: bool | None = None,
    kind: str | None = None,
    keep: bool = False,
) -> Outcome:
    """Draw, simulate, diagnose and judge; *folder* is kept only if *keep*."""
    look = Simulations(folder)
    verdict = Verdict(is_hit=False, answer="failed: no plant costs enough in a lab")
    drawn_s = asked_s = 0.0
    for attempt in range(LAB_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        started = time.monotonic()
        try:
            found = draw(
                seed, look, world=world, clean=clean, kind=kind, attempt=attempt
            )
        except NoEffect as error:
            return Outcome(
                seed=seed, kind="not drawn", planted=str(error), is_hit=False, answer=""
            )
        asked = time.monotonic()
        drawn_s += asked - started
        try:
            document, found = _explained(found, folder, world)
            verdict = judge(found, document)
        except namespaces.TooLittle:
            continue
        except CannotSimulate as failure:
            verdict = Verdict(is_hit=False, answer=f"failed: {failure}")
        finally:
            asked_s += time.monotonic() - asked
        break
    outcome = Outcome(
        seed=seed,
        kind=found.kind,
        planted=found.describe(),
        is_hit=verdict.is_hit,
        answer=verdict.answer,
        where=found.design.shape.kind,
        is_declared=_is_declared(found, world),
        has_decoys=bool(found.decoys),
        saving_error=verdict.saving_error,
        is_saving_right=verdict.is_saving_right,
        drawn_s=drawn_s,
        asked_s=asked_s,
        simulations=look.count,
    )
    if keep:
        note = json.dumps(asdict(outcome), indent=1)
        (folder / "draw.json").write_text(note, encoding="utf-8")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _explained(found: Draw, folder: Path, world: str) -> tuple[dict[str, Any], Draw]:
    arguments = () if found.job is None else ("--job", found.job)
    if world == NAMESPACES:
        return namespaces.explained(found, folder, *arguments)
    return virtual.explained(found.design, folder, *arguments), found


def _is_declared(found: Draw, world: str) -> bool:
    """Return whether the experiment declares a planted cause."""
    if not any(plant.is_declared for plant in found.plants):
        return False
    design = found.design
    if world == NAMESPACES:
        design = namespaces.enacted(found, "").design
    return bool(design.packets or design.links)


def table(outcomes: list[Outcome]) -> str:
    """Return hits and draws by type, with their numbers."""
    hits: Counter[str] = Counter()
    draws: Counter[str] = Counter()
    for each in outcomes:
        for row in (each.kind if "+" not in each.kind else "two causes", "all"):
            draws[row] += 1
            hits[row] += each.is_hit
    lines = [f"{'kind':<20} {'hits':>5} {'draws':>5}"]
    rows = sorted(draws, key=lambda kind: (kind == "all", kind))
    lines += [
        f"{row:<20} {hits[row]:>5} {draws[row]:>5} {hits[row] / draws[row]:>7.1%}"
        for row in rows
    ]
    undeclared = sum(not each.is_declared for each in outcomes)
    decoys = sum(each.has_decoys for each in outcomes)
    judged_savings = [each for each in outcomes if each.is_saving_right is not None]
    right = sum(bool(each.is_saving_right) for each in judged_savings)
    lines.append(
        f"not in faults: {undeclared}, with decoys: {decoys}, "
        f"savings right: {right} of {len(judged_savings)}"
    )
    return "\n".join(lines)
