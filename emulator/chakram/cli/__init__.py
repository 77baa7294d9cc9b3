"""The chakram command, with one module per verb.

The command imports only the module of the requested verb. That module imports its
dependencies when it runs, so every verb starts quickly. The command reports an error as
an exit code and one sentence on stderr. The sentence states the place, the fault and
the remedy (see ``chakram.foundation.errors``). Tracebacks appear only with ``--debug``.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

import chakram
from chakram.cli.common.help_examples import add_examples
from chakram.cli.common.parameter_conversion import convert_plain_values
from chakram.foundation.errors import (
    ChakramError,
    EnvironmentProblem,
    InputError,
    RunInterrupted,
)
from chakram.foundation.platform_support import module_or_none
from chakram.foundation.text_escaping import plain_output
from chakram.foundation.units import about_size, format_size

__all__ = ["command_line", "main"]

_INTERNAL_ERROR = 1

resource = module_or_none("resource")

_VERBS = {
    "init": "init",
    "run": "run",
    "simulate": "simulate",
    "bench": "bench",
    "sweep": "sweep",
    "show": "results.show",
    "logs": "results.logs",
    "runs": "results.runs",
    "compare": "results.compare",
    "diff": "results.compare",
    "gate": "results.gate",
    "report": "results.report",
    "timeline": "results.report",
    "why": "results.why",
    "validate": "results.validate",
    "export": "results.export",
    "interference": "interference",
    "plan": "plan",
    "preflight": "preflight",
    "trace": "trace",
    "fabric": "fabric",
    "algorithms": "algorithms",
    "dcqcn": "dcqcn",
    "hosts": "hosts",
    "launch": "launch",
    "certs": "certs",
    "dashboards": "dashboards",
    "doctor": "doctor",
    "bug-report": "bug_report",
    "serve": "serve",
    "completion": "completion",
}
"""Module of each verb, in the order in which the help lists the verbs.

A module has a function named like the verb, or an ``app`` for a group of verbs."""

_LEAST_ADDRESS_SPACE_BYTES = {
    **dict.fromkeys(("run", "bench", "sweep", "preflight"), 2 << 30),
    **dict.fromkeys(
        (
            "simulate",
            "plan",
            "show",
            "report",
            "timeline",
            "compare",
            "diff",
            "export",
            "gate",
            "interference",
            "validate",
        ),
        1 << 30,
    ),
}
"""Bytes of address space that each verb needs, checked if ``ulimit -v`` limits it.

These verbs load half a gigabyte of libraries. Some libraries start threads and end the
process if an allocation fails."""

_SHORT_OF = {
    errno.ENOMEM: "provide more memory, or run a smaller experiment",
    errno.EMFILE: "raise the limit on open files: ulimit -n",
    errno.ENFILE: "too many files are open on this machine",
}
"""Remedies for system errors, by error number."""

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers that mean a failed write to stdout if the error names no file."""

_unfreed: list[RunInterrupted] = []
"""References that keep the state of interrupted runs alive, because freeing that state
would delay the end of the process."""

# The base of all command-line errors: from click, or from Typer's own copy of click.
_UsageProblem = typer.BadParameter.__mro__[2]


@dataclass(slots=True)
class _Invocation:
    """The options before the verb."""

    debug: bool = False


def command_line(verb: str | None = None) -> typer.Typer:
    """Return the command with one verb, or with all verbs if *verb* is not known."""
    app = typer.Typer(
        name="chakram",
        help="Replay the traffic of AI training as RoCEv2 through a network "
        "under test.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_before_the_verb)
    for name in [verb] if verb in _VERBS else _VERBS:
        module = import_module(f"{__name__}.{_VERBS[name]}")
        group = getattr(module, "app", None)
        if group is None:
            app.command()(getattr(module, name.replace("-", "_")))
        else:
            app.add_typer(group)
    add_examples(app)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"chakram {chakram.__version__}")
        raise typer.Exit


def _before_the_verb(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Run the command on a service (see `serve`). This must be the first "
            "option.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Write a log to stderr.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Write a detailed log, and show tracebacks of errors."
        ),
    ] = False,
) -> None:
    if server is not None:
        raise typer.BadParameter("--server must be the first option")
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    if isinstance(context.obj, _Invocation):
        context.obj.debug = debug
    least_bytes = _LEAST_ADDRESS_SPACE_BYTES.get(context.invoked_subcommand or "")
    if least_bytes is not None:
        _check_address_space(least_bytes)


def _check_address_space(least_bytes: int) -> None:
    if resource is None:
        return
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes == resource.RLIM_INFINITY or limit_bytes >= least_bytes:
        return
    raise EnvironmentProblem(
        "the address space of processes",
        f"is limited to {about_size(limit_bytes)}, and this needs "
        f"{format_size(least_bytes)}",
        f"ulimit -v {least_bytes >> 10}, or unlimited",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    with plain_output():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    invocation = _Invocation()
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if "_CHAKRAM_COMPLETE" in os.environ:
            import_module("chakram.cli.completion").register_shells()
        server = _server_of(words)
        if server is not None:
            from chakram.cli.common.service_client import main as remote_main

            return remote_main(*server)
        # All options before the verb, except --server, are flags.
        verb = next((word for word in words if not word.startswith("-")), None)
        command = typer.main.get_command(command_line(verb))
        convert_plain_values(command)
        code = command(
            args=words,
            prog_name="chakram",
            obj=invocation,
            standalone_mode=False,
        )
        # Report a write error here, not when the interpreter exits.
        sys.stdout.flush()
    except ChakramError as error:
        return _tell(error, invocation)
    except ExceptionGroup as group:
        known = _first(group)
        return (
            _tell_unexpected(group, invocation)
            if known is None
            else _tell(known, invocation)
        )
    except _interruptions():
        _complain("interrupted")
        return RunInterrupted.exit_code
    except MemoryError:
        return _tell(_short_of(errno.ENOMEM), invocation)
    except OSError as error:
        if error.errno in _SHORT_OF:
            return _tell(_short_of(error.errno), invocation)
        if error.filename is not None or error.errno not in _OUTPUT_ERRORS:
            return _tell_unexpected(error, invocation)
        # Discard buffered output, so that the interpreter exits without another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        unwritable = EnvironmentProblem(
            "standard output", f"cannot be written: {error.strerror}"
        )
        return _tell(unwritable, invocation)
    except Exception as error:  # noqa: BLE001 -- the last handler
        if isinstance(error, _UsageProblem):
            return _tell_usage(error)
        return _tell_unexpected(error, invocation)
    if code == RunInterrupted.exit_code:
        _complain("interrupted")  # newer versions of Typer return it after Ctrl-C
    return code if isinstance(code, int) else 0


def _server_of(words: list[str]) -> tuple[str, list[str]] | None:
    """Return the URL in a leading ``--server`` and the words after it, or None."""
    if words[:1] == ["--server"] and len(words) > 1:
        return words[1], words[2:]
    if words and words[0].startswith("--server="):
        return words[0].partition("=")[2], words[1:]
    return None


def _interruptions() -> tuple[type[BaseException], ...]:
    """Return the exception types that report an interruption by the user."""
    import asyncio  # few verbs need it, and only after an exception

    return KeyboardInterrupt, typer.Abort, asyncio.CancelledError


def _short_of(number: int) -> EnvironmentProblem:
    return EnvironmentProblem("this process", os.strerror(number), _SHORT_OF[number])


def _first(group: ExceptionGroup[Exception]) -> ChakramError | None:
    """Return the first Chakram error in *group*, at any depth."""
    for error in group.exceptions:
        found = _first(error) if isinstance(error, ExceptionGroup) else error
        if isinstance(found, ChakramError):
            return found
    return None


def _complain(text: str) -> None:
    print(f"chakram: error: {text}", file=sys.stderr)


def _tell(error: ChakramError, invocation: _Invocation) -> int:
    if isinstance(error, RunInterrupted):
        _unfreed.append(error)
    if invocation.debug:
        traceback.print_exception(error)
    _complain(str(error))
    return error.exit_code


def _tell_usage(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "chakram"
    say = getattr(error, "format_message", lambda: str(error))
    message = say().strip().rstrip(".")
    if "\n" in message:
        print(message, file=sys.stderr)  # the help page of a command without a verb
    else:
        _complain(f"{message[:1].lower()}{message[1:]} (see {command} --help)")
    return InputError.exit_code


def _tell_unexpected(error: Exception, invocation: _Invocation) -> int:
    """Report an internal error in one line, with the traceback in a file."""
    if invocation.debug:
        traceback.print_exception(error)
    import tempfile

    try:
        with tempfile.NamedTemporaryFile(
            "w",
            encoding="utf-8",
            prefix="chakram-error-",
            suffix=".log",
            delete=False,
        ) as file:
            file.write(f"chakram {chakram.__version__}: {sys.argv}\n")
            traceback.print_exception(error, file=file)
        where = f"the traceback is in {Path(file.name)}"
    except OSError:
        where = "--debug shows the traceback"
    _complain(f"unexpected {type(error).__name__}: {error} ({where})")
    return _INTERNAL_ERROR
