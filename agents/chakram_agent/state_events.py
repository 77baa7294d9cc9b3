"""What happens to an agent, and what it does about it: see ``chakram_agent.state``."""

from __future__ import annotations

from dataclasses import dataclass

# ---- events --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """A controller wants a session; ``controller`` says who it is."""

    session: str
    controller: str
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The controller lives."""

    session: str
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach:
    """The stream of a session has ended."""

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """The controller gives a plan for so many shards; it has been checked."""

    session: str
    run_id: str
    shards: int
    goes_on: bool = False
    """There are ranks that send for as long as those of other agents need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The controller names the start."""

    session: str
    start_ns: int
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Somebody wants the traffic to end."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The controller has all that it wants of this run."""

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReady:
    """A shard has opened its ports."""

    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFinished:
    """The ranks of a shard have done all iterations; its records are here."""

    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFailed:
    """A shard cannot go on."""

    shard: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStopped:
    """The process of a shard has ended; nothing more will come from it."""

    shard: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time goes by."""

    now_ns: int


ShardEvent = ShardReady | ShardFinished | ShardFailed | ShardStopped
Event = Attach | Heartbeat | Detach | Prepare | Arm | Abort | Reset | ShardEvent | Tick


# ---- instructions --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartShards:
    """Start the data-plane processes of the plan."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmShards:
    """Tell all shards the start."""

    start_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopShards:
    """Make all shards end, willing or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSession:
    """Close the controller's stream, if it is still there."""

    session: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFinished:
    """Tell the controller that all work is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFailed:
    """Tell the controller that the run has ended early, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Forget the plan and everything that belonged to the run."""


Instruction = (
    StartShards
    | ArmShards
    | StopShards
    | EndSession
    | ReportFinished
    | ReportFailed
    | Release
)
