"""Jobs whose ranks all do the same at the same times.

Such a job is *folded*: the simulation of one rank represents all ranks.  This is exact
under these conditions:

- All ranks have the same program, and all collectives include all ranks.
- In each collective, position p sends the messages of position 0, with p added to all
  positions, and the sizes do not depend on p.
- Each host has one rank.  All hosts are attached to one switch by equal links.

Shifting all ranks by one position then changes neither the job nor the fabric.  Every
message occupies a link for some time, so messages leave a host at different times, and
enter the link to each host at different times.  Therefore no time depends on the order
of simultaneous events.
"""

from __future__ import annotations

from collections.abc import Sequence

from chakram.predict.levels.level_network import LevelNetwork
from chakram.program.columns import COLLECTIVE, RECEIVE, SEND
from chakram.program.operations import RankProgram


def is_symmetric(
    programs: Sequence[RankProgram], hosts: Sequence[int], network: LevelNetwork
) -> bool:
    """Return whether all conditions hold, ignoring the condition on message sizes.

    Args:
        programs: Programs of all ranks.
        hosts: Host of each rank, as a number in *network*.
        network: The fabric.
    """
    return (
        network.routers == 1
        and len(set(hosts)) == len(hosts) == len(network.hosts)
        and _has_equal_links(network)
        and _do_the_same(programs)
    )


def _has_equal_links(network: LevelNetwork) -> bool:
    """Return whether all hosts have equal links with a limited rate."""
    links = network.links
    for direction in ("up", "down"):
        numbers = [getattr(host, direction) for host in network.hosts]
        if None in numbers:
            return False
        kinds = {(links[each].rate_bps, links[each].delay_ns) for each in numbers}
        if len(kinds) > 1 or any(rate_bps is None for rate_bps, _ in kinds):
            return False
    return True


def _do_the_same(programs: Sequence[RankProgram]) -> bool:
    first = programs[0]
    columns = first.columns
    if first.splits or columns.rows_of(SEND, RECEIVE):
        return False
    used = {columns.targets[row] for row in columns.rows_of(COLLECTIVE)}
    return all(
        program.job == first.job
        and program.columns is columns
        and all(len(program.groups[each].ranks) == len(programs) for each in used)
        for program in programs
    )
