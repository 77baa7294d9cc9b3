"""The exceptions of Chakram: each says where, what was found and what to do.

The tree::

    ChakramError                 (exit code 1)
    ├── InputError               (2: what the user gave is wrong)
    │   ├── ConfigError          an experiment file, an option, a unit
    │   ├── TraceError           a trace file or trace set
    │   │   ├── TruncatedTrace   the file ends inside a record
    │   │   ├── OversizedRecord  a record is longer than any real one
    │   │   ├── GarbageTrace     the bytes are not a Chakra trace
    │   │   └── UnsupportedTrace recognised, but not a form that is read
    │   ├── MatchingError        ranks disagree about their collectives
    │   ├── ScheduleError        an algorithm that does not fit or is wrong
    │   ├── PlanError            ranks, ports and addresses do not fit together
    │   ├── PlugInError          a congestion control or algorithm of another package
    │   ├── ResultsError         a file of another simulator
    │   ├── NoRunDirectory       what was given as results holds none
    │   └── NoLab                there is no lab of that name
    ├── EnvironmentProblem       (3: the machine or its user cannot do it)
    │   ├── PrivilegeError
    │   ├── FabricError
    │   ├── PortInUse
    │   └── RunDirectoryError
    ├── PeerError                (4: the other side broke the rules)
    │   └── PacketError
    ├── AgentError               (4: an agent refused, died or is unreachable)
    ├── RunFailed                (4: a run ended before its work was done)
    │   └── RunInterrupted       (130: by the user)
    ├── PreflightFailed          (5: the fabric is not what the experiment needs)
    ├── GateFailed               (6: what was measured is not what was demanded)
    └── UnexpectedEvent          (1: an event that the state does not allow)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self


class ChakramError(Exception):
    """Base of all errors that a user may see.

    Args:
        where: Place of the fault: file and offset, path inside a configuration,
            rank and node, host and port.
        found: What is wrong there, as a clause.
        hint: What to do about it, or None where nothing helpful can be said.
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
    """What the user gave is wrong."""

    exit_code = 2


class ConfigError(InputError):
    """An experiment file, an option or a unit is wrong."""


class TraceError(InputError):
    """A trace file or a trace set is wrong."""


class TruncatedTrace(TraceError):
    """The file ends inside a record."""


class OversizedRecord(TraceError):
    """A record claims to be longer than any real one."""


class GarbageTrace(TraceError):
    """The bytes are not a Chakra trace."""


class UnsupportedTrace(TraceError):
    """The file is recognised, but it is not of a form that is read."""


class ForeignProfile(TraceError):
    """A profile is not that of the host trace."""


class UnknownDimensions(TraceError):
    """A collective is one of some dimensions, of which nobody says the ranks."""


class MatchingError(InputError):
    """The ranks of a process group disagree about their collectives."""


class ScheduleError(InputError):
    """An algorithm does not fit the collective, or its schedule is wrong."""


class PlanError(InputError):
    """Ranks, ports and addresses do not fit together."""

    @classmethod
    def of_problems(cls, where: str, problems: Sequence[str]) -> Self:
        """Return the error that tells the first of some problems, and how many."""
        more = len(problems) - 1
        return cls(where, problems[0], f"and {more} more problems" if more else None)


class PlugInError(InputError):
    """What another package adds is not installed, not the same, or not right."""


class ResultsError(InputError):
    """A file of another simulator's results is wrong, or of other work."""


class NoRunDirectory(InputError):
    """What was given as the directory of a run is none that Chakram can read."""


class NoLab(InputError):
    """There is no lab of the name that was given."""


class EnvironmentProblem(ChakramError):
    """The machine, or its user's rights, do not allow it."""

    exit_code = 3


class PrivilegeError(EnvironmentProblem):
    """The user may not do that here."""


class FabricError(EnvironmentProblem):
    """The fabric could not be built, reached or removed."""


class PortInUse(EnvironmentProblem):
    """A socket address is taken by somebody else."""


class RunDirectoryError(EnvironmentProblem):
    """The run directory cannot be written or read."""


class PeerError(ChakramError):
    """The other side of a conversation broke the rules."""

    exit_code = 4


class PacketError(PeerError):
    """Bytes from the network are not a packet that we understand."""


class AgentError(ChakramError):
    """An agent refused, died or cannot be reached."""

    exit_code = 4


class ControllerStalled(AgentError):
    """An agent ended the session because the controller stalled."""


class RunFailed(ChakramError):
    """A run ended before its work was done; what was recorded is kept."""

    exit_code = 4


class RunInterrupted(RunFailed):
    """The user ended the run."""

    exit_code = 130


class PreflightFailed(ChakramError):
    """A test of the fabric before a run has failed; nothing is wrong with the tools."""

    exit_code = 5


class GateFailed(ChakramError):
    """Results do not keep the rules that were set for them."""

    exit_code = 6


class UnexpectedEvent(ChakramError):
    """An event came that the present state does not allow; nothing was changed."""
