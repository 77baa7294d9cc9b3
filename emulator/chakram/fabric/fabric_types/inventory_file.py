"""Inventory files: the hosts and ports of a cluster, for any number of experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from chakram.fabric.fabric_types.base import TlsSettings
from chakram.fabric.fabric_types.host_settings import HostSettings, PortDefaults
from chakram.fabric.fabric_types.topology_settings import MAX_HOSTS
from chakram.settings.addresses import Prefix
from chakram.settings.quantities import BASE_DIRECTORY, Model
from chakram.settings.yaml_document import read_model


class Inventory(Model):
    """The hosts and ports of a cluster.

    ``chakram hosts find`` writes such a file.
    """

    version: Literal[1]
    """Version of the file format."""
    hosts: tuple[HostSettings, ...] = Field(min_length=1, max_length=MAX_HOSTS)
    """The hosts, with one agent each, in the order of placement."""
    defaults: PortDefaults = PortDefaults.section_defaults()
    """Defaults for the settings of ports."""
    allow: tuple[Prefix, ...] | None = Field(default=None, min_length=1, max_length=64)
    """Prefixes that must contain every port address. Default: that of experiments."""
    tls: TlsSettings | None = None
    """Mutual TLS with the agents. Relative paths start at the folder of this file."""


def read_inventory(path: Path) -> Inventory:
    """Return the inventory in a file.

    Raises:
        ConfigError: If the file is invalid. The error lists every mistake with its
            line, problem and hint.
    """
    return read_model(path, Inventory, context={BASE_DIRECTORY: path.parent})
