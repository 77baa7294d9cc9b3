"""What the front page, and who cites the project, say is so."""

from __future__ import annotations

import re
import tomllib

import yaml

from chakram import __version__
from tests.support import REPO_ROOT

README = (REPO_ROOT / "README.md").read_text(encoding="utf-8")


def test_what_is_cited_is_this_version() -> None:
    cited = yaml.safe_load((REPO_ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((REPO_ROOT / "pyproject.toml").read_text("utf-8"))
    assert cited["version"] == __version__
    assert cited["license"] == project["project"]["license"]
    assert cited.keys() >= {"cff-version", "message", "title", "authors", "type"}
    assert "CITATION.cff" in README


def test_the_front_page_leads_to_pages_that_there_are() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) > 12
    assert [link for link in links if not (REPO_ROOT / link).exists()] == []


def test_speed_is_told_as_a_ratio_to_what_can_be_measured_anywhere() -> None:
    limits = README.partition("## Honest limits")[2].partition("\n## ")[0]
    assert "make bench" in limits
    assert not re.search(r"\d Gbit/s", limits)
