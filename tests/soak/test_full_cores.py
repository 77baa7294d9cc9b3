"""Many runs on full cores, and many agents stopped during a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import _private_network, found, state_root  # noqa: F401 - fixtures
from tests.e2e.full_cores import (
    check_a_run_on_full_cores,
    check_frozen_agents,
    two_cores,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.hosts import Hosts


@pytest.fixture(autouse=True)
def _two_cores(found: Hosts) -> Iterator[None]:  # noqa: F811
    with two_cores():
        yield


@pytest.mark.parametrize("_", range(20))
def test_no_agent_is_declared_lost_on_full_cores(
    found: Hosts,  # noqa: F811
    tmp_path: Path,
    _: int,
) -> None:
    check_a_run_on_full_cores(found, tmp_path)


@pytest.mark.parametrize("_", range(10))
def test_hosts_stop_sending_without_their_agents(
    found: Hosts,  # noqa: F811
    tmp_path: Path,
    _: int,
) -> None:
    check_frozen_agents(found, tmp_path)
