"""Experiments that clients submit, which may use only the resources of the service.

The folder of resources contains traces, topologies and other files that experiments may
name. Its folder ``fabrics`` contains fabric sections, one per file. An experiment names
such a fabric instead of describing hosts: ``fabric: rack7``. Fabrics on this machine
need no file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chakram.config.experiment import Experiment, parse_experiment
from chakram.foundation.errors import ConfigError
from chakram.settings.located_errors import Location, report
from chakram.settings.yaml_document import parse_document, read_document

FABRICS = "fabrics"
"""Folder of fabrics in the folder of resources."""

EXPERIMENTS = "experiments"
"""Folder of the experiments that the form for a new experiment offers."""

THIS_MACHINE = "this machine"
"""Name of the lock for runs on namespaces or loopback."""

VERBS = ("run", "simulate")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SOURCE = "experiment"
_REFUSED = {
    "runs": "is chosen by the service",
    "metrics": "is served by the service",
}
"""Keys that clients may not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """An experiment that can be run.

    Attributes:
        verb: Command for the experiment, one of ``VERBS``.
        experiment: Parsed experiment.
        changes: Values by key, as with ``--set``.
        text: Text of the experiment, with a named fabric replaced by its section.
        written: Text of the experiment as it was submitted.
        digest: SHA-256 of verb, experiment and changes.
        fabric: Fabric that the run locks.
    """

    verb: str
    experiment: Experiment
    changes: Mapping[str, str]
    text: str
    written: str
    digest: str
    fabric: str


def fabric_names(resources: Path) -> list[str]:
    """Return the names of the fabrics in a folder of resources."""
    return [name for name in file_names(resources / FABRICS) if _NAME.fullmatch(name)]


def file_names(folder: Path) -> list[str]:
    """Return the names of the YAML files in a folder, which may not exist."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def check_submission(
    text: str,
    resources: Path,
    *,
    verb: str = "run",
    changes: Mapping[str, str] = {},
    places: Mapping[Location, str] = {},
) -> Submission:
    """Return the experiment in *text*, which may name only resources.

    Args:
        text: Text of the experiment.
        resources: Folder of resources.
        verb: Command for the experiment, one of ``VERBS``.
        changes: Values by key, as with ``--set``.
        places: Where the values of some keys come from, for errors.

    Raises:
        ConfigError: If the experiment is invalid, or names anything but resources.
    """
    written = text
    document = parse_document(text.encode("utf-8", "replace"), source=_SOURCE)
    document.options.update(places)
    for key, why in _REFUSED.items():
        if key in document.data or any(_is_below(key, each) for each in changes):
            raise ConfigError(f"{_SOURCE}: {key}", why, "remove the key")
    section = document.data.get("fabric")
    name = THIS_MACHINE
    if isinstance(section, str):
        name = section
        if document.mistakes:
            raise report(_SOURCE, document.mistakes, document.line)
        document.data["fabric"] = _read_fabric(section, resources)
        document.options["fabric",] = f"{FABRICS}/{section}.yaml"
        # JSON is YAML, and quotes all text.
        text = json.dumps(document.data, indent=2)
        if any(_is_below("fabric", each) for each in changes):
            raise ConfigError(
                f"{_SOURCE}: fabric",
                f"{section} belongs to the service, and cannot be changed",
                "remove the change",
            )
    experiment = parse_experiment(
        document, source=_SOURCE, overrides=changes, confined_to=resources
    )
    is_own = experiment.fabric.on_this_machine
    if not is_own and name == THIS_MACHINE and verb == "run":
        raise ConfigError(
            f"{_SOURCE}: fabric",
            "describes hosts, but only the service may do so",
            f"name a fabric of the service: {_listed(fabric_names(resources))}",
        )
    if verb not in VERBS:
        raise ConfigError("verb", f"{verb!r} is unknown", f"use {' or '.join(VERBS)}")
    whole = json.dumps([verb, written, sorted(changes.items())])
    return Submission(
        verb=verb,
        experiment=experiment,
        changes=changes,
        text=text,
        written=written,
        digest=hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest(),
        fabric=THIS_MACHINE if is_own or verb == "simulate" else name,
    )


def read_experiment(name: str, resources: Path) -> str:
    """Return the text of an experiment of the service.

    Raises:
        ConfigError: If the service has no experiment with this name.
    """
    folder = resources / EXPERIMENTS
    known = file_names(folder)
    if not _NAME.fullmatch(name) or name not in known:
        raise ConfigError(
            f"experiment {name:.60}",
            "is unknown",
            f"known experiments: {_listed(known)}",
        )
    try:
        return (folder / f"{name}.yaml").read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"experiment {name}", f"cannot be read: {error}") from error


def _read_fabric(name: str, resources: Path) -> dict[str, Any]:
    """Return the fabric section from the file of a fabric."""
    known = fabric_names(resources)
    if name not in known:
        hint = f"known fabrics: {_listed(known)}"
        raise ConfigError(f"{_SOURCE}: fabric", f"{name!r} is unknown", hint)
    document = read_document(resources / FABRICS / f"{name}.yaml")
    if document.mistakes:
        raise report(f"{FABRICS}/{name}.yaml", document.mistakes, document.line)
    return document.data


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "there is none"


def _is_below(key: str, changed: str) -> bool:
    return changed == key or changed.startswith((f"{key}.", f"{key}["))
