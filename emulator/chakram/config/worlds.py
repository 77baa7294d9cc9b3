"""In which worlds a key of the experiment file does something.

``simulate`` is ``chakram simulate``, and the ideal and simulated times beside those of
a run; the others are runs by the kind of their fabric.  A key that is not named here
does something in all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RESTRICTED", "SIMULATE", "WORLDS", "worlds_of"]

SIMULATE, NAMESPACES, LOOPBACK, EXTERNAL = WORLDS = (
    "simulate",
    "namespaces",
    "loopback",
    "external",
)
"""All worlds."""

_RUNS = (NAMESPACES, LOOPBACK, EXTERNAL)

RESTRICTED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("Experiment", "lab"): (NAMESPACES,),
    ("Experiment", "preflight"): _RUNS,
    ("Preflight", ""): _RUNS,
    ("Experiment", "predict"): _RUNS,
    ("Experiment", "metrics"): _RUNS,
    ("Metrics", ""): _RUNS,
    ("Experiment", "records"): _RUNS,
    ("Records", ""): _RUNS,
    ("Experiment", "hang_timeout"): _RUNS,
    ("Experiment", "stop_if"): _RUNS,
    ("StopIf", ""): _RUNS,
    # The kinds of a fabric: each in its own world, and simulated.
    ("NamespaceFabric", ""): (SIMULATE, NAMESPACES),
    ("NamespaceFabric", "switch"): (NAMESPACES,),
    ("NamespaceFabric", "capture"): (NAMESPACES,),
    ("LoopbackFabric", ""): (SIMULATE, LOOPBACK),
    ("ExternalFabric", ""): (SIMULATE, EXTERNAL),
    ("ExternalFabric", "allow"): (EXTERNAL,),
    ("ExternalFabric", "tls"): (EXTERNAL,),
    ("ExternalFabric", "topology"): (SIMULATE,),
    ("ExternalFabric", "links"): (SIMULATE,),
    ("TlsSettings", ""): (EXTERNAL,),
    ("PortDefaults", ""): (SIMULATE, EXTERNAL),
    ("PortDefaults", "isolate"): (EXTERNAL,),
    ("HostSettings", ""): (SIMULATE, EXTERNAL),
    ("HostSettings", "agent"): (EXTERNAL,),
    ("PortSettings", ""): (SIMULATE, EXTERNAL),
    ("PortSettings", "open"): (EXTERNAL,),
    ("PortSettings", "netns"): (EXTERNAL,),
    ("TopologySettings", ""): (SIMULATE, NAMESPACES),
    ("SingleSwitchShape", ""): (SIMULATE, NAMESPACES),
    ("ClosShape", ""): (SIMULATE, NAMESPACES),
    ("LinksSettings", ""): (SIMULATE, NAMESPACES),
    ("LinkSettings", ""): (SIMULATE, NAMESPACES),
    ("LinkSettings", "delay"): (SIMULATE,),
    ("LinkSettings", "queue"): (NAMESPACES,),
    ("LinkSettings", "ecn"): (SIMULATE,),
    ("EcnSettings", ""): (SIMULATE,),
    # What only bytes on a wire have.
    ("Transport", "dscp"): _RUNS,
    ("Dscp", ""): _RUNS,
    ("Transport", "icrc"): _RUNS,
    ("Transport", "verify"): _RUNS,
    ("Transport", "icrc_check"): _RUNS,
}
"""By section and key, of those that do nothing in some world; an empty key stands for
all keys of the section that are not named."""


def worlds_of(section: str, key: str) -> tuple[str, ...]:
    """Return the worlds in which *key* of *section*, a class of models, is used."""
    found = RESTRICTED.get((section, key))
    return RESTRICTED.get((section, ""), WORLDS) if found is None else found
