"""Selection of algorithms: a fixed name, or rules by size and number of ranks.

Rules compare the nccl-tests size (``chakram.collectives.ops.nccl_size_bytes``) of the
collective in the trace. ``size_scale`` shrinks messages but does not change the
selection.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from chakram.collectives.ops import CollectiveOp

if TYPE_CHECKING:
    from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm

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
        """Return the supported collective and number of ranks, where None means any."""

    def warnings(self) -> list[str]:
        """Return warnings about the algorithm for readers of results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An algorithm and the conditions under which it applies.

    Attributes:
        algorithm: A built-in name, ``auto``, or a user's algorithm.
        up_to_bytes: Largest size for which the rule applies. None means any size.
        up_to_ranks: Largest number of ranks for which the rule applies. None means any
            number.
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
    """Return the algorithm for a collective of this size, by name if it is built in."""
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
