"""A lab that this process has built: its namespaces, ports and addresses."""

from __future__ import annotations

from dataclasses import dataclass

from chakram.fabric.labs.namespaces import Namespace, close_namespaces
from chakram.topology.addressing import AddressPlan
from chakram.topology.topology import PortRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """Location of a topology port: a namespace, and an interface in it."""

    namespace: str
    interface: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltLab:
    """A running lab that this process owns.

    Attributes:
        namespaces: Namespace of each host or switch, by name.
        ports: Both ends of every link that was built.
        addresses: Address plan of the lab.
        prefix_lengths: Prefix length of the subnet, by host.
        notes: Parts of the specification that this kernel does not support.
    """

    namespaces: dict[str, Namespace]
    ports: dict[PortRef, Port]
    addresses: AddressPlan
    prefix_lengths: dict[str, int]
    notes: tuple[str, ...]

    def close(self) -> None:
        """Release all namespaces."""
        close_namespaces(self.namespaces)
