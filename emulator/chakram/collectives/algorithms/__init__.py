"""Collective algorithms: from an operation to a schedule of transfers. Pure functions.

Every built-in algorithm passes ``chakram.collectives.schedule_check`` for every number
of ranks and every root. Its name is a family, plus the parameters that differ from the
defaults (``chakram.collectives.algorithms.parameters``).

The built-in algorithms come from the ``FAMILIES`` of the modules in this folder. Others
come from plug-ins (see ``chakram.foundation.plugin_registry`` and
docs/howto/algorithm.md).
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
from chakram.foundation.errors import PlugInError, ScheduleError
from chakram.foundation.plugin_registry import Registry, modules_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

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
    "calls_of",
    "chosen",
    "default_algorithm",
    "installed_families",
    "named_algorithms",
    "parameters_of",
    "user_algorithms",
]

MOST_CHECKED_RANKS = 256
"""Largest group for which a plug-in's algorithm is checked before use.

The check of an all_to_all of this size takes a second.
"""

_OTHERS = (
    "algorithm_choice",
    "family",
    "base",
    "buffer_programs",
    "parameters",
    "symbolic_execution",
    "transfer_lists",
)
"""Modules in this folder that define no algorithm."""


@cache
def _own() -> dict[str, tuple[Family, ...]]:
    """Return the families of the built-in modules, by target."""
    return {
        f"{__name__}.{module}:FAMILIES": import_module(f"{__name__}.{module}").FAMILIES
        for module in modules_of(__name__, _OTHERS)
    }


@cache
def _by_op() -> dict[CollectiveOp, dict[str, Family]]:
    """Return the built-in families by collective and name, defaults first."""
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
    """Return the families of a plug-in, or raise ValueError if they are invalid."""
    families = found if isinstance(found, tuple) else (found,)
    if not families or not all(isinstance(each, Family) for each in families):
        raise ValueError("it is neither a Family nor a tuple of Family")
    for each in families:
        if each.name != name:
            raise ValueError(f"it has an algorithm {each.name!r}, but must be {name!r}")
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
"""Registry of families by name; several modules may define the same built-in name."""


@lru_cache(maxsize=256)
def algorithm(op: CollectiveOp, name: str) -> Algorithm:
    """Return the algorithm called *name*, e.g. ``ring`` or ``ring(channels=2)``.

    For ``auto``, this function returns the default algorithm, because the size of the
    collective is unknown here. Use ``chosen`` to select by size.

    Raises:
        ScheduleError: If *op* has no such algorithm, or the algorithm has no such
            parameter. The error lists the valid names.
        PlugInError: If a plug-in cannot be imported or does not create the algorithm.
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
    with ALGORITHMS.calls(family.name):
        how = family.make(name=canonical, **values)
        hash(how)  # algorithms are keys of caches
        if (how.op, how.name) != (op, canonical):
            raise PlugInError(
                f"algorithm {canonical}",
                f"its make returns {how.name[:60]!r} for {how.op}",
                "return an algorithm with the given name for the family's op",
            )
        return how


def algorithm_fitting(
    op: CollectiveOp, name: str, *, nranks: int, root: int = 0
) -> Algorithm:
    """Return the algorithm called *name* for groups of *nranks* ranks.

    Raises:
        ScheduleError: As for ``algorithm``, or if the algorithm does not fit a group of
            this size, or if a plug-in's algorithm does not implement the collective.
        PlugInError: As for ``algorithm``, or if the code of the plug-in fails.
    """
    how = algorithm(op, name)
    with calls_of(how):
        unfit = how.unfit(nranks)
    if unfit is not None:
        raise ScheduleError(
            f"collectives.{op}",
            f"{how.name[:60]} does not fit a group of {nranks} ranks: {unfit}",
            "use an order that fits every group, e.g. ascending",
        )
    if nranks <= MOST_CHECKED_RANKS and _is_plug_in(how):
        with calls_of(how):
            _check(how, nranks, root)
    return how


def calls_of(how: Algorithm) -> AbstractContextManager[None]:
    """Attribute the exceptions of an algorithm's methods to its plug-in.

    See ``chakram.foundation.plugin_registry.Registry.calls``.
    """
    return ALGORITHMS.calls(how.name.partition("(")[0])


def _is_plug_in(how: Algorithm) -> bool:
    return how.name.partition("(")[0] not in ALGORITHMS.own


@lru_cache(maxsize=256)
def _check(how: Algorithm, nranks: int, root: int) -> None:
    """Check a plug-in's algorithm symbolically. Tests check the built-in algorithms.

    Raises:
        ScheduleError: If the algorithm does not implement its collective.
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
    """Return the ``auto`` algorithm for a collective of this nccl-tests size."""
    which = chosen(op, AUTO, size_bytes=size_bytes, nranks=nranks)
    return algorithm(op, str(which))  # built-in rules select only built-in algorithms


def algorithm_of(
    op: CollectiveOp,
    name: str,
    *,
    nranks: int,
    root: int,
    listed: Sequence[ListedAlgorithm],
) -> Algorithm:
    """Return the algorithm of a program, from *listed* or by name.

    Raises:
        ScheduleError: As for ``algorithm``.
    """
    for each in listed:
        if (each.op, each.name, each.nranks, each.root) == (op, name, nranks, root):
            return each
    return algorithm(op, name)


def algorithm_names(op: CollectiveOp) -> tuple[str, ...]:
    """Return the names of all built-in algorithms of *op*, the default one first."""
    return tuple(_by_op()[op])


def parameters_of(op: CollectiveOp, name: str) -> tuple[Parameter, ...]:
    """Return the parameters of an algorithm family.

    Raises:
        ScheduleError: If *op* has no such algorithm.
    """
    return _family(op, name).parameters


def default_algorithm(op: CollectiveOp) -> str:
    """Return the name of the algorithm of *op* to use if the size is unknown."""
    return next(iter(_by_op()[op]))


def installed_families() -> tuple[list[Family], dict[str, PlugInError]]:
    """Import all installed plug-ins.

    Returns:
        The families of the plug-ins, and the errors of unusable plug-ins by name.
    """
    families: list[Family] = []
    errors: dict[str, PlugInError] = {}
    for name in dict.fromkeys(each.name for each in ALGORITHMS.installed):
        if name in ALGORITHMS.own:
            continue
        try:
            families += ALGORITHMS.load(name)
        except PlugInError as error:
            errors[name] = error
    return families, errors


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
