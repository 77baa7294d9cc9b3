"""Names of statistics that SONiC's high-frequency telemetry reports as numbers.

The metric ``sai_counter_type_1_stat_9`` is statistic 9 of object type 1, which is
``SAI_PORT_STAT_IF_OUT_OCTETS``. Source: ``saitypes.h``, ``saiport.h`` and
``saiqueue.h`` of SAI. Statistics that no mapping needs are left out.
"""

from __future__ import annotations

import re

_NUMBERED = re.compile(r"sai_counter_type_(\d{1,9})_stat_(\d{1,9})")
_PORT, _QUEUE = 1, 21
_FIRST_OF_PFC = 103

_NAMES = {
    (_PORT, 0): "SAI_PORT_STAT_IF_IN_OCTETS",
    (_PORT, 1): "SAI_PORT_STAT_IF_IN_UCAST_PKTS",
    (_PORT, 3): "SAI_PORT_STAT_IF_IN_DISCARDS",
    (_PORT, 9): "SAI_PORT_STAT_IF_OUT_OCTETS",
    (_PORT, 10): "SAI_PORT_STAT_IF_OUT_UCAST_PKTS",
    (_PORT, 12): "SAI_PORT_STAT_IF_OUT_DISCARDS",
    (_PORT, 70): "SAI_PORT_STAT_ECN_MARKED_PACKETS",
    **{
        (_PORT, _FIRST_OF_PFC + 2 * priority + at): (
            f"SAI_PORT_STAT_PFC_{priority}_{way}_PKTS"
        )
        for priority in range(8)
        for at, way in enumerate(("RX", "TX"))
    },
    (_QUEUE, 0): "SAI_QUEUE_STAT_PACKETS",
    (_QUEUE, 1): "SAI_QUEUE_STAT_BYTES",
    (_QUEUE, 2): "SAI_QUEUE_STAT_DROPPED_PACKETS",
    (_QUEUE, 24): "SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES",
    (_QUEUE, 25): "SAI_QUEUE_STAT_WATERMARK_BYTES",
    (_QUEUE, 27): "SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES",
    (_QUEUE, 34): "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS",
}
"""Names of statistics, by the numbers of object type and statistic."""


def sai_name(metric: str) -> str:
    """Return the name of a metric, even if it consists of numbers."""
    found = _NUMBERED.fullmatch(metric)
    if found is None:
        return metric
    return _NAMES.get((int(found[1]), int(found[2])), metric)
