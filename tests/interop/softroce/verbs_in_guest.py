"""Program inside the guest: our binding of libibverbs on two queue pairs of rxe0.

It prints one JSON object.  The interpreter and the modules are those of the host.
"""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from functools import partial
from itertools import accumulate, chain
from typing import Any

from chakram.rdma.libibverbs import (
    CompletionQueue,
    Device,
    Memory,
    QueuePair,
    SharedReceives,
    status_text,
)
from chakram.rdma.nic_device import find_nic, huge_page_bytes

HALF = 1 << 20
DEPTH = 64
LIMIT_S = 20.0


def objects() -> str:
    """Return how many objects of RDMA devices the kernel has."""
    return subprocess.run(
        ["rdma", "resource", "show"], capture_output=True, text=True, check=True
    ).stdout


class Ends:
    """Two connected queue pairs, which write from one half of memory to the other."""

    def __init__(
        self,
        device: Device,
        key: int | None = None,
        *,
        is_shared: bool = False,
        rate_kbps: int = 0,
    ) -> None:
        nic = find_nic(device, None)
        page_bytes = huge_page_bytes() if is_shared else 0
        self.memory = Memory(device, 2 * HALF, huge_page_bytes=page_bytes)
        self.queues = [CompletionQueue(device, 2 * DEPTH) for _ in range(2)]
        self.shared = SharedReceives(device, self.memory, DEPTH) if is_shared else None
        self.pairs = [
            QueuePair(
                device,
                self.memory,
                queue,
                send_depth=DEPTH,
                receive_depth=0 if is_shared else DEPTH,
                shared=self.shared,
            )
            for queue in self.queues
        ]
        for own, other in (self.pairs, self.pairs[::-1]):
            own.connect(
                remote_qpn=other.qpn,
                remote_gid=nic.address,
                gid_index=nic.gid_index,
                path_mtu=nic.path_mtu,
                send_psn=0xFFFFF0,
                receive_psn=0xFFFFF0,
                traffic_class=26 << 2,
                remote_address=self.memory.address,
                remote_key=self.memory.remote_key if key is None else key,
                timeout=18,
                rate_kbps=rate_kbps,
            )

    def take(self, place: int, count: int) -> list[list[int]]:
        """Return *count* completions of one end."""
        queue = self.queues[place]
        found: list[list[int]] = []
        until_s = time.monotonic() + LIMIT_S
        while len(found) < count and time.monotonic() < until_s:
            found += map(list, queue.poll())
        return found

    def close(self) -> None:
        for pair in self.pairs:
            pair.close()
        for queue in self.queues:
            queue.close()
        if self.shared is not None:
            self.shared.close()
        self.memory.close()


def work(*rows: tuple[int, ...]) -> array[int]:
    return array("q", chain(*rows))


def shared(device: Device) -> list[object]:
    """Return what two queue pairs received with shared receives in huge pages."""
    with open("/proc/sys/vm/nr_hugepages", "w") as setting:
        setting.write("4")
    ends = Ends(device, is_shared=True)
    assert ends.shared is not None
    with open("/proc/meminfo") as meminfo:
        free = next(line.split()[1] for line in meminfo if "HugePages_Free" in line)
    ends.shared.post_receives(2, 40, offset=HALF, size_bytes=4096)
    memoryview(ends.memory)[:4] = b"data"
    ends.pairs[0].post(work((1, 0, 3, -1, -1, 1)))
    first = ends.take(1, 1)
    ends.pairs[1].post(work((2, 0, 4, -1, -1, 1)))
    second = ends.take(0, 2)
    refused = [
        refusal(lambda: ends.pairs[0].post_receives(1, 0)),
        refusal(partial(ends.shared.post_receives, DEPTH + 1, 0)),
    ]
    arrived = bytes(memoryview(ends.memory)[HALF : HALF + 4]).decode()
    ends.close()
    return [free, first, second, arrived, refused]


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except (OSError, ValueError, LookupError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    before = objects()
    device = Device("rxe0")
    ends = Ends(device)
    view = memoryview(ends.memory)
    pattern = random.Random(1).randbytes(HALF)
    view[:HALF] = pattern
    sizes = [1, 63, 64, 4096, 4097, 65_536, 100_001]
    starts = list(accumulate(sizes, initial=0))[:-1]
    ends.pairs[1].post_receives(len(sizes), 100)
    rows = work(
        *(
            (at, start, size, HALF + start, 1000 + at, at == len(sizes) - 1)
            for at, (start, size) in enumerate(zip(starts, sizes, strict=True))
        )
    )
    ends.pairs[0].post(rows)
    found: dict[str, Any] = {
        "sizes": sizes,
        "sent": ends.take(0, 1),
        "received": ends.take(1, len(sizes)),
        "is_equal": bytes(view[HALF : HALF + sum(sizes)]) == pattern[: sum(sizes)],
        "is_rest_untouched": not any(view[HALF + sum(sizes) : HALF + sum(sizes) + 999]),
    }
    # A SEND needs a receive with room; the receive here is at the start of memory.
    ends.pairs[0].post_receives(1, 7, size_bytes=4096)
    ends.queues[0].arm()
    ends.pairs[1].post(work((5, HALF, 3000, -1, -1, 1)))
    found["send"] = [ends.take(1, 1), ends.take(0, 1)]
    found["refused"] = [
        refusal(lambda: Device("mlx5_9")),
        refusal(lambda: ends.pairs[0].post(work((0, 2 * HALF - 1, 2, 0, -1, 1)))),
        refusal(lambda: ends.pairs[0].post(work((0, 0, 2)))),
        refusal(lambda: ends.pairs[0].post_receives(DEPTH + 1, 0)),
        refusal(lambda: Memory(device, 1 << 45)),
        refusal(lambda: Ends(device, rate_kbps=1000)),
    ]
    found["rate_limits_kbps"] = device.rate_limits_kbps
    ends.close()
    found["closed"] = [
        refusal(lambda: ends.pairs[0].post(work((0, 0, 2, 0, -1, 1)))),
        refusal(ends.queues[0].poll),
        refusal(lambda: ends.pairs[0].qpn),
        refusal(lambda: CompletionQueue(device, 0)),
    ]
    # A cycle is cleared in no order: the objects must not need each other then.
    cycle: list[object] = [Ends(device)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    wrong = Ends(device, key=12345)
    wrong.pairs[0].post(work((9, 0, 10, 0, -1, 1), (10, 0, 10, 0, -1, 1)))
    failed = wrong.take(0, 2)
    found["wrong_key"] = [[row[0], status_text(row[1])] for row in failed]
    wrong.close()
    found["shared"] = shared(device)
    device.close()
    found["leak"] = [before, objects()]
    sys.stdout.write(json.dumps(found))


main()
