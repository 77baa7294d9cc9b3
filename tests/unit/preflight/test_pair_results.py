"""Results of every pair, from counters and measurements."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from chakram.plan.port_plan import PortPlan
from chakram.plan.probes import ProbePacket
from chakram.preflight.confirmation import Evidence
from chakram.preflight.pair_results import (
    Measured,
    expected_bps,
    passing,
    port_names,
    report_of,
)
from chakram.preflight.probe_plan import PathReport
from chakram.preflight.rate_measurements import Figures
from chakram.preflight.report import (
    FAILED,
    UNPROVEN,
    PairReport,
    PreflightReport,
    PreflightSettings,
)
from tests.port_plans import port_plan
from tests.unit.preflight.ports import MBIT, TRANSPORT, ports

SETTINGS = PreflightSettings(path_mtu=1024)
# One small one and those of path MTU 256, 512 and 1024, as IPv4 packets.
PACKETS = tuple(ProbePacket(size_bytes=size, tos=106) for size in (128, 320, 576, 1088))
SOURCE_PORTS = (0xC000, 0xC020, 0xC040)


def arrived(*longest: int) -> PathReport:
    """Return the counters if packets up to a size arrive, by path."""
    report = PathReport()
    for number, packet in enumerate(PACKETS):
        for path, limit in enumerate(longest):
            report.sent[number, path] = 2
            if packet.size_bytes <= limit:
                report.arrived[number, path] = 2
                report.classes[106, 106] += 2
    return report


def reported(
    measured: Measured, found: list[PortPlan] | None = None
) -> PreflightReport:
    return report_of(
        found or ports(2), measured, transport=TRANSPORT, settings=SETTINGS
    )


def pair_of(measured: Measured) -> PairReport:
    (pair,) = reported(measured).pairs
    return pair


def test_pair_has_the_measured_figures() -> None:
    pair = pair_of(
        Measured(
            packets=PACKETS,
            source_ports=SOURCE_PORTS,
            paths={(0, 1): arrived(1088, 0, 600)},
            tested={(0, 1)},
            alone={
                (0, 1): Figures(
                    size_bytes=4096,
                    elapsed_ns=400_000,
                    packets=9,
                    retransmitted=5,
                    generator_wait_ns=100_000,
                    round_trips_ns=[5_000, 9_000, 6_000, 7_000],
                )
            },
            together={(0, 1): Figures(size_bytes=4096, elapsed_ns=800_000)},
        )
    )

    assert pair == PairReport(
        source="h0",
        destination="h1",
        probes_sent=2 * 4 * 3,
        probes_arrived=2 * (4 + 0 + 3),
        paths_failed=(0xC020,),
        path_mtu=512,
        packet_bytes=576,
        classes=((106, 106, 14),),
        goodput_bps=4096 * 8 / 400e-6,
        # 4 packets of 58 bytes of headers, an RETH of 16 and immediate data of 4.
        expected_bps=100 * MBIT * 4096 / (4096 + 4 * 58 + 16 + 4),
        together_bps=4096 * 8 / 800e-6,
        round_trip_min_ns=5_000,
        round_trip_p50_ns=6_000,
        round_trip_p99_ns=9_000,
        # |9 - 5|, |6 - 9| and |7 - 6| us, of three.
        jitter_ns=8_000 / 3,
        packets=9,
        retransmitted=5,
        generator_share=0.25,
    )


def test_missing_figures_of_a_pair_are_unknown() -> None:
    assert pair_of(Measured(tested={(0, 1)})) == PairReport(
        source="h0", destination="h1"
    )


@pytest.mark.parametrize(
    "figures", [Figures(), Figures(elapsed_ns=1000), Figures(size_bytes=8)]
)
def test_a_message_that_did_not_arrive_has_no_rate(figures: Figures) -> None:
    pair = pair_of(Measured(tested={(0, 1)}, alone={(0, 1): figures}))

    assert pair.goodput_bps is None
    assert pair.generator_share is None


def test_expected_rate_can_come_from_the_permutation_message() -> None:
    figures = Figures(size_bytes=1024, elapsed_ns=100_000)

    pair = pair_of(Measured(tested={(0, 1)}, together={(0, 1): figures}))

    assert pair.expected_bps == 100 * MBIT * 1024 / (1024 + 58 + 16 + 4)
    assert pair.goodput_bps is None


def test_one_round_trip_has_no_jitter() -> None:
    figures = Figures(round_trips_ns=[5_000])

    pair = pair_of(Measured(tested={(0, 1)}, alone={(0, 1): figures}))

    assert (pair.round_trip_min_ns, pair.jitter_ns) == (5_000, None)


@pytest.mark.parametrize(
    ("packets", "longest", "path_mtu"),
    [
        # Nothing as long as the shortest path MTU was sent, or came.
        (PACKETS[:1], 128, None),
        (PACKETS, 128, None),
        (PACKETS, 320, 256),
        (PACKETS[1:2], 320, 256),
    ],
)
def test_path_mtu_passes_if_packets_of_that_size_arrived(
    packets: tuple[ProbePacket, ...], longest: int, path_mtu: int | None
) -> None:
    report = PathReport()
    for number, packet in enumerate(packets):
        report.sent[number, 0] = 1
        if packet.size_bytes <= longest:
            report.arrived[number, 0] = 1

    pair = pair_of(
        Measured(
            packets=packets,
            source_ports=(0xC000,),
            paths={(0, 1): report},
            tested={(0, 1)},
        )
    )

    assert (pair.packet_bytes, pair.path_mtu) == (longest, path_mtu)


def test_pairs_pass_whose_packets_arrive_over_every_path() -> None:
    paths = {
        (0, 1): arrived(1088, 1088),
        (1, 0): arrived(1088, 600),
        (0, 2): arrived(0, 1088),
    }

    def passed(npaths: int, packet_bytes: int) -> set[tuple[int, int]]:
        return passing(paths, PACKETS, npaths=npaths, packet_bytes=packet_bytes)

    assert passed(2, 1088) == {(0, 1)}
    assert passed(2, 1089) == set()
    assert passed(2, 576) == {(0, 1), (1, 0)}
    assert passed(1, 1088) == {(0, 1), (1, 0)}


@pytest.mark.parametrize(
    ("rates_bps", "slower"),
    [
        ((100 * MBIT, 10 * MBIT), 10 * MBIT),
        ((None, 10 * MBIT), 10 * MBIT),
        ((100 * MBIT, None), 100 * MBIT),
    ],
)
@pytest.mark.parametrize(
    ("address", "verb", "on_wire"),
    [
        ("198.18.0.{}", "write", 2000 + 2 * 58 + 20),
        ("198.18.0.{}", "send", 2000 + 2 * 58 + 4),
        ("2001:2::{}", "write", 2000 + 2 * 78 + 20),
    ],
)
def test_expected_rate_is_that_of_the_slower_port_without_headers(
    rates_bps: tuple[int | None, ...],
    slower: int,
    address: str,
    verb: str,
    on_wire: int,
) -> None:
    source, destination = ports(2, rates_bps=rates_bps, address=address)

    expected = expected_bps(
        source, destination, replace(TRANSPORT, verb=verb), size_bytes=2000
    )

    assert expected is not None
    assert math.isclose(expected, slower * 2000 / on_wire)


def test_without_a_rate_or_a_message_nothing_is_expected() -> None:
    rated = ports(2)
    unrated = ports(2, rates_bps=(None, None))

    assert expected_bps(*rated, TRANSPORT, size_bytes=0) is None
    assert expected_bps(*unrated, TRANSPORT, size_bytes=2000) is None


def test_single_port_of_an_agent_has_the_name_of_the_agent() -> None:
    found = [
        port_plan(0, agent="a", host="a:eth0"),
        port_plan(1, agent="b", host="b:eth0"),
        port_plan(2, agent="b", host="b:eth1"),
        port_plan(3, agent="c", host="h7"),
    ]

    assert port_names(found) == ["a", "b:eth0", "b:eth1", "h7"]


def test_an_agent_that_is_missing_is_named_with_its_ports_and_pairs() -> None:
    found = [
        port_plan(0, agent="a", host="a:eth0"),
        port_plan(1, agent="b", host="b:eth0"),
        port_plan(2, agent="b", host="b:eth1"),
        port_plan(3, agent="c", host="c:eth0"),
    ]

    report = reported(
        Measured(
            packets=PACKETS,
            source_ports=(0xC000,),
            paths={(0, 3): arrived(1088), (3, 0): arrived(1088)},
            tested={(0, 1), (1, 2), (0, 3)},
            absent={"c": "no answer", "b": "too old"},
        ),
        found,
    )

    assert report.ports == ("a", "b:eth0", "b:eth1", "c")
    assert report.pairs == ()
    b, c = report.findings
    assert (b.check, b.verdict, b.where, b.found, b.hint) == (
        "agent",
        FAILED,
        "b (b:eth0, b:eth1)",
        "too old",
        None,
    )
    assert (c.where, c.found) == ("c", "no answer")
    assert set(c.pairs) == {
        *(("a", "c"), ("b:eth0", "c"), ("b:eth1", "c")),
        *(("c", "a"), ("c", "b:eth0"), ("c", "b:eth1")),
    }
    # Pairs of which neither is of that agent are no matter of it; a port is no pair.
    assert len(b.pairs) == 4 * 3 - 2


def unproven(measured: Measured) -> list[tuple[str, str]]:
    findings = reported(measured).findings
    return [(each.check, each.found) for each in findings if each.verdict == UNPROVEN]


def probed(
    paths: dict[tuple[int, int], PathReport], not_measured: str | None = None
) -> Measured:
    return Measured(
        packets=PACKETS,
        source_ports=(0xC000,),
        paths=paths,
        tested={(0, 1)},
        not_measured=not_measured,
    )


SOUND = arrived(1088)
NO_WAY_BACK = [("rate", "not measured: acknowledgments do not come back")]


@pytest.mark.parametrize(
    ("measured", "found"),
    [
        # There and back: then a rate that is missing needs a reason.
        (probed({(0, 1): SOUND, (1, 0): SOUND}), []),
        (
            probed({(0, 1): SOUND, (1, 0): SOUND}, "it hung"),
            [("rate", "not measured: it hung")],
        ),
        (probed({(0, 1): SOUND}), NO_WAY_BACK),
        (probed({(0, 1): SOUND, (1, 0): PathReport()}), NO_WAY_BACK),
        # Other results of these pairs explain the missing value.
        (probed({(0, 1): arrived(0)}, "it hung"), []),
        (probed({(0, 1): arrived(576)}, "it hung"), []),
    ],
)
def test_missing_rate_has_a_reason_unless_obvious(
    measured: Measured, found: list[tuple[str, str]]
) -> None:
    assert unproven(measured) == found


def test_only_pairs_of_the_permutation_can_lack_its_rate() -> None:
    settings = replace(SETTINGS, check_rate=False, min_permutation_share=0.5)

    report = report_of(
        ports(2),
        Measured(
            packets=PACKETS,
            source_ports=(0xC000,),
            paths={(0, 1): SOUND, (1, 0): SOUND},
            tested={(0, 1), (1, 0)},
            permutation=[(1, 0)],
            not_measured="it hung",
        ),
        transport=TRANSPORT,
        settings=settings,
    )

    (finding,) = report.findings
    assert (finding.check, finding.where) == ("permutation", "h1 -> h0")
    assert report.passed


def test_pairs_pass_by_their_data_and_their_answers() -> None:
    data, answers = ProbePacket(size_bytes=128, tos=106), 42
    packets = (data, ProbePacket(size_bytes=128, tos=answers))
    whole, deaf, mute = PathReport(), PathReport(), PathReport()
    for report, numbers in ((whole, (0, 1)), (deaf, (1,)), (mute, (0,))):
        for number in numbers:
            report.arrived[number, 0] = 1
    paths = {(0, 1): whole, (0, 2): deaf, (0, 3): mute}

    def pairs(*classes: int) -> set[tuple[int, int]]:
        return passing(paths, packets, npaths=1, packet_bytes=128, classes=classes)

    # Long packets, too, are of the class of data.
    assert pairs() == {(0, 1), (0, 3)}
    assert pairs(answers) == {(0, 1)}


def test_rate_reached_by_trains_alone_passes() -> None:
    pair = pair_of(
        Measured(
            tested={(0, 1)},
            alone={(0, 1): Figures(size_bytes=1024, elapsed_ns=10**6, packets=1)},
            evidence={(0, 1): Evidence(train_share=0.97)},
        )
    )

    assert pair.expected_bps is not None
    assert pair.goodput_bps == 1024 * 8 / 1e-3
    assert pair.train_bps == pytest.approx(0.97 * pair.expected_bps)
    assert pair.rate_share == pytest.approx(0.97)


def test_trains_replace_a_message_that_never_arrived() -> None:
    pair = pair_of(
        Measured(tested={(0, 1)}, evidence={(0, 1): Evidence(train_share=0.5)})
    )

    assert pair.goodput_bps is None
    assert pair.rate_share == pytest.approx(0.5)
