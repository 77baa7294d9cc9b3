"""Collective algorithms: from an operation to a schedule of transfers. Pure functions.

Every built-in algorithm passes ``chakram.collectives.schedule_check`` for every number
of ranks and every root. Its name is a family, plus the parameters that differ from the
defaults (``chakram.collectives.algorithms.parameters``).

The built-in algorithms come from the ``FAMILIES`` of the modules in this folder. Others
come from plug-ins; see ``chakram.foundation.plugin_registry`` and
docs/howto/algorithm.md.

Selection of algorithms: a fixed name, or rules by size and number of ranks.

Rules compare the nccl-tests size (``chakram.collectives.ops.nccl_size_bytes``) of the
collective in the trace. ``size_scale`` shrinks messages but does not change the
selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from importlib import import_module
from typing import Protocol

from chakram.collectives.algorithms.family import Family
from chakram.collectives.algorithms.parameters import (
    Parameter,
    canonical_name,
    read_values,
    split_name,
)
from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Algorithm
from chakram.collectives.schedule_check import check_schedule
from chakram.foundation.errors import ScheduleError
from chakram.foundation.plugin_registry import Registry, modules_of

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
    """Return the families of a plug-in; raise ValueError if they are invalid."""
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

    For ``auto``, it returns the default algorithm, because the size of the collective
    is unknown here. Use ``chosen`` to select by size.

    Raises:
        ScheduleError: If *op* has no such algorithm, or the algorithm has no such
            parameter. The error lists the valid names.
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
    """Return the algorithm called *name* for groups of *nranks* ranks.

    Raises:
        ScheduleError: As ``algorithm``. Also if the algorithm does not fit a group of
            this size, or a plug-in's algorithm does not implement the collective.
    """
    how = algorithm(op, name)
    unfit = how.unfit(nranks)
    if unfit is not None:
        raise ScheduleError(
            f"collectives.{op}",
            f"{how.name[:60]} does not fit a group of {nranks} ranks: {unfit}",
            "use an order that fits every group, e.g. ascending",
        )
    if nranks <= MOST_CHECKED_RANKS and _is_plug_in(how):
        _check(how, nranks, root)
    return how


def _is_plug_in(how: Algorithm) -> bool:
    return how.name.partition("(")[0] not in ALGORITHMS.own


@lru_cache(maxsize=256)
def _check(how: Algorithm, nranks: int, root: int) -> None:
    """Check a plug-in's algorithm symbolically; tests check the built-in ones.

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
        ScheduleError: As ``algorithm``.
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


def installed_families() -> list[Family]:
    """Import all installed plug-ins and return their families.

    Raises:
        PlugInError: If a plug-in cannot be imported.
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


AUTO = "auto"
"""Selects an algorithm by the rules in ``AUTO_RULES``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAlgorithm:
    """An algorithm that a user provides.

    Attributes:
        kind: Format: ``msccl``, ``mscclpp``, ``chakra`` or ``python``.
        path: File of the algorithm, or folder of its files.
        function: Name of the function in the file, for Python code.
    """

    kind: str
    path: str
    function: str | None = None

    @property
    def name(self) -> str:
        """Name in plans and records, e.g. ``msccl:ring8.xml``."""
        place = self.path.rstrip("/").rpartition("/")[2]
        inside = "" if self.function is None else f":{self.function}"
        return f"{self.kind}:{place}{inside}"


class AlgorithmSource(Protocol):
    """Source of transfer lists for one user algorithm."""

    def listed(
        self, op: CollectiveOp, *, nranks: int, root: int, size_scale: Fraction
    ) -> ListedAlgorithm:
        """Return the checked transfer list for one group size and one root.

        Args:
            op: The collective.
            nranks: Number of ranks in the group.
            root: Position of the root.
            size_scale: Scale factor for sizes that the algorithm itself fixes.

        Raises:
            ScheduleError: If the algorithm does not support this case, or is wrong.
        """

    def made_for(self) -> tuple[CollectiveOp | None, int | None]:
        """Return the supported collective and number of ranks; None means any."""

    def warnings(self) -> list[str]:
        """Return warnings about the algorithm for readers of results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An algorithm and the conditions under which it applies.

    Attributes:
        algorithm: A built-in name, ``auto``, or a user's algorithm.
        up_to_bytes: Largest size; None means any.
        up_to_ranks: Largest group; None means any.
        power_of_two: Whether the number of ranks must be a power of two.
    """

    algorithm: str | UserAlgorithm
    up_to_bytes: int | None = None
    up_to_ranks: int | None = None
    power_of_two: bool = False

    def applies(self, *, size_bytes: int, nranks: int) -> bool:
        """Return whether the rule applies to a collective of this size."""
        return (
            (self.up_to_bytes is None or size_bytes <= self.up_to_bytes)
            and (self.up_to_ranks is None or nranks <= self.up_to_ranks)
            and not (self.power_of_two and nranks & nranks - 1)
        )

    def covers(self, other: Rule) -> bool:
        """Return whether this rule applies wherever *other* does."""
        return (
            _at_least(self.up_to_bytes, other.up_to_bytes)
            and _at_least(self.up_to_ranks, other.up_to_ranks)
            and (other.power_of_two or not self.power_of_two)
        )


def _at_least(limit: int | None, other: int | None) -> bool:
    return limit is None or (other is not None and limit >= other)


Choice = str | UserAlgorithm | tuple[Rule, ...]
"""An algorithm, ``auto``, or rules; the first rule that applies is used.

If no rule applies, ``auto`` is used.
"""

KIB, MIB = 1 << 10, 1 << 20

# Small buffers use the fewest steps. Medium buffers use few steps without extra bytes,
# if the number of ranks allows it. Large buffers use the fewest bytes and send to
# neighbors only.
AUTO_RULES: dict[CollectiveOp, tuple[Rule, ...]] = {
    CollectiveOp.ALL_REDUCE: (
        Rule(algorithm="recursive_doubling", up_to_bytes=32 * KIB),
        Rule(algorithm="halving_doubling", up_to_bytes=MIB, power_of_two=True),
        Rule(algorithm="ring"),
    ),
    CollectiveOp.ALL_GATHER: (
        Rule(algorithm="bruck", up_to_bytes=64 * KIB),
        Rule(algorithm="ring"),
    ),
    CollectiveOp.REDUCE_SCATTER: (
        Rule(algorithm="recursive_halving", up_to_bytes=64 * KIB, power_of_two=True),
        Rule(algorithm="ring"),
    ),
    CollectiveOp.ALL_TO_ALL: (Rule(algorithm="direct"),),
    CollectiveOp.ALL_TO_ALL_V: (Rule(algorithm="direct"),),
    CollectiveOp.BROADCAST: (
        Rule(algorithm="tree", up_to_bytes=256 * KIB),
        Rule(algorithm="ring"),
    ),
    CollectiveOp.REDUCE: (
        Rule(algorithm="tree", up_to_bytes=256 * KIB),
        Rule(algorithm="ring"),
    ),
    CollectiveOp.GATHER: (Rule(algorithm="direct"),),
    CollectiveOp.SCATTER: (Rule(algorithm="direct"),),
    CollectiveOp.SEND_RECV: (Rule(algorithm="direct"),),
    CollectiveOp.BARRIER: (Rule(algorithm="dissemination"),),
}
"""The rules of ``auto`` for each collective."""


def chosen(
    op: CollectiveOp, choice: Choice, *, size_bytes: int, nranks: int
) -> str | UserAlgorithm:
    """Return the algorithm for a collective of this size; a built-in one by name."""
    rules = choice if isinstance(choice, tuple) else (Rule(algorithm=choice),)
    for each in (rules, AUTO_RULES[op]):
        for rule in each:
            if rule.applies(size_bytes=size_bytes, nranks=nranks):
                if rule.algorithm == AUTO:
                    break
                return rule.algorithm
    raise AssertionError(f"auto has no rule for {op}")  # the last rule always applies


def named_algorithms(choice: Choice) -> list[str | UserAlgorithm]:
    """Return the algorithms in a choice."""
    return (
        [rule.algorithm for rule in choice] if isinstance(choice, tuple) else [choice]
    )


def user_algorithms(choice: Choice) -> list[UserAlgorithm]:
    """Return the user algorithms in a choice."""
    return [
        each for each in named_algorithms(choice) if isinstance(each, UserAlgorithm)
    ]
