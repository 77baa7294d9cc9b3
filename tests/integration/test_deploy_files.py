"""The files of ``deploy/`` are accepted by the programs that read them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from chakram.cli import main
from chakram.fabric.inventory.third_party_inventories import listed_hosts
from chakram_agent.cli import parser, serve_options
from dashboards.query_files import all_queries
from tests.support import REPO_ROOT, missing_program, require
from tests.unit.metrics.test_state import exposition, full_state
from tests.waiting import PATIENCE_S

DEPLOY = REPO_ROOT / "deploy"


def load(path: str) -> Any:
    return yaml.safe_load((DEPLOY / path).read_text(encoding="utf-8"))


def promtool(*arguments: str, text: str | None = None) -> str:
    require("prometheus", missing_program("promtool"))
    done = subprocess.run(
        ["promtool", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_accepts_the_configuration() -> None:
    promtool("check", "config", str(DEPLOY / "prometheus/prometheus.yml"))


def test_promtool_accepts_the_metrics() -> None:
    assert promtool("check", "metrics", text=exposition(full_state(2))) == ""


UNIT = DEPLOY / "systemd/chakram-agent.service"
_PROGRAM = "/opt/chakram/bin/chakram-agent"


def analyzed(*arguments: str) -> subprocess.CompletedProcess[str]:
    require("systemd", missing_program("systemd-analyze"))
    return subprocess.run(
        ["systemd-analyze", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_systemd_accepts_the_unit_of_the_agent(tmp_path: Path) -> None:
    """The exit code is 0 for unknown keys, too, so that the output has to be empty."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(_PROGRAM, sys.executable))
    done = analyzed("verify", str(unit))
    assert done.stderr == ""
    wrong = tmp_path / "wrong.service"
    wrong.write_text(unit.read_text().replace("LockPersonality", "LockPersonalty"))
    assert "Unknown key" in analyzed("verify", str(wrong)).stderr


def test_the_unit_exposes_little() -> None:
    done = analyzed("security", "--offline=true", "--threshold=25", str(UNIT))
    assert done.returncode == 0, done.stdout


def test_the_unit_starts_an_agent_with_limits() -> None:
    text = UNIT.read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^ExecStart=\S+ (.*)$", text, re.MULTILINE)
    options = serve_options(parser().parse_args(line.split()))
    assert [str(each) for each in options.policy.allow] == ["198.18.0.0/15"]
    assert options.policy.max_rate_bps == 50_000_000_000
    assert options.tls is not None


def test_a_unit_may_have_addresses_of_ipv6(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["--listen", "[::]:7411", "--allow", "::1/128"]
    assert main(["launch", "systemd", *wanted]) == 0
    text = capsys.readouterr().out.replace("\\\n", " ")
    (line,) = re.findall(r"^ExecStart=\S+ (.*)$", text, re.MULTILINE)
    options = serve_options(parser().parse_args(line.split()))
    assert options.listen == "[::]:7411"
    assert [str(each) for each in options.policy.allow] == ["::1/128"]


@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        ("systemd/chakram-agent.service", "systemd --max-rate 50Gbit"),
        ("ansible/playbook.yaml", "ansible"),
        (
            "kubernetes/chakram.yaml",
            "kubernetes moe.yaml --nodes 4 --port-in 198.18.0.0/15 --claim chakram "
            "--image registry.example/chakram:0.2.0",
        ),
        ("slurm/chakram.sbatch", "sbatch moe.yaml --nodes 4 --port-in 198.18.0.0/15"),
    ],
)
def test_examples_are_what_chakram_launch_prints(
    file: str, arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", *arguments.split()]) == 0
    assert capsys.readouterr().out == (DEPLOY / file).read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "kubernetes",
            "a b.yaml",
            "--image",
            "i",
            "--claim",
            "c",
            "--port-in",
            "2001:2::/48",
        ],
        [
            "kubernetes",
            "a.yaml",
            "--image",
            "i\n",
            "--claim",
            "c",
            "--port-in",
            "2001:2::/48",
        ],
        [
            "kubernetes",
            "a.yaml",
            "--image",
            "i",
            "--claim",
            "'",
            "--port-in",
            "2001:2::/48",
        ],
        ["ansible", "--listen", "{{ secret }}"],
    ],
)
def test_values_that_a_file_would_misread_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = ["--nodes", "2"] if arguments[0] == "kubernetes" else []
    assert main(["launch", *arguments, *nodes]) == 2
    assert "is not a name or address" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("systemd --allow banana", "--allow"),
        ("ansible --max-rate fast", "--max-rate"),
        ("sbatch a.yaml --nodes 2 --port-in 1.2.3.4/8", "--port-in"),
        (
            "kubernetes a.yaml --nodes 2 --image i --claim c --port-in banana",
            "--port-in",
        ),
    ],
)
def test_prefixes_and_rates_are_checked(
    arguments: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", *arguments.split()]) == 2
    assert f"error: {found}" in capsys.readouterr().err


def test_kubernetes_accepts_the_manifests() -> None:
    text = (DEPLOY / "kubernetes/chakram.yaml").read_text()
    documents = list(yaml.safe_load_all(text))
    assert [each["kind"] for each in documents] == ["Service", "Job", "Job"]
    for document in documents:
        for version in ("1.29", "1.37"):
            kubernetes_validate.validate(document, version, strict=True)
    documents[1]["spec"]["template"]["spec"]["hostNetwrk"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(documents[1], "1.37", strict=True)


def test_the_controller_in_kubernetes_runs_valid_commands() -> None:
    *_, controller = yaml.safe_load_all(
        (DEPLOY / "kubernetes/chakram.yaml").read_text()
    )
    (container,) = controller["spec"]["template"]["spec"]["containers"]
    *shell, script = container["command"]
    subprocess.run([*shell[:1], "-n"], input=script, text=True, check=True)
    hosts, prefix = re.findall(r"hosts find '(\S+)' --port-in (\S+)", script)[0]
    names = [f"chakram-agents-{number}.chakram-agents" for number in range(4)]
    assert [each.name for each in listed_hosts(hosts)] == names
    assert prefix == "198.18.0.0/15"


def test_the_agents_in_kubernetes_start_with_valid_options() -> None:
    _, agents, _ = yaml.safe_load_all((DEPLOY / "kubernetes/chakram.yaml").read_text())
    (container,) = agents["spec"]["template"]["spec"]["containers"]
    program, *words = container["command"]
    assert program == "chakram-agent"
    options = serve_options(parser().parse_args(words))
    assert [str(each) for each in options.policy.allow] == ["198.18.0.0/15"]
    assert options.tls is not None


def test_pods_in_kubernetes_get_only_the_keys_of_their_side() -> None:
    _, *jobs = yaml.safe_load_all((DEPLOY / "kubernetes/chakram.yaml").read_text())
    keys = []
    for job in jobs:
        volumes = job["spec"]["template"]["spec"]["volumes"]
        (items,) = [each["secret"]["items"] for each in volumes if "secret" in each]
        assert all(each["key"] == each["path"] for each in items)
        keys.append({each["key"] for each in items})
    agents = {f"chakram-agents-{number}" for number in range(4)}
    files = {f"{name}.{kind}" for name in agents for kind in ("pem", "key")}
    assert keys[0] == {"ca.pem", *files}
    assert keys[1] == {"ca.pem", "controller.pem", "controller.key"}


def test_ansible_accepts_the_playbook() -> None:
    playbook = DEPLOY / "ansible/playbook.yaml"
    folder = Path(sys.executable).parent
    done = subprocess.run(
        [folder / "ansible-playbook", "--syntax-check", "-i", "localhost,", playbook],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    # The unit within the playbook is that of chakram launch systemd.
    (play,) = yaml.safe_load(playbook.read_text())
    (copied,) = [
        each["ansible.builtin.copy"]["content"]
        for each in play["tasks"]
        if each["name"] == "Copy the unit"
    ]
    assert copied.splitlines() == [
        line.replace(" --max-rate 50Gbit", "") for line in UNIT.read_text().splitlines()
    ]


def test_the_image_contains_the_wheel_of_make_dist() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    (pattern,) = re.findall(r"^COPY (\S+) /tmp/$", text, re.MULTILINE)
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert fnmatch(f"chakram-0.2.0-{version}-{version}-linux_x86_64.whl", pattern)
    assert not fnmatch("chakram-0.2.0-py3-none-any.whl", pattern)


def test_prometheus_finds_the_agents_of_an_inventory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("prometheus", missing_program("promtool"))
    inventory = tmp_path / "hosts.yaml"
    port = "ports: [{open: 'udp:e0', address: 198.18.0.%d/24}]"
    inventory.write_text(
        "version: 1\nhosts:\n"
        f"  - {{name: a, agent: '192.0.2.1:7411', {port % 1}}}\n"
        f"  - {{name: b, login: me@b.lab, {port % 2}}}\n"
        f"  - {{name: c, agent: 'unix:/run/agent.sock', {port % 3}}}\n"
        f"  - {{name: d, agent: '[2001:db8::1]:7411', {port % 4}}}\n"
    )
    assert main(["hosts", "show", str(inventory), "--metrics-port", "9465"]) == 0
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets/agents.json").write_text(capsys.readouterr().out)
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    del config["rule_files"]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    config_file = str(tmp_path / "prometheus.yml")
    text = promtool(
        "check", "service-discovery", "--timeout=3s", config_file, "chakram-agents"
    )
    found, _ = json.JSONDecoder().raw_decode(text)
    labels = [each["labels"] for each in found]
    assert {each["instance"]: each["chakram_host"] for each in labels} == {
        "192.0.2.1:9465": "a",
        "b.lab:9465": "b",
        "localhost:9465": "c",
        "[2001:db8::1]:9465": "d",
    }


RULES = REPO_ROOT / "dashboards/rules"


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", str(RULES / "chakram.yaml"))


def test_promtool_tests_of_rules_pass() -> None:
    file = RULES / "tests/chakram.yaml"
    promtool("test", "rules", str(file))
    tested = file.read_text(encoding="utf-8")
    for group in yaml.safe_load((RULES / "chakram.yaml").read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            assert (rule.get("record") or rule["alert"]) in tested


def test_drops_have_reasons_and_none_are_shown_as_0(tmp_path: Path) -> None:
    (query,) = [each for each in all_queries() if "dropped_packets" in each.expr]
    expr = query.substituted(window="4s")
    place = 'job="j",instance="i",run_id="r",link="a",direction="up"'
    name = f"chakram_switch_dropped_packets_total{{{place}"
    test = {
        "interval": "1s",
        "input_series": [
            {"series": f'{name},reason="WRED"}}', "values": "0x10 0+5x30"},
            {"series": f'{name},reason="no route"}}', "values": "0x40"},
        ],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": time,
                "exp_samples": [{"labels": labels, "value": value}],
            }
            for time, labels, value in (
                ("8s", '{reason="none"}', 0),
                ("20s", '{link="a",direction="up",reason="WRED"}', 5),
            )
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "1s", "tests": [test]}))
    promtool("test", "rules", str(file))


def test_windows_of_rates_follow_the_scrape_interval() -> None:
    (source,) = load("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    scraped = load("prometheus/prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped
    assert source["type"] == "prometheus"


def test_every_mounted_file_exists() -> None:
    compose = load("compose.yaml")
    mounted: dict[str, Path] = {}
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source, target = volume.split(":")[:2]
            if source.startswith("."):
                mounted[target] = (DEPLOY / source).resolve()
            else:
                assert source in compose["volumes"]
    assert [str(path) for path in mounted.values() if not path.exists()] == []
    provider = load("grafana/provisioning/dashboards/chakram.yaml")["providers"][0]
    dashboards = mounted[provider["options"]["path"]]
    names = sorted(path.name for path in dashboards.glob("*.json"))
    assert len(names) == 6
    home = compose["services"]["grafana"]["environment"][
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"
    ]
    assert home == f"{provider['options']['path']}/chakram-run.json"
    assert home.rpartition("/")[2] in names
    # Rules are where the configuration looks for them.
    settings = load("prometheus/prometheus.yml")
    (pattern,) = settings["rule_files"]
    rules = mounted[f"/etc/prometheus/{pattern.partition('/')[0]}"]
    assert [path.name for path in rules.glob(pattern.partition("/")[2])] == [
        "chakram.yaml"
    ]
    # So are lists of agents.
    (found,) = settings["scrape_configs"][1]["file_sd_configs"][0]["files"]
    assert f"/etc/prometheus/{found.partition('/')[0]}" in mounted
    # Who checks asks for every dashboard that there is.
    check = "\n".join(compose["services"]["check"]["command"])
    assert all(name.removesuffix(".json") in check for name in names)


@pytest.mark.parametrize("service", ["prometheus", "grafana", "check"])
def test_nothing_listens_beyond_this_machine(service: str) -> None:
    text = yaml.safe_dump(load("compose.yaml")["services"][service])
    assert "127.0.0.1" in text
    assert "ports" not in load("compose.yaml")["services"][service]
