"""In which worlds a key of the experiment file does something.

``simulate`` is ``chakram simulate``, and the bounds and simulated times beside those of
a run; the others are runs by the kind of their fabric.  A key that is not named here
does something in all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.fabric.kinds import KINDS
from chakram.fabric.kinds.kind import SIMULATE, KeyUse

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RESTRICTED", "SIMULATE", "WORLDS", "worlds_of"]

WORLDS = (SIMULATE, *KINDS)
"""All worlds."""

_RUNS = tuple(KINDS)

_OF_ALL_KINDS: KeyUse = {
    ("Experiment", "preflight"): _RUNS,
    ("Preflight", ""): _RUNS,
    ("Experiment", "predict"): _RUNS,
    ("Experiment", "simulation"): (SIMULATE,),
    ("Simulation", ""): (SIMULATE,),
    ("Experiment", "metrics"): _RUNS,
    ("Metrics", ""): _RUNS,
    ("Experiment", "hang_timeout"): _RUNS,
    ("Experiment", "stop_if"): _RUNS,
    ("StopIf", ""): _RUNS,
    # What only bytes on a wire have.
    ("Transport", "dscp"): _RUNS,
    ("Dscp", ""): _RUNS,
    ("Transport", "icrc"): _RUNS,
    ("Transport", "verify"): _RUNS,
    ("Transport", "icrc_check"): _RUNS,
}


def _with_kinds() -> dict[tuple[str, str], tuple[str, ...]]:
    """Return these with the keys of fabrics: each in its own world, and simulated."""
    used: dict[tuple[str, str], set[str]] = {}
    for name, kind in KINDS.items():
        for place, worlds in {
            (kind.__name__, ""): (SIMULATE, name),
            **kind.key_use,
        }.items():
            used.setdefault(place, set()).update(worlds)
    ordered = {
        place: tuple(world for world in WORLDS if world in worlds)
        for place, worlds in used.items()
    }
    return _OF_ALL_KINDS | ordered


RESTRICTED: Mapping[tuple[str, str], tuple[str, ...]] = _with_kinds()
"""By section and key, of those that do nothing in some world; an empty key stands for
all keys of the section that are not named."""


def worlds_of(section: str, key: str) -> tuple[str, ...]:
    """Return the worlds in which *key* of *section*, a class of models, is used."""
    found = RESTRICTED.get((section, key))
    return RESTRICTED.get((section, ""), WORLDS) if found is None else found
