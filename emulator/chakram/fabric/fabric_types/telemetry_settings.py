"""Settings for the counters that a run reads from switches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import Field, ValidationInfo, field_validator

from chakram.foundation.bounded_reading import read_bounded
from chakram.foundation.errors import ConfigError
from chakram.foundation.ip_addresses import is_loopback
from chakram.settings.addresses import ListenAddress
from chakram.settings.field_types import (
    FilePath,
    Model,
    Name,
    Time,
    resolved_path,
)
from chakram.settings.located_errors import Location, Mistake
from chakram.telemetry.mapping import BUILT_IN, TelemetryMapping, read_mapping
from chakram.telemetry.targets import (
    Credentials,
    OtlpListener,
    Target,
    TelemetryPlan,
)

if TYPE_CHECKING:
    from chakram.topology.topology import Topology


_PASSWORD_BYTES = 4096
_AT: Location = ("fabric", "telemetry")


class TargetSettings(Model):
    """A switch whose counters are read."""

    switch: Name
    """Name of the switch in the topology."""
    address: ListenAddress | None = Field(default=None, examples=["192.0.2.7:8080"])
    """Address of the switch's gNMI server. Default: none; the switch must send OTLP."""
    mapping: str = Field(default="sonic", min_length=1, max_length=4096)
    """Mapping of the switch's counters: sonic, openconfig, or a file."""
    ports: Mapping[str, str] = Field(
        default_factory=dict, examples=[{"Ethernet0": "leaf0-h0"}]
    )
    """Ports, by the names that the switch uses. A value is the name of a link, or of a
    port in the topology. Default: the switch uses the port names of the topology."""
    device: str | None = Field(default=None, max_length=255)
    """Attribute value that identifies the switch in OTLP. Required if several switches
    send OTLP."""
    ca: FilePath | None = Field(default=None, examples=["certs/switch-ca.pem"])
    """Certificate authority of the switch. Default: no TLS, which is allowed only on
    this machine."""
    cert: FilePath | None = Field(default=None, examples=["certs/client.pem"])
    """Client certificate for the gNMI server."""
    key: FilePath | None = Field(default=None, examples=["certs/client.key"])
    """Private key of cert."""
    server_name: str | None = Field(default=None, max_length=255)
    """Host name in the certificate of the switch. Default: the host in address."""
    username: str | None = Field(default=None, max_length=255)
    """User name for the gNMI server."""
    password_env: str | None = Field(default=None, examples=["SWITCH_PASSWORD"])
    """Environment variable that contains the password."""
    password_file: FilePath | None = Field(default=None, examples=["switch.password"])
    """File that contains the password."""

    @field_validator("mapping")
    @classmethod
    def _located(cls, value: str, info: ValidationInfo) -> str:
        return value if value in BUILT_IN else str(resolved_path(value, info))

    def credentials(self) -> Credentials:
        """Return the credentials for the gNMI server.

        Raises:
            ConfigError: If the password cannot be read.
        """
        password = None
        if self.password_env is not None:
            password = os.environ.get(self.password_env)
            if password is None:
                raise ConfigError(
                    "fabric.telemetry",
                    f"the environment variable {self.password_env} is not set",
                    f"set it to the password for {self.switch}",
                )
        elif self.password_file is not None:
            password = (
                read_bounded(
                    self.password_file, limit_bytes=_PASSWORD_BYTES, error=ConfigError
                )
                .decode("utf-8", "replace")
                .strip()
            )
        return Credentials(
            ca=self.ca,
            cert=self.cert,
            key=self.key,
            server_name=self.server_name,
            username=self.username,
            password=password,
        )


class OtlpSettings(Model):
    """Receiver to which switches send OTLP metrics."""

    listen: ListenAddress = Field(examples=["192.0.2.1:4317"])
    """Address to listen on for OTLP over gRPC."""
    cert: FilePath | None = Field(default=None, examples=["certs/collector.pem"])
    """Certificate of the receiver. Default: no TLS."""
    key: FilePath | None = Field(default=None, examples=["certs/collector.key"])
    """Private key of cert."""
    ca: FilePath | None = Field(default=None, examples=["certs/switch-ca.pem"])
    """Certificate authority of the switches that may send metrics. Default: all
    switches may send."""


class TelemetrySettings(Model):
    """Counters of the switches under test, read during a run."""

    interval_ns: Time = Field(
        default=10**9, alias="interval", ge=10**6, le=3600 * 10**9
    )
    """Time between two samples, in real time. Some switches need at least 1s."""
    targets: tuple[TargetSettings, ...] = Field(default=(), max_length=4096)
    """Switches to read. With switch: model, a run reads all switches; do not set this
    key."""
    otlp: OtlpSettings | None = None
    """Receiver of OTLP metrics."""

    def check(self, topology: Topology | None) -> list[Mistake]:
        """Return the mistakes within the section.

        Args:
            topology: Topology of the fabric, or None if it is unknown or invalid.
        """
        mistakes = [] if self.otlp is None else list(self._check_otlp(self.otlp))
        seen: set[str] = set()
        for index, each in enumerate(self.targets):
            at: Location = (*_AT, "targets", index)
            mistakes += self._check_target(each, at)
            if each.switch in seen:
                mistakes.append(
                    Mistake(
                        location=(*at, "switch"),
                        found=f"{each.switch} is listed twice",
                        hint="list every switch once",
                    )
                )
            seen.add(each.switch)
            if topology is not None:
                mistakes += _check_ports(each, topology, at)
        return mistakes

    def _check_otlp(self, otlp: OtlpSettings) -> Iterator[Mistake]:
        at: Location = (*_AT, "otlp")
        if (otlp.cert is None) != (otlp.key is None):
            yield Mistake(
                location=(*at, "cert"),
                found="needs key, and key needs cert",
                hint="set both",
            )
        if otlp.ca is not None and otlp.cert is None:
            yield Mistake(
                location=(*at, "ca"),
                found="needs cert and key",
                hint="set both, or remove ca",
            )
        senders = [each for each in self.targets if each.address is None]
        for index, each in enumerate(self.targets):
            if each in senders and each.device is None and len(senders) > 1:
                yield Mistake(
                    location=(*_AT, "targets", index, "device"),
                    found="is missing, but several switches send OTLP",
                    hint="give the value of an attribute that names the switch",
                )

    def _check_target(self, target: TargetSettings, at: Location) -> list[Mistake]:
        found: list[tuple[str, str, str]] = []
        if target.address is None and self.otlp is None:
            found.append(("address", "is missing", "e.g. 192.0.2.7:8080"))
        is_remote = target.address is not None and not is_loopback(target.address)
        if is_remote and target.ca is None:
            found.append(
                (
                    "ca",
                    f"is missing, but {target.address} is on another machine",
                    "name the certificate authority of the switch",
                )
            )
        if (target.cert is None) != (target.key is None):
            found.append(("cert", "needs key, and key needs cert", "set both"))
        if target.password_env is not None and target.password_file is not None:
            found.append(
                (
                    "password_file",
                    "cannot be combined with password_env",
                    "remove one of them",
                )
            )
        try:
            mapping = read_mapping(target.mapping)
            if target.address is None and mapping.otlp is None:
                found.append(("mapping", "has no OTLP metrics", "use sonic"))
        except ConfigError as error:
            found.append(("mapping", str(error), f"use {', '.join(BUILT_IN)}"))
        return [
            Mistake(location=(*at, key), found=text, hint=hint)
            for key, text, hint in found
        ]

    def to_plan(self, topology: Topology) -> TelemetryPlan:
        """Return the telemetry plan for a run.

        Raises:
            ConfigError: If a password or mapping cannot be read.
        """
        otlp = self.otlp
        return TelemetryPlan(
            targets=tuple(
                Target(
                    switch=each.switch,
                    address=each.address,
                    mapping_name=each.mapping,
                    mapping=read_mapping(each.mapping),
                    ports=located_ports(each, topology),
                    interval_ns=self.interval_ns,
                    device=each.device,
                    credentials=each.credentials(),
                )
                for each in self.targets
            ),
            otlp=None
            if otlp is None
            else OtlpListener(
                address=otlp.listen, cert=otlp.cert, key=otlp.key, ca=otlp.ca
            ),
        )


def located_ports(target: TargetSettings, topology: Topology) -> dict[str, str]:
    """Return the switch's name for each port, by the port's name in the topology."""
    if not target.ports:
        return {
            str(end): end.port
            for link in topology.links_of(target.switch)
            for end in (link.end_at(target.switch),)
        }
    ends = _port_names(target, topology)
    return {ends[place]: name for name, place in target.ports.items()}


def _port_names(target: TargetSettings, topology: Topology) -> dict[str, str]:
    """Return the full name of each port, by all names that *target* may use."""
    ends = {}
    for link in topology.links_of(target.switch):
        end = link.end_at(target.switch)
        ends[link.name] = ends[end.port] = ends[str(end)] = str(end)
    return ends


def lab_plan(
    mapping: TelemetryMapping,
    addresses: Mapping[str, str],
    topology: Topology,
    interval_ns: int,
) -> TelemetryPlan:
    """Return the telemetry plan for the modeled switches of a lab.

    Modeled switches always return current counters, and support any interval.
    """
    quick = mapping.model_copy(
        update={
            "refresh_ns": 0,
            "class_refresh_ns": 0,
            "least_interval_ns": 0,
            "watermarks": "cumulative",
        }
    )
    return TelemetryPlan(
        targets=tuple(
            Target(
                switch=switch,
                address=address,
                mapping_name="sonic",
                mapping=quick,
                ports=located_ports(TargetSettings(switch=switch), topology),
                interval_ns=interval_ns,
            )
            for switch, address in addresses.items()
        )
    )


def _check_ports(
    target: TargetSettings, topology: Topology, at: Location
) -> list[Mistake]:
    if target.switch not in topology.switches:
        names = ", ".join(topology.switches[:5])
        return [
            Mistake(
                location=(*at, "switch"),
                found=f"{target.switch} is not a switch of the topology",
                hint=f"its switches are {names}"
                + (", ..." if len(topology.switches) > 5 else ""),
            )
        ]
    known = _port_names(target, topology)
    mistakes: list[Mistake] = []
    seen: dict[str, str] = {}
    for name, place in target.ports.items():
        end = known.get(place)
        found, hint = "", "use names of chakram fabric show"
        if end is None:
            found = f"{place} is neither a link nor a port of {target.switch}"
        elif end in seen:
            found = f"{place} already belongs to {seen[end]}"
            hint = "name one port of the switch for each link"
        else:
            seen[end] = name
        if found:
            at_port = (*at, "ports", name)
            mistakes.append(Mistake(location=at_port, found=found, hint=hint))
    return mistakes
