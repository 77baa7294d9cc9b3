"""The quick commands of documentation pages run as printed.

``tests.documented`` says how fences are tagged; the long ones are run by ``make soak``,
as are the commands in the heads of experiments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.documented import PAGES, Place, fences, parsed_fence
from tests.leaks import names_in, own_lab

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUICK_S = 60.0

LONG_PAGES = {
    "docs/howto/compare-and-gate.md",
    "docs/howto/export.md",
    "docs/howto/report.md",
}
"""Pages with many commands. Their verbs have tests; ``make soak`` runs the pages."""

QUICK_PAGES = [
    page
    for page in PAGES
    if page not in LONG_PAGES
    and any(each.is_run and "soak" not in each.tags for each in fences(page))
]


@pytest.mark.slow
@pytest.mark.usefixtures("netns")
@pytest.mark.parametrize("page", QUICK_PAGES)
def test_the_quick_commands_of_a_page_run_as_printed(
    page: str, tmp_path: Path, documented_place: Callable[[Path], Place]
) -> None:
    # What is simulated takes its time by its bytes; soak sends all of them.
    place = documented_place(tmp_path).send_less()
    assert place.run(list(fences(page)), soak=False, timeout_s=QUICK_S)


@pytest.mark.slow
@pytest.mark.usefixtures("netns")
def test_a_lab_of_a_command_that_fails_does_not_stay(
    tmp_path: Path, documented_place: Callable[[Path], Place]
) -> None:
    lab = own_lab("page")
    command = f"chakram fabric up configs/single-switch.yaml --lab {lab}; ls gone\n"
    fence = parsed_fence("page.md", 1, "sh", command)
    with pytest.raises(AssertionError, match="gone"):
        documented_place(tmp_path).run([fence], soak=False, timeout_s=QUICK_S)
    assert not [name for name in names_in("/run/netns") if lab in name]
