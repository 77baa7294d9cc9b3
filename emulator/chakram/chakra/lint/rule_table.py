"""The rules of ``chakram trace lint``, their meanings and remedies.

The checks are in ``chakram.chakra.lint`` and in the reader.
``docs/reference/lint-rules.md`` shows this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """Severity of a finding. A problem makes a set impossible to replay."""

    PROBLEM = "problem"
    WARNING = "warning"
    CORRECTION = "correction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A lint rule: its name, the meaning of a violation, and the remedy.

    A finding can contain more specific advice than its rule.
    """

    name: str
    severity: Severity
    means: str
    remedy: str


_TEXTS: Final[Mapping[Severity, Mapping[str, tuple[str, str]]]] = {
    Severity.PROBLEM: {
        "truncated": (
            "the file ends inside a record",
            "fetch the file again: its producer or a copy was interrupted",
        ),
        "oversized-record": (
            "the stated length of a record exceeds that of any real record",
            "check that this is a Chakra trace; a damaged length also causes this",
        ),
        "garbage": (
            "the bytes do not match the file format",
            "fetch the file again, or name the right file",
        ),
        "unsupported-form": (
            "the file format is recognized, but this form of it is not supported",
            "convert the file, or use another output of its producer",
        ),
        "unreadable": (
            "the file or the set cannot be read, or a node is invalid",
            "see the description of the finding",
        ),
        "unknown-dimensions": (
            "a collective covers only some dimensions of the ranks (`involved_dim`), "
            "and the dimensions are unknown",
            "set the number of ranks of each dimension: --dimensions, trace.dimensions",
        ),
        "missing-data-dependency": (
            "a node waits for a node that is not in the file",
            "check that the trace is complete, or use --drop-missing-dependencies",
        ),
        "unknown-group": (
            "a node names a process group that is not defined",
            "define it in comm_group.json next to the traces",
        ),
        "not-a-member": (
            "a rank uses a process group that does not contain it",
            "correct the group file, or the rank numbers in the file names",
        ),
        "rank-out-of-range": (
            "a message or a group has a rank that has no file",
            "check that the set has the files of all ranks",
        ),
        "missing-ranks": (
            "a trace states that its job had more ranks than the set has files",
            "add the files of all ranks, or use `replicate` to make a job from one "
            "rank's trace",
        ),
        "no-size": (
            "a message or collective has no size",
            "do not replay the body of a custom collective; otherwise, fix the "
            "producer",
        ),
        "no-peer": (
            "a message has no peer",
            "fix the producer: it must write comm_dst and comm_src",
        ),
        "self-message": (
            "a rank sends a message to itself, which does not use the network",
            "remove it",
        ),
        "cycle": (
            "nodes of a rank wait for each other: a replay would never end",
            "break the cycle in the producer",
        ),
        "mismatch": (
            "members of a group disagree about a collective, or a message has only one "
            "end: a replay would wait forever or move the wrong bytes",
            "check that the traces come from one run and include all of its ranks",
        ),
        "deadlock": (
            "ranks wait for each other across collectives and messages",
            "check that the traces belong together and that their producer kept the "
            "order of operations",
        ),
        "lost-communication": (
            "the converter created no communication nodes for PyTorch's communication",
            "replay the host traces (JSON) that the set was converted from",
        ),
    },
    Severity.WARNING: {
        "no-metadata": (
            "the file has no metadata record, so its producer and schema are unknown",
            "check sizes and durations (chakram trace show)",
        ),
        "no-nodes": (
            "a rank has no operations",
            "check that its producer was not interrupted",
        ),
        "unknown-node-type": (
            "a node has a type that the schema does not define; it takes no time",
            "check whether a newer version of Chakram exists",
        ),
        "scaled-bytes": (
            "sizes are multiplied, although this producer is known to write bytes",
            "omit --bytes-per-element",
        ),
        "collective-body": (
            "the file is the body of one custom collective, not a workload",
            "use it as an algorithm in ASTRA-sim, not as a trace in a replay",
        ),
        "no-times": (
            "a host trace has no times for some or all computation, which then takes "
            "no time",
            "give the profile of the run: --kineto",
        ),
        "profile-left-out": (
            "a profile was found, but it does not clearly belong to the host traces",
            "give the profile of the run: --kineto",
        ),
        "group-of-pointer": (
            "pointers name the groups; the only group is assumed to contain all ranks",
            "record with PyTorch 2.3 or later, which writes the groups",
        ),
        "group-inferred": (
            "operations name no group; only one group fits them and the operations of "
            "other ranks",
            "nothing to do; to set the group explicitly, use --unnamed-group",
        ),
        "wait-inferred": (
            "no wait is recorded for an asynchronous operation, but in the profile the "
            "host or the GPU stalled until the operation ended",
            "nothing to do: the replay waits at the same place",
        ),
        "wait-unknown": (
            "neither a record, the profile nor a later wait in the group shows when "
            "the host waited for an asynchronous operation",
            "record a profile, which shows waits; the replay may overlap more than the "
            "run did",
        ),
        "unknown-communication": (
            "communication of an unknown kind is omitted",
            "check whether a newer version of Chakram exists",
        ),
        "collective-order": (
            "the collectives of a group were matched by name, or reordered",
            "nothing to do if the traces come from one run",
        ),
        "elements-as-bytes": (
            "sizes are read as bytes, but this producer is known to write elements",
            "use --bytes-per-element 2 for bf16; nothing to do if the producer now "
            "writes bytes",
        ),
        "group-differs": (
            "the group file gives a group other ranks or another order than the trace "
            "does; the group file takes precedence",
            "correct the file or the trace; without the group file, the trace is used",
        ),
        "nothing-waits": (
            "no computation waits for a collective, so delays due to communication are "
            "unknown",
            "fix the producer: it writes no edges after collectives or lost them; do "
            "not rely on iteration times or exposed times",
        ),
        "no-costs": (
            "computations have neither durations, operations nor sizes, so they take "
            "no time",
            "use only the times of collectives, not those of iterations",
        ),
        "partial-durations": (
            "most computations of a rank have no duration, but others do",
            "check what the profile lacks (chakram trace show); it may be truncated",
        ),
        "equal-durations": (
            "all computations take the same time, probably the default of a generator",
            "use compute.scale, or a trace with measured times",
        ),
        "time-backwards": (
            "a node started before a node that it waits for",
            "check whether clocks or files are mixed up; do not replay with order: "
            "start_times",
        ),
        "implausible-size": (
            "a buffer has 64 GiB or more, or an iteration has more than a day of "
            "traffic",
            "check the unit of sizes; to shorten the replay, use size_scale",
        ),
        "empty-collective": (
            "a collective other than a barrier has 0 bytes on all members, or all "
            "messages of a rank have 0 bytes",
            "check whether the producer lost comm_size; otherwise, remove the "
            "collective",
        ),
        "ambiguous-messages": (
            "messages of different sizes between two ranks have the same tag and no "
            "order",
            "fix the producer: it must write tags, or edges that order the messages",
        ),
        "rootless": (
            "several rooted collectives of a group have no root; the first rank is "
            "used as the root of all",
            "use host traces (JSON), which contain the roots; do not rely on hot ports "
            "of a replay",
        ),
        "lone-rank": (
            "a collective has only one rank and sends nothing",
            "add the files of all ranks, or use `replicate` to make a job from one "
            "rank's trace",
        ),
        "unused-groups": (
            "smaller groups are defined, but every collective uses all ranks",
            "check whether the producer dropped pg_name; if so, sizes and peers match "
            "no real run",
        ),
        "lost-groups": (
            "ASTRA-sim's text file was hybrid (HYBRID_DATA_MODEL, HYBRID_MODEL_DATA), "
            "but its converter drops the groups",
            "set the groups of the nodes (pg_name); sizes and peers match no real run",
        ),
        "unsorted-group": (
            "the ranks of a group are not in ascending order; ASTRA-sim mixes both "
            "orders",
            "list them in ascending order unless this order is intended",
        ),
    },
    Severity.CORRECTION: {
        "missing-control-dependency": (
            "a control dependency on a node that is not in the file was dropped",
            "nothing to do: PyTorch writes callers that are not nodes",
        ),
        "self-control-dependency": (
            "a control dependency of a node on itself was dropped",
            "nothing to do",
        ),
        "control-dependencies-only": (
            "a file has no data dependencies, so its control dependencies set the "
            "order",
            "to state this explicitly, use --dependencies",
        ),
        "collective-label": (
            "a collective on the CPU is a label of the collective on the GPU",
            "nothing to do",
        ),
        "element-sizes": (
            "sizes are in elements and were converted to bytes",
            "to set the bytes per element, use --bytes-per-element",
        ),
        "divided-sizes": (
            "sizes were divided by the number of ranks in the group; this was reverted",
            "to keep the stored sizes, use --uncorrected",
        ),
        "untyped-collective": (
            "a collective without a type got its type from its name",
            "to refuse such nodes, use --uncorrected",
        ),
        "unordered-kernels": (
            "unordered kernels of a stream were ordered by their ids",
            "to keep the stored order, use --uncorrected",
        ),
    },
}
"""Meanings and remedies by severity and name."""

RULES: Final[dict[str, Rule]] = {
    name: Rule(name=name, severity=severity, means=means, remedy=remedy)
    for severity, texts in _TEXTS.items()
    for name, (means, remedy) in texts.items()
}
"""The rules by name."""
