"""All fabric types, with the properties that readers of run directories need.

To load the types themselves takes longer than to read a run directory.
"""

from __future__ import annotations

from typing import NamedTuple


class FabricTraits(NamedTuple):
    """Properties of a fabric type.

    Attributes:
        rate_key: Key of the experiment file that sets the rate of ports.
        stretches: Whether its time can be dilated.
    """

    rate_key: str
    stretches: bool = True


FABRIC_TRAITS = {
    "namespaces": FabricTraits(rate_key="fabric.links.host.rate"),
    "loopback": FabricTraits(rate_key="fabric.rate"),
    "external": FabricTraits(rate_key="fabric.defaults.rate", stretches=False),
}
"""Properties of all fabric types by name."""
