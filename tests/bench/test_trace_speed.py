"""What reading traces and saved plans costs, against the usual way of reading.

The yardstick is how Chakra's own tools read: frame by frame, each decoded by protobuf
in Python, and nothing done with it.  Both run in turn, and processor time is counted,
so that ratios hold on a machine that others use too; what is printed are medians.
"""

from __future__ import annotations

import statistics
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram._compiled import status
from chakram.chakra.et_pb2 import GlobalMetadata, Node
from chakram.chakra.read.reader_options import ReadOptions
from chakram.config.experiment import load_experiment
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.saved_plans import load_plan, save_plan
from tests.bench.extent import at_most, sized
from tests.big_traces import write_big_trace
from tests.full_decoder import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.config.experiment import Experiment

ROUNDS = sized(7, 1)
LARGE_SET = "stage/moe_mixtral_32layers_ep8_pp4_32r.tar.gz"
SETS = (
    "deepflow_llm_graph_16r/llm_graph_16r.tar.gz",
    "pytorch_moe_gloo_8r/converted_et.tar.gz",
    "stage/dense_llama_fsdp8_8r",
    "stage/dense_llama_legacyattr_tp2_dp2_4r",
    "stage/dense_llama_tp4_pp2_dp2_16r.tar.gz",
    LARGE_SET,
    "stage/moe_mixtral_ep4_fsdp2_tp1_8r",
    "stage/moe_mixtral_ep4_tp2_8r",
    "stage/moe_mixtral_ep4_tp2_pp2_16r.tar.gz",
    "stage/moe_mixtral_ep8_tp2_16r.tar.gz",
    "stage/moe_mixtral_ep8_tp2_pp2_32r.tar.gz",
    "stage/moe_mixtral_ep8_tp2_pp2_dp2_64r.tar.gz",
    "text_converter_8r/Resnet50_DataParallel.tar.gz",
)
"""Of 119 to 3,706 messages per file; opening one costs as much as 30 of them.

Sets of fewer per file are not here: of those, only opening would be measured.
"""
ENOUGH = sized(10_000, 1)
"""Messages of a round: a set of few is read several times, so that clocks tell."""


def decode_all_messages(files: Sequence[Path]) -> int:
    """Decode every message of the files; return how many there are."""
    count = 0
    for path in files:
        kind: type[GlobalMetadata | Node] = GlobalMetadata
        with path.open("rb") as file:
            while first := file.read(1):
                length = first[0] & 0x7F
                shift = 7
                while first[0] > 0x7F:
                    first = file.read(1)
                    length |= (first[0] & 0x7F) << shift
                    shift += 7
                kind().ParseFromString(file.read(length))
                kind = Node
                count += 1
    return count


def ratio_of(work: Callable[[], object], files: Sequence[Path], name: str) -> float:
    """Return how long *work* takes, as a multiple of the usual way; print both."""
    ours, usual = [], []
    count = decode_all_messages(files)
    times = -(-ENOUGH // count)
    count *= times
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(times):
            decode_all_messages(files)
        middle = time.process_time()
        for _ in range(times):
            work()
        usual.append(middle - begin)
        ours.append(time.process_time() - middle)
    yardstick, mine = statistics.median(usual), statistics.median(ours)
    print(  # noqa: T201 - the outcome of a benchmark
        f"\n{name}: {count} messages, {mine / count * 1e6:.2f} us each, the usual way "
        f"{yardstick / count * 1e6:.2f} us: {mine / yardstick:.2f} of it"
    )
    return mine / yardstick


def files_of(name: str, data: Path, folder: Path) -> list[Path]:
    """Return the files of a set, unpacked into *folder* if it is an archive."""
    place = data / "traces" / name
    if place.is_file():
        with tarfile.open(place) as archive:
            archive.extractall(folder, filter="data")
        place = folder / place.name.removesuffix(".tar.gz")
    return sorted(place.glob("*.et"), key=lambda path: int(path.suffixes[-2][1:]))


def read_all(files: Sequence[Path]) -> None:
    options = ReadOptions(bytes_per_element=2)
    for rank, path in enumerate(files):
        read_trace(path, rank, options)


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if not status().is_compiled():
        pytest.skip("what is measured is the compiled form")


@pytest.mark.parametrize("name", SETS)
def test_graphs_of_a_set_cost_little_more_than_decoding(
    name: str, chakram_data: Path, tmp_path: Path
) -> None:
    files = files_of(name, chakram_data, tmp_path)
    assert ratio_of(lambda: read_all(files), files, name) < at_most(1.5)


def test_a_graph_of_a_large_trace_costs_no_more_than_decoding(tmp_path: Path) -> None:
    path = tmp_path / "big.0.et"
    write_big_trace(path, sized(200_000, 2_000))
    assert ratio_of(lambda: read_all([path]), [path], "large trace") < at_most(1.5)


EXPERIMENT = """\
version: 1
name: saved
jobs:
  - name: j
    trace: {{path: {place}, bytes_per_element: 2}}
    compute: {compute}
fabric:
  kind: namespaces
  topology: {{single_switch: {{hosts: 32}}}}
  links: {{host: {{rate: 1Gbit}}}}
"""


COMPUTES = pytest.mark.parametrize(
    "compute",
    [
        "{from: trace}",
        # Every node of the trace becomes an operation, one in eight another one.
        "{from: roofline, peak: 989 TFLOPS, memory: 3.35 TB/s}",
    ],
    ids=["trace", "roofline"],
)


def saved_plan(
    compute: str, data: Path, folder: Path
) -> tuple[Path, Experiment, list[Path]]:
    """Save the plan of the large set; return its path, its experiment, its traces."""
    files = files_of(LARGE_SET, data, folder)
    path = folder / "e.yaml"
    path.write_text(EXPERIMENT.format(place=files[0].parent, compute=compute))
    experiment = load_experiment(path)
    save_plan(folder / "saved", experiment, load_jobs(experiment))
    return folder / "saved", experiment, files


@COMPUTES
def test_a_saved_plan_costs_a_tenth_of_loading_its_traces(
    compute: str, chakram_data: Path, tmp_path: Path
) -> None:
    path, experiment, _ = saved_plan(compute, chakram_data, tmp_path)
    loading, again = [], []
    for _ in range(ROUNDS):
        begin = time.process_time()
        load_jobs(experiment)
        middle = time.process_time()
        load_plan(path, experiment)
        loading.append(middle - begin)
        again.append(time.process_time() - middle)
    ratio = statistics.median(again) / statistics.median(loading)
    print(f"\nplan, {compute}: {ratio:.3f} of loading its traces")  # noqa: T201 - likewise
    assert ratio < at_most(0.1)
