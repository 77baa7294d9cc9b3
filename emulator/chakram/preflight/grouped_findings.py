"""Grouping of facts about single pairs into findings, without repetitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from chakram.preflight.report import CHECKS, Finding

_PAIRS_LISTED = 4
"""Maximum number of unrelated pairs with separate findings. More pairs share one
finding."""


class Fact(NamedTuple):
    """A fault of one pair, before it is grouped with others.

    ``found`` is equal for all facts of a group.  ``amount`` is the extent of the fault
    for this pair, and ``figure`` is that extent as text.
    """

    check: str
    verdict: str
    pair: tuple[str, str]
    found: str
    hint: str | None
    amount: float = 0.0
    figure: str = ""


def fold(facts: Iterable[Fact], tested: Collection[tuple[str, str]]) -> list[Finding]:
    """Group facts into findings, so that pairs with the same fault share one finding.

    If a fault affects most pairs of a port that sends or receives, the finding names
    that port as the likely cause.

    Args:
        facts: Facts about single pairs.
        tested: All tested pairs.
    """
    alike: dict[tuple[str, str, str, str | None], dict[tuple[str, str], Fact]] = (
        defaultdict(dict)
    )
    for fact in facts:
        key = (fact.check, fact.verdict, fact.found, fact.hint)
        alike[key][fact.pair] = fact
    sends: dict[str, set[tuple[str, str]]] = defaultdict(set)
    receives: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for pair in tested:
        sends[pair[0]].add(pair)
        receives[pair[1]].add(pair)
    findings = []
    for (check, verdict, found, hint), of_pairs in alike.items():
        for where, pairs, most in _places(of_pairs, sends, receives, len(tested)):
            findings.append(
                Finding(
                    check=check,
                    verdict=verdict,
                    where=where,
                    found=found + _range([of_pairs[pair] for pair in pairs]) + most,
                    hint=hint,
                    pairs=tuple(sorted(pairs)),
                )
            )
    findings.sort(key=lambda each: (CHECKS.index(each.check), each.verdict))
    return findings


def _places(
    pairs: Collection[tuple[str, str]],
    sends: Mapping[str, set[tuple[str, str]]],
    receives: Mapping[str, set[tuple[str, str]]],
    total: int,
) -> Iterator[tuple[str, list[tuple[str, str]], str]]:
    """Yield each place to report, its affected pairs, and a note on other pairs."""
    left = set(pairs)
    if len(left) == total > 2:
        yield "all pairs", sorted(left), ""
        return
    while (place := _worst_place(left, sends, receives)) is not None:
        where, of_place = place
        hit = of_place & left
        most = f" (in {len(hit)} of {len(of_place)} pairs)" if hit != of_place else ""
        yield where, sorted(hit), most
        left -= hit
    single = [
        (source, destination, (destination, source) in left)
        for source, destination in sorted(left)
        if source < destination or (destination, source) not in left
    ]
    if len(single) > _PAIRS_LISTED:
        listed = ", ".join(map(_arrow, single[:_PAIRS_LISTED]))
        common = set.intersection(*({a, b} for a, b, _ in single))
        of = f"pairs of {', '.join(sorted(common))}: " if common else ""
        yield f"{of}{listed} and {len(single) - _PAIRS_LISTED} more", sorted(left), ""
        return
    for source, destination, is_mutual in single:
        pairs_of = [(source, destination)]
        if is_mutual:
            pairs_of.append((destination, source))
        yield _arrow((source, destination, is_mutual)), pairs_of, ""


def _worst_place(
    left: Collection[tuple[str, str]],
    sends: Mapping[str, set[tuple[str, str]]],
    receives: Mapping[str, set[tuple[str, str]]],
) -> tuple[str, set[tuple[str, str]]] | None:
    """Return the most affected port with its pairs, or None if no port qualifies.

    A port qualifies if more than half of its pairs are affected.  In addition, its
    affected pairs must be all of its pairs, or at least half of all affected pairs.  So
    one wrong measurement does not hide a faulty port.
    """
    places = []
    for name in sorted(sends.keys() | receives.keys()):
        out, back = sends.get(name, set()), receives.get(name, set())
        if min(_share_of(out, left), _share_of(back, left)) > 0.5:
            places.append((f"{name} <-> all others", out | back))
        places.append((f"{name} -> all others", out))
        places.append((f"all others -> {name}", back))
    places = [
        (where, pairs)
        for where, pairs in places
        if len(hit := pairs & set(left)) > 1
        and 2 * len(hit) > len(pairs)
        and (hit == pairs or 2 * len(hit) >= len(left))
    ]
    # If several places are equally affected, take the place with the most pairs, or
    # else the first place.
    return max(
        places,
        key=lambda place: (_share_of(place[1], left), len(place[1])),
        default=None,
    )


def _share_of(
    pairs: Collection[tuple[str, str]], left: Collection[tuple[str, str]]
) -> float:
    return len(set(pairs) & set(left)) / len(pairs) if pairs else 0.0


def _arrow(pair: tuple[str, str, bool]) -> str:
    source, destination, is_mutual = pair
    return f"{source} {'<->' if is_mutual else '->'} {destination}"


def _range(facts: Sequence[Fact]) -> str:
    """Return the range of the figures of several pairs, to append to a finding."""
    told = sorted((fact.amount, fact.figure) for fact in facts if fact.figure)
    if not told:
        return ""
    least, most = told[0][1], told[-1][1]
    return f": {least}" if least == most else f": {least} to {most}"
