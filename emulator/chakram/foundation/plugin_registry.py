"""What stands behind a name that experiments and plans use: ours, or a plug-in's.

Ours are the modules of one folder, by file name; plug-ins are entry points of installed
packages, in one group. From there on nothing tells them apart: both are a module and an
attribute of it, and only what is named is imported. Code never travels: whoever carries
out a plan looks here itself, and compares which package, in which version, has it.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Generic, TypeVar

from chakram.foundation.errors import PlugInError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlugIn:
    """Where a name leads to.

    Attributes:
        name: As experiments have it.
        target: ``module:attribute``.
        package: Name and version of the package that brings it, ``chakram-aimd 1.0``;
            empty: it is ours.
    """

    name: str
    target: str
    package: str = ""


def modules_of(package: str, others: Sequence[str]) -> list[str]:
    """Return the names of a package's modules, in order, but for *others*."""
    modules = pkgutil.iter_modules(import_module(package).__path__)
    names = {each.name for each in modules if not each.ispkg}
    return sorted(names - set(others))


class Registry(Generic[Found]):
    """Everything of one kind that a name may stand for.

    Args:
        noun: What it is, for people: ``congestion control``.
        group: Entry-point group of plug-ins.
        own: Returns the targets of ours by name; it is asked once.
        accept: Returns what was imported under a name, of its type; raises ValueError
            with what is wrong with it.
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
        """The targets of ours, by name."""
        return self._find_own()

    @cached_property
    def installed(self) -> tuple[PlugIn, ...]:
        """The plug-ins of this interpreter, by name; looked for once."""
        # It loads a parser of mail, and most processes name nothing but ours.
        from importlib import metadata

        found = {
            PlugIn(
                name=entry.name,
                target=entry.value.replace(" ", ""),
                package="?"
                if entry.dist is None
                else f"{entry.dist.name} {entry.dist.version}",
            )
            # The same package may be found twice, by two entries of the path.
            for entry in metadata.entry_points(group=self.group)
        }
        return tuple(sorted(found, key=lambda each: (each.name, each.package)))

    def names(self) -> tuple[str, ...]:
        """Return all names, ours first; nothing is imported for that."""
        own = self.own
        others = dict.fromkeys(each.name for each in self.installed)
        return (*own, *(name for name in others if name not in own))

    def find(self, name: str) -> PlugIn | None:
        """Return where *name* leads to; None: nowhere. The name of one of ours is ours.

        Raises:
            PlugInError: If several packages have something of that name.
        """
        if name in self.own:
            return PlugIn(name=name, target=self.own[name])
        found = [each for each in self.installed if each.name == name]
        if len(found) > 1:
            packages = " and ".join(each.package for each in found)
            raise PlugInError(
                f"{self.noun} {name}",
                f"several packages have one of that name: {packages}",
                "uninstall all but one of them",
            )
        return found[0] if found else None

    def load(self, name: str) -> Found:
        """Return what *name* stands for, imported if that is needed.

        Raises:
            ValueError: If nothing is called so.
            PlugInError: If it cannot be imported, or is not what it should be.
        """
        if name not in self._loaded:
            found = self.find(name)
            if found is None:
                raise ValueError(
                    f"no {self.noun} is named {name[:60]!r} "
                    f"(there are {', '.join(self.names())})"
                )
            self._loaded[name] = self._import(found)
        return self._loaded[name]

    def loaded(self) -> dict[str, Found]:
        """Return what has been imported so far, by name."""
        return dict(self._loaded)

    def check_package(self, name: str, package: str, *, where: str) -> None:
        """Refuse what is not here, or not of the package that a plan was made with.

        Args:
            name: What the plan names.
            package: Name and version of the package that had it there.
            where: The plan, and who looks.

        Raises:
            PlugInError: With what to install.
        """
        found = self.find(name)
        hint = f"install {package} there, too, and start the agent anew"
        if found is None:
            raise PlugInError(
                where,
                f"there is no {self.noun} {name[:60]!r} here "
                f"(there are {', '.join(self.names())})",
                hint,
            )
        if found.package != package:
            raise PlugInError(
                where,
                f"{self.noun} {name!r} is of {found.package or 'chakram itself'} here, "
                f"and of {package[:120]} at the controller",
                hint,
            )

    def _import(self, found: PlugIn) -> Found:
        where = f"{self.noun} {found.name}"
        whose = f"{found.package}: " if found.package else ""
        hint = "its author can help" if found.package else None
        module, _, attribute = found.target.partition(":")
        if not _NAME.fullmatch(found.name):
            raise PlugInError(
                where,
                f"{whose}{found.name[:60]!r} cannot be written in an experiment",
                "a name has lower-case letters, digits and _, and begins with a letter",
            )
        try:
            named: object = import_module(module)
            for part in attribute.split("."):
                named = getattr(named, part)
        # Anything may happen while somebody's module is imported.
        except Exception as error:
            raise PlugInError(
                where,
                f"{whose}{found.target} cannot be imported: "
                f"{type(error).__name__}: {error}",
                hint,
            ) from error
        try:
            return self._accept(found.name, named)
        except ValueError as error:
            raise PlugInError(where, f"{whose}{found.target}: {error}", hint) from error
