"""Events and instructions of the state machine in ``chakram_agent.state``."""

from __future__ import annotations

from dataclasses import dataclass

# ---- events --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """A controller requests a session. ``controller`` is its name."""

    session: str
    controller: str
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A heartbeat of the controller arrived."""

    session: str
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach:
    """The stream of a session ended."""

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """The controller sent a valid plan for ``shards`` shards."""

    session: str
    run_id: str
    shards: int
    goes_on: bool = False
    """Whether the plan has background ranks, which send until other jobs end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """The controller sent the remote ends of queue pairs on RDMA NICs."""

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The controller set the start time."""

    session: str
    start_ns: int
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """The run must end early."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The controller no longer needs this run."""

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReady:
    """A shard opened its ports."""

    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardConnected:
    """A shard connected its queue pairs to their remote ends on RDMA NICs."""

    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFinished:
    """The ranks of a shard completed all iterations, and all records have arrived."""

    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFailed:
    """A shard cannot continue."""

    shard: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStopped:
    """The process of a shard ended, so the shard sends no more reports."""

    shard: int
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
