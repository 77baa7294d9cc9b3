"""Events and instructions of the state machine in ``chakram_agent.state``."""

from __future__ import annotations

from dataclasses import dataclass

# ---- events --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfSession:
    """Base class of events that belong to the session of a controller."""

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach(_OfSession):
    """A controller requests a session. ``controller`` is its name."""

    controller: str
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(_OfSession):
    """A heartbeat of the controller arrived."""

    now_ns: int


class Detach(_OfSession):
    """The stream of a session ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare(_OfSession):
    """The controller sent a valid plan for ``shards`` shards."""

    run_id: str
    shards: int
    goes_on: bool = False
    """Whether the plan has background ranks, which send until other jobs end."""


class Connect(_OfSession):
    """The controller sent the remote ends of queue pairs on RDMA NICs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm(_OfSession):
    """The controller set the start time."""

    start_ns: int
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """The run must end early."""

    reason: str


class Reset(_OfSession):
    """The controller no longer needs this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfShard:
    """Base class of events from one data-plane process."""

    shard: int


class ShardReady(_OfShard):
    """A shard opened its ports."""


class ShardConnected(_OfShard):
    """A shard connected its queue pairs to their remote ends on RDMA NICs."""


class ShardFinished(_OfShard):
    """The ranks of a shard completed all iterations, and all records have arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFailed(_OfShard):
    """A shard cannot continue."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStopped(_OfShard):
    """The process of a shard ended, so the shard sends no more reports."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed."""

    now_ns: int


ShardEvent = ShardReady | ShardConnected | ShardFinished | ShardFailed | ShardStopped
Command = Attach | Heartbeat | Detach | Prepare | Connect | Arm | Abort | Reset
Event = Command | ShardEvent | Tick


# ---- instructions --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartShards:
    """Start the data-plane processes of the plan."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmShards:
    """Send the start time to all shards."""

    start_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopShards:
    """Stop all shards, by force if necessary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSession:
    """Close the controller's stream if it is still open."""

    session: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFinished:
    """Report to the controller that all ranks have completed all iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFailed:
    """Report to the controller that the run ended early, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Discard the plan and the state of the run."""


Instruction = (
    StartShards
    | ArmShards
    | StopShards
    | EndSession
    | ReportFinished
    | ReportFailed
    | Release
)
