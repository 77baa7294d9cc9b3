"""Files for systems that start agents themselves: systemd, Ansible, Kubernetes.

This module does no I/O except reading its templates.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from chakram.foundation.errors import ConfigError

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,250}")
_ADDRESS = re.compile(r"[][A-Za-z0-9._:/-]{1,250}")
"""Addresses and prefixes. Those of IPv6 may begin with a bracket or a colon."""
_AGENTS = "chakram-agents"


@lru_cache(maxsize=1)
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("chakram.launch", "."),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def systemd_unit(
    *, listen: str, allow: Sequence[str], max_rate: str | None = None
) -> str:
    """Return a systemd unit for the agent.

    Args:
        listen: Address that the agent listens on.
        allow: Prefixes that the agent may send to.
        max_rate: Limit of the total send rate; None: no limit.

    Raises:
        ConfigError: If a value is not a word.
    """
    limits = [f"--allow {_word('--allow', each, _ADDRESS)}" for each in allow]
    if max_rate is not None:
        limits.append(f"--max-rate {_word('--max-rate', max_rate)}")
    return (
        _templates()
        .get_template("agent.service.j2")
        .render(
            listen=_word("--listen", listen, _ADDRESS),
            limits="".join(f" {each}" for each in limits),
        )
    )


def ansible_playbook(unit: str) -> str:
    """Return an Ansible playbook that installs the agent with a systemd unit."""
    return _templates().get_template("playbook.yaml.j2").render(unit=unit)


def kubernetes_manifests(
    experiment: str,
    *,
    nodes: int,
    image: str,
    claim: str,
    port_in: Sequence[str],
) -> str:
    """Return manifests of an Indexed Job of agents and a Job of the controller.

    Args:
        experiment: Path of the experiment on the volume.
        nodes: Number of nodes, with one agent each.
        image: Container image with Chakram.
        claim: Persistent volume claim with the experiment, for its results.
        port_in: Prefixes that choose the ports.

    Raises:
        ConfigError: If a value is not a word.
    """
    experiment = _word("EXPERIMENT", experiment)
    names = f"{_AGENTS}-[0-{nodes - 1}]" if nodes > 1 else f"{_AGENTS}-0"
    ports = " ".join(f"--port-in {_word('--port-in', each)}" for each in port_in)
    find = f"chakram hosts find {shlex.quote(f'{names}.{_AGENTS}')} {ports}"
    run = f"chakram run {experiment} --hosts hosts.yaml --report"
    script = (
        "# The nodes may need minutes to fetch the image.\n"
        "for try in $(seq 60); do\n"
        f"    {find} \\\n"
        f"        --certs /certs > hosts.yaml && exec {run}\n"
        "    sleep 10\n"
        "done\n"
        "exit 1"
    )
    return (
        _templates()
        .get_template("kubernetes.yaml.j2")
        .render(
            nodes=nodes,
            experiment=experiment,
            image=_word("--image", image),
            claim=_word("--claim", claim),
            allow=port_in,
            script=script,
        )
    )


def _word(option: str, text: str, allowed: re.Pattern[str] = _WORD) -> str:
    """Return a text that needs no quotes in any of the file formats.

    Raises:
        ConfigError: If it is not one.
    """
    if not allowed.fullmatch(text):
        raise ConfigError(
            f"{option} {text!r}", "is not a name or address", "remove spaces and quotes"
        )
    return text
