"""Single collectives at the message level, without a plan."""

from __future__ import annotations

from chakram.collectives.schedule import Algorithm
from chakram.predict.levels.cost_models import Division
from chakram.predict.levels.message_level import MessageLevel

FOR_EVER_NS = 1 << 62


def run_collective(
    level: MessageLevel,
    how: Algorithm,
    *,
    nranks: int,
    input_bytes: int,
    division: Division | None = None,
    root: int = 0,
) -> dict[int, tuple[int, int]]:
    """Run a collective, rank r on host r; return by rank the bytes sent and received.

    When it has ended is what the level's clock says then.
    """
    division = division or Division()
    opened: dict[int, int] = {}
    place_of: dict[int, tuple[int, int]] = {}
    totals = dict.fromkeys(range(nranks), (0, 0))

    def begin(rank: int, part: int) -> None:
        if part not in opened:
            each = division.algorithm(how, part)
            size = division.part_bytes(how.op, input_bytes, nranks=nranks, part=part)
            shape = level.shape(
                (each, nranks, root, size),
                lambda: division.columns(
                    each, nranks=nranks, root=root, input_bytes=size
                ),
            )
            opened[part] = level.open(shape)
            for other in range(nranks):
                level.place(opened[part] + other, other, other)
        place_of[opened[part] + rank] = (rank, part)
        level.begin(opened[part] + rank, 0, 0, -1)

    for rank in range(nranks):
        begin(rank, 0)
    left = nranks
    while left:
        assert level.run(FOR_EVER_NS)
        done, level.done = level.done, []
        for share in done:
            rank, part = place_of.pop(share)
            sent, received = totals[rank]
            totals[rank] = (
                sent + level.sent_bytes(share),
                received + level.received_bytes(share),
            )
            if part + 1 < division.parts:
                begin(rank, part + 1)
            else:
                left -= 1
    return totals
