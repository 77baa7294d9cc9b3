"""The files of ``deploy/`` for Prometheus and Grafana are consistent."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

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
