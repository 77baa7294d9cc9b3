"""Reader of ``plan.json``, which contains the placement of ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from chakram.foundation.errors import DamagedRun, RunDirectoryError
from chakram.foundation.field_bounds import check_fields
from chakram.plan.port_plan import PortPlan
from chakram.run_directory.json_to_dataclass import (
    DocumentReader,
    InRange,
    InvalidDocument,
)

PLAN = "plan.json"

_Number = Annotated[int, InRange(0, 1 << 20)]
_Amount = Annotated[int, InRange(0, 1 << 56)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAgent:
    """An agent of the run, with its number of data-plane processes."""

    agent: str
    shards: _Number = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRank:
    """Placement of a rank of a job (see ``chakram.plan.plan.RankPlan``).

    ``within_host`` contains the ranks that this rank reaches without a port.
    """

    number: _Number
    job: str
    rank: _Number
    agent: str
    port: _Number
    shard: _Number
    within_host: tuple[_Number, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTransport:
    """The fields of ``chakram.plan.transport.TransportPlan`` that readers need."""

    path_mtu: Annotated[int, InRange(1, 1 << 16)]
    verb: str
    window_bytes: _Amount = 0
    max_burst_packets: _Amount = 0
    congestion_parameters: tuple[tuple[str, int], ...] = ()
    split: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """The contents of ``plan.json`` that readers need."""

    agents: tuple[PlannedAgent, ...] = ()
    ports: tuple[PortPlan, ...]
    ranks: tuple[PlannedRank, ...]
    transport: PlannedTransport
    places: frozenset[tuple[str, int]] = field(init=False)
    """Job and rank of all ranks."""

    def __post_init__(self) -> None:
        places = [(rank.job, rank.rank) for rank in self.ranks]
        object.__setattr__(self, "places", frozenset(places))
        ports = [port.number for port in self.ports]
        agents = {each.agent for each in self.agents}
        known_ports = frozenset(ports)
        for what, named, known in (
            ("rank", places, self.places),
            ("port", ports, known_ports),
        ):
            if len(known) < len(named):
                raise ValueError(f"it contains a {what} twice")
        for port in self.ports:
            check_fields(port)
            if agents and port.agent not in agents:
                raise ValueError(f"agent {port.agent} is not defined")
        for rank in self.ranks:
            if rank.port not in known_ports:
                raise ValueError(f"port {rank.port} is not defined")
            if agents and rank.agent not in agents:
                raise ValueError(f"agent {rank.agent} is not defined")


_READER = DocumentReader(PlanDocument)


def read_plan(path: Path) -> PlanDocument | None:
    """Return the contents of a ``plan.json``, or None if the file does not exist.

    Raises:
        RunDirectoryError: If the file cannot be read, or its contents are invalid.
    """
    try:
        return _READER.read_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunDirectoryError(
            str(path), f"cannot be read: {error.strerror}"
        ) from error
    except InvalidDocument as error:
        first = error.mistakes[0]
        place = ".".join(map(str, first["loc"]))
        why = first["msg"].removeprefix("Value error, ")
        if first["type"] == "missing":
            why = f"it lacks {place!r}"
        elif place:
            why = f"{place!r}: {why}"
        raise DamagedRun(
            str(path), f"is damaged: {why}", "copy the run directory again"
        ) from error
