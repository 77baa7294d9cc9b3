"""Hosts of other tools' inventories."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from chakram.fabric.inventory.third_party_inventories import ListedHost, listed_hosts
from chakram.foundation.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["gpu01", "gpu02", "gpu10"]
ANSIBLE = {
    "_meta": {"hostvars": {"gpu02": {"ansible_host": "192.0.2.2"}}},
    "all": {"children": ["ungrouped", "gpu"]},
    "gpu": {"hosts": ["gpu01", "gpu02"], "children": ["late"]},
    "late": {"hosts": ["gpu10"]},
}
CLOUDAI = """\
name = "cluster"
scheduler = "slurm"
[[partitions]]
name = "main"
[[partitions.groups]]
name = "first"
nodes = ["gpu[01-02]"]
[[partitions.groups]]
name = "second"
nodes = ["gpu10"]
[[partitions]]
name = "debug"
[[partitions.groups]]
name = "first"
nodes = ["gpu01"]
"""
FILES = {
    "hostfile": "# cluster\ngpu01 slots=8 max_slots=8\ngpu02 slots=8 # new\n\ngpu10\n",
    "machines": "gpu01:8\ngpu02:8\ngpu10:8\n",
    "lists": "gpu[01-02,10] slots=4\n",
    "hosts.json": json.dumps(ANSIBLE),
    "system.toml": CLOUDAI,
}


def names(text: str, group: str | None = None) -> list[str]:
    return [each.name for each in listed_hosts(text, group=group)]


@pytest.mark.parametrize("file", FILES)
def test_all_forms_list_the_same_hosts(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text(FILES[file])
    assert names(str(tmp_path / file)) == NAMES == names("gpu[01-02,10]")


def test_a_host_list_may_be_longer_than_a_file_name() -> None:
    text = f"gpu[{','.join(f'{number:03}' for number in range(1, 200, 2))}]"
    assert len(text) > 255
    assert names(text)[-2:] == ["gpu197", "gpu199"]


def test_ansible_inventory_names_addresses(tmp_path: Path) -> None:
    (tmp_path / "hosts.json").write_text(FILES["hosts.json"])
    second = listed_hosts(str(tmp_path / "hosts.json"))[1]
    assert second == ListedHost("gpu02", "192.0.2.2")


@pytest.mark.parametrize(
    ("file", "group", "expected"),
    [
        ("hosts.json", "late", ["gpu10"]),
        ("hosts.json", "gpu", NAMES),
        ("hosts.json", "ungrouped", None),
        ("hosts.json", "absent", None),
        ("system.toml", "debug", ["gpu01"]),
        ("system.toml", "absent", None),
        ("hostfile", "gpu", None),
    ],
)
def test_a_group_limits_the_hosts(
    tmp_path: Path, file: str, group: str, expected: list[str] | None
) -> None:
    (tmp_path / file).write_text(FILES[file])
    if expected is not None:
        assert names(str(tmp_path / file), group) == expected
        return
    with pytest.raises(ConfigError):
        names(str(tmp_path / file), group)


def test_a_file_with_a_line_per_core_is_refused_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "nodefile"  # as PBS writes it
    file.write_text("gpu01\ngpu01\ngpu02\n")
    with pytest.raises(ConfigError, match=f"sort -u {file}"):
        names(str(file))


def test_partitions_of_cloudai_need_no_groups(tmp_path: Path) -> None:
    file = tmp_path / "system.toml"
    file.write_text(
        '[[partitions]]\nname = "main"\nnodes = ["gpu[01-04]"]\n'
        '[[partitions.groups]]\nname = "first"\nnodes = ["gpu[01-02]"]\n'
        '[[partitions]]\nname = "late"\nnodes = ["gpu[05-06]"]\n'
        '[[partitions]]\nname = "debug"\n'
    )
    assert names(str(file)) == [f"gpu0{number}" for number in range(1, 7)]
    assert names(str(file), "late") == ["gpu05", "gpu06"]
    with pytest.raises(ConfigError, match="names no host of 'debug'"):
        names(str(file), "debug")


def ansible(**changed: Any) -> str:
    return json.dumps({**ANSIBLE, **changed})


MALFORMED = [
    ("hostfile", "gpu01\ngpu02 slots=many\n", "line 2", "'slots=many' after the host"),
    ("hostfile", "gpu01\n\ngpu01 slots=1\n", "line 3", "again, after line 1"),
    ("hostfile", "gpu[01\n", "line 1", "without a ']'"),
    ("hostfile", "gpu01 gpu02\n", "line 1", "'gpu02' after the host"),
    ("hostfile", "# none\n", "hostfile", "names no host"),
    ("hostfile", "gp\x00u\n", "line 1", "not a host name"),
    ("hosts.ini", "# all\n[gpu]\ngpu[01:02]\n", "line 2", "Ansible inventory"),
    ("hosts.ini", "gpu1 ansible_host=192.0.2.1\n", "line 1", "Ansible inventory"),
    ("hosts.yml", "---\nall:\n  hosts:\n", "line 1", "Ansible inventory"),
    ("hosts.yml", "all:\n  hosts:\n", "line 1", "Ansible inventory"),
    ("hosts.json", "{", "hosts.json", "JSON"),
    ("hosts.json", "{}", "hosts.json", "no mapping '_meta'"),
    ("hosts.json", ansible(_meta=[]), "hosts.json", "no mapping '_meta'"),
    ("hosts.json", ansible(_meta={}), "_meta", "no mapping 'hostvars'"),
    ("hosts.json", ansible(gpu=[]), "gpu", "is not a group"),
    ("hosts.json", ansible(late={"hosts": "gpu10"}), "late.hosts", "list of names"),
    ("hosts.json", ansible(late={"hosts": [7]}), "late.hosts", "list of names"),
    ("hosts.json", ansible(late={"hosts": ["a b"]}), "late.hosts", "not a host name"),
    ("hosts.json", ansible(late={"hosts": ["n[1-2]"]}), "late.hosts", "not a host"),
    ("hosts.json", ansible(all={"children": 1}), "all.children", "list of names"),
    (
        "hosts.json",
        ansible(_meta={"hostvars": {"gpu01": {"ansible_host": 7}}}),
        "hostvars.gpu01.ansible_host",
        "is not a text",
    ),
    ("system.toml", "name = ", "system.toml", "is not TOML"),
    ("system.toml", "name = 1", "system.toml", "no list 'partitions'"),
    ("system.toml", "partitions = [1]", "partitions[0]", "is not a table"),
    ("system.toml", "[[partitions]]", "system.toml", "names no host"),
    ("system.toml", "[[partitions]]\ngroups = 1", "partitions[0]", "list 'groups'"),
    ("system.toml", "[[partitions]]\nnodes = 'n1'", "partitions[0]", "list 'nodes'"),
    (
        "system.toml",
        "[[partitions]]\n[[partitions.groups]]\nnodes = 'n1'",
        "partitions[0].groups[0]",
        "no list 'nodes'",
    ),
    (
        "system.toml",
        "[[partitions]]\n[[partitions.groups]]\nnodes = ['n[2-1]']",
        "partitions[0].groups[0].nodes",
        "runs backwards",
    ),
]


@pytest.mark.parametrize(("file", "text", "where", "found"), MALFORMED)
def test_malformed_inventories_are_refused_in_their_place(
    tmp_path: Path, file: str, text: str, where: str, found: str
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(ConfigError) as caught:
        listed_hosts(str(tmp_path / file))
    assert where in caught.value.where
    assert found in caught.value.found


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for text in (f"{tmp_path}/absent", "absent.json"):
        with pytest.raises(ConfigError, match="cannot be read"):
            listed_hosts(text)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8 at byte 0"):
        listed_hosts(f"{tmp_path}/binary")


def test_an_ansible_group_that_contains_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "hosts.json").write_text(ansible(late={"children": ["gpu"]}))
    assert names(f"{tmp_path}/hosts.json") == NAMES[:2]


def test_an_inventory_of_a_thousand_hosts_is_fast(tmp_path: Path) -> None:
    text = "".join(f"gpu{number:04} slots=8\n" for number in range(1024))
    (tmp_path / "hostfile").write_text(text)
    begun_s = time.process_time()
    assert len(names(f"{tmp_path}/hostfile")) == 1024
    assert time.process_time() - begun_s < 3
