"""Agents without a free core; soak tests repeat this and also stop agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.full_cores import check_a_run_on_full_cores, two_cores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.hosts import Hosts


@pytest.fixture(autouse=True)
def _two_cores(found: Hosts) -> Iterator[None]:
    with two_cores():
        yield


def test_no_agent_is_declared_lost_on_full_cores(found: Hosts, tmp_path: Path) -> None:
    check_a_run_on_full_cores(found, tmp_path)
