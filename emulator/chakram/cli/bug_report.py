"""``chakram bug-report``: collect versions, checks and a run as anonymized text."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from chakram.chakra.write.atomic_file import new_file, refuse_existing
from chakram.cli.common.options import Force, Json, print_json
from chakram.foundation.errors import ConfigError, NoRunDirectory
from chakram.foundation.redaction import Redactor

_MOST_BYTES = 1 << 20
"""Maximum number of bytes per file in a report, which keeps the end of longer files."""
_FILES = ("experiment.yaml", "run.json", "preflight.json", "*.log", "agents/*.log")
_HOST_KEYS = frozenset({"host", "hostname", "agent"})
"""Keys whose value is a host name, with or without a port."""


def bug_report(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN]", help="Run directory to include."),
    ] = None,
    out: Annotated[
        str, typer.Option(metavar="FILE", help="File to write, or - to print only.")
    ] = "chakram-bug-report.txt",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Write the file without confirmation.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Collect versions, checks and a run for a bug report.

    Host names, addresses, user names and home folders are replaced, e.g. by h1, addr1
    and user1. Other names remain, e.g. those of experiments and jobs. Read the report
    before you send it. Nothing is sent over a network.
    """
    target = None if out == "-" else Path(out)
    if target is not None:
        refuse_existing(target, force=force)
    found = _facts() | ({} if run is None else _run_files(run))
    text = "\n".join(f"==== {name}\n{content}" for name, content in found.items())
    redactor = Redactor(
        text, hosts=_hosts(found), users=_users(), home=os.path.expanduser("~")
    )
    text = redactor.redact(text)
    if not as_json:
        print(text)
        counts = ", ".join(f"{n} {kind}" for kind, n in redactor.counts.items())
        typer.echo(f"# replaced: {counts or 'nothing'}", err=True)
    written = target is not None and (yes or _agreed(target))
    if target is not None and written:
        with new_file(target, force=force) as file:
            file.write(text.encode())
    if as_json:
        document = {"written": str(target) if written else None, "text": text}
        print_json("bug-report", {**document, "replaced": redactor.counts})
    elif target is not None:
        told = f"wrote {target}; read it before you send it"
        typer.echo(f"# {told if written else 'nothing was written'}", err=True)


def _agreed(target: Path) -> bool:
    """Ask on the terminal whether to write the file.

    Raises:
        ConfigError: If there is no terminal.
    """
    if not sys.stdin.isatty():
        raise ConfigError(
            "chakram bug-report",
            "there is no terminal to ask on",
            "use --yes or --out -",
        )
    return typer.confirm(f"Write {target}?", err=True)


def _facts() -> dict[str, str]:
    """Return versions and, on Linux, the results of ``chakram doctor``."""
    from chakram.run_directory.provenance import compiled, host_facts, versions

    facts = {
        "platform": platform.platform(),
        "versions": versions(),
        "machine": host_facts(),
        "all_compiled": compiled()["all_compiled"],
    }
    texts = {"versions.json": json.dumps(facts, indent=2) + "\n"}
    if sys.platform == "linux":
        from chakram.fabric.machine_probe import probe_all

        lines = [
            f"{each.name}: {'ok' if each.ok else 'missing'}: {each.reason}\n"
            for each in probe_all()
        ]
        texts["doctor.txt"] = "".join(lines)
    return texts


def _run_files(run: Path) -> dict[str, str]:
    """Return the text files of a run directory by path.

    Raises:
        NoRunDirectory: If *run* contains no run, or more than one.
    """
    from chakram.run_directory.reader import runs_in

    folder, *others = runs_in(run)
    paths = [path for each in _FILES for path in sorted(folder.glob(each))]
    if others or not paths:
        what = f"contains {1 + len(others)} runs" if others else "contains no run"
        raise NoRunDirectory(str(run), what, "name a run directory")
    return {
        str(path.relative_to(folder)): path.read_bytes()[-_MOST_BYTES:].decode(
            "utf-8", "replace"
        )
        for path in paths
    }


def _hosts(texts: Mapping[str, str]) -> set[str]:
    """Return the host names of this machine and of a run."""
    hosts = {platform.node()}
    with suppress(OSError):
        for line in Path("/etc/hosts").read_text("utf-8", "replace").splitlines():
            hosts.update(line.partition("#")[0].split()[1:])
    for name, text in texts.items():
        hosts.update(_hosts_in(name, text))
        if name.startswith("agents/"):
            hosts.add(Path(name).stem)
    # Every lab uses these names for its hosts and its agent.
    return {host for host in hosts if not re.fullmatch(r"h\d+|local|ip6-\w+", host)}


def _hosts_in(name: str, text: str) -> Iterator[str]:
    import yaml

    document: Any = None
    with suppress(ValueError, yaml.YAMLError, RecursionError):
        if name.endswith(".json"):
            document = json.loads(text)
        elif name.endswith(".yaml"):
            document = yaml.safe_load(text)
    waiting: list[tuple[str, Any]] = [("", document)]
    for path, value in re.findall(r"^# --set ([^=\n]+)=(.*)", text, re.MULTILINE):
        with suppress(yaml.YAMLError):
            value = yaml.safe_load(value)
        for part in reversed(path.split(".")):
            value = {part.partition("[")[0]: value}
        waiting.append(("", value))
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            if key == "agents":  # run.json lists agents by host name
                yield from value
            elif key == "hosts" and isinstance(value.get("name"), str):
                yield value["name"]
            waiting += [(str(inner), each) for inner, each in value.items()]
        elif isinstance(value, list):
            waiting += [(key, each) for each in value]
        elif isinstance(value, str) and key in _HOST_KEYS:
            yield re.sub(r":\d+$", "", value.removeprefix("unix:")).strip("[]")


def _users() -> set[str]:
    users = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}
    with suppress(OSError, KeyError, ImportError):
        users.add(getpass.getuser())
    return users
