"""Recognition of trace file formats by their first bytes."""

from __future__ import annotations

import pytest

from chakram.chakra.read.eras import Form, recognize
from tests.trace_bytes import metadata


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('{"workload_graph": []}', Form.FEEDER),
        ('{"ngpus": 8, "workload_graph": []}', Form.FEEDER),
        ('{\n "schema": "1.1.1-chakra.0.0.4", "nodes": []}', Form.PYTORCH_HOST),
        ('{"schema": "1.1.1", "nodes": [{"exclusive_dur": 3}]}', Form.PYTORCH_LINKED),
        ('{"nodes": [{"attr": 1}]}', Form.STAGE),
        ('{"nodes": [{"attrs": [], "ctrl_deps": 1}]}', Form.PYTORCH_HOST),
        ('{"nodes": [{"id": 1, "rf_id": 2}], "schema": "1.0"}', Form.PYTORCH_HOST),
        ('{"nodes": [{"attrs": [], "exclusive_dur": 3}]}', Form.PYTORCH_LINKED),
        ('{\n  "attr": [{"name": "schema"}]}', Form.JSONIZER),
        ('{"version": "0.0.4"}{"id": "1"}', Form.JSONIZER),
        ('{}{"name": "first", "schema": 1}', Form.JSONIZER),
        ('{"schemaVersion": 1, "deviceProperties": [{"id": 0}]}', Form.KINETO),
        ('{"traceEvents": []}', Form.KINETO),
        ('[\n{"x": 1}]', Form.OTHER_JSON),
        ("{}", Form.OTHER_JSON),
        ("", Form.BINARY),
        ("workload_graph", Form.BINARY),
    ],
)
def test_json_form_is_recognized_by_its_first_unique_key(text: str, form: Form) -> None:
    assert recognize(text.encode()) is form


def test_byte_order_mark_does_not_hide_json() -> None:
    assert recognize(b'\xef\xbb\xbf{"version": "0.0.4"}{"id": "1"}') is Form.JSONIZER


def test_a_value_is_no_key() -> None:
    assert recognize(b'{"x": "nodes", "traceEvents": []}') is Form.KINETO


def test_a_record_of_123_bytes_starts_like_json_and_is_none() -> None:
    data = metadata("x" * 10, pad="y" * 101)
    assert data[0] == ord("{")
    assert recognize(data) is Form.BINARY
