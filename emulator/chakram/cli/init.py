"""``chakram init``: write a ready-made experiment to start from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from chakram.chakra.write.atomic_file import new_file
from chakram.cli.common.options import Force, Json, print_json
from chakram.cli.common.packaged_files import copy_files, files_below, packaged
from chakram.foundation.errors import ConfigError

_MODELINE = "# yaml-language-server: $schema="
_SCHEMA = "schema/experiment.schema.json"
_DEFAULT = "quickstart"


def init(
    name: Annotated[
        str,
        typer.Argument(metavar="[NAME]", help="Experiment name; see --list."),
    ] = _DEFAULT,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write. Default: NAME.yaml."),
    ] = None,
    names: Annotated[
        bool, typer.Option("--list", help="List the available experiments instead.")
    ] = False,
    examples: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Copy all experiments, and the examples in the documentation, to "
            "this folder.",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a ready-made experiment to start from."""
    if examples is not None:
        folders = ("configs", "docs/examples")
        files = [files_below(each, examples / each) for each in folders]
        written = copy_files(files[0] | files[1], force=force)
        if as_json:
            print_json("examples-written", {"written": written})
        else:
            print(f"wrote {len(written)} files to {examples}")
        return
    ready = ready_experiments()
    if names:
        if as_json:
            print_json("experiments", {"experiments": ready})
        else:
            width = max(map(len, ready), default=0)
            for known, summary in ready.items():
                print(f"{known:<{width}}  {summary}")
        return
    if name not in ready:
        raise ConfigError(
            f"chakram init {name}", "there is no such experiment", ", ".join(ready)
        )
    path = out or Path(f"{name}.yaml")
    with new_file(path, force=force) as file:
        file.write(_text_for(path, name).encode())
    if as_json:
        print_json("experiment-written", {"written": str(path)})
    else:
        print(f"wrote {path}; next: chakram plan {path}")


def configs_folder() -> Path:
    """Return the folder of ready-made experiments, in the package or the checkout."""
    return packaged("configs")


def ready_experiments() -> dict[str, str]:
    """Return the one-sentence description of each ready-made experiment, by name."""
    return {
        path.stem: _summary(path.read_text(encoding="utf-8"))
        for path in sorted(configs_folder().glob("*.yaml"))
    }


def _summary(text: str) -> str:
    """Return the first sentence of the comment at the start of *text*."""
    comment = re.match(r"(?:#.*\n)*", text)
    words = comment[0].replace("\n#", " ").lstrip("# ") if comment else ""
    return " ".join(re.split(r"(?<=\.)\s", words, maxsplit=1)[0].split()).rstrip(".")


def _text_for(path: Path, name: str) -> str:
    """Return the text of experiment *name*, with its own path replaced by *path*."""
    folder = configs_folder()
    text = (folder / f"{name}.yaml").read_text(encoding="utf-8")
    return text.replace(f"configs/{name}.yaml", str(path)).replace(
        f"{_MODELINE}{_SCHEMA}", f"{_MODELINE}{folder / _SCHEMA}"
    )
