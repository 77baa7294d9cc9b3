"""The files of ``deploy/`` for Prometheus, Grafana and systemd are consistent."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram_agent.cli import parser, serve_options
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
    (pattern,) = load("prometheus/prometheus.yml")["rule_files"]
    rules = mounted[f"/etc/prometheus/{pattern.partition('/')[0]}"]
    assert [path.name for path in rules.glob(pattern.partition("/")[2])] == [
        "chakram.yaml"
    ]
    # Who checks asks for every dashboard that there is.
    check = "\n".join(compose["services"]["check"]["command"])
    assert all(name.removesuffix(".json") in check for name in names)


@pytest.mark.parametrize("service", ["prometheus", "grafana", "check"])
def test_nothing_listens_beyond_this_machine(service: str) -> None:
    text = yaml.safe_dump(load("compose.yaml")["services"][service])
    assert "127.0.0.1" in text
    assert "ports" not in load("compose.yaml")["services"][service]
