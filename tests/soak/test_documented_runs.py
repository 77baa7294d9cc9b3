"""Every command of the documentation and of the ready experiments.

What runs is not limited by its generator, best of three, unless its page says so.  Two
cores have to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.documented import CONFIGS, PAGES, Place, config_fences, fences
from tests.private_network import private_network
from tests.support import require, why_no_lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONG_S = 600.0

RUN_PAGES = [page for page in PAGES if any(each.is_run for each in fences(page))]


@pytest.fixture(autouse=True)
def _private_network() -> Iterator[None]:
    require("netns", why_no_lab())
    with private_network():
        yield


@pytest.mark.timeout(3 * LONG_S)
@pytest.mark.parametrize("page", RUN_PAGES)
def test_the_commands_of_a_page_run_as_printed(
    page: str, tmp_path: Path, documented_place: Callable[[Path], Place]
) -> None:
    documented_place(tmp_path).run(list(fences(page)), soak=True, timeout_s=LONG_S)


@pytest.mark.timeout(3 * LONG_S)
@pytest.mark.parametrize("config", CONFIGS)
def test_the_commands_of_a_config_run_as_printed(
    config: str, tmp_path: Path, documented_place: Callable[[Path], Place]
) -> None:
    documented_place(tmp_path).run(config_fences(config), soak=True, timeout_s=LONG_S)
