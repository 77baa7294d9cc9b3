"""Laws of synthetic traces."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from chakram.chakra.lint.computation_warnings import check_computation
from chakram.chakra.lint.replay_blockers import check_across_ranks, check_trace_set
from chakram.chakra.lint.traffic_warnings import check_traffic
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.synth.expert_routing import (
    LawRouter,
    apportion,
    popularity,
)
from chakram.synth.settings import KINDS
from chakram.synth.settings.base import Routing, SynthTrace
from chakram.synth.synthesize import synthesize, synthesized_trace_set

DEGREE = st.sampled_from([1, 1, 2])
LAWS = st.sampled_from(
    [
        "balanced",
        "hot_expert",
        "hot_rank",
        "zero_rank",
        "rotating",
        "burst",
        "log_normal",
    ]
)
ROUTING = st.fixed_dictionaries(
    {"law": LAWS},
    optional={
        "share": st.floats(0.1, 0.5),
        "target": st.integers(0, 1),
        "period": st.integers(1, 4),
        "sigma": st.floats(0, 3),
    },
)
MODEL = {
    "layers": st.integers(2, 3),
    "hidden": st.just(32),
    "heads": st.just(8),
    "kv_heads": st.sampled_from([2, 8]),
    "ffn_hidden": st.just(48),
    "sequence": st.just(16),
    "vocabulary": st.sampled_from([0, 20]),
    "micro_batches": st.integers(1, 3),
    "pipeline": st.sampled_from(["1f1b", "gpipe"]),
    "tp": DEGREE,
    "cp": DEGREE,
    "fsdp": DEGREE,
    "dp": DEGREE,
    "pp": DEGREE,
    "overlap": st.booleans(),
    "distributed_optimizer": st.booleans(),
    "bucket": st.sampled_from([None, "1000B", "1MiB"]),
    "rank_order": st.permutations(["tp", "cp", "ep", "fsdp", "dp", "pp"]),
}


def kind(name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"synth": st.just(name), **fields})


TRACES = st.one_of(
    kind("dense", sequence_parallel=st.booleans(), **MODEL),
    kind("moe", ep=DEGREE, experts=st.sampled_from([4, 8]), routing=ROUTING, **MODEL),
    kind(
        "inference",
        tp=DEGREE,
        ep=DEGREE,
        dp=DEGREE,
        experts=st.sampled_from([None, 4]),
        batch=st.sampled_from([2, 6]),
        phase=st.sampled_from(["prefill", "decode"]),
        context=st.just(8),
        layers=st.integers(1, 2),
        vocabulary=st.sampled_from([0, 20]),
        routing=ROUTING,
    ),
    kind(
        "kv_cache",
        prefill=st.integers(1, 3),
        decode=st.integers(1, 3),
        prefill_tp=st.sampled_from([1, 2, 4]),
        decode_tp=st.sampled_from([1, 2, 4]),
        kv_heads=st.sampled_from([2, 4]),
        heads=st.just(4),
        requests=st.integers(1, 5),
        layers=st.integers(1, 3),
        steps=st.integers(0, 2),
        transfer=st.sampled_from(["layer", "whole"]),
    ),
    kind(
        "incast",
        ranks=st.integers(2, 5),
        repeats=st.integers(1, 3),
        rotate=st.booleans(),
        barrier=st.booleans(),
    ),
    kind("permutation", ranks=st.integers(2, 6), repeats=st.integers(1, 3)),
    kind(
        "all_to_all",
        ranks=st.integers(2, 4),
        repeats=st.integers(1, 2),
        one_at_a_time=st.booleans(),
        gap=st.sampled_from(["0s", "1ms"]),
    ),
    kind("one_to_all", ranks=st.integers(2, 4), repeats=st.integers(1, 2)),
    kind(
        "random_pairs",
        ranks=st.integers(2, 4),
        messages=st.integers(1, 6),
        mean_gap=st.sampled_from(["0s", "10us"]),
        seed=st.integers(0, 9),
    ),
    kind(
        "collectives",
        ranks=st.just(4),
        streams=st.lists(
            st.fixed_dictionaries(
                {
                    "op": st.sampled_from(["all_reduce", "all_to_all", "broadcast"]),
                    "members": st.sampled_from([None, 2, 4]),
                }
            ),
            min_size=1,
            max_size=3,
        ),
    ),
)


def parse(parameters: dict[str, Any]) -> SynthTrace:
    trace = KINDS[parameters["synth"]].model_validate(parameters)
    assume(not trace.problems())
    return trace


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(TRACES)
# Attention takes as many operations as the network behind it, and so as long.
@example(
    {
        **{"synth": "kv_cache", "prefill": 1, "decode": 1, "prefill_tp": 1},
        **{"decode_tp": 1, "kv_heads": 4, "heads": 4, "requests": 3, "layers": 3},
        **{"steps": 0, "transfer": "layer"},
    }
)
def test_synthetic_traces_can_be_replayed_without_warnings(
    parameters: dict[str, Any],
) -> None:
    trace = parse(parameters)
    made = synthesized_trace_set(synthesize(trace))
    assert made.nranks == trace.nranks
    assert made.warnings == ()
    assert check_trace_set(made.graphs, made.groups) == []
    assert check_across_ranks(made.graphs, made.groups) == ([], ())
    assert check_computation(made.graphs) == []
    assert check_traffic(made.graphs, made.groups, recorded=True) == []
    lowered = lower_job("job", made.graphs, made.groups, LoweringOptions())
    assert len(lowered.programs) == trace.nranks
    assert lowered.warnings == ()


@settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much])
@given(TRACES)
def test_the_same_parameters_give_the_same_trace(parameters: dict[str, Any]) -> None:
    first = synthesized_trace_set(synthesize(parse(parameters)))
    assert synthesized_trace_set(synthesize(parse(parameters))).digest == first.digest


@given(
    total=st.integers(0, 500),
    weights=st.lists(st.floats(0, 1e6), min_size=1, max_size=20),
    cap=st.integers(1, 100),
)
def test_parts_add_up_and_none_is_above_the_cap(
    total: int, weights: list[float], cap: int
) -> None:
    able = [weight for weight in weights if weight > 0]
    assume(cap * len(able) >= total)
    parts = apportion(total, weights, cap=cap)
    assert sum(parts) == total
    assert all(0 <= part <= cap for part in parts)
    assert all(
        not part for part, weight in zip(parts, weights, strict=True) if not weight
    )


@given(
    total=st.integers(0, 5000),
    weights=st.lists(st.integers(1, 50), min_size=1, max_size=20),
)
def test_without_a_cap_parts_are_the_exact_ones_rounded(
    total: int, weights: list[int]
) -> None:
    parts = apportion(total, weights, cap=total + 1)
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - total * weight / sum(weights)) < 1


ROUTERS = st.builds(
    dict,
    law=LAWS,
    share=st.floats(0.05, 0.5),
    target=st.integers(0, 3),
    period=st.integers(1, 5),
    length=st.integers(1, 3),
    sigma=st.floats(0, 4),
)


def router(law: dict[str, Any], *, tokens: int, top_k: int) -> LawRouter:
    return LawRouter(
        Routing(**law),
        experts=8,
        nranks=4,
        tokens=tokens,
        top_k=top_k,
        token_bytes=4,
        random_of=random.Random,
    )


@given(
    law=ROUTERS,
    tokens=st.integers(1, 200),
    top_k=st.integers(1, 2),
    dispatch=st.integers(0, 40),
)
def test_every_choice_of_every_token_arrives_once(
    law: dict[str, Any], tokens: int, top_k: int, dispatch: int
) -> None:
    routes = router(law, tokens=tokens, top_k=top_k)
    bins = routes.bins(dispatch)
    assert sum(bins) == tokens * top_k
    assert max(bins) <= tokens
    rows = [routes.sent(dispatch, position) for position in range(4)]
    if law["law"] == "balanced":
        assert rows == [None] * 4
        return
    columns = [routes.received(dispatch, position) for position in range(4)]
    assert list(zip(*(row for row in rows if row), strict=True)) == columns
    assert sum(map(sum, filter(None, rows))) == 4 * tokens * top_k * 4


@given(target=st.integers(0, 3), dispatch=st.integers(0, 9), tokens=st.integers(1, 99))
def test_a_rank_with_no_load_gets_nothing(
    target: int, dispatch: int, tokens: int
) -> None:
    law = {"law": "zero_rank", "target": target}
    received = router(law, tokens=tokens, top_k=2).received(dispatch, target)
    assert received == (0, 0, 0, 0)


@given(
    law=st.sampled_from(["hot_expert", "rotating"]),
    share=st.floats(0.125, 0.5),
    period=st.integers(1, 5),
    dispatch=st.integers(0, 99),
    tokens=st.integers(50, 400),
)
def test_hot_experts_get_their_share_and_change(
    law: str, share: float, period: int, dispatch: int, tokens: int
) -> None:
    settings_ = {"law": law, "share": share, "target": 3, "period": period}
    bins = router(settings_, tokens=tokens, top_k=2).bins(dispatch)
    hot = 3 if law == "hot_expert" else (3 + dispatch // period) % 8
    assert abs(bins[hot] - share * tokens * 2) <= 1
    assert bins[hot] >= max(bins) - 1


@given(period=st.integers(2, 6), length=st.integers(1, 2), dispatch=st.integers(0, 50))
def test_burst_of_load_starts_and_ends(period: int, length: int, dispatch: int) -> None:
    assume(length < period)
    law = Routing(law="burst", share=0.5, period=period, length=length)
    shares = popularity(
        law, experts=8, nranks=4, dispatch=dispatch, random=random.Random(1)
    )
    assert abs(sum(shares) - 1) < 1e-9
    assert (max(shares) > 0.4) == (dispatch % period < length)


def test_log_normal_popularity_spreads_with_sigma() -> None:
    def spread(sigma: float) -> float:
        law = Routing(law="log_normal", sigma=sigma)
        worst = 0.0
        for seed in range(50):
            shares = popularity(
                law, experts=8, nranks=4, dispatch=0, random=random.Random(seed)
            )
            worst += max(shares) * 8 / 50
        return worst

    assert abs(spread(0.0) - 1) < 1e-9
    assert 1 < spread(0.5) < spread(1.0) < spread(2.0)
