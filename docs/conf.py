"""Sphinx configuration of the documentation site: ``make docs``."""

from __future__ import annotations

import chakram

project = "Chakram"
author = "The Chakram developers"
copyright = author
version = release = chakram.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["examples/**", "_build/**"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]

html_theme = "furo"
html_title = f"Chakram {version}"
html_static_path: list[str] = []
# The site works from a folder, without a network.
html_theme_options = {"navigation_with_keys": True}

autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring = True
nitpicky = False
