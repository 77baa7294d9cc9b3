"""Parameters of synthetic traces, with one class per kind.

The fields of a class are keys of the experiment file, options of ``chakram trace
synth`` and rows of ``docs/reference/synth.md``. The docstring below a field is its help
in all three.
"""

from __future__ import annotations

from chakram.synth.settings.base import SynthTrace
from chakram.synth.settings.inference import InferenceTrace, KvCacheTrace
from chakram.synth.settings.patterns import (
    AllToAllTrace,
    CollectivesTrace,
    IncastTrace,
    OneToAllTrace,
    PermutationTrace,
    RandomPairsTrace,
)
from chakram.synth.settings.training import DenseTrace, MoeTrace

KINDS: dict[str, type[SynthTrace]] = {
    "moe": MoeTrace,
    "dense": DenseTrace,
    "inference": InferenceTrace,
    "kv_cache": KvCacheTrace,
    "collectives": CollectivesTrace,
    "incast": IncastTrace,
    "permutation": PermutationTrace,
    "all_to_all": AllToAllTrace,
    "one_to_all": OneToAllTrace,
    "random_pairs": RandomPairsTrace,
}
"""The kinds of synthetic traces, by name."""
