"""Hosts from the inventories of other tools: Slurm, MPI, Ansible and CloudAI."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chakram.fabric.inventory.slurm_hostlist import MAX_HOSTS, expand_host_list
from chakram.foundation.bounded_reading import parse_json, read_bounded
from chakram.foundation.errors import ConfigError

_LIMIT_BYTES = 64 << 20
_SLOTS = re.compile(r"(slots|max[-_]slots)=[0-9]{1,9}")
_COUNT = re.compile(r":[0-9]{1,9}$")
_ANSIBLE = re.compile(r"\[[A-Za-z_].*\]|---|[A-Za-z_][\w.-]*:|\S+\s.*\bansible_\w+=.*")
"""Pattern of lines in Ansible's own inventory formats, INI and YAML."""
_MEMBERS = 4
_SUFFIXES = (".ini", ".json", ".toml", ".txt", ".yaml", ".yml")
"""Suffixes of file names. A text with such a suffix is never a host list, even if there
is no file with that name."""


@dataclass(frozen=True, slots=True)
class ListedHost:
    """A host, and its address or name on the control network."""

    name: str
    address: str


def listed_hosts(text: str, *, group: str | None = None) -> list[ListedHost]:
    """Return the hosts of a list or an inventory file, in the given order.

    Args:
        text: A host list in Slurm notation, or the name of a file. The file is an Open
            MPI, MPICH or Intel MPI hostfile, the output of ``ansible-inventory
            --list``, or a CloudAI system file (``.toml``).
        group: Name of a group (Ansible) or partition (CloudAI), or None for all hosts.

    Raises:
        ConfigError: If the list or file is invalid, or names a host twice.
    """
    path = Path(text)
    if not (_is_file(path) or "/" in text or path.suffix in _SUFFIXES):
        if group is not None:
            raise ConfigError("--group", "a host list has no groups", "name a file")
        return [
            ListedHost(each, each) for each in expand_host_list(text, where="hosts")
        ]
    data = read_bounded(path, limit_bytes=_LIMIT_BYTES, error=ConfigError)
    if path.suffix == ".toml":
        found = _of_cloudai(data, text, group)
    elif data.lstrip().startswith(b"{"):
        found = _of_ansible(data, text, group)
    elif group is not None:
        raise ConfigError("--group", f"{text} has no groups", "leave out --group")
    else:
        found = _of_hostfile(data, text)
    # A host may be a member of several groups or partitions.
    hosts = list(dict.fromkeys(found))
    if not hosts:
        what = "names no host" if group is None else f"names no host of {group!r}"
        raise ConfigError(
            text, what, "is it the right file? Or give a host list, e.g. gpu[001-064]"
        )
    if len(hosts) > MAX_HOSTS:
        raise ConfigError(text, f"has more than {MAX_HOSTS} hosts")
    return hosts


def _is_file(path: Path) -> bool:
    """Return whether a file exists. A long host list is not a valid file name."""
    try:
        return path.is_file()
    except OSError:
        return False


def _of_hostfile(data: bytes, source: str) -> Iterator[ListedHost]:
    """Yield the hosts of a file with one host per line.

    Open MPI writes ``host slots=8``, MPICH and Intel MPI ``host:8``.
    """
    lines: dict[str, int] = {}
    for number, raw in enumerate(_decoded(data, source).splitlines(), start=1):
        words = raw.partition("#")[0].split()
        if not words:
            continue
        where = f"{source}: line {number}"
        if _ANSIBLE.fullmatch(" ".join(words)):
            raise ConfigError(
                where,
                "is a line of an Ansible inventory, not a host",
                f"name its JSON: ansible-inventory -i {source} --list > hosts.json",
            )
        for word in words[1:]:
            if not _SLOTS.fullmatch(word):
                raise ConfigError(
                    where, f"has {word[:60]!r} after the host", "e.g. gpu1 slots=8"
                )
        for name in expand_host_list(_COUNT.sub("", words[0]), where=where):
            if name in lines:
                raise ConfigError(
                    where,
                    f"names host {name} again, after line {lines[name]}",
                    f"name each host once: sort -u {source}",
                )
            lines[name] = number
            yield ListedHost(name, name)


def _of_ansible(data: bytes, source: str, group: str | None) -> Iterator[ListedHost]:
    """Yield the hosts of a group, in the order of ``ansible-inventory --list``.

    The address of a host is ``ansible_host`` if the inventory sets it.
    """
    hint = "write it with: ansible-inventory --list > hosts.json"
    document = parse_json(data, source, error=ConfigError, hint=hint)
    meta = _member(document, "_meta", dict, source, hint)
    variables = _member(meta, "hostvars", dict, f"{source}: _meta", hint)
    waiting = [group or "all"]
    known = {"all", "ungrouped", *document}
    if waiting[0] not in known:
        raise ConfigError(
            "--group", f"{source} has no group {waiting[0]!r}", _one_of(document)
        )
    visited: set[str] = set()
    while waiting:
        name = waiting.pop(0)
        if name in visited:
            continue
        visited.add(name)
        members = document.get(name, {})
        where = f"{source}: {name}"
        if not isinstance(members, dict):
            raise ConfigError(where, "is not a group", hint)
        for host in _names(members.get("hosts", []), f"{where}.hosts"):
            own = variables.get(host, {})
            address = own.get("ansible_host", host) if isinstance(own, dict) else host
            if not isinstance(address, str):
                raise ConfigError(
                    f"{source}: _meta.hostvars.{host}.ansible_host", "is not a text"
                )
            if expand_host_list(host, where=f"{where}.hosts") != [host]:
                raise ConfigError(f"{where}.hosts", f"{host!r} is not a host name")
            yield ListedHost(host, address)
        waiting += _names(members.get("children", []), f"{where}.children")


def _of_cloudai(data: bytes, source: str, group: str | None) -> Iterator[ListedHost]:
    """Yield the nodes of the partitions of a CloudAI system file."""
    try:
        document = tomllib.loads(_decoded(data, source))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(source, f"is not TOML: {error}") from None
    hint = "e.g. [[partitions]] with [[partitions.groups]] and nodes"
    partitions = _member(document, "partitions", list, source, hint)
    names = [each.get("name") for each in partitions if isinstance(each, dict)]
    if group is not None and group not in names:
        found = f"{source} has no partition {group!r}"
        raise ConfigError("--group", found, _one_of(filter(None, names)))
    for at, partition in enumerate(partitions):
        where = f"{source}: partitions[{at}]"
        if not isinstance(partition, dict):
            raise ConfigError(where, "is not a table", hint)
        if group not in (None, partition.get("name")):
            continue
        for text, place in _nodes_of_partition(partition, where, hint):
            for name in expand_host_list(text, where=place):
                yield ListedHost(name, name)


def _nodes_of_partition(
    partition: dict[str, Any], where: str, hint: str
) -> Iterator[tuple[str, str]]:
    """Yield the host lists of a partition, each with its location in the file.

    In older files, the partition itself also lists nodes. A partition may have no list,
    because CloudAI can ask Slurm for the nodes.
    """
    owners = [(partition, where)]
    if "groups" in partition:
        groups = _member(partition, "groups", list, where, hint)
        owners += [(each, f"{where}.groups[{at}]") for at, each in enumerate(groups)]
    for owner, place in owners:
        if owner is partition and "nodes" not in owner:
            continue
        nodes = _names(_member(owner, "nodes", list, place, hint), f"{place}.nodes")
        yield from ((each, f"{place}.nodes") for each in nodes)


def _member(owner: Any, name: str, kind: type, where: str, hint: str) -> Any:
    value = owner.get(name) if isinstance(owner, dict) else None
    if not isinstance(value, kind):
        what = "list" if kind is list else "mapping"
        raise ConfigError(where, f"has no {what} {name!r}", hint)
    return value


def _names(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(where, "is not a list of names")
    return value


def _one_of(names: Iterable[str]) -> str:
    known = sorted(name for name in names if name != "_meta")
    more = ", ..." if len(known) > _MEMBERS else ""
    return f"one of: {', '.join(known[:_MEMBERS])}{more}"


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(source, f"is not UTF-8 at byte {error.start}") from None
