"""Every command of the documentation is run by some test, or says why it cannot be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram.config.experiment import parse_experiment
from chakram.fabric.fabric_types.inventory_file import Inventory
from chakram.telemetry.mapping import TelemetryMapping
from tests.documented import (
    COMMANDS,
    CONFIGS,
    PAGES,
    Place,
    config_fences,
    fences,
    parsed_fence,
)
from tests.support import REPO_ROOT
from tests.waiting import wait_until

ALL = [fence for page in PAGES for fence in fences(page)]

OTHER_LANGUAGES = {"", "diff", "yaml", "text", "promql", "sql", "ini", "json"} | {
    # Directives of the site.
    *("{toctree}", "{glossary}", "{eval-rst}")
}

PROGRAMS = re.compile(
    r"^(\$ |(chakram|chakram-agent|make|curl|docker|ip|tshark|pip|python3?|git) )",
    re.MULTILINE,
)

JOB = {
    "name": "moe",
    "trace": {"synth": "moe", "ranks": 8},
    # However few ports a page shows.
    "placement": {"ranks_per_port": 64},
}
EXPERIMENT = {
    "version": 1,
    "name": "page",
    "fabric": {
        "kind": "namespaces",
        "topology": {"single_switch": {"hosts": 8}},
        "links": {"host": {"rate": "100Mbit"}},
    },
}
"""What parts of an experiment on a page are read with, and parts of a job."""


@pytest.mark.parametrize("fence", ALL, ids=lambda fence: fence.where)
def test_a_fence_with_commands_names_their_language(fence: Any) -> None:
    assert fence.language in {*COMMANDS, *OTHER_LANGUAGES}
    if fence.language not in COMMANDS:
        assert not PROGRAMS.search(fence.text)
        assert not fence.tags or (fence.language == "text" and "output" in fence.tags)
    if fence.language == "console":
        assert fence.script()


@pytest.mark.parametrize(
    "fence",
    [fence for fence in ALL if fence.reason is not None],
    ids=lambda fence: fence.where,
)
def test_what_is_not_run_says_why(fence: Any) -> None:
    assert len(fence.reason.split()) >= 3


@pytest.mark.parametrize("config", CONFIGS)
def test_a_ready_experiment_says_how_it_is_run(config: str) -> None:
    commands = [fence.text for fence in config_fences(config)]
    verbs = {command.split()[1] for command in commands}
    assert verbs <= {"run", "simulate", "plan", "certs"}
    assert "simulate" in verbs
    assert all(f"configs/{config}" in command for command in commands)
    text = (REPO_ROOT / "configs" / config).read_text(encoding="utf-8")
    assert len(re.findall(r"^#   chakram ", text, flags=re.MULTILINE)) == len(commands)
    assert "run" in verbs or "for the simulator" in text


@pytest.mark.parametrize(
    "fence",
    [
        fence
        for fence in ALL
        if fence.language == "yaml" and not fence.page.startswith("docs/design")
    ],
    ids=lambda fence: fence.where,
)
def test_an_experiment_on_a_page_is_right(fence: Any) -> None:
    data = yaml.safe_load(fence.text)
    if data is None or fence.reason is not None:
        return
    if "hosts" in data:
        assert Inventory.model_validate(data)
        return
    if "subscribe" in data:
        assert TelemetryMapping.model_validate(data)
        return
    whole = data
    if "version" not in data:
        jobs = [data] if "trace" in data else data.get("jobs", [{}])
        others = {} if "trace" in data else data
        whole = {**EXPERIMENT, **others, "jobs": [{**JOB, **job} for job in jobs]}
    assert parse_experiment(yaml.safe_dump(whole), source=fence.where)


def test_a_command_that_fails_is_told_with_its_page(tmp_path: Path) -> None:
    place = Place(tmp_path, None)
    (fence,) = (each for each in fences("docs/design/dcqcn.md") if each.is_run)
    wrong = replace(fence, text="$ chakram dcqcn no-such-profile\n")
    with pytest.raises(AssertionError, match=rf"{fence.page}:\d+: "):
        place.run([wrong], soak=False, timeout_s=60)


def is_running(number: int) -> bool:
    """Tell whether there is such a process that has not ended yet."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_a_command_without_an_end_is_ended_with_all_that_it_started(
    tmp_path: Path,
) -> None:
    (fence,) = (each for each in fences("docs/design/dcqcn.md") if each.is_run)
    endless = replace(fence, text="$ sleep 600 & echo $! > started; wait\n")
    with pytest.raises(AssertionError, match=rf"{fence.page}:\d+: no end after"):
        Place(tmp_path, None).run([endless], soak=False, timeout_s=0.5)
    number = int((tmp_path / "started").read_text())
    wait_until(lambda: not is_running(number), "the end of what it started")


def test_an_unknown_tag_is_refused() -> None:
    with pytest.raises(ValueError, match="sook is no tag"):
        parsed_fence("page.md", 1, "sh sook", "true")
