"""Parameters of synthetic traces: defaults and contradictions."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from chakram.foundation.errors import ConfigError
from chakram.synth.settings import KINDS
from chakram.synth.settings.base import SynthTrace
from chakram.synth.synthesize import synthesize


def parse(kind: str, **parameters: Any) -> SynthTrace:
    return KINDS[kind].model_validate({"synth": kind, **parameters})


def test_number_of_ranks_is_the_product_of_all_degrees() -> None:
    assert parse("moe").nranks == 8
    assert parse("moe", ranks=32).nranks == 32
    assert parse("dense", tp=2, pp=4, ranks=64).nranks == 64
    assert parse("dense", tp=2, cp=2, fsdp=2, dp=3, pp=2).nranks == 48
    assert parse("inference", tp=4, ep=2, dp=3).nranks == 24
    assert parse("kv_cache", prefill=2, prefill_tp=4, decode_tp=8).nranks == 16
    assert parse("incast", ranks=5).nranks == 5


def test_explicit_values_override_those_of_a_model() -> None:
    trace: Any = parse("moe", model="mixtral-8x7b", layers=2, ep=8, vocabulary=0)
    assert (trace.shape.layers, trace.shape.hidden) == (2, 4096)
    assert (trace.shape.experts, trace.shape.top_k) == (8, 2)
    assert trace.shape.vocabulary == 0
    assert trace.sample_tokens == 4096
    trace = parse("dense", model="llama-3-8b", hidden=2048)
    assert (trace.shape.hidden, trace.shape.head) == (2048, 64)
    assert trace.shape.ffn_hidden == 14336
    assert parse("dense").shape.heads == 1  # type: ignore[attr-defined] # of this kind of trace


@pytest.mark.parametrize(
    ("kind", "parameters", "key", "found"),
    [
        ("moe", {"ranks": 7}, "ranks", "7 ranks cannot be divided by ep = 4"),
        ("moe", {"ranks": 9, "dp": 2}, "ranks", "but ep x dp is 4 x 2 = 8"),
        ("dense", {"ranks": 3, "dp": 2}, "ranks", "ranks is 3, but dp is 2"),
        ("dense", {"tp": 2, "ranks": 5}, "ranks", "cannot be divided by tp = 2"),
        ("dense", {"tp": 512, "dp": 256}, "dp", "131072 ranks"),
        ("dense", {"heads": 3}, "heads", "3 heads do not divide hidden (256)"),
        ("dense", {"heads": 4, "tp": 8}, "tp", "does not divide 4 heads"),
        ("dense", {"heads": 8, "tp": 2, "cp": 8}, "tp", "tp x cp is 16"),
        (
            "dense",
            {"heads": 12, "hidden": 144, "kv_heads": 3, "tp": 2},
            "tp",
            "does not fit 3 heads of keys",
        ),
        ("dense", {"cp": 4, "sequence": 6}, "sequence", "cannot be divided by cp"),
        ("dense", {"tp": 4, "sequence": 6}, "sequence", "cannot be divided by tp"),
        ("dense", {"pp": 5}, "pp", "5 stages exceed 4 layers"),
        (
            "dense",
            {"hidden": 1 << 20, "ffn_hidden": 1 << 22, "sequence": 1 << 24}
            | {"micro_batch": 1 << 10},
            "hidden",
            "a buffer has",
        ),
        (
            "dense",
            {"layers": 10_000, "micro_batches": 100},
            "layers",
            "more than 20000000",
        ),
        (
            "moe",
            {"layers": 10_000, "ep": 8, "dp": 125, "routing": {"law": "hot_expert"}},
            "layers",
            "more than 20000000",
        ),
        ("moe", {"experts": 6}, "ep", "4 ranks do not divide 6 experts"),
        ("moe", {"top_k": 5}, "top_k", "5 is more than the 4 experts"),
        ("moe", {"model": "llama-3-8b"}, "model", "has no experts"),
        (
            "moe",
            {"tp": 2, "sequence_parallel": False},
            "sequence_parallel",
            "same tokens",
        ),
        (
            "moe",
            {"all_to_all": "1KiB", "routing": {"law": "hot_expert"}},
            "all_to_all",
            "determines the sizes",
        ),
        ("moe", {"routing": {"law": "hot_rank", "target": 4}}, "routing.target", "4"),
        (
            "moe",
            {"routing": {"law": "hot_expert", "share": 0.6}},
            "routing.share",
            "0.6 is more than 0.5",
        ),
        ("moe", {"routing": {"law": "recorded"}}, "routing.splits", "is missing"),
        ("moe", {"routing": {"splits": "x"}}, "routing.splits", "law is balanced"),
        (
            "moe",
            {"ep": 2, "routing": {"law": "zero_rank"}},
            "routing.law",
            "leaves 1 experts, but top_k is 2",
        ),
        ("inference", {"tp": 2, "ep": 2, "batch": 3}, "batch", "3 tokens"),
        ("inference", {"ep": 3, "experts": 4}, "ep", "do not divide 4 experts"),
        ("inference", {"dp": 65_536, "tp": 2}, "dp", "131072 ranks"),
        ("inference", {"steps": 1_000_000}, "steps", "nodes"),
        ("kv_cache", {"heads": 4, "prefill_tp": 8}, "prefill_tp", "4 heads"),
        ("kv_cache", {"heads": 4, "decode_tp": 3}, "decode_tp", "4 heads"),
        ("kv_cache", {"requests": 1_000_000}, "requests", "nodes"),
        ("kv_cache", {"steps": 1_000_000}, "requests", "x 1000000 steps x 4 layers"),
        ("kv_cache", {"decode": 65_536}, "decode", "65537 ranks"),
        ("incast", {"ranks": 4, "fan_in": 4}, "fan_in", "exceed 4 ranks"),
        ("incast", {"ranks": 4, "receiver": 4}, "receiver", "no rank 4"),
        ("incast", {"ranks": 9, "repeats": 10**6}, "repeats", "8000000 messages"),
        ("permutation", {"ranks": 4, "order": "shift", "shift": 8}, "shift", "itself"),
        ("one_to_all", {"ranks": 2, "sender": 2}, "sender", "no rank 2"),
        ("all_to_all", {"ranks": 4_000}, "repeats", "15996000 messages"),
        (
            "random_pairs",
            {"ranks": 100, "messages": 100_000},
            "messages",
            "10000000 messages",
        ),
        (
            "random_pairs",
            {"ranks": 2, "sizes": "hadoop", "size": "1KiB"},
            "size",
            "hadoop determines the sizes",
        ),
        (
            "collectives",
            {"ranks": 8, "streams": [{"op": "all_reduce", "members": 3}]},
            "streams",
            "stream 0: groups of 3 ranks with stride 1 do not divide 8 ranks",
        ),
        (
            "collectives",
            {"ranks": 60, "streams": [{"op": "all_reduce", "count": 10**6}]},
            "streams",
            "too many collectives",
        ),
    ],
)
def test_contradictory_settings_are_reported_and_refused(
    kind: str, parameters: dict[str, Any], key: str, found: str
) -> None:
    trace = parse(kind, **parameters)
    problems = [each for each in trace.problems() if each.key == key]
    assert problems, trace.problems()
    assert found in problems[0].found
    assert problems[0].hint
    with pytest.raises(ConfigError, match=f"{kind}: "):
        synthesize(trace)


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_keys_are_refused(kind: str) -> None:
    with pytest.raises(ValidationError, match="nonsense"):
        parse(kind, nonsense=1)


REQUIRED: dict[str, dict[str, Any]] = {
    **{kind: {} for kind in ("moe", "dense", "inference", "kv_cache")},
    "collectives": {"ranks": 4, "streams": [{"op": "all_reduce"}]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_fit_together(kind: str) -> None:
    assert parse(kind, **REQUIRED.get(kind, {"ranks": 4})).problems() == []
