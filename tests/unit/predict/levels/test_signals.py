"""Compiled loops let Python handle signals during long collectives."""

from __future__ import annotations

import signal

import pytest

from chakram.collectives.algorithms import algorithm
from chakram.collectives.ops import CollectiveOp
from chakram.predict.levels.flow_level import FlowLevel
from chakram.predict.levels.level_network import network_of
from chakram.predict.levels.message_level import MessageLevel
from chakram.predict.levels.message_times import WireTimes
from chakram.topology.topology_helpers import single_switch
from tests.level_runs import run_collective

NRANKS = 256


class CameError(Exception):
    pass


@pytest.mark.parametrize("level", ["message", "flow"])
def test_a_signal_interrupts_a_collective(level: str) -> None:
    network, _ = network_of(single_switch(NRANKS, 10**10))
    times = WireTimes(path_mtu=4096)
    traffic = (
        FlowLevel(network, times, batch=0.01)
        if level == "flow"
        else MessageLevel(network, times)
    )

    def come(number: int, frame: object) -> None:
        if traffic.messages:
            raise CameError

    before = signal.signal(signal.SIGPROF, come)
    try:
        # By its own processor time, whatever else this machine does.
        signal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)
        with pytest.raises(CameError):
            run_collective(
                traffic,
                algorithm(CollectiveOp.ALL_REDUCE, "ring(channels=8)"),
                nranks=NRANKS,
                input_bytes=1 << 26,
            )
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    # The first share ends when nearly all of a million messages have arrived.
    assert traffic.messages < 500_000
