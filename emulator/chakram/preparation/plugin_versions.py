"""Plug-ins that an experiment uses, for agents and for ``run.json``.

Each agent checks that the same plug-ins are installed on its host
(``chakram_agent.agent``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chakram.collectives.algorithms import ALGORITHMS, named_algorithms
from chakram.foundation.plugin_registry import PlugIn, Registry
from chakram.plan.plan import Plan, PlugInUse
from chakram.roce.congestion import CONTROLS

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment


def plug_ins_of(experiment: Experiment) -> tuple[PlugInUse, ...]:
    """Return the plug-ins that an experiment uses, each with its package.

    Raises:
        PlugInError: If several packages provide a plug-in of the same name.
    """
    return tuple(
        PlugInUse(noun=registry.noun, name=found.name, package=found.package)
        for registry, found in _found(experiment)
        if found.package
    )


def plug_in_versions(experiment: Experiment) -> dict[str, str]:
    """Return the versions of the packages that provide plug-ins, by package name."""
    packages = (each.package for each in plug_ins_of(experiment))
    return {name: version for name, _, version in (p.rpartition(" ") for p in packages)}


def with_plug_ins(plan: Plan, experiment: Experiment) -> Plan:
    """Return *plan* with the plug-ins that every agent must have installed."""
    used = plug_ins_of(experiment)
    if not used:
        return plan
    return replace(
        plan, agents=tuple(replace(each, plug_ins=used) for each in plan.agents)
    )


def _found(experiment: Experiment) -> Iterator[tuple[Registry[Any], PlugIn]]:
    control = CONTROLS.find(experiment.transport.congestion_control.name)
    if control is not None:
        yield CONTROLS, control
    named = {
        which.partition("(")[0]
        for choice in experiment.collectives.values()
        for which in named_algorithms(choice)
        if isinstance(which, str)
    }
    for name in sorted(named):
        found = ALGORITHMS.find(name)
        if found is not None:
            yield ALGORITHMS, found
