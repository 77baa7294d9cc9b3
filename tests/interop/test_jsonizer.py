"""Our JSON compared with the output of chakra_jsonizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from chakram.chakra.write.convert import TraceForm, convert_trace_set


@pytest.mark.parametrize(
    ("source", "written", "theirs"),
    [
        (
            "stage/moe_mixtral_ep4_tp2_8r",
            "workload.0.json",
            "moe_mixtral_ep4_tp2_8r.0.json",
        ),
        (
            "astra_sim_microbenchmarks/all_to_all/4npus_1MB",
            "all_to_all.3.json",
            "all_to_all_4npus.3.json",
        ),
    ],
)
def test_our_json_equals_that_of_chakra_jsonizer(
    chakram_data: Path, tmp_path: Path, source: str, written: str, theirs: str
) -> None:
    traces = chakram_data / "traces"
    convert_trace_set(traces / source, tmp_path / "out", form=TraceForm.JSON)
    sample = traces / "json_variants" / "chakra_jsonizer" / theirs
    assert (tmp_path / "out" / written).read_bytes() == sample.read_bytes()


@pytest.mark.parametrize(
    "source", ["stage/dense_llama_fsdp8_8r", "astra_sim_custom_collective_ring8"]
)
def test_real_traces_survive_json_byte_for_byte(
    chakram_data: Path, tmp_path: Path, source: str
) -> None:
    folder = chakram_data / "traces" / source
    convert_trace_set(folder, tmp_path / "json", form=TraceForm.JSON)
    convert_trace_set(tmp_path / "json", tmp_path / "et", form=TraceForm.BINARY)
    written = sorted((tmp_path / "et").glob("*.et"))
    assert len(written) == 8
    for path in written:
        assert path.read_bytes() == (folder / path.name).read_bytes()
