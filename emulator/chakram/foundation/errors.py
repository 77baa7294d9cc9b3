"""Chakram exceptions, each with a place, a fault and, if possible, a remedy.

The tree::

    ChakramError                  (exit code 1)
    ├── InputError                (2: the user's input is wrong)
    │   ├── ConfigError           an experiment file, an option or a unit
    │   ├── TraceError            a trace file or trace set
    │   │   ├── TruncatedTrace    the file ends inside a record
    │   │   ├── OversizedRecord   a record is longer than any real one
    │   │   ├── GarbageTrace      the bytes are not a Chakra trace
    │   │   ├── UnsupportedTrace  a known format, but an unsupported variant
    │   │   ├── ForeignProfile    a profile does not belong to the host trace
    │   │   └── UnknownDimensions the dimensions of a collective are unknown
    │   ├── MatchingError         ranks disagree about their collectives
    │   ├── ScheduleError         an algorithm is wrong or does not fit
    │   ├── PlanError             ranks, ports and addresses do not fit together
    │   ├── PlugInError           a plug-in is missing, different or invalid
    │   ├── ResultsError          a file from another simulator is invalid
    │   ├── NoRunDirectory        the given directory is not a run directory
    │   ├── NoLab                 no lab has the given name
    │   └── OutputExists          an output would replace a file or folder
    ├── EnvironmentProblem        (3: the machine or the user's rights are insufficient)
    │   ├── PrivilegeError
    │   ├── FabricError
    │   ├── PortInUse
    │   └── RunDirectoryError
    │       └── DamagedRun        (2: files of a run directory are damaged)
    ├── PeerError                 (4: the peer violated the protocol)
    │   └── PacketError
    ├── AgentError                (4: an agent refused, died or is unreachable)
    │   ├── ControllerStalled
    │   └── HostsAbsent           launched agents did not start
    ├── RunFailed                 (4: a run ended before its work was done)
    │   └── RunInterrupted        (130: by the user)
    ├── PreflightFailed           (5: the fabric does not meet the requirements)
    ├── GateFailed                (6: results violate the limits set for them)
    └── UnexpectedEvent           (1: the state does not allow the event)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Self


class ChakramError(Exception):
    """Base class of all errors that a user may see.

    Args:
        where: Place of the fault: file and offset, path inside a configuration, rank
            and node, or host and port.
        found: The fault, as a clause.
        hint: The remedy, or None if none is known.
    """

    exit_code = 1

    def __init__(self, where: str, found: str, hint: str | None = None) -> None:
        super().__init__(where, found, hint)
        self.where = where
        self.found = found
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.found}"
        return f"{text} ({self.hint})" if self.hint else text


class InputError(ChakramError):
    """The user's input is wrong."""

    exit_code = 2


class ConfigError(InputError):
    """An experiment file, an option or a unit is wrong."""


class TraceError(InputError):
    """A trace file or a trace set is wrong."""


class TruncatedTrace(TraceError):
    """The file ends inside a record."""


class OversizedRecord(TraceError):
    """The stated length of a record exceeds that of any real record."""


class GarbageTrace(TraceError):
    """The bytes are not a Chakra trace."""


class UnsupportedTrace(TraceError):
    """The file format is recognized, but this variant is not supported."""


class ForeignProfile(TraceError):
    """A profile does not belong to the host trace."""


class UnknownDimensions(TraceError):
    """A collective uses dimensions whose ranks are unknown."""


class MatchingError(InputError):
    """The ranks of a process group disagree about their collectives."""


class ScheduleError(InputError):
    """An algorithm does not fit the collective, or its schedule is wrong."""


class PlanError(InputError):
    """Ranks, ports and addresses of a plan do not fit together."""

    @classmethod
    def of_problems(cls, where: str, problems: Sequence[str]) -> Self:
        """Return an error with the first problem and the number of further problems."""
        more = len(problems) - 1
        return cls(where, problems[0], f"and {more} more problems" if more else None)


class PlugInError(InputError):
    """A plug-in is missing, comes from another package or version, or is invalid."""


class ResultsError(InputError):
    """Results from another simulator are invalid, or belong to another job."""


class NoRunDirectory(InputError):
    """The given directory is not a run directory that Chakram can read."""


class NoLab(InputError):
    """No lab has the given name."""


class OutputExists(InputError):
    """An output would replace something that exists."""


class EnvironmentProblem(ChakramError):
    """The machine, or the user's rights, do not allow the operation."""

    exit_code = 3


class PrivilegeError(EnvironmentProblem):
    """The user lacks the privilege that the operation requires."""


class FabricError(EnvironmentProblem):
    """The fabric could not be built, reached or removed."""


class PortInUse(EnvironmentProblem):
    """A socket address is already in use."""


class RunDirectoryError(EnvironmentProblem):
    """The run directory cannot be written or read."""


class DamagedRun(RunDirectoryError):
    """Files of a run directory are damaged, or lack what the command needs."""

    exit_code = 2


class PeerError(ChakramError):
    """The peer violated the protocol."""

    exit_code = 4


class PacketError(PeerError):
    """Bytes from the network are not a valid packet."""


class AgentError(ChakramError):
    """An agent refused, died or cannot be reached."""

    exit_code = 4


class ControllerStalled(AgentError):
    """An agent ended the session because the controller stalled."""


class HostsAbsent(AgentError):
    """Agents on some hosts were launched, but did not start.

    Args:
        where: As for ``ChakramError``.
        found: As for ``ChakramError``.
        hint: As for ``ChakramError``.
        hosts: Names of the hosts. They are lost if the error is sent to another
            process.
    """

    def __init__(
        self,
        where: str,
        found: str,
        hint: str | None = None,
        *,
        hosts: Collection[str] = (),
    ) -> None:
        super().__init__(where, found, hint)
        self.hosts = frozenset(hosts)


class RunFailed(ChakramError):
    """A run ended before its work was done. Recorded data is kept."""

    exit_code = 4


class RunInterrupted(RunFailed):
    """The user interrupted the run."""

    exit_code = 130


class PreflightFailed(ChakramError):
    """A fabric test before a run failed, although the tools themselves work."""

    exit_code = 5


class GateFailed(ChakramError):
    """Results violate the limits that were set for them."""

    exit_code = 6


class UnexpectedEvent(ChakramError):
    """The current state does not allow an event, so the event changed nothing."""
