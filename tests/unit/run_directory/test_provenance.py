"""Facts about machine and versions."""

from __future__ import annotations

from pathlib import Path

import chakram
from chakram.run_directory.provenance import compiled, host_facts, versions


def test_versions_list_all_components() -> None:
    found = versions()
    assert found["chakram"] == chakram.__version__
    assert {"python", "kernel", "grpcio", "protobuf", "pyarrow"} <= found.keys()
    assert "not installed" not in found.values()


def test_compiled_lists_mode_and_modules() -> None:
    found = compiled()
    assert found["mode"] in ("auto", "require", "off")
    assert isinstance(found["modules"], dict)
    assert isinstance(found["all_compiled"], bool)


def test_host_facts_are_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: Big Chip 9\n")
    (tmp_path / "meminfo").write_text("MemTotal:  2048 kB\n")
    (tmp_path / "sys/net/core").mkdir(parents=True)
    (tmp_path / "sys/net/core/rmem_max").write_text("212992\n")
    found = host_facts(tmp_path)
    assert found["cpu_model"] == "Big Chip 9"
    assert found["memory_bytes"] == 2048 * 1024
    assert found["rmem_max_bytes"] == 212992
    assert found["wmem_max_bytes"] is None
