"""Address types of the experiment file: ports, agents and allowed prefixes."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from chakram.foundation.errors import ConfigError
from chakram.foundation.ip_addresses import why_unusable
from chakram.settings.field_types import problem


def _interface(value: object) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    example = "e.g. 198.18.1.1/24 or 2001:2::1/64"
    if not isinstance(value, str) or "/" not in value:
        raise problem(f"{value!r} is not an address with its prefix length", example)
    try:
        interface = ipaddress.ip_interface(value)
        unusable = why_unusable(str(interface.ip))
    except ValueError:
        raise problem(f"{value!r} is not an IP address with prefix", example) from None
    address, network = interface.ip, interface.network
    if unusable is not None:
        raise problem(f"{address}: {unusable}", example)
    # IPv6 has no broadcast address; its first address belongs to all routers.
    if network.prefixlen < network.max_prefixlen - 1 and (
        address == network.network_address
        or (address.version == 4 and address == network.broadcast_address)
    ):
        raise problem(f"{address} is not the address of a single port", example)
    return interface


InterfaceAddress = Annotated[
    ipaddress.IPv4Interface | ipaddress.IPv6Interface,
    PlainValidator(_interface),
    WithJsonSchema(
        {"type": "string", "examples": ["198.18.1.1/24", "2001:2:0:1::1/64"]}
    ),
]
"""An IPv4 or IPv6 address with its prefix length."""

# Widest prefix by IP version. No configuration may allow traffic to the whole Internet.
_WIDEST_PREFIX = {4: 8, 6: 32}


def prefix(value: object) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Parse *value* as an IP prefix.

    Raises:
        PydanticCustomError: If *value* is not a prefix, or is wider than the limit.
    """
    example = "e.g. 198.18.0.0/15 or 2001:2::/48"
    try:
        if not isinstance(value, str):
            raise ValueError(value)
        network = ipaddress.ip_network(value)
    except ValueError:
        raise problem(f"{value!r} is not a prefix", example) from None
    widest = _WIDEST_PREFIX[network.version]
    if network.prefixlen < widest:
        raise problem(
            f"{value!r} is wider than /{widest}",
            "list only the prefixes of the fabric under test",
        )
    return network


Prefix = Annotated[
    ipaddress.IPv4Network | ipaddress.IPv6Network,
    PlainValidator(prefix),
    WithJsonSchema({"type": "string", "examples": ["198.18.0.0/15", "2001:2::/48"]}),
]
"""An IPv4 prefix of /8 or longer, or an IPv6 prefix of /32 or longer."""


def _listen(value: object) -> str:
    example = "e.g. 127.0.0.1:9464"
    if not isinstance(value, str):
        raise problem(f"{value!r} is not an address and port", example)
    host, colon, port = value.rpartition(":")
    if not (colon and host and port.isdecimal() and len(port) <= 5):
        raise problem(f"{value!r} is not an address and port", example)
    if int(port) > 65535:
        raise problem(f"there is no port {port}", "ports are 0 to 65535")
    return value


ListenAddress = Annotated[
    str,
    PlainValidator(_listen),
    WithJsonSchema({"type": "string", "examples": ["127.0.0.1:9464"]}),
]
"""``address:port`` of a TCP socket."""


def check_listen_address(text: str, option: str) -> str:
    """Return *text* if it is an address and a port.

    Raises:
        ConfigError: If it is not. The error names *option* as the place.
    """
    try:
        return _listen(text)
    except PydanticCustomError as error:
        found = error.context or {}
        raise ConfigError(option, found["found"], found["hint"]) from None


def _agent(value: object) -> str:
    if isinstance(value, str) and value.startswith("unix:"):
        if not value.startswith("unix:/") or len(value) > _UNIX_LENGTH:
            raise problem(
                f"{value!r} is not an absolute path of at most 107 characters",
                "e.g. unix:/run/chakram/agent.sock",
            )
        return value
    try:
        return _listen(value)
    except PydanticCustomError:
        raise problem(
            f"{value!r} is not the address of an agent",
            "e.g. 192.0.2.11:7411 or unix:/run/chakram/agent.sock",
        ) from None


# sockaddr_un holds 108 bytes, including the terminating zero.
_UNIX_LENGTH = len("unix:") + 107

AgentAddress = Annotated[
    str,
    PlainValidator(_agent),
    WithJsonSchema({"type": "string", "examples": ["192.0.2.11:7411"]}),
]
"""``address:port`` of an agent, or ``unix:/path``."""


_LOGIN = re.compile(r"([A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9][\w.:-]*", re.ASCII)


def _login(value: object) -> str:
    if not isinstance(value, str) or len(value) > 255 or not _LOGIN.fullmatch(value):
        raise problem(
            f"{value!r} is not a host, or a user and a host", "e.g. user@192.0.2.11"
        )
    return value


Login = Annotated[
    str,
    PlainValidator(_login),
    WithJsonSchema({"type": "string", "examples": ["user@192.0.2.11"]}),
]
"""Host that ssh and mpirun can reach, with the name of a user if necessary."""
