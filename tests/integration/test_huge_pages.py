"""Objects live in huge pages once a process has asked for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import REPO_ROOT

KINDS = Path("/sys/kernel/mm/transparent_hugepage/enabled")
OBJECTS_MIB = 96
"""More than one region, and one and a half."""

SCRIPT = f"""
from pathlib import Path
from chakram.native.huge_pages import use_huge_pages

def mib(name):
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) >> 10

def make():
    return [bytes(400) for _ in range({OBJECTS_MIB} * 2**20 // 448)]

before = make()
assert use_huge_pages() and use_huge_pages()
first = mib("AnonHugePages")
there = make()
print(mib("AnonHugePages") - first)
# What was there before goes its own way back; what is given back is used again.
del before
sizes = []
for _ in range(4):
    sizes.append(mib("Rss"))
    there = None
    there = make()
print(max(sizes) - sizes[0])
assert all(each == bytes(400) for each in there)
first = mib("AnonHugePages")
arrays = [bytearray(b"1" * 2**16) for _ in range({OBJECTS_MIB} * 16)]
print(mib("AnonHugePages") - first)
"""


def lines_of(script: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=REPO_ROOT,
        env={**os.environ, **environment},
    )
    return done.stdout.split()


@pytest.mark.skipif(
    not KINDS.exists() or "[never]" in KINDS.read_text(),
    reason="this kernel gives nobody huge pages",
)
def test_memory_is_in_huge_pages_and_freed_memory_is_reused() -> None:
    huge_mib, grown_mib, arrays_mib = map(int, lines_of(SCRIPT))
    assert huge_mib >= OBJECTS_MIB // 2
    assert grown_mib <= OBJECTS_MIB // 8
    assert arrays_mib >= OBJECTS_MIB // 2


def test_huge_pages_change_nothing_uncompiled() -> None:
    script = (
        "from chakram.native.huge_pages import use_huge_pages; print(use_huge_pages())"
    )
    assert lines_of(script, CHAKRAM_COMPILED="off") == ["False"]
