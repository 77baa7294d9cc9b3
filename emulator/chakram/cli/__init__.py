"""The chakram command: one module per verb.

Only the module of the verb that was asked for is imported, and that imports what it
needs when it runs, so that each stays quick to start.
Whatever goes wrong is one sentence on stderr that says where, what was found and what
to do, and an exit code (see ``chakram.foundation.errors``); a traceback only with
``--debug``.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

import chakram
from chakram.cli.common.examples import add_examples
from chakram.foundation.errors import (
    ChakramError,
    EnvironmentProblem,
    InputError,
    RunInterrupted,
)
from chakram.foundation.text_escaping import plain_output
from chakram.foundation.units import about_size, format_size

__all__ = ["command_line", "main"]

_INTERNAL_ERROR = 1

_VERBS = {
    "init": "init",
    "run": "run",
    "simulate": "simulate",
    "bench": "bench",
    "sweep": "sweep",
    "show": "show",
    "runs": "runs",
    "compare": "compare",
    "diff": "compare",
    "gate": "gate",
    "report": "report",
    "timeline": "report",
    "why": "why",
    "validate": "validate",
    "export": "export",
    "interference": "interference",
    "plan": "plan",
    "preflight": "preflight",
    "trace": "trace",
    "fabric": "fabric",
    "algorithms": "algorithms",
    "dcqcn": "dcqcn",
    "certs": "certs",
    "doctor": "doctor",
}
"""By verb, in the order of the help, its module: with a function of its name, or the
``app`` of a group of verbs."""

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
"""By verb, what it needs under a limit (``ulimit -v``): it loads libraries of half a
gigabyte, some of which have threads and end the process where they get no memory."""

_SHORT_OF = {
    errno.ENOMEM: "give it more memory, or run something smaller",
    errno.EMFILE: "raise the limit of open files: ulimit -n",
    errno.ENFILE: "the whole machine has too many open files",
}
"""By error of the system, what to do about it."""

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Without a file's name: of standard output.  Files of ours explain their errors."""

_unfreed: list[RunInterrupted] = []
"""Their tracebacks hold what was interrupted: the process ends before it is freed."""

# Typer's own copy of click or click itself, depending on its version: the base of all
# complaints about a command line.
_UsageProblem = typer.BadParameter.__mro__[2]


@dataclass(slots=True)
class _Invocation:
    """What the options before the verb say."""

    debug: bool = False


def command_line(verb: str | None = None) -> typer.Typer:
    """Return the command with one verb; None, or what is no verb: with all."""
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
            app.command()(getattr(module, name))
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
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log what happens to stderr.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log more; show tracebacks of errors.")
    ] = False,
) -> None:
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
    """Run the command; return its exit code."""
    with plain_output():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    invocation = _Invocation()
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        # Options before the verb have no values.
        verb = next((word for word in words if not word.startswith("-")), None)
        code = command_line(verb)(
            args=words,
            prog_name="chakram",
            obj=invocation,
            standalone_mode=False,
        )
        # What cannot be written shows here, not when the interpreter ends.
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
        _discard_output()
        unwritable = EnvironmentProblem(
            "standard output", f"cannot be written: {error.strerror}"
        )
        return _tell(unwritable, invocation)
    except Exception as error:  # noqa: BLE001 -- nobody else is left to tell of it
        if isinstance(error, _UsageProblem):
            return _tell_usage(error)
        return _tell_unexpected(error, invocation)
    if code == RunInterrupted.exit_code:
        _complain("interrupted")  # newer versions of typer see to Ctrl-C themselves
    return code if isinstance(code, int) else 0


def _interruptions() -> tuple[type[BaseException], ...]:
    """Return what ends a verb whose user has had enough."""
    import asyncio  # only where something is raised: few verbs need it

    return KeyboardInterrupt, typer.Abort, asyncio.CancelledError


def _short_of(number: int) -> EnvironmentProblem:
    return EnvironmentProblem("this process", os.strerror(number), _SHORT_OF[number])


def _discard_output() -> None:
    """Let what is still buffered go nowhere, so that the interpreter ends in peace."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _first(group: ExceptionGroup[Exception]) -> ChakramError | None:
    """Return the first of our errors in *group*, however deep it stands."""
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
        print(message, file=sys.stderr)  # the help page, for a command without a verb
    else:
        _complain(f"{message[:1].lower()}{message[1:]} (see {command} --help)")
    return InputError.exit_code


def _tell_unexpected(error: Exception, invocation: _Invocation) -> int:
    """Tell of a fault of our own: one line, and the traceback in a file."""
    if invocation.debug:
        traceback.print_exception(error)
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
