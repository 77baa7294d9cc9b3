"""The transport of an experiment: how queue pairs behave."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from chakram.config.dcqcn import DcqcnSettings
from chakram.config.quantities import Model, Number, Rate, Size, Time, Whole, problem

PATH_MTUS = (256, 512, 1024, 2048, 4096)
"""The path MTUs that InfiniBand knows."""

HEADER_ALLOWANCE_BYTES = 80
"""What drivers leave for headers when they derive the path MTU from the interface's:
IPv4 20, UDP 8, BTH 12, RETH 16, immediate 4 and ICRC 4 are 64; IPv6 takes 20 more."""

CONGESTION_CONTROLS = ("none", "fixed_rate", "dcqcn")


def largest_path_mtu(mtu: int) -> int:
    """Return the largest path MTU that fits into packets of *mtu*.

    Raises:
        ValueError: If not even 256 fits; no fabric section allows such an MTU.
    """
    return max(each for each in PATH_MTUS if each + HEADER_ALLOWANCE_BYTES <= mtu)


class FixedRateSettings(Model):
    """Every queue pair sends at one rate."""

    rate_bps: Rate | None = Field(default=None, alias="rate")
    """None: the rate of the port."""


class CongestionSettings(Model):
    """A congestion control with its parameters: exactly one key."""

    none: dict[str, Any] | None = Field(default=None, max_length=0)
    fixed_rate: FixedRateSettings | None = None
    dcqcn: DcqcnSettings | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The congestion controls that are given; one in a valid experiment."""
        return tuple(
            name for name in CONGESTION_CONTROLS if getattr(self, name) is not None
        )

    @property
    def name(self) -> str:
        """Name of the congestion control."""
        return next(iter(self.names), "none")

    def describe(self) -> str:
        """Return the congestion control in a few words."""
        return self.name if self.dcqcn is None else self.dcqcn.describe()


def _by_name(value: object) -> object:
    """Turn ``fixed_rate`` into ``{fixed_rate: {}}``."""
    if isinstance(value, str):
        if value not in CONGESTION_CONTROLS:
            raise problem(
                f"{value!r} is not a congestion control",
                f"known: {', '.join(CONGESTION_CONTROLS)}",
            )
        return {value: {}}
    return value


class Dscp(Model):
    """DSCP of the packets."""

    data: Whole = Field(default=26, ge=0, le=63)
    ack: Whole = Field(default=26, ge=0, le=63)
    cnp: Whole = Field(default=48, ge=0, le=63)


class Transport(Model):
    """Settings of every queue pair."""

    congestion_control: Annotated[
        CongestionSettings,
        BeforeValidator(
            _by_name,
            json_schema_input_type=CongestionSettings
            | Literal["none", "fixed_rate", "dcqcn"],
        ),
    ] = CongestionSettings()
    window_bytes: Size | None = Field(default=None, alias="window")
    """Bytes that a queue pair may have unacknowledged; None: four bursts, at least
    64 KiB."""
    path_mtu: Literal[256, 512, 1024, 2048, 4096] | None = None
    """Payload of a full packet; None: the largest that the MTU has room for."""
    verb: Literal["write", "send"] = "write"
    dscp: Dscp = Dscp()
    ecn: Literal["off", "ect0", "ect1"] = "ect0"
    ack_interval: Whole | None = Field(default=None, ge=1, le=1024)
    """Packets after which an acknowledgement is asked for; None: two bursts."""
    retransmit_timeout_ns: Time = Field(
        default=67_108_864, alias="retransmit_timeout", ge=10_000, le=600 * 10**9
    )
    """Default: local ACK timeout 14, which is 4.096 us x 2**14."""
    retry_limit: Whole = Field(default=7, ge=0, le=1_000)
    burst: Whole | None = Field(default=None, ge=1, le=64)
    """Packets that leave as one; None: chosen by the rate of the ports."""


class Faults(Model):
    """Declared disturbances."""

    drop: Number = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the packets that ports drop at random when they receive them."""
