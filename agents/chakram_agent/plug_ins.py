"""Whether an agent has what a plan needs of other packages, and the same.

Code never travels: a plan names packages with their versions, and an agent compares
with what is installed where it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.collectives.algorithms import ALGORITHMS
from chakram.errors import PlugInError
from chakram.roce.congestion import CONTROLS

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan


_REGISTRIES = {each.noun: each for each in (ALGORITHMS, CONTROLS)}


def check_plug_ins(plan: AgentPlan) -> None:
    """Refuse a plan that names what is not here, or not in the same version.

    Raises:
        PlugInError: With what to install.
    """
    where = f"plan {plan.run_id}: agent {plan.agent}"
    for each in plan.plug_ins:
        registry = _REGISTRIES.get(each.noun)
        if registry is None:
            raise PlugInError(
                where,
                f"plug-ins are {' or '.join(_REGISTRIES)}, and {each.name[:60]!r} is "
                f"said to be one of {each.noun[:60]!r}",
            )
        registry.check_package(each.name, each.package, where=where)
