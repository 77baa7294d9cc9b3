"""Files for systems that start agents: Slurm, systemd, Ansible, Kubernetes.

This module does no I/O except reading its templates.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from chakram.foundation.errors import ConfigError

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,250}")
_ADDRESS = re.compile(r"[][A-Za-z0-9._:/-]{1,250}")
"""Addresses and prefixes. IPv6 addresses may begin with a bracket or a colon."""
_AGENTS = "chakram-agents"


def _rendered(template: str, **values: object) -> str:
    templates = Environment(
        loader=PackageLoader("chakram.launch", "."),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template(template).render(values)


def batch_script(
    experiment: str,
    *,
    nodes: int,
    port_in: Sequence[str],
    directives: Sequence[str] = (),
) -> str:
    """Return a script for ``sbatch``, whose batch step runs the controller.

    Args:
        experiment: Name of the experiment file.
        nodes: Number of nodes.
        port_in: Prefixes that choose the ports.
        directives: Further options of sbatch, e.g. ``--partition=gpu``.

    Raises:
        ConfigError: If a directive is not an option, or contains a line break.
    """
    for each in directives:
        if not each.startswith("-") or "\n" in each:
            raise ConfigError(
                f"--directive {each!r}",
                "is not an option of sbatch",
                "e.g. --time=10",
            )
    return _rendered(
        "batch.sh.j2",
        experiment=shlex.quote(experiment),
        nodes=nodes,
        directives=directives,
        port_in=map(shlex.quote, port_in),
    )


def systemd_unit(
    *, listen: str, allow: Sequence[str], max_rate: str | None = None
) -> str:
    """Return a systemd unit for the agent.

    Args:
        listen: Address that the agent listens on.
        allow: Prefixes that the agent may send to.
        max_rate: Limit on the total send rate. If None, there is no limit.

    Raises:
        ConfigError: If a value would need quotes, for example because of spaces.
    """
    limits = [f"--allow {_word('--allow', each, _ADDRESS)}" for each in allow]
    if max_rate is not None:
        limits.append(f"--max-rate {_word('--max-rate', max_rate)}")
    listen = _word("--listen", listen, _ADDRESS)
    return _rendered("agent.service.j2", listen=listen, limits=limits)


def ansible_playbook(unit: str) -> str:
    """Return an Ansible playbook that installs the agent with a systemd unit."""
    return _rendered("playbook.yaml.j2", unit=unit)


def kubernetes_manifests(
    experiment: str,
    *,
    nodes: int,
    image: str,
    claim: str,
    port_in: Sequence[str],
) -> str:
    """Return manifests of an Indexed Job for agents and a Job for the controller.

    Args:
        experiment: Path of the experiment on the volume.
        nodes: Number of nodes, with one agent each.
        image: Container image with Chakram.
        claim: Claim of the persistent volume that contains the experiment and gets its
            results.
        port_in: Prefixes that choose the ports.

    Raises:
        ConfigError: If a value would need quotes, for example because of spaces.
    """
    names = f"{_AGENTS}-[0-{nodes - 1}]" if nodes > 1 else f"{_AGENTS}-0"
    return _rendered(
        "kubernetes.yaml.j2",
        experiment=_word("EXPERIMENT", experiment),
        nodes=nodes,
        hosts=shlex.quote(f"{names}.{_AGENTS}"),
        port_in=[_word("--port-in", each) for each in port_in],
        image=_word("--image", image),
        claim=_word("--claim", claim),
    )


def _word(option: str, text: str, allowed: re.Pattern[str] = _WORD) -> str:
    """Return *text* if it needs no quotes in any of the file formats.

    Raises:
        ConfigError: If *text* needs quotes.
    """
    if not allowed.fullmatch(text):
        raise ConfigError(
            f"{option} {text!r}", "is not a name or address", "remove spaces and quotes"
        )
    return text
