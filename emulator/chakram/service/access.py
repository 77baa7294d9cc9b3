"""Access control of a service: users, with tokens and roles."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chakram.foundation.bounded_reading import read_bounded
from chakram.foundation.errors import ConfigError
from chakram.foundation.write_errors import explained_writes

READ, RUN = "read", "run"
ROLES = (READ, RUN)
"""Roles. ``read`` permits users to view runs, ``run`` also to start and cancel runs."""

COOKIE = "chakram_token"
"""Name of the cookie that contains a browser's token."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FILE_BYTES = 1 << 20
_TOKEN_BYTES = 24


@dataclass(frozen=True, slots=True)
class User:
    """A user of a service.

    Attributes:
        name: Name of the user, which runs record as their owner.
        role: One of ``ROLES``.
    """

    name: str
    role: str

    @property
    def may_run(self) -> bool:
        """Whether the user may start and cancel runs."""
        return self.role == RUN


LOCAL = User("local", RUN)
"""The user of all requests if the service has no tokens."""


class Tokens:
    """The tokens of a service.

    A file has one line per user: name, role, and SHA-256 of the token.

    Args:
        path: The token file, which is read again when it changes.

    Raises:
        ConfigError: If the file cannot be read or a line is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Get the version before the first reading. A change during the reading is then
        # detected later.
        self._version = self._version_of_file()
        self._users = self._read()

    def _read(self) -> dict[str, User]:
        """Return the users by the digest of their tokens."""
        path = self._path
        data = read_bounded(path, limit_bytes=_FILE_BYTES, error=ConfigError)
        users: dict[str, User] = {}
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            is_digest = len(words) == 3 and _DIGEST.fullmatch(words[2])
            if not is_digest or words[1] not in ROLES:
                raise ConfigError(
                    f"{path}:{number}",
                    "is not a name, a role and the SHA-256 of a token",
                    "add users with chakram serve --add-user NAME",
                )
            users[words[2]] = User(words[0], words[1])
        return users

    def _version_of_file(self) -> tuple[int, int] | None:
        """Return the time of the last change, and the size of the file."""
        # Two changes of a file can have the same time, so compare the size, too.
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def find(self, token: str) -> User | None:
        """Return the user of a token, or None."""
        version = self._version_of_file()
        if version != self._version:
            self._version = version
            # Without a valid file, no token is known.
            self._users = {}
            with suppress(ConfigError):
                self._users = self._read()
        digest = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        found = None
        for known, user in self._users.items():
            if hmac.compare_digest(known, digest):
                found = user
        return found


def add_user(path: Path, name: str, role: str) -> str:
    """Add a user to a token file, and return the user's token.

    Raises:
        ConfigError: If the name or role is invalid, the user exists, or the file
            cannot be written.
    """
    if not _NAME.fullmatch(name):
        hint = "use letters, digits, . _ @ -"
        raise ConfigError(f"--add-user {name}", "is not a valid name", hint)
    if role not in ROLES:
        raise ConfigError(f"--role {role}", "is unknown", f"use {' or '.join(ROLES)}")
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    digest = hashlib.sha256(token.encode()).hexdigest()
    with explained_writes(path, ConfigError, "choose another file"):
        text = path.read_text("utf-8") if path.exists() else ""
        if any(line.split()[:1] == [name] for line in text.splitlines()):
            raise ConfigError(
                f"--add-user {name}",
                f"is already a user in {path}",
                "for a new token or role, remove the user's line first",
            )
        path.touch(mode=0o600)
        # A service must never read an incomplete file.
        with path.open("a", encoding="utf-8") as file:
            gap = "\n" if text and not text.endswith("\n") else ""
            file.write(f"{gap}{name} {role} {digest}\n")
    return token
