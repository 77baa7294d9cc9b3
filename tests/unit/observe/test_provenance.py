"""Facts about machine and traces."""

from __future__ import annotations

import hashlib
from pathlib import Path

import chakram
from chakram.observe.provenance import (
    compiled,
    describe_trace,
    host_facts,
    text_digest,
    versions,
)


def test_versions_name_what_takes_part() -> None:
    found = versions()
    assert found["chakram"] == chakram.__version__
    assert {"python", "kernel", "grpcio", "protobuf", "pyarrow"} <= found.keys()
    assert "not installed" not in found.values()


def test_compiled_tells_mode_and_modules() -> None:
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


def test_trace_digest_is_that_of_sha256sum(tmp_path: Path) -> None:
    for name in ("b.et", "a.et"):
        (tmp_path / name).write_bytes(name.encode())
    found = describe_trace("t", tmp_path.iterdir())
    listing = "".join(
        f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n"
        for name in ("a.et", "b.et")
    )
    assert found == {
        "trace": "t",
        "files": 2,
        "bytes": 8,
        "sha256": text_digest(listing),
    }
