"""Agents on their own hosts, commanded over TCP with certificates on both sides."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any

import pytest

from chakram.run_directory.manifest import COMPLETE, FAILED
from tests.e2e.hosts import (
    ADDRESSES,
    CONTROL_PORT,
    IPV6_ADDRESSES,
    NAMES,
    SECOND_ADDRESS,
    THIRD_ADDRESS,
    Hosts,
    host_section,
    port_section,
)
from tests.e2e.processes import RunProcess
from tests.e2e.runs import moe, write_experiment
from tests.e2e.traffic_totals import ALGORITHMS, CLOSED_FORMS, check_complete, sent
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


WRONG_INPUT, ENVIRONMENT, AGENT_ERROR, INTERRUPTED = 2, 3, 4, 130

ENDLESS = {"warmup": 0, "measured": 1_000_000}

SLOW = {"rate": "10Mbit"}
"""Four data planes share this machine with whatever else a test needs."""


# What a collective sends does not depend on whose hosts these are.
@pytest.mark.parametrize(
    "op",
    [
        pytest.param(op, marks=() if op == "all_to_all" else pytest.mark.soak)
        for op in CLOSED_FORMS
    ],
)
def test_a_microbenchmark_goes_through_the_network_between_hosts(
    found: Hosts, tmp_path: Path, chakram_data: Path, op: str
) -> None:
    trace = chakram_data / "traces/astra_sim_microbenchmarks" / op / "4npus_1MB"
    experiment = write_experiment(
        tmp_path,
        [{"name": "job", "trace": {"path": str(trace)}}],
        found.fabric(),
        collectives=ALGORITHMS,
    )
    before = {name: found.sent_bytes(name) for name in NAMES}

    ended = found.run(experiment)

    assert ended.code == 0, ended.errors
    results = ended.results
    check_complete(results, ranks=4)
    messages, nbytes = CLOSED_FORMS[op](4)
    assert sent(results) == dict.fromkeys(range(4), (messages, nbytes))
    for name in NAMES:
        assert found.sent_bytes(name) - before[name] > nbytes
    assert results.manifest.world == "external"
    assert set(results.manifest.clocks) == set(NAMES)


def test_data_may_go_over_ipv6_and_control_over_ipv4(
    found: Hosts, tmp_path: Path, chakram_data: Path
) -> None:
    trace = chakram_data / "traces/astra_sim_microbenchmarks/all_reduce/4npus_1MB"
    sections = [
        host_section(name, ports=[port_section(IPV6_ADDRESSES[name])]) for name in NAMES
    ]
    experiment = write_experiment(
        tmp_path,
        [{"name": "job", "trace": {"path": str(trace)}}],
        # The topology does not rename the hosts.
        found.fabric(hosts=sections, topology={"single_switch": {"hosts": 4}}),
        collectives=ALGORITHMS,
        transport={"icrc_check": 4},
    )
    before = {name: found.sent_bytes(name) for name in NAMES}

    ended = found.run(experiment)

    assert ended.code == 0, ended.errors
    results = ended.results
    check_complete(results, ranks=4)
    messages, nbytes = CLOSED_FORMS["all_reduce"](4)
    assert sent(results) == dict.fromkeys(range(4), (messages, nbytes))
    for name in NAMES:
        assert found.sent_bytes(name) - before[name] > nbytes
    assert results.manifest.family == "ipv6"
    assert set(results.queue_pair_metrics()["port_tx"].to_pylist()) == set(NAMES)
    assert set(results.table("ports", "host")[0].to_pylist()) == set(NAMES)
    assert max(results.table("ports", "invalid_packets")[0].to_pylist()) == 0


def changed(name: str, **sections: object) -> list[dict[str, Any]]:
    """Return all hosts, one of them otherwise."""
    return [host_section(each, **(sections if each == name else {})) for each in NAMES]


REFUSALS = {
    "no-agent-listens": (
        lambda found: found.fabric(
            hosts=changed("h2", agent=f"{ADDRESSES['h2']}:{CONTROL_PORT + 1}")
        ),
        AGENT_ERROR,
        r"agent h2 \(198\.18\.0\.2:7412\): no agent listens at this address "
        r"\(start it: chakram-agent serve --listen 198\.18\.0\.2:7412 --tls-ca FILE "
        r"--tls-cert FILE --tls-key FILE\)",
    ),
    "wrong-certificate": (
        lambda found: found.fabric(authority=found.strangers),
        AGENT_ERROR,
        r"agent h1 \(198\.18\.0\.1:7411\): it closed the connection, probably because "
        r"it does not accept the controller's certificate \(use a controller "
        r"certificate that the agent's CA has signed\)",
    ),
    "no-certificate": (
        lambda found: found.fabric(tls=None),
        WRONG_INPUT,
        r".*experiment\.yaml: 4 mistakes",
    ),
    "not-allowed": (
        lambda found: found.fabric(
            hosts=changed("h1", ports=[port_section(SECOND_ADDRESS)])
        ),
        WRONG_INPUT,
        r"agent h[234] .*: this agent does not send to 198\.18\.1\.1 "
        r"\(it allows 198\.18\.0\.0/24, 2001:2::/64; add a prefix with the agent's "
        r"option --allow\)",
    ),
    "through-lo": (
        lambda found: found.fabric(
            hosts=changed(
                "h4",
                ports=[port_section(THIRD_ADDRESS) | {"netns": found.namespace("h1")}],
            )
        ),
        ENVIRONMENT,
        r"agent h[14] .*: port at 198\.18\.0\.\d+: packets to 198\.18\.0\.\d+ would go "
        r"through lo, not through the network \(give each port its own network "
        r"namespace \(isolate: namespace\)\)",
    ),
    "no-such-interface": (
        lambda found: found.fabric(
            hosts=changed(
                "h3", ports=[port_section(ADDRESSES["h3"]) | {"open": "udp:eth9"}]
            )
        ),
        ENVIRONMENT,
        r"agent h3 .*: port udp:eth9 at 198\.18\.0\.3:4791: there is no interface eth9 "
        r"\(see: ip link\)",
    ),
    "no-such-address": (
        lambda found: found.fabric(
            hosts=changed("h3", ports=[port_section("198.18.0.77")])
        ),
        ENVIRONMENT,
        r"agent h3 .*: port udp:eth0 at 198\.18\.0\.77:4791: no interface has that "
        r"address \(see: ip address\)",
    ),
}


# Of an agent that is not there a preflight tells as well, after seconds of trying; of
# interfaces and addresses agents do by themselves.
HERE = {"no-certificate", "not-allowed"}


@pytest.mark.parametrize(
    ("fabric", "code", "sentence"),
    [
        pytest.param(
            *refusal,
            id=name,
            marks=pytest.mark.soak
            if name.startswith("no") and name not in HERE
            else (),
        )
        for name, refusal in REFUSALS.items()
    ],
)
def test_impossible_experiment_is_refused_in_one_sentence(
    found: Hosts,
    tmp_path: Path,
    fabric: Callable[[Hosts], dict[str, Any]],
    code: int,
    sentence: str,
) -> None:
    experiment = write_experiment(tmp_path, [moe(4)], fabric(found))

    ended = found.run(experiment)

    assert ended.code == code
    assert re.fullmatch(sentence, ended.sentence)


# A controller that is killed ends a background, too: see test_background_jobs.py.
@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGKILL, marks=pytest.mark.soak), signal.SIGSTOP],
    ids=["killed", "frozen"],
)
def test_hosts_stop_sending_without_their_controller(
    found: Hosts, tmp_path: Path, number: int
) -> None:
    experiment = write_experiment(
        tmp_path,
        [moe(4) | {"size_scale": "1/16"}],
        found.fabric(defaults=SLOW),
        iterations=ENDLESS,
    )
    with RunProcess(experiment, prefix=found.enter("c")) as going:
        going.wait_for_records()
        wait_until(lambda: not found.are_silent(), "traffic")

        going.process.send_signal(number)

        found.wait_for_silence()
    # The agents are free for the next controller.
    (tmp_path / "next").mkdir()
    again = write_experiment(tmp_path / "next", [moe(4)], found.fabric())
    assert found.run(again).results.manifest.status == COMPLETE


def test_an_agent_serves_one_controller_at_a_time(found: Hosts, tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    # It computes for long before it sends anything.
    job = moe(4, attention="10min") | {"compute": {"from": "trace"}}
    first, second = (
        write_experiment(folder, [job], found.fabric()) for folder in folders
    )
    with RunProcess(first, prefix=found.enter("c")) as going:
        wait_until(lambda: "replaying" in going.errors, "the start of the run")

        refused = found.run(second)

        assert refused.code == AGENT_ERROR
        assert re.fullmatch(
            r"agent h\d .*: the agent is in use by chakram run on \S+, process "
            rf"{going.process.pid} \(an agent serves one controller at a time; end "
            r"the other one\)",
            refused.sentence,
        )
        assert refused.results.manifest.status == FAILED
        assert going.process.poll() is None
        going.process.send_signal(signal.SIGINT)
        assert going.wait().code == INTERRUPTED
