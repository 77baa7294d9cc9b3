"""Experiments of clients use only what the service offers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from chakram.config.experiment import Experiment, load_experiment
from chakram.foundation.errors import ConfigError
from chakram.service.submissions import (
    THIS_MACHINE,
    check_submission,
    fabric_names,
)
from chakram.settings.field_types import CONFINED_TO, Model

JOB = {"name": "moe", "trace": {"synth": "moe", "ranks": 2, "ep": 2, "dp": 1}}
LOOPBACK = {"kind": "loopback"}


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    """Return a folder of resources, with a fabric, beside a secret."""
    (tmp_path / "secret.yaml").write_text("password: hunter2\n")
    folder = tmp_path / "resources"
    (folder / "fabrics").mkdir(parents=True)
    host = {
        "agent": "unix:/run/h1.sock",
        "ports": [{"open": "udp:e0", "address": "198.18.0.1/24"}],
    }
    other = {
        "agent": "unix:/run/h2.sock",
        "ports": [{"open": "udp:e0", "address": "198.18.0.2/24"}],
    }
    hosts = [{"name": "h1", **host}, {"name": "h2", **other}]
    inventory = {"version": 1, "hosts": hosts}
    (folder / "hosts.yaml").write_text(json.dumps(inventory))
    rack = {"kind": "external", "hosts": "hosts.yaml"}
    (folder / "fabrics/rack7.yaml").write_text(json.dumps(rack))
    return folder


def text(**changes: Any) -> str:
    whole = {"version": 1, "name": "x", "jobs": [JOB], "fabric": LOOPBACK, **changes}
    return json.dumps({key: value for key, value in whole.items() if value is not None})


def refusal(resources: Path, changes: dict[str, str] | None = None, **keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        check_submission(text(**keys), resources, changes=changes or {})
    return str(caught.value)


def test_a_fabric_of_this_machine_locks_this_machine(resources: Path) -> None:
    found = check_submission(text(), resources)
    assert found.fabric == THIS_MACHINE
    assert found.text == text()
    assert found.experiment.name == "x"


def test_named_fabrics_of_this_machine_share_its_lock(resources: Path) -> None:
    (resources / "fabrics/lab.yaml").write_text("kind: loopback\n")
    found = check_submission(text(fabric="lab"), resources)
    assert found.fabric == THIS_MACHINE
    # What is shown and run again is what was submitted.
    assert found.written == text(fabric="lab")
    assert check_submission(found.written, resources).digest == found.digest


def test_mistakes_beside_a_named_fabric_are_told(resources: Path) -> None:
    twice = text(fabric="rack7").rstrip("}") + ', "name": "y"}'
    with pytest.raises(ConfigError, match="name"):
        check_submission(twice, resources)


@pytest.mark.parametrize(
    ("line", "changes", "words"),
    [
        ("seed: -1", {}, "experiment:8: seed: -1 is too small"),
        ("seed: 1\nseed: 2", {}, "experiment:9: seed: is already set on line 8"),
        ("fabric: rack8", {}, "experiment:8: fabric: is already set on line 1"),
        ("seed: 1", {"seed": "-1"}, "--set seed=-1: -1 is too small"),
    ],
)
def test_mistakes_beside_a_named_fabric_have_their_lines(
    resources: Path, line: str, changes: dict[str, str], words: str
) -> None:
    lines = ["fabric: rack7", "version: 1", "# it", "name: x", "", "jobs:"]
    whole = "\n".join([*lines, f"  - {json.dumps(JOB)}", line])
    with pytest.raises(ConfigError) as caught:
        check_submission(whole, resources, changes=changes)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("kind: loopback\nudp_port: -1\n", "fabrics/bad.yaml: fabric.udp_port: -1"),
        ("kind: loopback\nkind: x\n", "fabrics/bad.yaml:2: kind: is already set"),
    ],
)
def test_mistakes_of_a_fabric_of_the_service_name_its_file(
    resources: Path, section: str, words: str
) -> None:
    (resources / "fabrics/bad.yaml").write_text(section)
    assert words in refusal(resources, fabric="bad")


def test_a_change_can_reveal_a_mistake_of_a_fabric_of_the_service(
    resources: Path,
) -> None:
    slow = {
        "kind": "namespaces",
        "dilation": 1000,
        "topology": {"single_switch": {"hosts": 2}},
        "links": {"host": {"rate": "10kbit"}},
    }
    (resources / "fabrics/slow.yaml").write_text(json.dumps(slow))
    told = refusal(resources, {"transport": "{}"}, fabric="slow", transport=5)
    assert "--set transport={}: fabric.links.host.rate" in told


def test_a_fabric_of_the_service_is_named(resources: Path) -> None:
    found = check_submission(text(fabric="rack7"), resources)
    assert found.fabric == "rack7"
    assert found.experiment.fabric.nports == 2
    # The child reads the same again.
    path = resources.parent / "experiment.yaml"
    path.write_text(found.text)
    again = load_experiment(path, confined_to=resources)
    assert again.fabric == found.experiment.fabric
    # Simulations use no hosts.
    virtual = check_submission(text(), resources, verb="simulate")
    assert virtual.fabric == THIS_MACHINE
    assert virtual.digest != check_submission(text(), resources).digest


@pytest.mark.parametrize(
    "name", ["rack8", "../secret", "..", "", "rack7.yaml", "/etc/passwd", "a/b", "\0"]
)
def test_other_fabrics_are_unknown(resources: Path, name: str) -> None:
    assert "known fabrics: rack7" in refusal(resources, fabric=name)


def test_clients_may_not_describe_hosts(resources: Path) -> None:
    inline = json.loads((resources / "fabrics/rack7.yaml").read_text())
    assert "describes hosts, but only the service may" in refusal(
        resources, fabric=inline
    )
    changed = {"fabric.allow": "[0.0.0.0/0]"}
    assert "cannot be changed" in refusal(resources, changed, fabric="rack7")


@pytest.mark.parametrize("key", ["runs", "metrics"])
def test_some_keys_are_the_service_s(resources: Path, key: str) -> None:
    value = {"runs": "/tmp", "metrics": "127.0.0.1:1"}[key]
    assert f"{key}: is " in refusal(resources, **{key: value})
    nested = {"metrics.listen": "127.0.0.1:1"} if key == "metrics" else {key: value}
    assert "by the service" in refusal(resources, nested)


OUTSIDE = ("/etc/passwd", "../secret.yaml", "a/../../secret.yaml", "link/secret.yaml")


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize(
    "keys",
    [
        lambda path: {"jobs": [{"name": "a", "trace": {"path": path}}]},
        lambda path: {
            "jobs": [{"name": "a", "trace": {"path": "t", "comm_groups": path}}]
        },
        lambda path: {"jobs": [{"name": "a", "trace": {"path": "t", "kineto": path}}]},
        lambda path: {"fabric": {"kind": "external", "hosts": path}},
        lambda path: {"collectives": {"all_reduce": {"msccl": path}}},
        lambda path: {
            "fabric": {
                "kind": "namespaces",
                "topology": {"single_switch": {"hosts": 2}},
                "switches": {"profile": "sonic", "sonic": path},
            }
        },
    ],
)
def test_files_outside_the_resources_are_refused(
    resources: Path, path: str, keys: Any
) -> None:
    (resources / "link").symlink_to(resources.parent)
    told = refusal(resources, **keys(path))
    assert "is outside the resources of the service" in told
    assert "hunter2" not in told


def test_python_code_is_not_run(resources: Path) -> None:
    (resources / "mine.py").write_text("raise SystemExit('ran')\n")
    told = refusal(resources, collectives={"all_reduce": {"python": "mine.py:ring"}})
    assert "is Python code, which a service does not run for clients" in told


def path_fields() -> Iterator[tuple[str, Any]]:
    """Yield all fields of paths in the sections of an experiment, and their types."""
    waiting: list[Any] = [Experiment]
    seen: set[Any] = set()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        if isinstance(each, type) and issubclass(each, Model):
            for name, field in each.model_fields.items():
                kind: Any = field.annotation
                if field.metadata:
                    kind = Annotated[kind, *field.metadata]
                if Path in kinds(kind):
                    yield f"{each.__name__}.{name}", kind
                waiting.append(field.annotation)
        waiting += [inner for inner in get_args(each) if not isinstance(inner, str)]


def kinds(annotation: Any) -> set[Any]:
    """Return all types inside of an annotation."""
    found = set()
    waiting = [annotation]
    while waiting:
        each = waiting.pop()
        inner = get_args(each)
        waiting += inner
        if not inner and isinstance(each, type):
            found.add(each)
    return found


FIELDS = dict(path_fields())


def test_the_fields_of_paths_are_found() -> None:
    sections = ("Experiment", "TraceFiles", "PortSettings", "TlsSettings", "Routing")
    assert {name.partition(".")[0] for name in FIELDS} >= {*sections}


@pytest.mark.parametrize("name", FIELDS)
def test_every_path_of_the_schema_is_confined(resources: Path, name: str) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(FIELDS[name])
    for path in ("/etc/passwd", "../secret.yaml"):
        with pytest.raises(ValidationError, match="the service"):
            adapter.validate_python(
                path, context={CONFINED_TO: resources, "base_directory": resources}
            )


def test_fabrics_are_files_with_plain_names(resources: Path) -> None:
    (resources / "fabrics/.hidden.yaml").write_text("{}")
    (resources / "fabrics/other.txt").write_text("{}")
    assert fabric_names(resources) == ["rack7"]
    assert fabric_names(resources / "none") == []
