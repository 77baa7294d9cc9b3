"""Registry of congestion controls, by name.

Built-in controls are the modules of this package. Plug-ins add other controls: see
``chakram.foundation.plugin_registry`` and docs/howto/congestion-control.md. A lookup
imports only the requested control.
"""

from __future__ import annotations

from collections.abc import Mapping

from chakram.foundation.errors import RunFailed
from chakram.foundation.plugin_registry import Registry, modules_of
from chakram.roce.congestion.base import CongestionControl
from chakram.roce.congestion.parameters import (
    CNP_PARAMETERS,
    LINE_RATE,
    Parameter,
    check_arguments,
)
from chakram.roce.constants import NEVER

__all__ = [
    "CONTROLS",
    "CongestionControl",
    "all_parameters",
    "check_control_arguments",
    "hook_failed",
    "make",
    "negative_limit",
    "new_control",
    "timer_stands",
]


def _accept(name: str, found: object) -> type[CongestionControl]:
    """Return *found* if it is a valid congestion control, or raise ValueError."""
    if not isinstance(found, type) or not issubclass(found, CongestionControl):
        raise ValueError("it is not a class derived from CongestionControl")
    declared = all_parameters(found)
    if not all(isinstance(each, Parameter) for each in declared):
        raise ValueError("its parameters are not a tuple of Parameter")
    arguments = [each.argument for each in declared]
    names = [each.name for each in declared]
    taken = {LINE_RATE} if found.starts_at_line else set()
    if len({*arguments, *taken}) < len(arguments) + len(taken) or (
        len(set(names)) < len(names)
    ):
        raise ValueError("two of its parameters have the same name")
    return found


CONTROLS: Registry[type[CongestionControl]] = Registry(
    "congestion control",
    group="chakram.congestion_controls",
    own=lambda: {
        name: f"{__name__}.{name}:CONTROL"
        # "none" comes first in listings.
        for name in sorted(
            modules_of(__name__, ("base", "parameters")),
            key=lambda name: (name != "none", name),
        )
    },
    accept=_accept,
)
"""All congestion controls, by name."""


def all_parameters(kind: type[CongestionControl]) -> tuple[Parameter, ...]:
    """Return a control's parameters, including CNP parameters if it wants CNPs."""
    return (*kind.parameters, *(CNP_PARAMETERS if kind.wants_cnps else ()))


def check_control_arguments(
    name: str, kind: type[CongestionControl], arguments: Mapping[str, int]
) -> None:
    """Check the arguments that a plan gives for a control.

    Raises:
        ValueError: If an argument is missing, out of bounds or unknown.
    """
    check_arguments(name, kind.parameters, arguments)
    known = {each.argument for each in kind.parameters}
    if kind.starts_at_line:
        known.add(LINE_RATE)
        if arguments.get(LINE_RATE, 0) <= 0:
            raise ValueError(f"{name}: {LINE_RATE} is missing")
    for argument in arguments:
        if argument not in known:
            raise ValueError(f"{name} has no parameter {argument[:60]!r}")


def make(name: str, **arguments: int) -> CongestionControl:
    """Return a new control for one queue pair.

    Raises:
        ValueError: If no control has that name, or an argument is invalid.
        PlugInError: If a plug-in cannot be imported, or is not a control.
        RunFailed: If the control cannot be created.
    """
    kind = CONTROLS.load(name)
    check_control_arguments(name, kind, arguments)
    return new_control(name, kind, arguments)


def new_control(
    name: str, kind: type[CongestionControl], arguments: Mapping[str, int]
) -> CongestionControl:
    """Return a new control of class *kind* for one queue pair.

    Raises:
        ValueError: If the control rejects its arguments.
        RunFailed: If the control cannot be created.
    """
    where = f"congestion control {name}"
    try:
        control = kind(**arguments)
    except ValueError as error:
        if kind.__module__.startswith(__name__):
            raise
        raise ValueError(f"{where}: {error}") from error
    # The constructor of a plug-in can raise anything.
    except (Exception, SystemExit) as error:
        raise RunFailed(
            where, f"cannot be created: {type(error).__name__}: {error}"
        ) from error
    try:
        timer_ns = control.next_timer_ns
    except AttributeError:  # unset in uncompiled code
        timer_ns = 0
    if timer_ns != NEVER:
        raise RunFailed(
            where,
            "its base is not initialized, or a timer was set too early",
            "call super().__init__() first in __init__, and set timers only in hooks",
        )
    return control


def _named(control: CongestionControl) -> str:
    """Return the registered name of a control, or its class name, for errors."""
    for name, kind in CONTROLS.loaded().items():
        if type(control) is kind:
            return f"congestion control {name}"
    return f"congestion control {type(control).__name__}"


def hook_failed(
    control: CongestionControl, hook: str, error: BaseException
) -> RunFailed:
    """Return the error that ends a run after a hook of a control raised *error*."""
    place = ""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is not None:
        path = last.tb_frame.f_code.co_filename
        place = f" ({path.rpartition('/')[2]}, line {last.tb_lineno})"
    return RunFailed(
        _named(control),
        f"{hook} failed: {type(error).__name__}: {error}{place}",
    )


def negative_limit(control: CongestionControl, name: str, limit: int) -> RunFailed:
    """Return the error that ends a run when a control sets a negative limit."""
    return RunFailed(
        _named(control),
        f"{name} is {limit}",
        "set a positive limit, or 0 for no limit",
    )


def timer_stands(control: CongestionControl, now_ns: int) -> RunFailed:
    """Return the error that ends a run when `on_timer` sets no later time."""
    late_ns = now_ns - control.next_timer_ns
    return RunFailed(
        _named(control),
        f"on_timer left next_timer_ns {late_ns} ns before the current time",
        "set it to a later time, or to NEVER",
    )
