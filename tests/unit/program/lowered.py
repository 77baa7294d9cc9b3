"""Small traces lowered to programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chakram.collectives.groups import ProcessGroup
from chakram.program.job_check import check_job
from chakram.program.lowering import LoweredJob, LoweringOptions, lower_job
from chakram.program.operations import Operation
from tests.made_graphs import Row, job


def lowered(
    *ranks: Sequence[Row],
    groups: Mapping[str, tuple[int, ...]] | None = None,
    **options: Any,
) -> LoweredJob:
    """Return the sound programs of the traces of *ranks*."""
    options.setdefault("sync_barrier", False)
    result = lower_job(
        "j",
        job(*ranks),
        {
            name: ProcessGroup(name=name, ranks=members)
            for name, members in (groups or {}).items()
        },
        LoweringOptions(**options),
    )
    assert check_job(result.programs) == []
    return result


def operations(*ranks: Sequence[Row], **more: Any) -> list[Sequence[Operation]]:
    """Return the operations of every rank."""
    return [program.operations for program in lowered(*ranks, **more).programs]
