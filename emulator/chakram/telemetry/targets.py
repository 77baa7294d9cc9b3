"""Switches whose telemetry a run reads, and how the run connects to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.telemetry.mapping import TelemetryMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Credentials for a connection to a switch.

    Attributes:
        ca: Certificates to trust. If None, the connection is unencrypted.
        cert: Client certificate, or None.
        key: Private key of the client certificate, or None.
        server_name: Name in the switch's certificate, if it differs from the address.
        username: User, or None.
        password: The password, or None.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A switch to read, and how to connect to it.

    Attributes:
        switch: Name of the switch in the topology.
        address: ``host:port`` of the gNMI server. None if the switch sends only OTLP.
        mapping_name: Name or file of the mapping.
        mapping: Mapping of the switch's telemetry to counters.
        ports: The device's name of each port, by its name in the topology.
        interval_ns: Requested time between two samples.
        device: Attribute value that identifies the switch in OTLP data, or None.
        credentials: Certificates and password for the connection.
    """

    switch: str
    address: str | None
    mapping_name: str
    mapping: TelemetryMapping
    ports: Mapping[str, str]
    interval_ns: int
    device: str | None = None
    credentials: Credentials = Credentials()

    @property
    def sampled_ns(self) -> int:
        """Time between two samples, increased if the switch requires a longer time.

        The mapping does not limit the time of a switch that only sends OTLP, because it
        gets no requests.
        """
        if self.address is None:
            return self.interval_ns
        return max(self.interval_ns, self.mapping.least_interval_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpListener:
    """Receiver of the OTLP metrics of switches.

    Attributes:
        address: ``host:port`` to listen on.
        cert: Certificate of the receiver. If None, connections are unencrypted.
        key: Private key of the receiver.
        ca: Certificates of switches that may send. If None, any switch may send.
    """

    address: str
    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryPlan:
    """All switches whose telemetry a run reads.

    Attributes:
        targets: Switches to read.
        otlp: Receiver of OTLP metrics, or None.
    """

    targets: tuple[Target, ...] = ()
    otlp: OtlpListener | None = None
