"""The output formats of nccl-tests."""

from __future__ import annotations

import pytest

from chakram.formats.nccl_tests import read_nccl_json, read_nccl_text
from chakram.foundation.errors import ResultsError

HEAD = """\
# nccl-tests version 2.19.6 nccl-headers=23203 nccl-library=23203
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 1 iters: 20 \
agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid  12345 on      host1 device  0 [0000:0f:00] NVIDIA H100
#  Rank  1 Group  0 Pid  12346 on      host1 device  1 [0000:10:00] NVIDIA H100
#
"""
PLAIN = """\
#       size         count      type   redop    root     time   algbw   busbw  #wrong
           8             2     float     sum      -1    34.27    0.00    0.00       0 \
   33.57    0.00    0.00       0
          16             4     float     sum      -1    35.5     0.00    0.00     N/A \
   33.6     0.00    0.00     N/A
# Out of bounds values : 0 OK
"""
PER_ITERATION = (
    "  8  2  float  sum  -1  34.27  0.00  0.00  0  30.0  40.0  39.0  7.5"
    "  33.57  0.00  0.00  0  30.0  40.0  39.0  2.5\n"
)


def test_text_is_read() -> None:
    found = read_nccl_text((HEAD + PLAIN).encode(), "out.txt")
    assert (found.op, found.nranks, found.iterations) == ("all_reduce", 2, 20)
    assert [(row.size_bytes, row.in_place, row.time_ns) for row in found.rows] == [
        (8, False, 34_270.0),
        (8, True, 33_570.0),
        (16, False, 35_500.0),
        (16, True, pytest.approx(33_600.0)),
    ]
    assert all(row.cv is None for row in found.rows)


@pytest.mark.parametrize(
    "prefix",
    ["", "0: ", " 0: ", "[1,0]<stdout>:", "[1,0]<stdout>: ", "[pod/nccl-0/test] "],
)
def test_text_with_iterations_and_labels_is_read(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in (HEAD + PER_ITERATION).splitlines())
    found = read_nccl_text(text.encode(), "out.txt")
    assert [row.cv for row in found.rows] == [0.075, 0.025]
    assert found.nranks == 2


def test_old_text_without_groups_and_roots_is_read() -> None:
    text = """\
# Using devices
#   Rank  0 Pid  101 on  host1 device  0 [0x0f] GPU
#   Rank  1 Pid  101 on  host1 device  1 [0x10] GPU
#       size         count    type   redop     time   algbw   busbw  error     time \
   algbw   busbw  error
          64            16   float     sum    12.50    0.01    0.01  0e+00    11.75 \
    0.01    0.01  0e+00
"""
    found = read_nccl_text(text.encode(), "all_reduce_perf.txt")
    assert (found.op, found.nranks) == ("all_reduce", 2)
    assert [(row.in_place, row.time_ns) for row in found.rows] == [
        (False, 12_500.0),
        (True, 11_750.0),
    ]


def test_an_old_text_is_of_the_test_that_the_file_is_named_after() -> None:
    text = (HEAD + PLAIN).replace("# Collective test starting: all_reduce_perf\n", "")
    found = read_nccl_text(text.encode(), "logs/alltoall_perf-2n.txt")
    assert found.op == "all_to_all"
    with pytest.raises(ResultsError, match="does not name its test"):
        read_nccl_text(text.encode(), "logs/out.txt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "has no line with a size"),
        (PLAIN, "does not name its test"),
        (HEAD.replace("#  Rank", "# rank") + PLAIN, "does not list the ranks"),
        (HEAD + PLAIN.replace("34.27", "-3"), "out.txt:10: '-3' is not a time"),
        (HEAD + PLAIN.replace("34.27", "1e99"), "'1e99' is not a time"),
        (HEAD + PLAIN.replace("34.27", "nan"), "'nan' is not a time"),
        (HEAD + PLAIN.replace("34.27", "inf"), "'inf' is not a time"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ResultsError, match=message):
        read_nccl_text(text.encode(), "out.txt")


def document(**changes: object) -> dict[str, object]:
    block = {"time": 34.27, "alg_bw": 0.1, "bus_bw": 0.1, "nwrong": None}
    each = {"skipped_iterations": 1, "cv_pct": 5.0, "times_us": [90.0, 30.0, 40.0]}
    return {
        "version": 3,
        "args": ["./build/reduce_scatter_perf", "-b", "8"],
        "config": {"iterations": 20, "devices": [{"rank": 0}, {"rank": 1}]},
        "results": [
            {
                "size": 8,
                "out_of_place": block,
                "out_of_place_per_iter": each,
                "in_place": block,
            }
        ],
    } | changes


def test_json_is_read() -> None:
    found = read_nccl_json(document(), "out.json")
    assert (found.op, found.nranks, found.iterations) == ("reduce_scatter", 2, 20)
    first, second = found.rows
    assert first.times_ns == (30_000.0, 40_000.0)  # one iteration was skipped
    assert (first.cv, second.cv) == (0.05, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"results": []}, "has no results"),
        ({"results": "x"}, "has no results"),
        ({"results": [3]}, r"results\[0\]: has no size"),
        ({"results": [{"size": "8"}]}, "has no size"),
        ({"results": [{"size": 8, "in_place": {"time": "x"}}]}, "'x' is not a time"),
        ({"results": [{"size": 8, "in_place": {}}]}, "'None' is not a time"),
        ({"args": []}, "does not name its test"),
        ({"config": {}}, "does not list the ranks"),
    ],
)
def test_other_json_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ResultsError, match=message):
        read_nccl_json(document(**changes), "out.json")


def test_time_of_0_is_accepted() -> None:
    found = read_nccl_text((HEAD + PLAIN.replace("34.27", "0")).encode(), "out.txt")
    assert found.rows[0].time_ns == 0


def test_replay_has_only_in_place_times() -> None:
    text = HEAD + PLAIN.replace("34.27    0.00    0.00       0", "N/A N/A N/A N/A")
    found = read_nccl_text(text.encode(), "out.txt")
    assert [(row.size_bytes, row.in_place) for row in found.rows] == [
        *((8, True), (16, False), (16, True))
    ]
