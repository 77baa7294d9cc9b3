"""``chakram trace synth``: write synthetic traces, with one verb per kind of trace.

The options of a verb are the keys of the kind in an experiment file. Both have the same
parameters, defaults and checks.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.progress import Progress
from typer.core import TyperGroup

from chakram.cli.common.dataclass_options import declare_parameters
from chakram.cli.common.escaping_console import Console, Table
from chakram.cli.common.help_examples import examples_text
from chakram.cli.common.options import Json, print_json
from chakram.cli.trace.loading import Force

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from chakram.synth.settings.base import SynthTrace
    from chakram.synth.trace_builder import Synthesis


_METAVARS = (
    ("_flops", "SPEED"),
    ("_bytes_per_s", "RATE"),
    ("_per_element", "N"),
    ("_bytes", "SIZE"),
    ("_ns", "TIME"),
    ("model", "NAME"),
    ("splits", "FILE"),
    ("rank_order", "[DIM, ...]"),
    ("streams", "{KEY: VALUE, ...}"),
)

_GROUPS_SHOWN = 12

_Out = Annotated[Path, typer.Option(help="Folder to write to.", metavar="FOLDER")]


class _Kinds(TyperGroup):
    """Group that creates verbs on demand, because their modules import slowly."""

    def list_commands(self, ctx: Any) -> list[str]:
        from chakram.synth.settings import KINDS

        return [_dashed(kind) for kind in KINDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from chakram.synth.settings import KINDS

        kind = cmd_name.replace("-", "_")
        if kind not in KINDS:
            return None
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(
            name=_dashed(kind),
            help=KINDS[kind].__doc__,
            epilog=examples_text(f"trace synth {_dashed(kind)}"),
        )(_verb(kind, KINDS[kind]))
        return typer.main.get_command(single)


app = typer.Typer(
    name="synth", help="Write synthetic traces.", no_args_is_help=True, cls=_Kinds
)


@app.callback()
def _kinds() -> None:
    """Write synthetic traces."""


def _verb(kind: str, model: type[SynthTrace]) -> Callable[..., None]:
    """Return the function of a verb, with a parameter per key of *model*."""
    keys = {name: each for name, each in _options(model).items() if name != "synth"}

    def verb(out: Path, force: bool, as_json: bool, **values: Any) -> None:
        given = {
            keys[name]: keys[name].as_yaml(value)
            for name, value in values.items()
            if value is not None
        }
        _write(_trace(kind, given), out, force=force, as_json=as_json)

    parameters = [_parameter("out", _Out)]
    parameters += [_parameter(name, each.annotation) for name, each in keys.items()]
    parameters += [
        _parameter("force", Force, False),
        _parameter("as_json", Json, False),
    ]
    parameters.sort(key=lambda each: each.default is not inspect.Parameter.empty)
    declare_parameters(verb, parameters)
    return verb


class _Option:
    """An option: its name, its key in a file, and its declaration for typer."""

    def __init__(self, key: str, field: FieldInfo, name: str) -> None:
        self.key = key
        option = f"--{_dashed(key.replace('.', '-'))}"
        settings: dict[str, Any] = {"help": _help(field), "show_default": False}
        required = field.is_required()
        if field.annotation is bool:
            off = f"--no-{option.removeprefix('--')}"
            base: Any = bool | None
            settings["param_decls"] = (f"{option}/{off}",)
        elif name == "streams":
            base = list[str] if required else list[str] | None
            settings["param_decls"] = ("--stream",)
            settings["metavar"] = _metavar(name, field)
        else:
            base = str if required else str | None
            settings["param_decls"] = (option,)
            settings["metavar"] = _metavar(name, field)
        declarations = settings.pop("param_decls")
        self.name = declarations[0].partition("/")[0]
        self._is_path = name == "splits"
        self.annotation = Annotated[base, typer.Option(*declarations, **settings)]

    def as_yaml(self, value: str | bool | list[str]) -> str:
        """Return a value of the option in the syntax of an experiment file."""
        if isinstance(value, list):
            return f"[{', '.join(value)}]"
        if isinstance(value, bool):
            return "true" if value else "false"
        # A path may contain characters with a meaning in YAML.
        return json.dumps(value) if self._is_path else value


def _options(model: Any, prefix: str = "") -> dict[str, _Option]:
    """Return the options of *model* by parameter name, with sections as prefixes."""
    from pydantic import BaseModel

    options: dict[str, _Option] = {}
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            options.update(_options(kind, f"{key}."))
        else:
            options[key.replace(".", "_")] = _Option(key, field, name)
    return options


def _parameter(name: str, annotation: Any, default: Any = ...) -> inspect.Parameter:
    if default is ...:
        # None means that the key is not given. pydantic checks the required keys.
        required = type(None) not in get_args(get_args(annotation)[0])
        default = inspect.Parameter.empty if required else None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _metavar(name: str, field: FieldInfo) -> str:
    for ending, metavar in _METAVARS:
        if name.endswith(ending):
            return metavar
    choices = _choices(field.annotation)
    if choices:
        return "|".join(choices)
    return "X" if float in (field.annotation, *get_args(field.annotation)) else "N"


def _choices(annotation: Any) -> list[str]:
    """Return the allowed values of a ``Literal`` or an optional ``Literal``."""
    if "Literal" in str(annotation):
        inner = [each for each in get_args(annotation) if each is not type(None)]
        if len(inner) == 1 and get_args(inner[0]):
            inner = list(get_args(inner[0]))
        return [str(each) for each in inner]
    return []


def _help(field: FieldInfo) -> str:
    """Return the description of a field, with its default as in an experiment file."""
    from pydantic import TypeAdapter

    text = " ".join((field.description or "").split())
    if field.is_required() or field.default is None:
        return text
    default = field.default
    if isinstance(default, bool):
        default = "yes" if default else "no"
    elif isinstance(default, tuple):
        default = f"[{', '.join(default)}]"
    elif field.metadata:
        # Numbers with units are written as in experiment files.
        kind: Any = Annotated[field.annotation, *field.metadata]
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        default = adapter.dump_python(default, mode="json")
    return f"{text} Default: {default}."


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _trace(kind: str, given: Mapping[_Option, str]) -> SynthTrace:
    """Return parameters of a synthetic trace, or raise one error with all mistakes."""
    from pydantic import ValidationError

    from chakram.settings.located_errors import Mistake, from_validation, report
    from chakram.settings.yaml_document import Document, override
    from chakram.synth.settings import KINDS

    source = f"chakram trace synth {_dashed(kind)}"
    document = Document(data={"synth": kind})
    for option, value in given.items():
        override(document, option.key, value, option=f"{option.name} {value}")
    try:
        trace = KINDS[kind].model_validate(document.data)
    except ValidationError as error:
        mistakes = from_validation(error, model=KINDS[kind], data=document.data)
        raise report(source, mistakes, document.line) from None
    mistakes = [
        Mistake(location=(problem.key,), found=problem.found, hint=problem.hint)
        for problem in trace.problems()
    ]
    if mistakes:
        raise report(source, mistakes, document.line)
    return trace


def _write(trace: SynthTrace, out: Path, *, force: bool, as_json: bool) -> None:
    from chakram.chakra.write.compatibility import GraphCompatibility
    from chakram.synth.synthesize import synthesize, write_synthesis

    synthesis = synthesize(trace)
    elsewhere = GraphCompatibility()
    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, disable=as_json or not console.is_terminal
    ) as progress:
        task = progress.add_task("writing traces", total=synthesis.nranks)
        written = write_synthesis(
            out,
            synthesis,
            replace=force,
            on_rank=lambda done: progress.update(task, completed=done),
            elsewhere=elsewhere,
        )
    if as_json:
        print_json(
            "trace-synth",
            {
                "written": [str(path) for path in written],
                "ranks": synthesis.nranks,
                "groups": {
                    group.name: {
                        "purpose": synthesis.purposes.get(group.name),
                        "ranks": group.ranks,
                    }
                    for group in synthesis.groups
                },
                "notes": elsewhere.sentences(),
            },
        )
        return
    if synthesis.groups:
        Console().print(_group_table(synthesis))
    for note in elsewhere.sentences():
        print(f"note: {note}")
    print(f"wrote {len(written)} files; inspect them: chakram trace show {out}")


def _group_table(synthesis: Synthesis) -> Table:
    """Return a table of the groups, with one line per purpose and size."""
    table = Table("groups for", "number", "ranks of each", "first", box=None)
    table.columns[1].justify = table.columns[2].justify = "right"
    alike: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for group in synthesis.groups:
        key = (synthesis.purposes.get(group.name, ""), len(group.ranks))
        alike.setdefault(key, []).append(group.ranks)
    for (purpose, size), groups in alike.items():
        first = ", ".join(map(str, groups[0][:_GROUPS_SHOWN]))
        more = ", ..." if size > _GROUPS_SHOWN else ""
        table.add_row(purpose, str(len(groups)), str(size), first + more)
    return table
