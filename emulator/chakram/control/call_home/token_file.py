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
        token: The token.
        authority: Certificate of the run's authority in PEM.
        controllers: Addresses of the controller, to be tried in this order.
        launcher_port: Port of the controller at the address of its launcher, if agents
            know that address and are to try it first; 0: they are not.
        name: Name of the agent's host; None if all hosts get the same file.
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
        ConfigError: If it is not valid. The message does not contain the token.
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
