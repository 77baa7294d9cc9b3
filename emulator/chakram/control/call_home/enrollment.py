"""Admission of the agents of a run, with tokens that only expected hosts may use.

A token is an HMAC (RFC 2104) of the run's secret, so that no token can be derived from
another. The token of a host is valid for that host alone. The token of the job is
valid for every expected host, for launchers that give all hosts the same input.

This module does no I/O and reads no clock.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from dataclasses import dataclass, field

from chakram.foundation.errors import AgentError

SECRET_BYTES = 32


def host_token(secret: bytes, name: str) -> bytes:
    """Return the token that only the host *name* can use."""
    return hmac.digest(secret, b"host " + name.encode(), "sha256")


def job_token(secret: bytes) -> bytes:
    """Return the token that every expected host can use once."""
    return hmac.digest(secret, b"job", "sha256")


class EnrollmentStopped(AgentError):
    """Two agents have claimed one name, so one of them has a stolen token."""


@dataclass(slots=True, kw_only=True)
class Enrollment:
    """The hosts that may still enroll, and the agents that have enrolled.

    Attributes:
        secret: The run's secret, from which the tokens are derived.
        names: Names of the expected hosts.
        shares_token: Whether the token of the job is valid.
        ends_ns: Time after which no agent can enroll.
        sources: Address of each agent that has enrolled, by name.
        requests: Certificate signing request of each agent that has enrolled, by name.
        stopped: Why enrollment has stopped, or None.
    """

    secret: bytes
    names: Collection[str]
    shares_token: bool
    ends_ns: int
    sources: dict[str, str] = field(default_factory=dict)
    requests: dict[str, bytes] = field(default_factory=dict)
    stopped: EnrollmentStopped | None = None

    def enroll(
        self, name: str, token: bytes, *, request: bytes, source: str, now_ns: int
    ) -> str:
        """Admit an agent, and return the name of its host in the inventory.

        A host may call itself ``gpu1.example`` and be ``gpu1`` in the inventory, or the
        other way round. An agent that did not receive the answer may repeat its
        request. This is safe, because only the owner of the agent's key can use the
        certificate.

        Args:
            name: Name of the agent's host, as reported by the agent.
            token: Token that the agent presents.
            request: The agent's certificate signing request.
            source: Address that the agent connects from, for messages.
            now_ns: Current time, on the clock of ``ends_ns``.

        Raises:
            EnrollmentStopped: If the name was claimed before with another request. No
                agent can enroll after that.
            AgentError: If the token is not valid for this name and this time.
        """
        where = f"agent {name!r} at {source}"
        called, name = name, self._in_inventory(name)
        valid = [host_token(self.secret, name)]
        valid += [job_token(self.secret)] if self.shares_token else []
        # Compare with all valid tokens, so that the duration reveals nothing about
        # them.
        matches = [hmac.compare_digest(token, each) for each in valid]
        if not any(matches):
            # Do not reveal whether the name is expected.
            raise AgentError(where, "its token is not valid for this run and name")
        if name not in self.names:
            raise AgentError(
                where,
                f"its host {called!r} is not in the inventory of this run",
                "give it the name in the inventory with --name",
            )
        if self.stopped is not None:
            raise self.stopped
        if now_ns > self.ends_ns:
            raise AgentError(where, "its token has expired")
        if self.requests.get(name) == request:
            return name
        if name in self.sources:
            self.stopped = EnrollmentStopped(
                f"agent {name!r}",
                f"was claimed from {self.sources[name]} and from {source}: one token "
                "was used twice",
                "find out who started the second agent before you run again",
            )
            raise self.stopped
        self.sources[name] = source
        self.requests[name] = request
        return name

    def _in_inventory(self, name: str) -> str:
        """Return the only expected name that adds or omits the domain, or *name*."""
        if name in self.names:
            return name
        label, dot, _ = name.partition(".")
        same = [
            each
            for each in self.names
            if each.partition(".")[0] == label and (each == label or not dot)
        ]
        return same[0] if len(same) == 1 else name
