"""What awaits notice in an execution plan of MSCCL++, and what gives it.

A cause is known only once everything was read: the k-th wait is for the k-th signal,
packets are read when they were written, thread blocks meet at barriers, and semaphores
count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chakram.errors import ScheduleError
from chakram.user_algorithms.mscclpp_plan import MAX_NUMBER, Block, Channel

if TYPE_CHECKING:
    from chakram.collectives.algorithms.execution import Action
    from chakram.user_algorithms.json_fields import Fields


class Notices:
    """Signals, packets, barriers and semaphores of all GPUs.

    Args:
        gpus: Of the plan: they say where semaphores begin.
        actions: What all ranks do; places in it are what the methods take.
    """

    def __init__(self, gpus: Sequence[Fields], actions: list[Action]) -> None:
        self._actions = actions
        self._signals: dict[Channel, list[int]] = {}
        self._waits: dict[Channel, list[int]] = {}
        self._packets: dict[tuple[int, int], int] = {}
        self._packet_reads: list[tuple[int, int, Sequence[int]]] = []
        self._barriers: dict[tuple[int, int], dict[int, list[tuple[int, int | None]]]]
        self._barriers = {}
        self._releases: dict[tuple[int, int], list[int]] = {}
        self._acquires: dict[tuple[int, int], list[int]] = {}
        self._initial = {
            (rank, number): semaphore.whole("init_value", most=MAX_NUMBER)
            for rank, gpu in enumerate(gpus)
            for number, semaphore in enumerate(gpu.objects("semaphores"))
        }

    def signal(self, channel: Channel, landing: int) -> None:
        """Take note that a signal on *channel* is there with an action."""
        self._signals.setdefault(channel, []).append(landing)

    def wait(self, channel: Channel, index: int) -> None:
        """Take note that an action waits for the other end of its *channel*."""
        self._waits.setdefault(channel.other_end(), []).append(index)

    def meet(self, block: Block, barrier: int, index: int, before: int | None) -> None:
        """Take note that a thread block comes to a barrier, after *before*."""
        by_block = self._barriers.setdefault((block.rank, barrier), {})
        by_block.setdefault(block.number, []).append((index, before))

    def semaphore(self, block: Block, number: int, index: int, *, gives: bool) -> None:
        """Take note that an action releases a semaphore, or acquires it."""
        table = self._releases if gives else self._acquires
        table.setdefault((block.rank, number), []).append(index)

    def packets_read(self, index: int, rank: int, row: Sequence[int]) -> None:
        """Take note that an action reads packets in a row of slots."""
        self._packet_reads.append((index, rank, row))

    def packets_written(
        self, operation: Fields, rank: int, row: Sequence[int], index: int
    ) -> None:
        """Take note that an action writes packets to a row of slots.

        Raises:
            ScheduleError: If there are some already.
        """
        for slot in row:
            if self._packets.setdefault((rank, slot), index) != index:
                operation.fail("writes packets where there are some already")

    def connect(self) -> None:
        """Let whatever waits come after what it waits for.

        Raises:
            ScheduleError: If something waits for what never comes.
        """
        self._connect_waits()
        self._connect_packets()
        self._connect_barriers()
        self._connect_semaphores()

    def _connect_waits(self) -> None:
        for channel, waits in self._waits.items():
            signals = self._signals.get(channel, [])
            if len(waits) > len(signals):
                raise ScheduleError(
                    self._actions[waits[len(signals)]].where,
                    f"waits for signal {len(signals)} of GPU {channel.rank} on a "
                    f"{channel.kind} channel, which is never given",
                )
            for wait, signal in zip(waits, signals, strict=False):
                self._actions[wait].after.append(signal)

    def _connect_packets(self) -> None:
        for index, rank, row in self._packet_reads:
            action = self._actions[index]
            for slot in row:
                writer = self._packets.get((rank, slot))
                if writer is None:
                    raise ScheduleError(
                        action.where, "reads packets that nobody writes"
                    )
                if writer not in action.after:
                    action.after.append(writer)

    def _connect_barriers(self) -> None:
        for by_block in self._barriers.values():
            for meeting in zip(*by_block.values(), strict=False):
                before = [index for _, index in meeting if index is not None]
                for index, _ in meeting:
                    after = self._actions[index].after
                    after += [each for each in before if each not in after]

    def _connect_semaphores(self) -> None:
        for key, acquires in self._acquires.items():
            releases = self._releases.get(key, [])
            for turn, acquire in enumerate(acquires):
                release = turn - self._initial.get(key, 0)
                if release >= len(releases):
                    raise ScheduleError(
                        self._actions[acquire].where,
                        f"waits for semaphore {key[1]}, which is never released",
                    )
                if release >= 0:
                    self._actions[acquire].after.append(releases[release])
