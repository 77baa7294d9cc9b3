"""Accessibility of a page, as axe-core finds it in Chromium."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import axe_core_python

from tests.chromium import open_page

_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
_RESULT = re.compile(r'<pre id="axe-result">(.*?)</pre>', re.DOTALL)
_SCRIPT = """
<script src="{axe}"></script>
<script>
addEventListener("load", () => setTimeout(async () => {{
  for (const each of document.querySelectorAll("details")) each.open = true;
  const found = await axe.run(document, {{runOnly: {{type: "tag", values: {rules}}}}});
  const result = document.createElement("pre");
  result.id = "axe-result";
  result.textContent = JSON.stringify({{
    passes: found.passes.length,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    violations: found.violations.map(({{id, help, nodes}}) => ({{
      id, help, nodes: nodes.map(node => node.failureSummary + " " + node.html)
    }}))
  }});
  document.body.append(result);
}}, 2000));
</script>
"""


def axe_violations(
    page: Path, folder: Path, *, dark: bool = False, width: int = 800
) -> list[str]:
    """Return the violations of WCAG 2.1 A and AA in a page, with all sections open.

    Args:
        page: The page.
        folder: An empty folder; created if missing.
        dark: Whether the reader prefers dark colors.
        width: Width of the window in pixels.

    Raises:
        AssertionError: If axe-core did not run, or the browser complained.
    """
    axe = Path(axe_core_python.__file__).with_name("axe.min.js")
    script = _SCRIPT.format(axe=axe.as_uri(), rules=json.dumps(_RULES))
    folder.mkdir(exist_ok=True)
    copy = folder / "page.html"
    text = page.read_text(encoding="utf-8")
    head, end, tail = text.rpartition("</body>")
    copy.write_text(f"{head}{script}{end}{tail}", encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    flags = (scheme, f"--window-size={width},900")
    opened = open_page(copy, profile=folder / "profile", flags=flags)
    told = _RESULT.search(opened.dom)
    assert told is not None, opened.complaints
    assert opened.complaints == []
    result: dict[str, Any] = json.loads(unescape(told[1]))
    assert result["passes"]
    assert result["dark"] == dark
    return [
        f"{each['id']}: {each['help']}: {'; '.join(each['nodes'][:3])}"
        for each in result["violations"]
    ]
