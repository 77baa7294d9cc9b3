"""Two results are compared by common values; differences are separated from chance."""

from __future__ import annotations

import random

import pytest

from chakram.analysis.comparison import (
    NOMINAL,
    Counter,
    Difference,
    Key,
    Side,
    Times,
    change_text,
    compare,
    differing_settings,
    sentences,
    setting_text,
    times_of,
)
from chakram.analysis.slower_links import Fastest

ITERATION: Key = ("iteration", "moe")
SMALL: Key = ("size", "all_reduce", 8, 1 << 20)
LARGE: Key = ("size", "all_to_all", 4, 1 << 22)


def side(name: str, times: dict[Key, Times], **fields: object) -> Side:
    return Side(name=name, kind="run", times=times, **fields)  # type: ignore[arg-type] # any of its fields


def drawn(mean_ns: float, *, seed: int, runs: int = 1, samples: int = 20) -> Times:
    generator = random.Random(seed)
    return times_of(
        [
            [generator.gauss(mean_ns, mean_ns / 50) for _ in range(samples)]
            for _ in range(runs)
        ]
    )


def test_error_of_one_repetition_comes_from_its_samples() -> None:
    times = times_of([[98.0, 102.0, 100.0, 100.0]])
    assert times.mean_ns == 100
    # The sample's variance is 8 / 3, the mean's a quarter of that.
    assert times.error_ns == pytest.approx((8 / 3 / 4) ** 0.5)
    assert (times.freedom, times.samples) == (3, 4)
    assert times.cv == pytest.approx(2**0.5 / 100)


def test_error_of_several_repetitions_comes_from_their_means() -> None:
    # Samples of a run agree, runs do not: it is runs that would differ again.
    times = times_of([[90.0] * 50, [110.0] * 50])
    assert times.mean_ns == 100
    assert times.error_ns == pytest.approx(10)
    assert times.freedom == 1


def test_one_sample_has_no_known_error_unless_it_is_exact() -> None:
    assert times_of([[5.0]]).error_ns is None
    assert times_of([[5.0, 7.0]], exact=True).error_ns == 0
    assert times_of([[5.0], [7.0]], exact=True).error_ns == pytest.approx(1)


def test_equal_results_do_not_differ() -> None:
    """Of forty comparisons of 100 equal quantities each, at most a few name one."""
    named = 0
    for seed in range(40):
        sides = [
            side(
                name,
                {
                    ("instance", "moe", "g", k): drawn(
                        1e6, seed=seed * 1000 + k * 2 + offset, samples=5
                    )
                    for k in range(100)
                },
            )
            for offset, name in enumerate("ab")
        ]
        named += compare(*sides).first is not None
    # 4.6 % of comparisons as of a single quantity; without regard to their number all.
    assert named <= 7


def test_a_difference_is_found_and_named() -> None:
    a = side(
        "a",
        {
            ITERATION: drawn(1e8, seed=1),
            SMALL: drawn(1e6, seed=2)._replace(per_iteration=10),
            LARGE: drawn(5e6, seed=3)._replace(per_iteration=4),
        },
        counters={"packets sent again": Counter(0.0, "%")},
        settings={"transport.window": "64KiB", "seed": 1},
    )
    b = side(
        "b",
        {
            ITERATION: drawn(1.08e8, seed=4),
            SMALL: drawn(1e6, seed=5)._replace(per_iteration=10),
            LARGE: drawn(7e6, seed=6)._replace(per_iteration=4),
        },
        counters={"packets sent again": Counter(0.25, "%")},
        settings={"transport.window": "32KiB", "seed": 1},
    )
    found = compare(a, b)
    assert found.first is not None
    assert found.first.key == ITERATION
    assert found.first.change == pytest.approx(0.08, abs=0.02)
    first, counters, settings = sentences(found)
    assert first.startswith("Iteration of moe takes ")
    assert "longer" in first
    assert "the collective that differs most is all_to_all of 4MiB, 4 ranks: +" in first
    assert "packets sent again 0 % -> 25 %" in counters
    assert settings == "Settings that differ, A -> B: transport.window 64KiB -> 32KiB."
    # What differs most in an iteration stands first.
    assert [each.key for each in found.levels["size"]] == [LARGE, SMALL]
    assert [each.significant for each in found.levels["size"]] == [True, False]
    back = compare(b, a).first
    assert back is not None
    assert "less" in sentences(compare(b, a))[0]


def sizes(of: dict[str, float]) -> dict[Key, Times]:
    """Return the times of one kind of collective of some jobs, and of all together."""
    own = {(*SMALL, job): drawn(ns, seed=7) for job, ns in of.items()}
    return {SMALL: drawn(sum(of.values()) / len(of), seed=7), **own}


@pytest.mark.parametrize(
    ("first", "second", "compared"),
    [
        ("moe", "moe", [SMALL]),
        # Another name, or results of another program.
        ("moe", "dense", [SMALL]),
        ("moe dense", "", [SMALL]),
        ("moe dense", "moe dense", [(*SMALL, "moe"), (*SMALL, "dense")]),
        ("moe dense", "moe", [(*SMALL, "moe")]),
    ],
)
def test_collectives_of_several_jobs_are_kept_apart(
    first: str, second: str, compared: list[Key]
) -> None:
    a = side("a", sizes({"moe": 1e6, "dense": 1e6}))
    b = side("b", sizes({"moe": 2e6, "dense": 1e6}))
    sides = [
        side(
            each.name,
            {
                key: times
                for key, times in each.times.items()
                if len(key) < 5 or key[4] in jobs.split()
            },
        )
        for each, jobs in ((a, first), (b, second))
    ]
    found = compare(*sides).levels["size"]
    assert [each.key for each in found] == compared
    if compared[0] != SMALL:
        assert found[0].label == "moe: all_reduce of 1MiB, 8 ranks"
        assert found[0].change == pytest.approx(1)


def test_iterations_are_explained_by_collectives_of_their_own_job() -> None:
    a = {ITERATION: drawn(1e8, seed=1), **sizes({"moe": 1e6, "dense": 1e6})}
    b = {ITERATION: drawn(2e8, seed=2), **sizes({"moe": 2e6, "dense": 9e6})}
    (first, *_) = sentences(compare(side("a", a), side("b", b)))
    assert "; the collective that differs most is moe: all_reduce of 1MiB" in first


def test_virtual_time_differs_exactly() -> None:
    a = side("a", {SMALL: times_of([[1000.0]], exact=True)})
    b = side("b", {SMALL: times_of([[1001.0]], exact=True)})
    assert compare(a, a).first is None
    first = compare(a, b).first
    assert first is not None
    assert first.significant
    assert "standard errors" not in sentences(compare(a, b))[0]


def test_standard_errors_are_corrected_for_few_samples() -> None:
    a = times_of([[98.0, 102.0, 98.0, 102.0]])
    b = a._replace(mean_ns=a.mean_ns + 10 * 2**0.5 * (a.error_ns or 0))

    found = compare(side("a", {ITERATION: a}), side("b", {ITERATION: b}))

    assert sentences(found)[0].endswith(
        "a difference of 4.0 standard errors, corrected for the number of samples."
    )


@pytest.mark.parametrize("exact", [True, False])
def test_rounding_errors_of_means_are_no_difference(*, exact: bool) -> None:
    samples = [0.1, 0.2, 0.3]
    a = times_of([[sum(samples)]], exact=exact)
    b = times_of([[sum(samples[::-1])]], exact=exact)
    assert a.mean_ns != b.mean_ns

    (found,) = compare(side("a", {SMALL: a}), side("b", {SMALL: b})).levels["size"]

    assert found.significant is False


def test_iterations_that_do_not_differ_come_first() -> None:
    a = side("a", {SMALL: drawn(1e6, seed=1), ITERATION: drawn(9e6, seed=2)})
    b = side("b", {SMALL: drawn(2e6, seed=3), ITERATION: drawn(9e6, seed=4)})
    sentence, *_ = sentences(compare(a, b))
    first, second = sentence.split("significant. ")
    assert first.startswith("Iteration of moe takes ")
    assert first.endswith(" in B, which is not ")
    assert second.startswith("All_reduce of 1MiB, 8 ranks takes ")


def test_single_measurement_proves_no_difference() -> None:
    a = side("a", {SMALL: times_of([[1000.0]])})
    b = side("b", {SMALL: times_of([[2000.0]])})
    found = compare(a, b)
    assert found.first is None
    (sentence,) = sentences(found)
    assert sentence.startswith("No significant difference can be shown: 1 of 1")
    assert "takes 100.0 % longer" in sentence


def test_absence_of_differences_is_reported() -> None:
    a = side("a", {SMALL: drawn(1e6, seed=1)})
    b = side("b", {SMALL: drawn(1e6, seed=2)})
    (sentence,) = sentences(compare(a, b))
    assert sentence.startswith("No significant difference: 1 quantities compared")


def test_results_without_common_values_are_reported() -> None:
    found = compare(side("a", {SMALL: drawn(1, seed=1)}), side("b", {}))
    assert not found.levels
    assert sentences(found)[0].startswith("Nothing can be compared")


def test_single_jobs_of_both_sides_are_compared() -> None:
    a = side("a", {ITERATION: drawn(1e6, seed=1), SMALL: drawn(1e6, seed=1)})
    b = side("b", {("iteration", ""): drawn(2e6, seed=2)})
    found = compare(a, b)
    assert [each.key for each in found.levels["iteration"]] == [ITERATION]
    other = {("iteration", "x"): drawn(1e6, seed=1), ITERATION: drawn(1e6, seed=1)}
    assert "iteration" not in compare(side("c", other), b).levels


def test_values_of_one_side_only_are_counted() -> None:
    a = side("a", {SMALL: drawn(1, seed=1), LARGE: drawn(1, seed=1)})
    b = side("b", {SMALL: drawn(1, seed=1)})
    assert compare(a, b).only == {"size": (1, 0)}


PART: Key = ("part", "moe", "slow link")
DOWN: Key = ("cause", "moe", "slow link", "h3-leaf0 down")
UP: Key = ("cause", "moe", "slow link", "h3-leaf0 up")
OWN: Key = ("cause", "moe", "own port", "rank 2")
OTHER: Key = ("cause", "moe", "own port", "rank 5")
OWN_PART: Key = ("part", "moe", "own port")
NOMINAL_PART: Key = ("part", "moe", NOMINAL)


def test_the_cause_of_a_difference_is_named() -> None:
    # What waits for its own port waits at another rank: no more of it, though most of
    # all rows of places.
    a = side(
        "a",
        {
            ITERATION: drawn(1e8, seed=1),
            OWN: drawn(4e7, seed=2),
            OWN_PART: drawn(4e7, seed=2),
        },
        explained=True,
    )
    slow = drawn(1.5e7, seed=5)
    b = side(
        "b",
        {
            ITERATION: drawn(1.2e8, seed=3),
            OTHER: drawn(4e7, seed=4),
            OWN_PART: drawn(4e7, seed=4),
            PART: slow,
            DOWN: slow._replace(mean_ns=1e7),
            UP: slow._replace(mean_ns=5e6),
        },
        explained=True,
    )
    found = compare(a, b)
    assert found.levels["part"][0].key == PART
    told = sentences(found)[0]
    assert told.startswith("Iteration of moe takes ")
    assert told.endswith("more is charged to slow link, most at h3-leaf0 down (10ms).")
    # A place that varies is named by itself, too, if it has most of it.
    varying = slow._replace(mean_ns=1e7, error_ns=1e7)
    b.times[DOWN], b.times[UP] = varying, varying._replace(mean_ns=5e6)
    found = compare(a, b)
    assert not [
        each
        for each in found.levels["cause"]
        if each.key in (DOWN, UP) and each.significant
    ]
    assert sentences(found)[0] == told
    # A side whose records do not say it names no cause, which is not that it has none.
    blind = side("a", {ITERATION: drawn(1e8, seed=1)})
    assert not {"part", "cause"} & set(compare(blind, b).levels)


def test_a_slower_link_is_proven_or_the_cause_is_unproven() -> None:
    def with_link(factor: float, kind: str = "run") -> Side:
        times = {ITERATION: drawn(1e8 * factor, seed=1), PART: drawn(1e8, seed=2)}
        times[PART] = drawn(1e8 * (factor - 0.9), seed=2)
        messages = {
            ("moe", src, dst): Fastest(
                bytes=100,
                time_ns=1e3 * (factor if src == 3 else 1),
                messages=4,
                links=frozenset((f"h{src}-leaf up", f"h{dst}-leaf down")),
            )
            for src in range(4)
            for dst in range(4)
        }
        return Side(name="x", kind=kind, times=times, fastest=messages, explained=True)

    proven = (
        "Proven by the fastest messages: slower in {} is h3-leaf up or the host of "
        "rank 3 (4 pairs of ranks: 100 % longer). Those of 12 other pairs take about "
        "the same time."
    )
    a, b = with_link(1), with_link(2)
    assert sentences(compare(a, b))[1] == proven.format("B")
    assert sentences(compare(b, a))[1] == proven.format("A")
    unproven = (
        "A charge shows where time was lost; its cause is unproven. `chakram why A B` "
        "tests it."
    )
    blind = Side(name="x", kind="run", times=b.times, explained=True)
    assert sentences(compare(a, blind))[1] == unproven
    simulated = (with_link(factor, "simulation") for factor in (1, 2))
    assert sentences(compare(*simulated))[1] == unproven


def test_longer_schedule_is_no_lost_time() -> None:
    a = side(
        "ring",
        {ITERATION: drawn(1e8, seed=1), NOMINAL_PART: drawn(9e7, seed=2)},
        explained=True,
    )
    b = side(
        "tree",
        {ITERATION: drawn(3e8, seed=3), NOMINAL_PART: drawn(2.7e8, seed=4)},
        explained=True,
    )
    found = compare(a, b)
    assert (
        "is more nominal time, which is the time of the critical path"
        in sentences(found)[0]
    )
    assert found.levels["part"][0].label == "nominal time of the critical path"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {NOMINAL_PART: 1.43e7, OWN_PART: -1.92e7},
            "; on the critical path, 19.2ms less is charged to own port, while 14.3ms "
            "more is nominal time.",
        ),
        (
            {NOMINAL_PART: -1.92e7, OWN_PART: 1.43e7},
            "; 19.2ms is less nominal time, which is the time of the critical path "
            "without delays, while 14.3ms more is charged to own port.",
        ),
        (
            {NOMINAL_PART: 0.1, OWN_PART: -4.9e6 - 0.1},
            "; on the critical path, 4.9ms less is charged to own port.",
        ),
    ],
)
def test_part_that_exceeds_the_difference_has_its_opposite(
    change: dict[Key, float], told: str
) -> None:
    before: dict[Key, float] = {ITERATION: 1e8, NOMINAL_PART: 5e7, OWN_PART: 5e7}
    change = {ITERATION: -4.9e6, **change}
    a, b = (
        side(
            "x",
            {
                key: times_of([[time_ns + more * change[key]]], exact=True)
                for key, time_ns in before.items()
            },
            explained=True,
        )
        for more in (0, 1)
    )
    assert sentences(compare(a, b))[0].endswith(told)


def test_difference_of_a_job_is_explained_by_its_own_parts() -> None:
    times: dict[Key, tuple[float, float]] = {
        ("iteration", "x"): (1e8, 1.2e8),
        ("iteration", "y"): (1e8, 1.1e8),
        ("part", "x", "own port"): (0.0, 2e7),
        ("part", "y", "slow link"): (0.0, 3e7),
        ("part", "y", NOMINAL): (3e7, 1e7),
    }
    a, b = (
        side(
            "x",
            {key: times_of([[each[at]]], exact=True) for key, each in times.items()},
            explained=True,
        )
        for at in (0, 1)
    )
    assert sentences(compare(a, b))[0].endswith("20ms more is charged to own port.")


def test_causes_without_a_difference_of_iterations_are_no_difference() -> None:
    a = side(
        "a", {ITERATION: drawn(1e8, seed=1), OWN: drawn(1e7, seed=7)}, explained=True
    )
    b = side(
        "b", {ITERATION: drawn(1e8, seed=6), DOWN: drawn(1e6, seed=8)}, explained=True
    )
    found = compare(a, b)
    assert found.first is None
    assert not any(each.significant for rows in found.levels.values() for each in rows)
    # The sentence says how far from one it was.
    assert "(iteration of moe takes " in sentences(found)[0]
    assert (
        " standard errors, corrected for the number of samples)." in sentences(found)[0]
    )


def test_a_list_that_one_side_has_empty_differs_as_a_whole() -> None:
    fault = {
        "faults.links[0].kind": "degrade",
        "faults.links[0].link": "h3-leaf0",
        "faults.links[0].at": None,
        "faults.links[0].classes": [],
        "seed": 1,
    }
    found = differing_settings({"faults.links": [], "seed": 2}, fault)
    assert found == {
        "faults.links": ([], [{"kind": "degrade", "link": "h3-leaf0"}]),
        "seed": (2, 1),
    }
    before, after = found["faults.links"]
    assert setting_text(before) == "[]"
    assert setting_text(after) == "kind degrade, link h3-leaf0"


@pytest.mark.parametrize(
    ("key", "label"),
    [
        (("size", "all_reduce", 8, 1 << 20), "all_reduce of 1MiB, 8 ranks"),
        (("iteration", "moe"), "iteration of moe"),
        (("iteration", ""), "iteration"),
        (("instance", "moe", "g", 3), "moe: collective 3 of group g"),
        (("named", "backward", 2), "backward (no. 2)"),
        (("pair", "moe", 1, 2, 4096), "moe: 1 > 2, 4KiB"),
        (("ports", "h0", "h1", 4096), "port h0 > h1, 4KiB"),
        (("part", "moe", "nominal"), "nominal time of the critical path"),
        (("part", "moe", "queue"), "queue"),
        (("cause", "moe", "queue", "leaf0"), "queue at leaf0"),
        (("cause", "moe", "queue", ""), "queue"),
        (("fct", 99), "FCT p99"),
    ],
)
def test_compared_values_have_readable_names(key: Key, label: str) -> None:
    a, b = (side(name, {key: times_of([[100.0, 101.0]])}) for name in "ab")

    (found,) = (each for level in compare(a, b).levels.values() for each in level)
    assert found.label == label


@pytest.mark.parametrize(
    ("a_ns", "b_ns", "text"),
    [
        (2000.0, 3000.0, "takes 50.0 % longer (3us against 2us)"),
        (2000.0, 1500.0, "takes 25.0 % less (1.5us against 2us)"),
        (1000.0, 9990.0, "takes 899.0 % longer (9.99us against 1us)"),
        (1000.0, 10_000.0, "takes 10 times as long (10us against 1us)"),
        (1e6, 1_002_000.0, "takes 0.2 % longer (1ms against 1ms)"),
        (1e6, 1_000_100.0, "takes 0.0001 times longer (1ms against 1ms)"),
        (0.0, 1000.0, "takes 1us against 0ns"),
    ],
)
def test_change_is_described_in_words(a_ns: float, b_ns: float, text: str) -> None:
    a, b = times_of([[a_ns]]), times_of([[b_ns]])

    told = change_text(Difference(ITERATION, "x", a, b, None, None))

    assert told == text


def test_largest_change_of_single_measurements_is_named() -> None:
    keys: list[Key] = [("named", name, 0) for name in ("none", "less", "more")]
    before = (0.0, 1000.0, 1000.0)
    after = (5.0, 400.0, 1500.0)
    a, b = (
        side(name, {key: times_of([[ns]]) for key, ns in zip(keys, some, strict=True)})
        for name, some in (("a", before), ("b", after))
    )

    (told,) = sentences(compare(a, b))

    assert "3 of 3 quantities compared were measured once" in told
    assert "the largest: less (no. 0) takes 60.0 % less" in told
