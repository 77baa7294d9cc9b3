"""The token file, which a launcher passes to an agent so that it can call home."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from chakram.foundation.bounded_reading import parse_json
from chakram.foundation.errors import ConfigError
from chakram.foundation.ip_addresses import has_port

MAX_TOKEN_FILE_BYTES = 1 << 16
_HINT = "start agents with chakram run --launch, or use a token file of this run"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFile:
    """Data that an agent needs to connect to its controller.

    Attributes:
        token: Token with which the agent enrolls.
        authority: Certificate of the run's authority in PEM.
        controllers: Addresses of the controller, in the order in which the agent tries
            them.
        launcher_port: Port of the controller at the address that the launcher gives to
            agents. Agents try this address first. If 0, there is no such address.
        name: Name of the agent's host. None if all hosts get the same file.
    """

    token: bytes
    authority: bytes
    controllers: tuple[str, ...]
    name: str | None = None
    launcher_port: int = 0

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        texts = {"token": self.token.hex(), "authority": self.authority.decode()}
        return json.dumps(asdict(self) | texts).encode() + b"\n"


def parse_token_file(data: bytes, where: str) -> TokenFile:
    """Return the content of a token file.

    Raises:
        ConfigError: If the file is not valid. The message does not contain the token.
    """
    document = parse_json(data, where, error=ConfigError, hint=_HINT)
    try:
        name, controllers = document.get("name"), document["controllers"]
        launcher_port = document.get("launcher_port", 0)
        is_valid = isinstance(name, str | None) and isinstance(controllers, list)
        if not is_valid or not all(map(has_port, controllers)):
            raise TypeError
        if not isinstance(launcher_port, int) or not 0 <= launcher_port < 1 << 16:
            raise TypeError
        return TokenFile(
            token=bytes.fromhex(document["token"]),
            authority=document["authority"].encode(),
            controllers=tuple(controllers),
            name=name,
            launcher_port=launcher_port,
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(where, "is not a token file of a controller", _HINT) from None
