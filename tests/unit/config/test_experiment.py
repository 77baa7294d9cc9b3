"""The experiment file: what it gives, and what is wrong with a wrong one."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time_ns

import pytest
from tools.generate_reference import SCHEMAS

from chakram.collectives.ops import CollectiveOp
from chakram.config.cross_checks import check_jobs
from chakram.config.experiment import (
    load_experiment,
    parse_experiment,
    recorded_experiment,
)
from chakram.config.jobs import Job, TraceFiles
from chakram.config.schema import schema_text
from chakram.fabric.fabric_types.namespaces import NamespaceFabric
from chakram.foundation.errors import ConfigError
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.plan_settings import transport_plan
from chakram.preparation.resolved_run import resolve
from chakram.synth.settings.patterns import RandomPairsTrace
from tests.unit.config.texts import EXTERNAL, EXTERNAL_IPV6, QUICKSTART, mistakes_of


def test_quickstart_is_read_into_integers() -> None:
    experiment = parse_experiment(QUICKSTART)
    assert isinstance(experiment.fabric, NamespaceFabric)
    assert experiment.fabric.links.host.rate_bps == 250_000_000
    assert experiment.fabric.topology.hosts == 8
    assert experiment.transport.window_bytes == 65_536
    assert experiment.transport.congestion_control.name == "fixed_rate"
    assert experiment.algorithm_of(CollectiveOp.ALL_REDUCE) == "ring"
    assert experiment.algorithm_of(CollectiveOp.ALL_GATHER) == "auto"
    assert experiment.lab_name == "quickstart"
    assert experiment.udp_port == 4791


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(EXTERNAL)
    experiment = load_experiment(file)
    trace = experiment.jobs[0].trace
    assert isinstance(trace, TraceFiles)
    assert trace.path == tmp_path / "traces/mixtral"
    assert experiment.runs == Path("runs")


@pytest.mark.parametrize(
    ("addressing", "mtu", "path_mtu"),
    [("ipv4", 4176, 4096), ("ipv6", 4196, 4096), ("ipv6", 4195, 2048)],
)
def test_headers_of_ipv6_leave_less_room(
    addressing: str, mtu: int, path_mtu: int
) -> None:
    text = QUICKSTART.replace(
        "mtu: 4200", f"mtu: {mtu}\n  addressing: {addressing}"
    ).replace(", path_mtu: 4096", "")
    assert transport_plan(parse_experiment(text)).path_mtu == path_mtu
    larger = text.replace("window: 64KiB", "window: 64KiB, path_mtu: 4096")
    if path_mtu < 4096:
        assert "4096 and 100 bytes of headers do not fit" in mistakes_of(larger)


@pytest.mark.parametrize("text", [QUICKSTART, EXTERNAL, EXTERNAL_IPV6])
def test_what_was_read_can_be_written_and_read_again(text: str) -> None:
    experiment = parse_experiment(text)
    written = experiment.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert parse_experiment(json.dumps(written)) == experiment


def test_a_single_mistake_is_a_single_line() -> None:
    assert mistakes_of(QUICKSTART.replace("250Mbit", "250")) == (
        "x.yaml:13: fabric.links.host.rate: '250' has no unit (e.g. 400Gbit)"
    )


def test_all_mistakes_are_told_in_the_order_of_their_lines() -> None:
    text = (
        QUICKSTART.replace("layers: 4", "layrs: 4")
        .replace("from: trace", "from: rooflin")
        .replace("all_to_all", "all_to_al")
        .replace("mtu: 4200", "mtu: 4200\n  mtu: 1500")
    )
    assert mistakes_of(text).splitlines() == [
        "x.yaml: 4 mistakes",
        "  - line 5: jobs[0].trace.layrs: unknown key (did you mean 'layers'?)",
        "  - line 6: jobs[0].compute.from: 'rooflin' is not known"
        " (did you mean 'roofline'?)",
        "  - line 7: collectives.all_to_al: 'all_to_al' is not known"
        " (did you mean 'all_to_all'?)",
        "  - line 15: fabric.mtu: is already set on line 14 (remove one of the two)",
    ]


def test_checks_across_sections_run_beside_mistakes_elsewhere() -> None:
    text = QUICKSTART.replace("mtu: 4200", "mtu: 1500") + "sede: 3\n"
    told = mistakes_of(text)
    assert "sede: unknown key (did you mean 'seed'?)" in told
    assert "(use at most 1024, or raise the MTU to 4176)" in told


@pytest.mark.parametrize(
    ("key", "place"),
    [("compute", "jobs[0].compute"), ("topology", "fabric.topology")],
)
def test_key_of_a_section_at_the_top_is_told_with_its_place(
    key: str, place: str
) -> None:
    told = mistakes_of(QUICKSTART + f"{key}: {{}}\n")
    assert f"{key}: unknown key (did you mean {place!r}?)" in told


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("version: 1", "version: 2", "version: 2 is not known"),
        (
            "name: quickstart",
            "name: quick start",
            "is not a name (letters, digits, _, . and -",
        ),
        ("ranks: 8", "ranks: 9", "ranks is 9, but ep x dp is 4 x 2 = 8"),
        ("ranks: 8", "ranks: '8'", "'8' is not a whole number"),
        ("ranks: 8", "ranks: true", "True is not a whole number"),
        ("layers: 4", "layers: 0", "0 is too small (must be at least 1)"),
        (
            "name: quickstart",
            "name: quickstart\nrecords: {sample_bin: 2h}",
            "records.sample_bin: 2h is too large (must be at most 1h)",
        ),
        (
            "name: quickstart",
            "name: quickstart\nhang_timeout: 4096ns",
            "hang_timeout: 4.096us is too small (must be at least 100ms)",
        ),
        (
            "window: 64KiB",
            "adaptive_retransmission: {low: 1us}",
            "low: 1us is too small (must be at least 4us)",
        ),
        (
            "window: 64KiB",
            "queue_pairs: {message_size: 3GiB}",
            "'3GiB' is too large (must be at most 2GiB)",
        ),
        (
            "layers: 4",
            "memory: 0B/s",
            "trace.memory: '0B/s' is too small (must be at least 1B/s)",
        ),
        ("layers: 4", "top_k: 5", "5 is more than the 4 experts of a layer"),
        ("synth: moe", "synth: mow", "'mow' is not known (did you mean 'moe'?)"),
        ("synth: moe", "synth: [moe]", "jobs[0].trace.synth: a list is not known"),
        ("layers: 4", "routing: {law: hot}", "routing.law: 'hot' is not known"),
        (
            "layers: 4",
            "routing: {law: hot_expert, target: 4}",
            "jobs[0].trace.routing.target: 4 is not one of the 4 experts",
        ),
        ("layers: 4", "rank_order: [tp]", "is not an order of dimensions"),
        ("layers: 4", "model: mixtral", "'mixtral' is not a known model"),
        (
            "{synth: moe, ranks: 8, ep: 4, dp: 2, layers: 4}",
            "{synth: incast, ranks: 8, fan_in: 8}",
            "trace.fan_in: 8 senders and a receiver exceed 8 ranks",
        ),
        ("all_reduce: ring", "all_reduce: rung", "there is no algorithm 'rung'"),
        ("sync: barrier", "sync: gap", "sync: gap requires a gap"),
        ("sync: barrier", "gap: 1ms", "has no effect with sync: barrier"),
        ("sync: barrier", "gap: 1", "'1' has no unit (e.g. 10us)"),
        ("kind: namespaces", "kind: names", "fabric.kind: 'names' is not known"),
        ("kind: namespaces", "knd: x", "fabric.kind: is missing"),
        (
            "switch: kernel",
            "switch: asic",
            "not known (known: kernel, model)",
        ),
        (
            "switch: kernel",
            "capture: [h8]",
            "there is no host 'h8' (use h0 to h7)",
        ),
        ("hosts_per_leaf: 4", "hosts_per_leaf: 3", "the fabric has 6"),
        ("{clos:", "{single_switch: {hosts: 8}, clos:", "names two shapes"),
        ("mtu: 4200", "mtu: 4100", "(use at most 2048, or raise"),
        ("250Mbit", "250Mbyte", "'250Mbyte' has an unknown unit 'Mbyte'"),
        ("250Mbit", "0Mbit", "rate: is zero"),
        ("window: 64KiB", "window: 1KiB", "1KiB is less than one packet of 4096"),
        ("window: 64KiB", "window: [1]", "[1] is not a size"),
        ("path_mtu: 4096", "path_mtu: 4000", "4000 is not known"),
        ("fixed_rate", "timely", "'timely' is not a congestion control"),
        ("fixed_rate", "{fixed_rate: {rat: 1}}", "rat: unknown key"),
        ("fixed_rate", "{none: {}, fixed_rate: {}}", "names two congestion controls"),
        ("host: {rate: 250Mbit}, ", "", "fixed_rate has no rate"),
        ("from: trace", "from: roofline", "roofline requires the compute rate"),
        ("from: trace", "from: trace, peak: 0 TFLOPS", "peak or memory is zero"),
        ("scale: 1.0", "scale: 1/0", "'1/0' is not a ratio"),
        ("compute:", "placement: {order: [0, 0]}\n    compute:", "rank 0 occurs twice"),
        ("compute:", "placement: {order: [0]}\n    compute:", "ranks from 0 to 7"),
        ("compute:", "placement: {order: up}\n    compute:", "not an order"),
        ("compute:", "placement: {order: [x]}\n    compute:", "'x' is not a rank"),
        ("mtu: 4200", "mtu: 4200\nruns: 3", "runs: is not a path"),
        ("mtu: 4200", "mtu: 4200\nmetrics: x", "'x' is not an address and port"),
        ("mtu: 4200", "mtu: 4200\nmetrics: a:70000", "there is no port 70000"),
        ("mtu: 4200", "mtu: 4200\nlab: Lab", "'Lab' is not a name (lower-case letters"),
        ("compute:", "size_scale: 0\n    compute:", "'0' is not positive"),
    ],
)
def test_a_mistake_says_what_was_found(old: str, new: str, expected: str) -> None:
    assert old in QUICKSTART
    told = mistakes_of(QUICKSTART.replace(old, new))
    assert expected in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("addressing", "path_mtu", "most"),
    [
        ("ipv4", 4096, 15),
        ("ipv6", 4096, 15),
        ("ipv4", 2048, 31),
        ("ipv4", 1024, 62),
        ("ipv6", 1024, 63),
        ("ipv4", 512, 64),
    ],
)
def test_a_burst_fits_into_one_send(addressing: str, path_mtu: int, most: int) -> None:
    text = QUICKSTART.replace(
        "mtu: 4200", f"mtu: 4200\n  addressing: {addressing}"
    ).replace("path_mtu: 4096", f"path_mtu: {path_mtu}, burst: %d")
    assert transport_plan(parse_experiment(text % most)).max_burst_packets == most
    if most < 64:
        assert f"(use at most {most}, or remove burst)" in mistakes_of(
            text % (most + 1)
        )


def test_overrides_replace_what_the_file_says() -> None:
    experiment = parse_experiment(
        QUICKSTART,
        overrides={
            "iterations.measured": "3",
            "jobs[0].trace.layers": "1",
            "stop_if.duration": "1min",
            "predict": "[bound, simulate]",
        },
    )
    assert experiment.iterations.measured == 3
    assert experiment.stop_if.duration_ns == 60 * 10**9
    assert experiment.predict == ("bound", "simulate")


def test_overrides_replace_groups_whose_names_are_numbers() -> None:
    text = QUICKSTART.replace(
        "{synth: moe, ranks: 8, ep: 4, dp: 2, layers: 4}",
        "{path: x, replicate: 8, dimensions: {tp: 4, dp: 2}, groups: {'1': tp}}",
    )
    (job,) = parse_experiment(text, overrides={"jobs[0].trace.groups.1": "dp"}).jobs
    assert isinstance(job.trace, TraceFiles)
    assert job.trace.groups == {"1": ("dp",)}


def test_source_ports_are_no_ports_that_a_loopback_fabric_receives_on() -> None:
    fabric = "{kind: loopback, addressing: %s, ports: 8}"
    overrides = {"transport.source_ports": "[4798]", "collectives": "{}"}
    text = QUICKSTART[: QUICKSTART.index("fabric:")]
    parse_experiment(text, overrides={**overrides, "fabric": fabric % "ipv4"})
    with pytest.raises(ConfigError, match=r"4798 is a .* one of 4791 to 4798"):
        parse_experiment(text, overrides={**overrides, "fabric": fabric % "ipv6"})


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        (
            "{kind: loopback, udp_port: 49215}",
            "fabric.udp_port: UDP port 49215 is a source port of queue pairs, which "
            "have 49152 to 49215",
        ),
        ("{kind: loopback, udp_port: 49216}", None),
        ("{kind: loopback, addressing: ipv6, udp_port: 49144, ports: 8}", None),
        (
            "{kind: loopback, addressing: ipv6, udp_port: 49145, ports: 8}",
            "UDP port 49152 is a source port",
        ),
        (
            "{kind: external, defaults: {udp_port: 49152}, hosts: [{name: a, ports: "
            "[{open: 'udp:e', address: 198.18.0.1/24}]}]}",
            "fabric.defaults.udp_port: UDP port 49152 is a source port",
        ),
    ],
)
def test_ports_do_not_receive_on_source_ports(
    fabric: str, expected: str | None
) -> None:
    text = (
        "{version: 1, name: a, jobs: [{name: j, trace: {synth: dense, dp: 1}}], "
        f"fabric: {fabric}}}"
    )
    if expected is None:
        parse_experiment(text)
        return
    assert expected in mistakes_of(text)
    parse_experiment(text, overrides={"transport.source_ports": "[5000]"})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("iterations.measurd", "3", "did you mean 'measured'?"),
        ("jobs.3.name", "x", "there is no entry 3"),
        ("jobs.moe.name", "x", "is not a valid path"),
        ("jobs.0.1", "x", "is not a valid path"),
        (f"jobs.{'9' * 5000}.name", "x", "is not a valid path"),
        ("seed", "[", "is not YAML"),
        ("seed", "2\nfoo: bar", "is more than one value (put it in quotes)"),
        ("seed", "2\nvalue: 3", "is already set on line 1"),
        ("seed", "!x 3", "the YAML tag '!x' is not supported"),
    ],
)
def test_a_wrong_override_is_refused(key: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_experiment(QUICKSTART, overrides={key: value})
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("metrics: off", None),
        ("metrics: {listen: off}", None),
        ("metrics: 127.0.0.1:9464", "127.0.0.1:9464"),
        ("metrics: {listen: '127.0.0.1:9464'}", "127.0.0.1:9464"),
    ],
)
def test_metrics_are_off_or_an_address(text: str, address: str | None) -> None:
    assert parse_experiment(QUICKSTART + text).metrics.listen == address


def test_the_lab_is_named_after_the_experiment_unless_it_has_a_name() -> None:
    named = QUICKSTART.replace("name: quickstart", "name: Leaf_Burn.In")
    assert parse_experiment(named).lab_name == "leaf-burn-in"
    assert parse_experiment(QUICKSTART + "lab: mine\n").lab_name == "mine"


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_published_schemas_are_those_of_the_models(path: Path) -> None:
    text = schema_text(SCHEMAS[path]())
    assert path.read_text(encoding="utf-8") == text, "run: make reference"


TRANSPORT = """
version: 1
name: t
jobs: [{name: j, trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}}]
fabric: {kind: loopback}
transport: %s
"""


def test_queue_pairs_have_the_names_of_others_too() -> None:
    ours = parse_experiment(
        TRANSPORT % "{queue_pairs: {count: 4, message_size: 64KiB, split: even}}"
    )
    theirs = parse_experiment(
        TRANSPORT
        % "{qps_per_rankpair: 4, rdma_message_size: 64KiB, queue_pairs: {split: even}}"
    )

    assert ours.transport.queue_pairs == theirs.transport.queue_pairs
    assert ours.transport.queue_pairs.message_bytes == 64 * 1024


@pytest.mark.parametrize(
    ("transport", "found"),
    [
        (
            "{qps_per_rankpair: 4, queue_pairs: {count: 2}}",
            "qps_per_rankpair and queue_pairs.count are the same setting",
        ),
        (
            "{local_ack_timeout: 14, retransmit_timeout: 1ms}",
            "retransmit_timeout and local_ack_timeout set the same timeout",
        ),
        (
            "{local_ack_timeout: 0, adaptive_retransmission: {}}",
            "adaptive_retransmission: cannot be combined with local_ack_timeout: 0",
        ),
        (
            "{verb: send, queue_pairs: {message_size: 1MiB}, verify: off, icrc_check: 8"
            "}",
            "2 mistakes",
        ),
        (
            "{verb: send, queue_pairs: {message_size: 1MiB}}",
            "queue_pairs.message_size: requires verb: write",
        ),
        ("{verify: full, icrc_check: 8}", "icrc_check is the size of a sample"),
        (
            "{verify: sample, icrc_check: 0}",
            "icrc_check: is 0, so no packet would be checked",
        ),
        ("{queue_pairs: {per: rank}}", "transport.queue_pairs.per"),
        ("{rnr_retry_limit: 8}", "transport.rnr_retry_limit"),
        ("{source_ports: [80]}", "transport.source_ports"),
        (
            "{source_ports: [4791, 5000]}",
            "4791 is fabric.udp_port, the destination port",
        ),
        ("{source_ports: [5000, 6000, 5000]}", "5000 is listed more than once"),
        ("{window: 9TiB}", "transport.window"),
        ("{class_of: [{class: 8}]}", "transport.class_of[0].class"),
        ("{class_of: [{job: x, class: 4}]}", "there is no job 'x'"),
        ("{class_of: [{group: p2p}]}", "has neither of class and dscp"),
        ("{class_of: [{class: 1, dscp: 8}]}", "has both of class and dscp"),
        ("{class_of: [{collective: x, class: 4}]}", "transport.class_of[0].collective"),
        (
            "{class_of: [{collective: barrier, class: 4}]}",
            "barriers send no data, so they have no class",
        ),
        (
            "{congestion_control: {fixed_rate: {rate: 1e99Gbit}}}",
            "1e99Gbit is not a valid network rate (1kbit to 100Tbit)",
        ),
        ("{adaptive_retransmission: {low: 1us}}", "adaptive_retransmission.low"),
    ],
)
def test_transports_that_contradict_themselves_are_refused(
    transport: str, found: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_experiment(TRANSPORT % transport)

    assert found in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("{action: lose, nth: 1}", "faults.packets[0].action"),
        ("{action: drop}", "a fault needs either nth or a probability"),
        ("{action: not_ready, at: send, nth: 1}", "applies only to receivers"),
        ("{action: drop, nth: 0}", "faults.packets[0].nth"),
        ("{action: drop, probability: 2}", "faults.packets[0].probability"),
        ("{action: drop, nth: 1, queue_pair: 1}", "there is no queue pair 1"),
        (
            "{action: drop, probability: 0.1, count: 2}",
            "count and every apply only with nth",
        ),
        (
            "{action: drop, probability: 0.1, every: 10}",
            "count and every apply only with nth",
        ),
        (
            "{action: drop, nth: 1, by: 2ms}",
            "faults.packets[0].by: has no effect for action drop (remove it)",
        ),
        (
            "{action: delay, nth: 1, behind: 4}",
            "faults.packets[0].behind: has no effect for action delay (remove it)",
        ),
    ],
)
def test_faults_that_contradict_themselves_are_refused(fault: str, found: str) -> None:
    text = TRANSPORT % "{}" + f"faults: {{packets: [{fault}]}}\n"
    with pytest.raises(ConfigError) as caught:
        parse_experiment(text)

    assert found in str(caught.value)


def test_faults_say_what_ports_are_told() -> None:
    experiment = parse_experiment(
        TRANSPORT
        % "{}"
        + "faults: {packets: [{action: delay, by: 2ms, packets: ack, source: 3, "
        "nth: 7, every: 10}]}\n"
    )

    (settings,) = experiment.faults.packets
    fault = settings.fault()
    assert (fault.name, fault.delay_ns, fault.packets) == ("delay", 2_000_000, "ack")
    assert (fault.source, fault.nth, fault.every) == (3, 7, 10)


def test_a_run_with_faults_is_read_with_the_defaults_of_all_keys() -> None:
    experiment = parse_experiment(
        TRANSPORT
        % "{}"
        + "faults: {packets: [{action: drop, nth: 7}, {action: reorder, by: 2ms, "
        "behind: 4, nth: 1}]}\n"
    )
    document = experiment.written.model_dump(mode="json", by_alias=True)
    again = recorded_experiment(document, "run.json")
    assert again.faults == experiment.faults


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (
            "leaves: 1000, spines: 1, hosts_per_leaf: 1",
            "leaves: there are addresses for only 256 leaves with 1 hosts each (use at "
            "most 256",
        ),
        (
            "leaves: 200, spines: 1000, hosts_per_leaf: 1",
            "spines: there are addresses for only 32768 links between switches (use at "
            "most 163",
        ),
    ],
)
def test_a_lab_has_addresses_for_all_of_its_leaves(shape: str, told: str) -> None:
    text = f"""
version: 1
name: wide
jobs:
  - {{name: a, trace: {{synth: incast, ranks: 3, size: 64KiB}}}}
fabric:
  kind: namespaces
  topology: {{clos: {{{shape}}}}}
"""
    with pytest.raises(ConfigError, match=r"experiment:8: fabric.topology.clos") as no:
        parse_experiment(text)
    assert told in str(no.value)


def test_ports_before_the_first_one_of_a_packed_job_are_free_for_others() -> None:
    text = """
version: 1
name: two
jobs:
  - name: last
    trace: {{synth: incast, ranks: 2}}
    placement: {{first_port: 6}}
  - name: others
    trace: {{synth: incast, ranks: {}}}
    placement: {{pattern: striped, first_port: {}}}
fabric: {{kind: namespaces, topology: {{single_switch: {{hosts: 8}}}}}}
"""
    experiment = parse_experiment(text.format(6, 0))
    plan = resolve(experiment, load_jobs(experiment)).expected_plan("r")
    assert sorted(rank.port for rank in plan.ranks()) == list(range(8))
    told = mistakes_of(text.format(7, 0))
    assert "jobs[1]: needs 7 ports, but only 6 are available" in told
    assert "needs 6 ports, but only 4 are available" in mistakes_of(text.format(6, 2))


def test_an_order_of_many_ranks_is_checked_in_linear_time() -> None:
    order = list(range(65_536))
    order[60_000] = order[50_000]
    job = Job.model_validate(
        {
            "name": "a",
            "trace": {"synth": "incast", "ranks": 65_536},
            "placement": {"order": order},
        }
    )
    started_ns = process_time_ns()
    (mistake,) = check_jobs((job,))
    # Comparing every rank with every other takes more than a minute.
    assert process_time_ns() - started_ns < 20 * 10**9
    assert mistake.found == "rank 50000 occurs twice"


def test_an_experiment_that_is_written_with_all_defaults_can_be_read_again() -> None:
    text = (
        "{version: 1, name: a, jobs: [{name: j, trace: {synth: random_pairs, ranks: 4, "
        "sizes: hadoop}}], fabric: {kind: loopback}}"
    )
    document = parse_experiment(text).model_dump(mode="json", by_alias=True)
    trace = recorded_experiment(document, "a run").jobs[0].trace
    assert isinstance(trace, RandomPairsTrace)
    assert list(trace.doubts()) == []
