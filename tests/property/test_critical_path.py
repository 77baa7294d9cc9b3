"""Parts sum to messages and pieces to iterations, for any program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from chakram.foundation.errors import RunFailed
from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.plan import RunSettings
from chakram.plan.queue_pairs import QueuePairLayout
from chakram.plan.transport import TransportPlan
from chakram.program.operations import RankProgram
from chakram.switch.ecmp import DrawnPaths
from chakram.switch.profiles import Profile, Switching
from tests.explained_simulations import assert_exact, simulated_run
from tests.leaf_spines import clos
from tests.made_plans import make_plan
from tests.random_jobs import jobs
from tests.support import examples

transports = st.builds(
    TransportPlan,
    window_bytes=st.sampled_from([1, 8192, 1 << 20]),
    max_burst_packets=st.integers(1, 16),
    split=st.sampled_from(["round_robin", "even"]),
    message_bytes=st.sampled_from([0, 10_000]),
    retransmit_timeout_ns=st.just(100_000_000),
    retry_limit=st.just(1000),
)
LOSS = PacketFault(action=FaultAction.DROP, packets="any", probability=0.03)


@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)
@given(
    programs=jobs(),
    chosen=st.builds(
        RunSettings,
        warmup=st.integers(0, 1),
        measured=st.integers(1, 2),
        sync=st.sampled_from(["barrier", "free", "gap"]),
        gap_ns=st.sampled_from([0, 100_000]),
        credits=st.sampled_from([0, 1]),
        faults=st.sampled_from([(), (LOSS,)]),
    ),
    transport=transports,
    queue_pairs=st.integers(1, 3),
    is_lossless=st.booleans(),
    seed=st.integers(0, 99),
)
def test_parts_sum_to_messages_and_pieces_to_iterations(
    programs: list[RankProgram],
    chosen: RunSettings,
    transport: TransportPlan,
    queue_pairs: int,
    is_lossless: bool,
    seed: int,
) -> None:
    topology = clos(2, 2, len(programs), 10**10, 10**10, uplink_delay_ns=700)
    layout = QueuePairLayout(count=queue_pairs, with_grants=chosen.credits > 0)
    plan = make_plan(
        programs,
        topology,
        settings=replace(chosen, seed=seed),
        transport=transport,
        layout=layout,
    )
    profile = Profile()
    if is_lossless:
        profile = Profile(name="sonic", mtu=4300, buffer_bytes=8 << 20)
    with TemporaryDirectory() as folder:
        try:
            results = simulated_run(
                Path(folder),
                plan,
                topology,
                switching=Switching(ecmp=DrawnPaths(seed=seed), profile=profile),
                seed=seed,
            )
        except RunFailed:
            # Ranks that begin collectives in another order may wait for one another
            # where each may have one message in flight alone.
            assume(not chosen.credits)
            raise
        if results.table("operations").num_rows:
            assert_exact(results)
