"""Export of a page's figures to files that Chromium draws."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from chakram.foundation.errors import EnvironmentProblem, RunDirectoryError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--window-size=1200,900"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
    # Virtual time lets the timers of the page fire without a wait.
    "--virtual-time-budget=60000",
)
_LIMIT_S = 180
_SCRIPT = """<script>
for (const each of document.querySelectorAll("details")) each.open = true;
(function collect() {
  const documents = typeof Bokeh === "undefined" ? [] : Bokeh.documents;
  if (!documents.length || !documents.every((each) => each.is_idle)) {
    setTimeout(collect, 50);
    return;
  }
  const found = {};
  for (const view of Bokeh.index) {
    if (!view.model.name) continue;
    found[view.model.name] = {
      svg: view.export("svg").ctx.get_serialized_svg(true),
      png: view.export("png").canvas.toDataURL("image/png").split(",")[1],
    };
  }
  const element = document.createElement("script");
  element.type = "application/json";
  element.id = "figures";
  const bytes = new TextEncoder().encode(JSON.stringify(found));
  element.textContent = Array.from(bytes, (each) => String.fromCharCode(each)).join("");
  element.textContent = btoa(element.textContent);
  document.body.append(element);
})();
</script>"""
_FOUND = re.compile(r'<script type="application/json" id="figures">([^<]*)</script>')


def export_figures(page: str, folder: Path) -> list[Path]:
    """Write every figure of a page as an SVG and a PNG file with the figure's name.

    Args:
        page: HTML, as ``render_page`` returns it.
        folder: Output folder. Created if missing.

    Raises:
        EnvironmentProblem: If no browser is found, or the browser draws no figures.
        RunDirectoryError: If the files cannot be written.
    """
    figures = drawn_figures(page)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, forms in figures.items():
            for suffix, content in forms.items():
                path = folder / f"{name}.{suffix}"
                path.write_bytes(content)
                written.append(path)
    except OSError as error:
        raise RunDirectoryError(
            str(folder), f"figures cannot be written: {error.strerror}"
        ) from error
    return written


def drawn_figures(page: str) -> dict[str, dict[str, bytes]]:
    """Return the figures of a page by name, each as ``svg`` and ``png``.

    Raises:
        EnvironmentProblem: As for ``export_figures``.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise EnvironmentProblem(
            "figures",
            "no Chromium is installed",
            "install it, e.g. with apt-get install chromium",
        )
    with tempfile.TemporaryDirectory(prefix="chakram-") as scratch:
        path = Path(scratch) / "page.html"
        path.write_text(page.replace("</body>", f"{_SCRIPT}</body>"), encoding="utf-8")
        try:
            done = subprocess.run(
                [
                    *(browser, *_FLAGS, f"--user-data-dir={scratch}/profile"),
                    *("--dump-dom", path.as_uri()),
                ],
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise EnvironmentProblem(browser, f"does not run: {error}") from error
    found = _FOUND.search(done.stdout)
    if found is None:
        raise EnvironmentProblem(
            browser, "did not draw the figures", "open the page in a browser instead"
        )
    figures = json.loads(base64.b64decode(found[1]))
    return {
        name: {"svg": forms["svg"].encode(), "png": base64.b64decode(forms["png"])}
        for name, forms in figures.items()
    }
