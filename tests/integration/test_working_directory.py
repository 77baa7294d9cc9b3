"""The working directory does not affect processes of a run."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support import REPO_ROOT
from tests.udp_ports import free_udp_ports

if TYPE_CHECKING:
    from pathlib import Path


def test_folder_named_like_the_package_is_not_imported(
    tmp_path: Path,
) -> None:
    (tmp_path / "chakram").mkdir()
    program = "import sys; from chakram.cli import main; sys.exit(main())"
    ended = subprocess.run(
        [
            *(sys.executable, "-P", "-c", program, "run"),
            str(REPO_ROOT / "configs" / "loopback.yaml"),
            *("--set", "iterations.warmup=0", "--set", "iterations.measured=1"),
            *("--set", "jobs[0].size_scale=1/64"),
            *("--set", f"fabric.udp_port={free_udp_ports()}"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
