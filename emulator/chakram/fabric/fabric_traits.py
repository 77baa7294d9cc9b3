"""All fabric types, with the properties that readers of run directories need.

Loading the types themselves takes longer than reading a run directory.
"""

from __future__ import annotations

from typing import NamedTuple


class FabricTraits(NamedTuple):
    """Properties of a fabric type.

    Attributes:
        rate_key: Key of the experiment file that sets the port rate.
        stretches: Whether fabrics of this type support time dilation.
    """

    rate_key: str
    stretches: bool = True


FABRIC_TRAITS = {
    "namespaces": FabricTraits(rate_key="fabric.links.host.rate"),
    "loopback": FabricTraits(rate_key="fabric.rate"),
    "external": FabricTraits(rate_key="fabric.defaults.rate", stretches=False),
}
"""Properties of all fabric types by name."""
