"""Collective algorithms: from an operation to a schedule of transfers. Pure.

Every algorithm here passes ``chakram.collectives.schedule_check`` for every number of
ranks and every root.  Its name is a family, with parameters where those are not the
defaults (``chakram.collectives.algorithms.parameters``).

Ours are what the modules of this folder have as ``FAMILIES``; others come as plug-ins,
see ``chakram.foundation.plugin_registry`` and docs/howto/algorithm.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from chakram.collectives.algorithms.algorithm_choice import (
    AUTO,
    AlgorithmSource,
    Choice,
    Rule,
    UserAlgorithm,
    chosen,
    named_algorithms,
    user_algorithms,
)
from chakram.collectives.algorithms.family import Family
from chakram.collectives.algorithms.parameters import (
    Parameter,
    canonical_name,
    read_values,
    split_name,
)
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule_check import check_schedule
from chakram.foundation.errors import ScheduleError
from chakram.foundation.plugin_registry import Registry, modules_of

if TYPE_CHECKING:
    from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm
    from chakram.collectives.schedule import Algorithm

__all__ = [
    "ALGORITHMS",
    "AUTO",
    "AlgorithmSource",
    "Choice",
    "Family",
    "Rule",
    "UserAlgorithm",
    "algorithm",
    "algorithm_fitting",
    "algorithm_names",
    "algorithm_of",
    "automatic_algorithm",
    "chosen",
    "default_algorithm",
    "installed_families",
    "named_algorithms",
    "parameters_of",
    "user_algorithms",
]

MOST_CHECKED_RANKS = 256
"""Groups for which a plug-in's algorithm is checked before it is used: an all_to_all of
so many ranks takes a second."""

_OTHERS = (
    "algorithm_choice",
    "base",
    "buffer_programs",
    "family",
    "parameters",
    "symbolic_execution",
    "transfer_lists",
)
"""Modules of this folder that have no algorithm of their own."""


@cache
def _own() -> dict[str, tuple[Family, ...]]:
    """Return by target what our modules have."""
    return {
        f"{__name__}.{module}:FAMILIES": import_module(f"{__name__}.{module}").FAMILIES
        for module in modules_of(__name__, _OTHERS)
    }


@cache
def _by_op() -> dict[CollectiveOp, dict[str, Family]]:
    """Return ours by collective and name, those that are defaults first."""
    everything = [family for families in _own().values() for family in families]
    return {
        op: {
            each.name: each
            for each in sorted(everything, key=lambda each: not each.is_default)
            if each.op == op
        }
        for op in CollectiveOp
    }


def _accept(name: str, found: object) -> tuple[Family, ...]:
    """Return the families of a plug-in, if that is what it has."""
    families = found if isinstance(found, tuple) else (found,)
    if not families or not all(isinstance(each, Family) for each in families):
        raise ValueError("it is no Family, and no tuple of them")
    for each in families:
        if each.name != name:
            raise ValueError(f"it has an algorithm {each.name!r}, not {name!r}")
    if len({each.op for each in families}) < len(families):
        raise ValueError("it has two algorithms for one collective")
    return families


ALGORITHMS: Registry[tuple[Family, ...]] = Registry(
    "algorithm",
    group="chakram.algorithms",
    own=lambda: {
        family.name: target
        for target, families in _own().items()
        for family in families
    },
    accept=_accept,
)
"""The families of all names; of ours a name may stand for several modules."""


@lru_cache(maxsize=256)
def algorithm(op: CollectiveOp, name: str) -> Algorithm:
    """Return the algorithm called *name*, e.g. ``ring`` or ``ring(channels=2)``.

    ``auto`` is the default one: without the size of a collective there is nothing to
    choose by (``chosen`` has it).

    Raises:
        ScheduleError: If *op* has no such algorithm, or that no such parameters; it
            names those there are.
    """
    where = f"collectives.{op}"
    family_name, given = split_name(
        default_algorithm(op) if name == AUTO else name, where=where
    )
    family = _family(op, family_name)
    values = read_values(family.name, given, family.parameters, where=where)
    canonical = canonical_name(family.name, values, family.parameters)
    if canonical != name:
        return algorithm(op, canonical)
    return family.make(name=canonical, **values)


def algorithm_fitting(
    op: CollectiveOp, name: str, *, nranks: int, root: int = 0
) -> Algorithm:
    """Return the algorithm called *name*, for groups of *nranks* ranks.

    Raises:
        ScheduleError: As ``algorithm``, and if it does not fit a group of this size, or
            is a plug-in's and does not do what the collective promises.
    """
    how = algorithm(op, name)
    unfit = how.unfit(nranks)
    if unfit is not None:
        raise ScheduleError(
            f"collectives.{op}",
            f"{how.name[:60]} does not fit a group of {nranks} ranks: {unfit}",
            "name an order that fits every group, e.g. ascending",
        )
    if nranks <= MOST_CHECKED_RANKS and _is_plug_in(how):
        _check(how, nranks, root)
    return how


def _is_plug_in(how: Algorithm) -> bool:
    return how.name.partition("(")[0] not in ALGORITHMS.own


@lru_cache(maxsize=256)
def _check(how: Algorithm, nranks: int, root: int) -> None:
    """Carry out an algorithm of a plug-in symbolically; of ours tests do that.

    Raises:
        ScheduleError: If it does not do what its collective promises.
    """
    problems = check_schedule(how, nranks=nranks, root=root)
    if problems:
        more = len(problems) - 1
        raise ScheduleError(
            f"algorithm {how.name[:60]} for {how.op} of {nranks} ranks",
            problems[0],
            f"and {more} more problems" if more else None,
        )


def automatic_algorithm(op: CollectiveOp, *, size_bytes: int, nranks: int) -> Algorithm:
    """Return what ``auto`` is for a collective of this size, as nccl-tests count it."""
    which = chosen(op, AUTO, size_bytes=size_bytes, nranks=nranks)
    return algorithm(op, str(which))  # rules of ours name nobody else's


def algorithm_of(
    op: CollectiveOp,
    name: str,
    *,
    nranks: int,
    root: int,
    listed: Sequence[ListedAlgorithm],
) -> Algorithm:
    """Return the algorithm that a program names: one of its own, or one of ours.

    Raises:
        ScheduleError: As ``algorithm``.
    """
    for each in listed:
        if (each.op, each.name, each.nranks, each.root) == (op, name, nranks, root):
            return each
    return algorithm(op, name)


def algorithm_names(op: CollectiveOp) -> tuple[str, ...]:
    """Return the names of all our algorithms of *op*, the default one first."""
    return tuple(_by_op()[op])


def parameters_of(op: CollectiveOp, name: str) -> tuple[Parameter, ...]:
    """Return the parameters of the algorithm *name*, a plain one.

    Raises:
        ScheduleError: If *op* has no such algorithm.
    """
    return _family(op, name).parameters


def default_algorithm(op: CollectiveOp) -> str:
    """Return the name of the algorithm of *op* that is taken without a size."""
    return next(iter(_by_op()[op]))


def installed_families() -> list[Family]:
    """Return what all plug-ins of this interpreter have; each is imported for that.

    Raises:
        PlugInError: If one cannot be.
    """
    names = dict.fromkeys(each.name for each in ALGORITHMS.installed)
    return [
        family
        for name in names
        if name not in ALGORITHMS.own
        for family in ALGORITHMS.load(name)
    ]


def _family(op: CollectiveOp, name: str) -> Family:
    own = _by_op()[op]
    if name in own:
        return own[name]
    others = [
        each.name for each in ALGORITHMS.installed if each.name not in ALGORITHMS.own
    ]
    if name in others:
        for family in ALGORITHMS.load(name):
            if family.op == op:
                return family
    raise ScheduleError(
        f"collectives.{op}",
        f"there is no algorithm {name[:60]!r}",
        f"choose from {', '.join([AUTO, *own, *dict.fromkeys(others)])}",
    )
