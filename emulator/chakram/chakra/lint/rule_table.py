"""The rules of ``chakram trace lint``: what each means, and what to do about it.

Names and remedies stand here, the checks in ``lint`` and the reader.  The table of
``docs/reference/lint-rules.md`` is this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """How bad it is: a problem keeps a set from being replayed."""

    PROBLEM = "problem"
    WARNING = "warning"
    CORRECTION = "correction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule: its name, what breaking it means, and what to do.

    A finding may have better advice of its own.
    """

    name: str
    severity: Severity
    means: str
    remedy: str


def _rules(severity: Severity, *rows: tuple[str, str, str]) -> dict[str, Rule]:
    return {
        name: Rule(name=name, severity=severity, means=means, remedy=remedy)
        for name, means, remedy in rows
    }


RULES: Final[dict[str, Rule]] = {
    **_rules(
        Severity.PROBLEM,
        (
            "truncated",
            "the file ends inside a record",
            "fetch the file again: its producer or a copy was interrupted",
        ),
        (
            "oversized-record",
            "a record claims to be longer than any real one",
            "is it a Chakra trace? a damaged length looks like this too",
        ),
        (
            "garbage",
            "bytes are not what the format has there",
            "fetch the file again, or name the right one",
        ),
        (
            "unsupported-form",
            "the file is recognised, but not of a form that is read",
            "convert it, or take another output of its producer",
        ),
        (
            "unreadable",
            "the file or the set cannot be read, or a node cannot mean anything",
            "see what was found",
        ),
        (
            "unknown-dimensions",
            "a collective covers some dimensions of the ranks only (`involved_dim`), "
            "and nothing says what the dimensions are",
            "say how many ranks each has: --dimensions, trace.dimensions",
        ),
        (
            "missing-data-dependency",
            "a node waits for a node that is not in the file",
            "is the trace complete? --drop-missing-dependencies goes on without",
        ),
        (
            "unknown-group",
            "a node names a process group that nothing defines",
            "define it in comm_group.json beside the traces",
        ),
        (
            "not-a-member",
            "a rank uses a process group that it is not in",
            "correct the group file, or the numbers of the files",
        ),
        (
            "rank-out-of-range",
            "a message or a group has a rank without a file",
            "are all files of the set there?",
        ),
        (
            "missing-ranks",
            "a trace states that its job had more ranks than the set has files",
            "give the files of all ranks; `replicate` makes a job of one rank's trace",
        ),
        (
            "no-size",
            "a message or collective does not say how large it is",
            "the body of a custom collective is no workload; else ask its producer",
        ),
        (
            "no-peer",
            "a message does not say to or from whom",
            "its producer must write comm_dst and comm_src",
        ),
        (
            "self-message",
            "a rank sends a message to itself: it meets no network",
            "remove it",
        ),
        (
            "cycle",
            "nodes of a rank wait for one another: a replay would never end",
            "break the cycle in the producer",
        ),
        (
            "mismatch",
            "members of a group disagree about a collective, or a message lacks its "
            "other end: they would wait for ever, or move other bytes than meant",
            "do the traces come from one run, and from all of its ranks?",
        ),
        (
            "deadlock",
            "ranks wait for one another across collectives and messages",
            "the traces do not belong together, or their producer lost an order",
        ),
        (
            "lost-communication",
            "the converter made no communication node of what PyTorch communicated",
            "replay the host traces (JSON) that it was made from",
        ),
    ),
    **_rules(
        Severity.WARNING,
        (
            "no-metadata",
            "the file has no metadata record: nothing tells its producer and schema",
            "see whether sizes and durations are as expected (chakram trace show)",
        ),
        (
            "no-nodes",
            "a rank has nothing to do",
            "was its producer interrupted?",
        ),
        (
            "unknown-node-type",
            "a node of a type that the schema does not have ends at once",
            "is there a newer Chakram?",
        ),
        (
            "scaled-bytes",
            "sizes are multiplied although this producer is known to write bytes",
            "leave out --bytes-per-element",
        ),
        (
            "collective-body",
            "the file is the body of one custom collective, no workload",
            "give it to ASTRA-sim as an algorithm, not to a replay as a trace",
        ),
        (
            "no-times",
            "a host trace has no times: computation takes none",
            "give the profile of the run: --kineto",
        ),
        (
            "profile-left-out",
            "a profile was found for host traces that is not theirs, or not clearly so",
            "give the profile of the run: --kineto",
        ),
        (
            "group-of-pointer",
            "groups are named by pointers; the only one is taken for all ranks",
            "record with PyTorch 2.3 or later, which writes the groups",
        ),
        (
            "group-inferred",
            "operations name no group; what they and other ranks did leaves only one",
            "nothing to do; --unnamed-group states it instead",
        ),
        (
            "wait-inferred",
            "nothing records a wait for an asynchronous operation, and by the profile "
            "the host stood still until it had ended",
            "nothing to do: the replay waits there, too",
        ),
        (
            "wait-unknown",
            "neither a record, nor the profile, nor a later wait in its group shows "
            "when the host waited for an asynchronous operation",
            "the replay may overlap more than the run did; NCCL records its waits",
        ),
        (
            "unknown-communication",
            "communication of a kind that is not known is left out",
            "is there a newer Chakram?",
        ),
        (
            "collective-order",
            "the collectives of a group were matched by name, or ordered anew",
            "nothing to do if the traces come from one run",
        ),
        (
            "elements-as-bytes",
            "sizes are taken for bytes, but this producer is known to write elements",
            "--bytes-per-element 2 for bf16; nothing to do if it writes bytes by now",
        ),
        (
            "group-differs",
            "the group file gives a group other ranks, or another order, than the "
            "trace itself; the file counts",
            "correct one of the two; without the file the trace counts",
        ),
        (
            "nothing-waits",
            "no computation waits for a collective: what communication delays cannot "
            "be told",
            "its producer lost edges, or writes none behind collectives; do not read "
            "times of iterations or exposed times from a replay",
        ),
        (
            "no-costs",
            "computations state neither durations nor operations nor sizes: they take "
            "no time",
            "see the times of collectives only, not those of iterations",
        ),
        (
            "partial-durations",
            "most computations of a rank state no duration, the others do",
            "was its profile cut off? see what it lacks with chakram trace show",
        ),
        (
            "equal-durations",
            "all computations take the same time: a default of a generator",
            "compute.scale, or a trace with measured times",
        ),
        (
            "time-backwards",
            "a node was recorded as starting before one that it waits for",
            "do not replay by order: start_times; were clocks or files mixed up?",
        ),
        (
            "implausible-size",
            "a buffer of 64 GiB or more, or more than a day of traffic in an iteration",
            "are sizes in the unit that was told? size_scale makes the replay shorter",
        ),
        (
            "empty-collective",
            "a collective other than a barrier has 0 bytes on all members",
            "its producer lost comm_size, or the collective may be left out",
        ),
        (
            "ambiguous-messages",
            "messages of unequal size between two ranks have one tag and no order",
            "its producer must give them tags, or edges that order them",
        ),
        (
            "rootless",
            "several rooted collectives of a group state no root: the first rank is "
            "that of all",
            "do not read hot ports from a replay; host traces (JSON) have the roots",
        ),
        (
            "lone-rank",
            "a collective has nobody to talk to and sends nothing",
            "give the files of all ranks; `replicate` makes a job of one rank's trace",
        ),
        (
            "unused-groups",
            "smaller groups are defined, but every collective is one of all ranks",
            "did its producer drop pg_name? then sizes and peers are those of no run",
        ),
        (
            "lost-groups",
            "ASTRA-sim's text file was hybrid (HYBRID_DATA_MODEL, HYBRID_MODEL_DATA); "
            "its converter drops the groups",
            "sizes and peers are those of no run: give the nodes groups (pg_name)",
        ),
        (
            "unsorted-group",
            "ranks of a group do not ascend; ASTRA-sim mixes both orders",
            "list them in ascending order unless their order is meant",
        ),
    ),
    **_rules(
        Severity.CORRECTION,
        (
            "missing-control-dependency",
            "a control dependency on a node that is not in the file was dropped",
            "PyTorch writes callers that are no nodes; nothing to do",
        ),
        (
            "self-control-dependency",
            "a control dependency of a node on itself was dropped",
            "nothing to do",
        ),
        (
            "control-dependencies-only",
            "a file without data dependencies: its control dependencies order",
            "--dependencies says it explicitly",
        ),
        (
            "collective-label",
            "a collective on the CPU is the label of the one on the GPU",
            "nothing to do",
        ),
        (
            "element-sizes",
            "sizes are elements, and were turned into bytes",
            "--bytes-per-element says how many bytes one has",
        ),
        (
            "divided-sizes",
            "sizes were divided by the ranks of the group, and were multiplied again",
            "--uncorrected leaves them as stored",
        ),
        (
            "untyped-collective",
            "a collective without a type got the one that its name tells",
            "--uncorrected refuses it",
        ),
        (
            "unordered-kernels",
            "kernels of a stream without order were put into that of their ids",
            "--uncorrected leaves them as stored",
        ),
    ),
}
"""The rules by name."""
