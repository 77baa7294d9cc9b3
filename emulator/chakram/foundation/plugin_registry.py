"""Registries of named objects, which are built in or come from plug-ins.

Built-in objects are the modules of one folder, by file name. Plug-ins are entry points
of installed packages, in one group. A registry treats both the same way. It identifies
an object by module and attribute, and imports it on first use. Chakram never sends code
to other machines. Each process that executes a plan looks the names up in its own
registry. The process also compares the packages and versions that provide these names.
"""

from __future__ import annotations

import pkgutil
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Generic, TypeVar

from chakram.foundation.errors import ChakramError, PlugInError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

_HINT = "report this to its author"

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlugIn:
    """A name, and the object that it refers to.

    Attributes:
        name: Name in experiments.
        target: ``module:attribute``.
        package: Name and version of the package that provides the object, e.g.
            ``chakram-aimd 1.0``. Empty if the object is built in.
    """

    name: str
    target: str
    package: str = ""


def modules_of(package: str, others: Sequence[str]) -> list[str]:
    """Return the sorted names of a package's modules, except *others*."""
    modules = pkgutil.iter_modules(import_module(package).__path__)
    names = {each.name for each in modules if not each.ispkg}
    return sorted(names - set(others))


class Registry(Generic[Found]):
    """All objects of one kind, by name.

    Args:
        noun: The kind, as it appears in messages, e.g. ``congestion control``.
        group: Entry-point group of plug-ins.
        own: Function that returns the targets of the built-in objects by name. It is
            called once.
        accept: Function that takes a name and the object imported under it, and returns
            the object with its type. It raises ValueError with the reason if the object
            is invalid.
    """

    def __init__(
        self,
        noun: str,
        *,
        group: str,
        own: Callable[[], Mapping[str, str]],
        accept: Callable[[str, object], Found],
    ) -> None:
        self.noun = noun
        self.group = group
        self._find_own = own
        self._accept = accept
        self._loaded: dict[str, Found] = {}

    @cached_property
    def own(self) -> Mapping[str, str]:
        """The targets of the built-in objects, by name."""
        return self._find_own()

    @cached_property
    def installed(self) -> tuple[PlugIn, ...]:
        """The plug-ins of this interpreter, sorted by name and searched only once."""
        # Import ``metadata`` only here, because it loads an email parser. Most
        # processes use only built-in names.
        from importlib import metadata

        found = {
            PlugIn(
                name=entry.name,
                target=entry.value.replace(" ", ""),
                package="?"
                if entry.dist is None
                else f"{entry.dist.name} {entry.dist.version}",
            )
            # Two entries of ``sys.path`` may contain the same package.
            for entry in metadata.entry_points(group=self.group)
        }
        return tuple(sorted(found, key=lambda each: (each.name, each.package)))

    def names(self) -> tuple[str, ...]:
        """Return all names, built-in ones first, without importing anything."""
        own = self.own
        others = dict.fromkeys(each.name for each in self.installed)
        return (*own, *(name for name in others if name not in own))

    def find(self, name: str) -> PlugIn | None:
        """Return the target of *name*, preferring built-in objects, or None.

        Raises:
            PlugInError: If several packages provide the name.
        """
        if name in self.own:
            return PlugIn(name=name, target=self.own[name])
        found = [each for each in self.installed if each.name == name]
        if len(found) > 1:
            packages = " and ".join(each.package for each in found)
            raise PlugInError(
                f"{self.noun} {name}",
                f"several packages provide this name: {packages}",
                "uninstall all but one of them",
            )
        return found[0] if found else None

    def load(self, name: str) -> Found:
        """Return the object named *name*, importing it if necessary.

        Raises:
            ValueError: If there is no such name.
            PlugInError: If the object cannot be imported or is invalid.
        """
        if name not in self._loaded:
            found = self.find(name)
            if found is None:
                raise ValueError(
                    f"there is no {self.noun} {name[:60]!r} (known: "
                    f"{', '.join(self.names())})"
                )
            self._loaded[name] = self._import(found)
        return self._loaded[name]

    @contextmanager
    def calls(self, name: str) -> Iterator[None]:
        """Attribute the exceptions of calls to the plug-in that provides *name*.

        Raises:
            PlugInError: If the code of the plug-in raises anything but a ChakramError.
                The error states the exception and its line in the plug-in.
        """
        try:
            yield
        except ChakramError:
            raise
        except (Exception, SystemExit) as error:
            found = self.find(name)
            if found is None or not found.package:
                raise
            raise PlugInError(
                f"{self.noun} {name}",
                f"{found.package}: {_place(error, found)}{_described(error)}",
                _HINT,
            ) from error

    def loaded(self) -> dict[str, Found]:
        """Return the objects imported so far, by name."""
        return dict(self._loaded)

    def check_package(self, name: str, package: str, *, where: str) -> None:
        """Check that the same package provides the name here as on the controller.

        Args:
            name: Name in the plan.
            package: Name and version of the package that provided it to the controller.
            where: The plan, and the process that checks it.

        Raises:
            PlugInError: If no package or another package provides the name here. The
                hint names the package to install.
        """
        found = self.find(name)
        hint = f"install {package} on the agent's host, too, and restart it"
        if found is None:
            raise PlugInError(
                where,
                f"there is no {self.noun} {name[:60]!r} here (known: "
                f"{', '.join(self.names())})",
                hint,
            )
        if found.package != package:
            raise PlugInError(
                where,
                f"{self.noun} {name!r} comes from {found.package or 'chakram itself'} "
                f"here, but from {package[:120]} on the controller",
                hint,
            )

    def _import(self, found: PlugIn) -> Found:
        where = f"{self.noun} {found.name}"
        whose = f"{found.package}: " if found.package else ""
        hint = _HINT if found.package else None
        module, _, attribute = found.target.partition(":")
        if not _NAME.fullmatch(found.name):
            raise PlugInError(
                where,
                f"{whose}{found.name[:60]!r} cannot be written in an experiment",
                "use lower-case letters, digits and _, and begin with a letter",
            )
        try:
            named: object = import_module(module)
            for part in attribute.split("."):
                named = getattr(named, part)
        # Importing third-party code may raise any exception.
        except (Exception, SystemExit) as error:
            raise PlugInError(
                where,
                f"{whose}{found.target} cannot be imported: {_described(error)}",
                hint,
            ) from error
        try:
            return self._accept(found.name, named)
        except ValueError as error:
            raise PlugInError(where, f"{whose}{found.target}: {error}", hint) from error


def _place(error: BaseException, plug_in: PlugIn) -> str:
    """Return the plug-in's last line in the traceback, or an empty string."""
    package = plug_in.target.partition(":")[0].partition(".")[0]
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").partition(".")[0] == package:
            place = f"{frame.f_code.co_filename}:{line}: "
    return place


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
