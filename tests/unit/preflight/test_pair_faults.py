from __future__ import annotations

import errno
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from chakram.preflight.confirmation import Evidence
from chakram.preflight.grouped_findings import Fact, fold
from chakram.preflight.pair_faults import pair_facts, path_facts
from chakram.preflight.probe_plan import PathReport, probe_packets
from chakram.preflight.report import FAILED, UNPROVEN, PairReport, PreflightSettings
from tests.unit.preflight.ports import TRANSPORT, ports

if TYPE_CHECKING:
    from collections.abc import Sequence

SETTINGS = PreflightSettings(path_mtu=1024, paths=2)
PACKETS = probe_packets(ports(2), TRANSPORT, SETTINGS)
SOURCE_PORTS = (0xC000, 0xC020)
PAIR = ("h0", "h1")


def path(
    *,
    longest: Sequence[int] = (1500, 1500),
    rewrite: dict[int, int] | None = None,
    lost: Sequence[int] = (),
) -> PathReport:
    """Return the counters if packets up to *longest* arrive, by path.

    None of a type of service that is *lost* does.
    """
    report = PathReport()
    for number, packet in enumerate(PACKETS):
        for where, limit in enumerate(longest):
            report.sent[number, where] = 2
            if packet.size_bytes <= limit and packet.tos not in lost:
                report.arrived[number, where] = 2
                arrived = (rewrite or {}).get(packet.tos, packet.tos)
                report.classes[packet.tos, arrived] += 2
    return report


def facts_of(report: PathReport | None) -> list[Fact]:
    return list(
        path_facts(
            PAIR,
            report,
            packets=PACKETS,
            source_ports=SOURCE_PORTS,
            address="198.18.0.2",
            settings=SETTINGS,
        )
    )


def found_in(report: PathReport | None) -> list[tuple[str, str]]:
    found = facts_of(report)
    return [(fact.check, fact.found) for fact in found if fact.verdict == FAILED]


def test_intact_path_has_no_findings() -> None:
    assert found_in(path()) == []


def test_path_without_arrivals_is_one_finding() -> None:
    assert found_in(path(longest=(0, 0))) == [("reach", "no packet arrives")]


@pytest.mark.parametrize(
    ("report", "check"),
    [
        (None, "reach"),
        (PathReport(), "reach"),
        (replace(path(longest=(0, 0)), drops=36), "reach"),
        (replace(path(longest=(1500, 0)), drops=18), "reach"),
        (replace(path(longest=(600, 600)), drops=8), "mtu"),
        (replace(path(lost=(194,)), drops=4), "dscp"),
        (replace(path(lost=(104,)), drops=4), "ecn"),
    ],
)
def test_probes_that_hosts_may_have_lost_prove_nothing(
    report: PathReport | None, check: str
) -> None:
    assert found_in(report) == []
    (fact,) = facts_of(report)
    assert (fact.check, fact.verdict) == (check, UNPROVEN)
    assert "may not have sent them" in fact.found
    if report is not None and report.sent:
        # One more than the socket of the receiver can have dropped.
        ((accused, _),) = found_in(replace(report, drops=report.drops - 1))
        assert accused == check


def test_lost_class_is_no_black_hole_for_long_packets() -> None:
    # Long probes are of that class.
    assert [check for check, _ in found_in(path(lost=(104, 105, 106, 107)))] == ["dscp"]


def test_refusing_router_is_named() -> None:
    def hint(report: PathReport) -> str | None:
        (fact,) = facts_of(report)
        return fact.hint

    assert hint(path(longest=(0, 0))) == (
        "no ICMP error arrives; check cables, VLANs, filters and routes"
    )
    assert hint(PathReport(refused={(0, 0): errno.ENETUNREACH})) == (
        "the sender's own kernel refuses them: there is no route"
    )
    assert hint(PathReport(unreachable={(errno.ECONNREFUSED, 0xC6120002)})) == (
        "198.18.0.2 reports: no process uses the UDP port"
    )
    assert hint(PathReport(unreachable={(errno.EHOSTUNREACH, 0)})) == (
        "a router, or the sender's own kernel, reports: the host does not answer"
    )


def test_a_path_of_several_that_is_broken_is_named_by_its_source_port() -> None:
    assert found_in(path(longest=(1500, 0))) == [
        ("reach", "nothing arrives from UDP source port 49184 (of 2)")
    ]


# A packet of a path MTU has 64 bytes more: one byte less than 1088 is too few.
@pytest.mark.parametrize(
    ("longest", "passing"), [(1087, 512), (575, 256), (319, None), (128, None)]
)
def test_black_hole_is_reported_with_the_size_that_passes(
    longest: int, passing: int | None
) -> None:
    ((check, found),) = found_in(path(longest=(longest, longest)))

    assert check == "mtu"
    rest = (
        f"but those of path MTU {passing} do"
        if passing
        else "and not even those of path MTU 256 do"
    )
    assert found == (
        f"packets of 1088 bytes (path MTU 1024) do not arrive, {rest}; "
        "no ICMP error arrives: the path silently drops large packets"
    )


def test_the_path_mtu_just_fits() -> None:
    assert found_in(path(longest=(1088, 1088))) == []


def test_missing_jumbo_frames_on_one_of_several_paths_are_named() -> None:
    ((_, found),) = found_in(path(longest=(1500, 600)))

    assert (
        "do not arrive from UDP source port 49184 (of 2), but those of path MTU 512"
        in found
    )


def test_router_that_reports_too_big_packets_is_named() -> None:
    report = path(longest=(600, 600))
    report.too_big.add((1000, 0xC612FF01))

    ((_, found),) = found_in(report)

    assert found.endswith("198.18.255.1 reports an MTU of 1000")


def test_long_packets_refused_by_an_interface_do_not_blame_the_fabric() -> None:
    report = path(longest=(600, 600))
    report.refused[len(PACKETS) - 1, 0] = errno.EMSGSIZE

    ((_, found),) = found_in(report)

    assert found.endswith(
        "the sender's own interface refuses them: too long for its MTU"
    )


DATA = 26 << 2
CNP = 48 << 2 | 2


@pytest.mark.parametrize(
    ("rewrite", "check", "found"),
    [
        (
            {DATA | ecn: ecn for ecn in range(4)},
            "dscp",
            "DSCP 26 arrives as 0: bleached",
        ),
        (
            {DATA | ecn: 10 << 2 | ecn for ecn in range(4)},
            "dscp",
            "DSCP 26 arrives as 10: rewritten",
        ),
        ({DATA | 2: DATA}, "ecn", "ECT(0) arrives as Not-ECT: cleared"),
        (
            {DATA | 2: DATA | 3},
            "ecn",
            "ECT(0) arrives as CE: marked although the path is idle",
        ),
        ({DATA | 3: DATA | 2}, "ecn", "CE arrives as ECT(0): rewritten"),
        ({DATA: DATA | 3}, "ecn", "Not-ECT arrives as CE: rewritten"),
    ],
)
def test_changed_class_is_reported(
    rewrite: dict[int, int], check: str, found: str
) -> None:
    assert found_in(path(rewrite=rewrite)) == [(check, found)]


@pytest.mark.parametrize(
    ("lost", "check", "found"),
    [
        ([CNP], "dscp", "no packet of DSCP 48 arrives"),
        ([DATA | 3], "ecn", "no packet of DSCP 26 with CE arrives"),
        (
            [DATA | 1, DATA | 3],
            "ecn",
            "no packet of DSCP 26 with ECT(1), CE arrives",
        ),
    ],
)
def test_class_without_arrivals_is_named(
    lost: list[int], check: str, found: str
) -> None:
    assert found_in(path(lost=lost)) == [(check, found)]


@pytest.mark.parametrize(
    ("tos", "check", "found"),
    [
        (CNP, "dscp", "no packet of DSCP 48 arrives"),
        (DATA | 3, "ecn", "no packet of DSCP 26 with CE arrives"),
    ],
)
def test_class_lost_on_one_of_several_paths_is_named_with_the_path(
    tos: int, check: str, found: str
) -> None:
    report = path(lost=[tos])
    number = next(n for n, packet in enumerate(PACKETS) if packet.tos == tos)
    report.arrived[number, 1] = 1

    assert found_in(report) == [
        (check, f"{found} from UDP source port {SOURCE_PORTS[0]} (of 2)")
    ]


def test_probes_have_the_fields_that_packets_of_their_class_have() -> None:
    classes = {packet.tos for packet in PACKETS}

    # Marks are for data; CNPs leave with the ECN field of data, ACKs without.
    assert classes == {*(DATA | ecn for ecn in range(4)), 26 << 2, CNP}


def pair(**figures: Any) -> PairReport:
    return replace(
        PairReport(
            source="h0",
            destination="h1",
            goodput_bps=95e6,
            expected_bps=100e6,
            round_trip_p50_ns=100_000,
            packets=1000,
        ),
        **figures,
    )


@pytest.mark.parametrize(
    ("figures", "settings", "verdicts"),
    [
        ({}, {}, []),
        ({"goodput_bps": 90e6}, {}, []),
        ({"goodput_bps": 89e6}, {}, [("rate", FAILED)]),
        # The data plane may have been what limited, but not by so much.
        ({"goodput_bps": 70e6, "generator_share": 0.2}, {}, [("rate", UNPROVEN)]),
        ({"goodput_bps": 12e6, "generator_share": 0.2}, {}, [("rate", FAILED)]),
        # A twentieth of its time is where that begins to count.
        ({"goodput_bps": 85e6, "generator_share": 0.06}, {}, [("rate", UNPROVEN)]),
        ({"goodput_bps": 85e6, "generator_share": 0.04}, {}, [("rate", FAILED)]),
        ({"goodput_bps": 12e6, "expected_bps": None}, {}, []),
        ({}, {"max_latency_ns": 100_000}, []),
        ({}, {"max_latency_ns": 99_999}, [("latency", FAILED)]),
        ({"retransmitted": 1}, {}, []),
        ({"retransmitted": 2}, {}, [("loss", FAILED)]),
        ({"together_bps": 40e6}, {}, []),
        (
            {"together_bps": 40e6},
            {"min_permutation_share": 0.5},
            [("permutation", FAILED)],
        ),
        # At the limits themselves.
        # What is just enough is enough.
        ({"together_bps": 50e6}, {"min_permutation_share": 0.5}, []),
        ({"retransmitted": 0, "packets": 0}, {"max_loss_share": 0.0}, []),
        ({"retransmitted": 1, "packets": 1}, {}, [("loss", FAILED)]),
        # A half of the time: all that is missing may be due to the data plane.
        ({"goodput_bps": 0.0, "generator_share": 0.5}, {}, [("rate", UNPROVEN)]),
        # 1 - 2 * 0.25 of nine tenths.
        ({"goodput_bps": 45e6, "generator_share": 0.25}, {}, [("rate", UNPROVEN)]),
        ({"goodput_bps": 44e6, "generator_share": 0.25}, {}, [("rate", FAILED)]),
        # Just a twentieth does not count yet.
        ({"goodput_bps": 85e6, "generator_share": 0.05}, {}, [("rate", FAILED)]),
    ],
)
def test_figures_are_compared_with_requirements(
    figures: dict[str, Any],
    settings: dict[str, Any],
    verdicts: list[tuple[str, str]],
) -> None:
    demanded = replace(SETTINGS, **settings)

    evidence = Evidence(naks=True)
    found = pair_facts(pair(**figures), demanded, not_measured=None, evidence=evidence)

    assert [(fact.check, fact.verdict) for fact in found] == verdicts


SLOW = {"goodput_bps": 20e6}
RESENT = {"retransmitted": 50}


@pytest.mark.parametrize(
    ("figures", "evidence", "verdicts"),
    [
        # Of late hosts a low rate says nothing; trains do.
        (SLOW, {"hosts_late": True}, [("rate", UNPROVEN)]),
        (SLOW, {"hosts_late": True, "train_share": 0.9}, []),
        (SLOW, {"hosts_late": True, "train_share": 0.8}, [("rate", UNPROVEN)]),
        (
            SLOW,
            {"hosts_late": True, "train_share": 0.8, "slow_share": 0.5},
            [("rate", FAILED)],
        ),
        # One train was fast: that no link slows.
        (
            SLOW,
            {"hosts_late": True, "train_share": 0.95, "slow_share": 0.5},
            [],
        ),
        # Hosts that kept up are believed: a shaper may let short trains pass.
        (SLOW, {"train_share": 1.0, "slow_share": 1.0}, [("rate", FAILED)]),
        # Nor does a message that was sent again tell in which direction that was.
        (
            SLOW | RESENT,
            {"train_share": 1.0, "probed": 1200, "lost": 0},
            [],
        ),
        # Nothing was measured, but trains arrived.
        ({"goodput_bps": None}, {"train_share": 0.95}, []),
        (
            {"goodput_bps": None},
            {"train_share": 0.5, "slow_share": 0.5},
            [("rate", FAILED)],
        ),
        # What is sent again need not have been lost.
        (RESENT, {}, [("loss", UNPROVEN)]),
        (RESENT, {"naks": True}, [("loss", FAILED)]),
        (RESENT, {"probed": 1200, "lost": 1}, []),
        (RESENT, {"probed": 1200, "lost": 2}, [("loss", UNPROVEN)]),
        (RESENT, {"probed": 1200, "lost": 24}, [("loss", FAILED)]),
    ],
)
def test_pair_fails_only_on_evidence(
    figures: dict[str, Any],
    evidence: dict[str, Any],
    verdicts: list[tuple[str, str]],
) -> None:
    found = pair_facts(
        pair(**figures), SETTINGS, not_measured=None, evidence=Evidence(**evidence)
    )

    assert [(fact.check, fact.verdict) for fact in found] == verdicts


@pytest.mark.parametrize("check", ["latency", "permutation"])
def test_figures_of_late_hosts_do_not_blame_the_fabric(check: str) -> None:
    settings = replace(SETTINGS, max_latency_ns=1, min_permutation_share=0.9)

    def verdict(evidence: Evidence) -> str:
        found = pair_facts(
            pair(together_bps=40e6), settings, not_measured=None, evidence=evidence
        )
        return {fact.check: fact.verdict for fact in found}[check]

    assert verdict(Evidence()) == FAILED
    assert verdict(Evidence(hosts_late=True)) == UNPROVEN


@pytest.mark.parametrize(
    ("figures", "settings", "said"),
    [
        (
            {"goodput_bps": 9_876_543.0},
            {},
            (
                "rate",
                "less than 90% of its nominal rate",
                "check for a slower port, a shaper or a policer on the path",
                "10% (9.88Mbit/s)",
            ),
        ),
        # Fewer than three digits there are to keep.
        (
            {"goodput_bps": 12.0, "expected_bps": 40.0},
            {},
            (
                "rate",
                "less than 90% of its nominal rate",
                "check for a slower port, a shaper or a policer on the path",
                "30% (12bit/s)",
            ),
        ),
        (
            {"goodput_bps": 70e6, "generator_share": 0.2},
            {"min_rate_share": 0.75},
            (
                "rate",
                "less than 75% of its nominal rate, but the data plane was the limit",
                "use faster hosts, fewer ports per host or slower links",
                "70% (70Mbit/s)",
            ),
        ),
        (
            {},
            {"max_latency_ns": 80_500},
            (
                "latency",
                "the median round trip is longer than 80.5 us",
                None,
                "100.0 us",
            ),
        ),
        (
            {"retransmitted": 25, "packets": 2000},
            {"max_loss_share": 0.01},
            (
                "loss",
                "loses more than 1.00% of its packets, although no other pair was "
                "sending",
                "check cables and optics, and for queues shorter than transport.window",
                "25 sent again for 2000",
            ),
        ),
        (
            {"together_bps": 40e6},
            {"min_permutation_share": 0.5},
            (
                "permutation",
                "less than 50% of its nominal rate while all ports send",
                "check the capacity of the uplinks and the balance of the equal-cost "
                "paths",
                "40%",
            ),
        ),
    ],
)
def test_insufficient_values_are_reported_as_numbers(
    figures: dict[str, Any],
    settings: dict[str, Any],
    said: tuple[str, str, str | None, str],
) -> None:
    demanded = replace(SETTINGS, **settings)

    (fact,) = pair_facts(
        pair(**figures), demanded, not_measured=None, evidence=Evidence(naks=True)
    )

    assert fact.pair == PAIR
    assert (fact.check, fact.found, fact.hint, fact.figure) == said


def test_probes_detect_loss_that_no_message_had() -> None:
    def told(evidence: Evidence) -> list[tuple[str, str]]:
        facts = pair_facts(pair(), SETTINGS, not_measured=None, evidence=evidence)
        return [(fact.verdict, fact.figure) for fact in facts if fact.check == "loss"]

    assert told(Evidence(probed=1200, lost=40)) == [(FAILED, "40 of 1200")]
    assert told(Evidence(probed=1200, lost=2)) == []
    assert told(Evidence(naks=True)) == []


def test_many_broken_paths_are_counted_and_four_are_named() -> None:
    numbers = tuple(range(50_000, 50_006))

    def found(*longest: int) -> str:
        (fact,) = path_facts(
            PAIR,
            path(longest=longest),
            packets=PACKETS,
            source_ports=numbers,
            address="198.18.0.2",
            settings=SETTINGS,
        )
        return fact.found

    assert found(1500, 0, 0, 0, 0, 1500) == (
        "nothing arrives from UDP source ports 50001, 50002, 50003, 50004 (of 6)"
    )
    assert found(1500, 0, 0, 0, 0, 0) == (
        "nothing arrives from UDP source ports 50001, 50002, 50003, 50004, ... (of 6)"
    )


def test_remedy_for_a_small_mtu_is_the_mtu_or_a_smaller_path_mtu() -> None:
    def hint(longest: int) -> str | None:
        (fact,) = facts_of(path(longest=(longest, longest)))
        return fact.hint

    more = "raise the MTU of every port on the path to 1088 bytes or more"
    assert hint(600) == f"{more}, or set transport.path_mtu: 512"
    assert hint(128) == more


def test_each_kernel_error_of_a_sender_is_reported_once() -> None:
    refused = {
        (0, 0): errno.EPERM,
        (0, 1): errno.EPERM,
        (1, 0): errno.ENETDOWN,
        (1, 1): errno.EIO,
        (2, 0): 9999,
    }
    (fact,) = facts_of(PathReport(refused=refused))

    assert fact.hint == (
        "the sender's own kernel refuses them: blocked by a filter, error EIO,"
        " the interface is down, error 9999"
    )


def test_refused_short_packets_prove_nothing_about_long_ones() -> None:
    # Of a path that is sound, and of a packet that is shorter than needed.
    report = path(longest=(600, 1500))
    report.refused[len(PACKETS) - 1, 1] = errno.EMSGSIZE
    report.refused[0, 0] = errno.EPERM

    ((_, found),) = found_in(report)

    assert found.endswith(
        "no ICMP error arrives: the path silently drops large packets"
    )


@pytest.mark.parametrize("check", ["mtu", "classes"])
def test_disabled_checks_have_no_findings(check: str) -> None:
    report = path(longest=(600, 600), rewrite={DATA | 2: DATA})

    found = path_facts(
        PAIR,
        report,
        packets=PACKETS,
        source_ports=SOURCE_PORTS,
        address="198.18.0.2",
        settings=replace(SETTINGS, **{f"check_{check}": False}),
    )

    assert [fact.check for fact in found] == [{"mtu": "ecn", "classes": "mtu"}[check]]


@pytest.mark.parametrize(
    ("settings", "checks"),
    [
        ({}, ["rate"]),
        ({"check_rate": False}, []),
        ({"check_rate": False, "max_latency_ns": 1}, ["latency"]),
        ({"min_permutation_share": 0.5}, ["rate", "permutation"]),
    ],
)
def test_missing_measurements_are_unproven(
    settings: dict[str, Any], checks: list[str]
) -> None:
    demanded = replace(SETTINGS, **settings)
    facts = pair_facts(
        pair(goodput_bps=None, round_trip_p50_ns=None),
        demanded,
        not_measured="it hung",
        in_permutation=True,
    )

    found = [(fact.check, fact.verdict, fact.found) for fact in facts]
    assert found == [(check, UNPROVEN, "not measured: it hung") for check in checks]


NAMES = ("h0", "h1", "h2", "h3")
TESTED = list(permutations(NAMES, 2))


def folded(pairs: Sequence[tuple[str, str]]) -> list[str]:
    found = fold(
        [Fact("mtu", FAILED, each, "too short", None) for each in pairs], TESTED
    )
    assert sorted(each for finding in found for each in finding.pairs) == sorted(pairs)
    return [finding.where for finding in found]


@pytest.mark.parametrize(
    ("pairs", "where"),
    [
        ([], []),
        ([("h0", "h1")], ["h0 -> h1"]),
        ([("h0", "h1"), ("h1", "h0")], ["h0 <-> h1"]),
        ([each for each in TESTED if each[0] == "h2"], ["h2 -> all others"]),
        ([each for each in TESTED if each[1] == "h2"], ["all others -> h2"]),
        ([each for each in TESTED if "h2" in each], ["h2 <-> all others"]),
        (
            [each for each in TESTED if each[0] == "h2" or each == ("h0", "h1")],
            ["h2 -> all others", "h0 -> h1"],
        ),
        (
            [("h0", "h1"), ("h1", "h2"), ("h2", "h3"), ("h3", "h0"), ("h2", "h0")],
            ["h0 -> h1, h1 -> h2, h2 -> h0, h2 -> h3 and 1 more"],
        ),
        (TESTED, ["all pairs"]),
    ],
)
def test_fault_of_one_port_is_reported_once(
    pairs: list[tuple[str, str]], where: list[str]
) -> None:
    assert folded(pairs) == where


MORE = list(permutations(("h0", "h1", "h2", "h3", "h4", "h5"), 2))


def places(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    facts = [Fact("rate", FAILED, each, "slow", None) for each in pairs]
    return [(finding.where, finding.found) for finding in fold(facts, MORE)]


def test_one_outlier_does_not_hide_a_faulty_port() -> None:
    to_h1 = [each for each in MORE if each[1] == "h1"]

    assert places(to_h1[1:]) == [("all others -> h1", "slow (in 4 of 5 pairs)")]
    assert places([*to_h1[1:], ("h3", "h4")]) == [
        ("all others -> h1", "slow (in 4 of 5 pairs)"),
        ("h3 -> h4", "slow"),
    ]


def test_two_bad_senders_do_not_blame_their_receivers() -> None:
    pairs = [each for each in MORE if each[0] in ("h0", "h1", "h2")]

    assert [where for where, _ in places(pairs)] == [
        "h0 -> all others",
        "h1 -> all others",
        "h2 -> all others",
    ]


def test_port_common_to_all_pairs_is_named_for_any_number_of_pairs() -> None:
    ports = [f"h{number}" for number in range(12)]
    tested = list(permutations(ports, 2))
    facts = [Fact("rate", FAILED, ("h11", each), "slow", None) for each in ports[:5]]

    (finding,) = fold(facts, tested)

    assert finding.where == (
        "pairs of h11: h11 -> h0, h11 -> h1, h11 -> h2, h11 -> h3 and 1 more"
    )


def test_different_faults_are_separate_and_in_the_order_of_the_checks() -> None:
    found = fold(
        [
            Fact("rate", FAILED, ("h0", "h1"), "slow", None, 0.1, "1Mbit"),
            Fact("rate", FAILED, ("h1", "h0"), "slow", None, 0.2, "2Mbit"),
            Fact("mtu", FAILED, ("h0", "h1"), "short", "raise it"),
        ],
        TESTED,
    )

    assert list(map(str, found)) == [
        "mtu: h0 -> h1: short (raise it)",
        "rate: h0 <-> h1: slow: 1Mbit to 2Mbit",
    ]
