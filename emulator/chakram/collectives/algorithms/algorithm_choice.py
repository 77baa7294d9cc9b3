"""Which algorithm a collective takes: a name, or rules by size and number of ranks.

Sizes are those of nccl-tests (``collectives.nccl_size_bytes``), as the trace has them:
``size_scale`` shrinks messages but changes no algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from chakram.collectives.ops import CollectiveOp

if TYPE_CHECKING:
    from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm

AUTO = "auto"
"""Stands for the rules in ``AUTO_RULES``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAlgorithm:
    """An algorithm that a user brings along.

    Attributes:
        kind: What it is written in: ``msccl``, ``mscclpp``, ``chakra`` or ``python``.
        path: Its file, or folder of files.
        function: Name of the function in the file, where it is code.
    """

    kind: str
    path: str
    function: str | None = None

    @property
    def name(self) -> str:
        """Its name in plans and records, e.g. ``msccl:ring8.xml``."""
        place = self.path.rstrip("/").rpartition("/")[2]
        inside = "" if self.function is None else f":{self.function}"
        return f"{self.kind}:{place}{inside}"


class AlgorithmSource(Protocol):
    """Makes the lists of one user's algorithm."""

    def listed(
        self, op: CollectiveOp, *, nranks: int, root: int, size_scale: Fraction
    ) -> ListedAlgorithm:
        """Return the list for groups of one size and one root, checked.

        Args:
            op: The collective.
            nranks: Ranks of the group.
            root: Position of the root.
            size_scale: Factor on sizes that the algorithm itself fixes.

        Raises:
            ScheduleError: If the algorithm is not for that, or wrong.
        """

    def made_for(self) -> tuple[CollectiveOp | None, int | None]:
        """Return the collective and number of ranks that it is for; None: any."""

    def warnings(self) -> list[str]:
        """Return what a reader of results should know of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An algorithm, and the collectives that it is for.

    Attributes:
        algorithm: Its name, ``auto``, or a user's.
        up_to_bytes: Largest size; None: any.
        up_to_ranks: Largest group; None: any.
        power_of_two: Only for groups of 2, 4, 8 ... ranks.
    """

    algorithm: str | UserAlgorithm
    up_to_bytes: int | None = None
    up_to_ranks: int | None = None
    power_of_two: bool = False

    def applies(self, *, size_bytes: int, nranks: int) -> bool:
        """Return whether the algorithm is for such a collective."""
        return (
            (self.up_to_bytes is None or size_bytes <= self.up_to_bytes)
            and (self.up_to_ranks is None or nranks <= self.up_to_ranks)
            and not (self.power_of_two and nranks & nranks - 1)
        )

    def covers(self, other: Rule) -> bool:
        """Return whether it applies wherever *other* does."""
        return (
            _at_least(self.up_to_bytes, other.up_to_bytes)
            and _at_least(self.up_to_ranks, other.up_to_ranks)
            and (other.power_of_two or not self.power_of_two)
        )


def _at_least(limit: int | None, other: int | None) -> bool:
    return limit is None or (other is not None and limit >= other)


Choice = str | UserAlgorithm | tuple[Rule, ...]
"""An algorithm, ``auto``, or rules, of which the first that applies counts.

Where none applies, ``auto`` does.
"""

KIB, MIB = 1 << 10, 1 << 20

# Small buffers: the fewest steps.  Medium ones: few steps without more bytes, where the
# number of ranks allows that.  Large ones: no more bytes than needed, neighbours only.
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
"""What ``auto`` stands for."""


def chosen(
    op: CollectiveOp, choice: Choice, *, size_bytes: int, nranks: int
) -> str | UserAlgorithm:
    """Return the algorithm for a collective of this size, ours by its name."""
    rules = choice if isinstance(choice, tuple) else (Rule(algorithm=choice),)
    for each in (rules, AUTO_RULES[op]):
        for rule in each:
            if rule.applies(size_bytes=size_bytes, nranks=nranks):
                if rule.algorithm == AUTO:
                    break
                return rule.algorithm
    raise AssertionError(f"auto has no rule for {op}")  # its last rule is for all


def named_algorithms(choice: Choice) -> list[str | UserAlgorithm]:
    """Return the algorithms that a choice names."""
    return (
        [rule.algorithm for rule in choice] if isinstance(choice, tuple) else [choice]
    )


def user_algorithms(choice: Choice) -> list[UserAlgorithm]:
    """Return the users' algorithms that a choice names."""
    return [
        each for each in named_algorithms(choice) if isinstance(each, UserAlgorithm)
    ]
