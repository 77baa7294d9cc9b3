"""Packages with entry points, like those of an installer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from chakram.collectives.algorithms import ALGORITHMS
from chakram.collectives.algorithms.base import WholeBuffer
from chakram.collectives.algorithms.family import Family, plain
from chakram.collectives.algorithms.tree import TreeAllReduce
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer
from chakram.foundation.plugin_registry import PlugIn
from chakram.roce.congestion import CONTROLS, CongestionControl
from chakram.roce.congestion.parameters import count, flag, rate, size
from tests.support import REPO_ROOT

__all__ = ["AIMD", "EXAMPLES", "STAR", "have_examples", "install"]


def install(
    folder: Path,
    *,
    package: str = "acme",
    version: str = "1.0",
    group: str,
    entries: dict[str, str],
    **modules: str,
) -> None:
    """Write a package into *folder*: its metadata and its modules."""
    about = folder / f"{package}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    )
    lines = [f"{name} = {target}" for name, target in entries.items()]
    (about / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


EXAMPLES = REPO_ROOT / "docs/examples"

AIMD = PlugIn(name="aimd", target="chakram_aimd:Aimd", package="chakram-aimd 1.0")
STAR = PlugIn(name="star", target="chakram_star:FAMILIES", package="chakram-star 1.0")


ATTENTIVE = PlugIn(
    name="attentive", target="tests.plug_ins:Attentive", package="acme 1"
)
LOPSIDED = PlugIn(
    name="lopsided", target="tests.plug_ins:LOPSIDED_FAMILY", package="acme 1"
)
HALVED = PlugIn(name="halved", target="tests.plug_ins:HALVED_FAMILY", package="acme 1")


CONTRADICTORY = PlugIn(
    name="contradictory", target="tests.plug_ins:Contradictory", package="acme 1"
)


class Contradictory(CongestionControl):
    """Checks of its arguments return None."""

    text = "Checks nothing."

    @staticmethod
    def contradictions(arguments: Mapping[str, Any]) -> Any:
        """Return None, unlike the base class."""


class Attentive(CongestionControl):
    """Has parameters of many kinds, and none of a line."""

    text = "Looks at round trips."
    wants_round_trips = True
    parameters = (
        rate("pace", "A rate."),
        size("part", "Bytes.", default="2KiB"),
        count("steps", "Some.", lowest=2, highest=5, default=3),
        flag("soft", "Whether.", default=True),
    )


@dataclass(frozen=True, slots=True)
class Lopsided(WholeBuffer):
    """An all_reduce that keeps its sum to itself."""

    name: ClassVar[str] = "lopsided"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what goes to position 0."""
        if position:
            yield Transfer(0, position, 0, 0, reduce=True)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what comes to position 0."""
        for other in range(1, 0 if position else nranks):
            yield Transfer(0, other, 0, 0, reduce=True)


LOPSIDED_FAMILY = Family("lopsided", CollectiveOp.ALL_REDUCE, plain(Lopsided))


class Halved(TreeAllReduce):
    """An all_reduce that transfers half of its buffer."""

    name: ClassVar[str] = "halved"

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return half of the buffer."""
        return input_bytes // 2


HALVED_FAMILY = Family("halved", CollectiveOp.ALL_REDUCE, plain(Halved))


def have_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the examples of the documentation importable, as if installed."""
    for name in ("aimd", "star"):
        monkeypatch.syspath_prepend(EXAMPLES / name)
    monkeypatch.setattr(CONTROLS, "installed", (AIMD,))
    monkeypatch.setattr(ALGORITHMS, "installed", (STAR,))
