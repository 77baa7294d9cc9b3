"""Import hook that chooses the compiled or the plain form of each hot module.

A module is *hot* in two cases:

- A ``.pxd`` of the same name is next to its ``.py``. Cython compiles the same ``.py``,
  so both forms have one source.
- It is a ``.pyx``, which has no plain form.

Importing `chakram` installs a finder ahead of Python's own finders. The environment
variable ``CHAKRAM_COMPILED`` selects the form of the hot modules:

``auto``     the extension if it was built from the current sources, else the ``.py``
``require``  the extension, or an ImportError with the reason if there is none
``off``      always the ``.py``

When ``setup.py`` builds an extension, it records the digests of the module and of all
declarations compiled into it in ``_compiled.*.json``. An extension is up to date if
these digests match the current files. Modification times are unreliable, because
installers and version control set them. Declarations are included because a changed
``.pxd`` of *another* module can move the fields of a class, and no linker error reports
that.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import find_spec, spec_from_file_location
from types import ModuleType
from typing import Literal, cast

Mode = Literal["auto", "require", "off"]

MODES: tuple[Mode, ...] = ("auto", "require", "off")
VARIABLE = "CHAKRAM_COMPILED"
PACKAGES = ("chakram", "chakram_agent")
PARTS = (".pxd", ".pyx")
OPTIONAL = {"chakram.rdma.libibverbs": "ibverbs"}
"""Library that each optional module needs.

A module is not built if the headers of its library are missing.
"""
COMPILED = "compiled"
NOT_BUILT = "not built"
# Each interpreter has its own suffix and record, because several interpreters may share
# a checkout.
SUFFIX = EXTENSION_SUFFIXES[0]
RECORD = f"_compiled{os.path.splitext(SUFFIX)[0]}.json"

Digests = dict[str, str]
"""Digest by file name. Names start with the top package: chakram/roce/psn.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStatus:
    """The form in which each hot module is loaded, or would be loaded by an import.

    Attributes:
        mode: The value of ``CHAKRAM_COMPILED``.
        modules: ``"compiled"`` or the reason for the plain form, by full module name.
            Sorted by name.
    """

    mode: Mode
    modules: Mapping[str, str]

    def is_compiled(self) -> bool:
        """Return whether there are hot modules and all of them are compiled."""
        return bool(self.modules) and all(
            state == COMPILED for state in self.modules.values()
        )


class CompiledFinder:
    """Meta-path finder for the hot modules of *packages*, and for no other modules."""

    def __init__(
        self, mode: Mode, *, packages: Sequence[str] = PACKAGES, record: str
    ) -> None:
        """Read the digests from the file *record*, if it exists."""
        self.mode = mode
        self._packages = frozenset(packages)
        self._recorded = read_record(record)
        self._users = users(self._recorded)
        # The first result for a module is final for the life of the process. An
        # extension must import the compiled form of each module it was compiled
        # against, even if a source is edited between the two imports.
        self._looked: dict[str, tuple[str, str | None]] = {}
        # Cached, because most declarations are compiled into several modules.
        self._digests: dict[str, str | None] = {}
        # Modules whose dependencies and users are all compiled. The cache avoids
        # repeated searches.
        self._whole: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec that loads the module *fullname*, or None if it is not hot.

        Raises:
            ImportError: If the mode is ``require`` and no extension matches the
                sources.
            ModuleNotFoundError: If the module is a ``.pyx`` without a matching
                extension.
        """
        top, _, rest = fullname.partition(".")
        if not rest or path is None or top not in self._packages:
            return None
        for folder in path:
            stem = os.path.join(folder, rest.rpartition(".")[2])
            source = hot_source(stem)
            if source is None:
                continue
            state, extension = self._examine(fullname, stem)
            if extension is not None:
                return spec_from_file_location(
                    fullname, extension, loader=ExtensionFileLoader(fullname, extension)
                )
            if self.mode == "require":
                raise ImportError(
                    f"{fullname}: {state}, and {VARIABLE}=require: build it with "
                    f"`make build`, or set {VARIABLE}=auto",
                    name=fullname,
                    path=source,
                )
            if source.endswith(".pyx"):
                raise ModuleNotFoundError(
                    f"{fullname}: {state}, and it has no plain form",
                    name=fullname,
                    path=source,
                )
            return spec_from_file_location(
                fullname, source, loader=SourceFileLoader(fullname, source)
            )
        return None

    def status(self) -> CompiledStatus:
        """Return the state of all hot modules of the installed packages.

        Modules whose library is optional are included only if they are compiled.
        """
        found = {
            fullname: self._examine(fullname, stem)[0]
            for package in self._packages
            for folder in folders_of(package)
            for fullname, stem in hot_modules(package, folder)
        }
        modules = {
            fullname: state
            for fullname, state in found.items()
            if state == COMPILED or fullname not in OPTIONAL
        }
        return CompiledStatus(mode=self.mode, modules=dict(sorted(modules.items())))

    def _examine(self, fullname: str, stem: str) -> tuple[str, str | None]:
        """Return the state of a hot module, and the extension to load, if any.

        An extension cannot work with the plain form of a module it was compiled
        against. A plain module cannot work with such an extension, either, because the
        module caches state that the extension may change. Modules that depend on each
        other are therefore either all loaded as extensions or all in plain form.
        """
        state, extension = self._look(fullname, stem)
        if state != COMPILED or fullname in self._whole:
            return state, extension
        pending, seen = [fullname], {fullname}
        while pending:
            module = pending.pop()
            for other in (
                *map(module_of, self._recorded[module]),
                *self._users[module],
            ):
                if other in seen:
                    continue
                other_stem = source_path(other.replace(".", "/"))
                if hot_source(other_stem) is None:
                    continue
                other_state, _ = self._look(other, other_stem)
                if other_state != COMPILED:
                    return f"goes with {other}, which is {other_state}", None
                pending.append(other)
                seen.add(other)
        self._whole |= seen
        return state, extension

    def _look(self, fullname: str, stem: str) -> tuple[str, str | None]:
        """Return the same values as `_examine`, but ignore related modules."""
        if fullname not in self._looked:
            self._looked[fullname] = self._look_afresh(fullname, stem)
        return self._looked[fullname]

    def _look_afresh(self, fullname: str, stem: str) -> tuple[str, str | None]:
        """Do the work of `_look` without its cache."""
        if self.mode == "off":
            return f"{VARIABLE}=off", None
        extension = stem + SUFFIX
        if not os.path.isfile(extension):
            return NOT_BUILT, None
        recorded = self._recorded.get(fullname)
        if recorded is None:
            return "built from unknown sources (no digests recorded)", None
        for name, recorded_digest in recorded.items():
            if name not in self._digests:
                self._digests[name] = digest(source_path(name))
            if self._digests[name] != recorded_digest:
                return f"built from another version of {name}", None
        return COMPILED, extension


def folders_of(package: str) -> Sequence[str]:
    """Return the folders of a package, which need not be imported yet."""
    if package in sys.modules:
        return list(sys.modules[package].__path__)
    spec = find_spec(package)
    return [] if spec is None else spec.submodule_search_locations or []


def hot_source(stem: str) -> str | None:
    """Return the source of the hot module at *stem* (a path without suffix), or None.

    An ``__init__`` is never hot, even if it has a ``.pxd``.
    """
    if os.path.isfile(stem + ".pyx"):
        return stem + ".pyx"
    if os.path.isfile(stem + ".pxd") and os.path.isfile(stem + ".py"):
        return stem + ".py"
    return None


def hot_modules(package: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield the full name and the stem of each hot module of *package* in *folder*."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        below = os.path.relpath(parent, folder)
        prefix = [package] if below == os.curdir else [package, *below.split(os.sep)]
        stems = {os.path.splitext(name)[0] for name in files if name.endswith(PARTS)}
        for name in sorted(stems - {"__init__"}):
            stem = os.path.join(parent, name)
            if hot_source(stem) is not None:
                yield ".".join([*prefix, name]), stem


def module_of(source: str) -> str:
    """Return the full name of a module from its source file, as in ``Digests``."""
    return os.path.splitext(source)[0].replace("/", ".")


def users(recorded: Mapping[str, Digests]) -> dict[str, set[str]]:
    """Return, by module, the modules of the same package that were compiled against it.

    Modules of other packages are omitted, because they may never be imported. The
    finder examines them when they are.
    """
    found: dict[str, set[str]] = {module: set() for module in recorded}
    for module, digests in recorded.items():
        top = module.partition(".")[0]
        for source in digests:
            other = module_of(source)
            if other in found and other != module and source.startswith(f"{top}/"):
                found[other].add(module)
    return found


def source_path(name: str) -> str:
    """Return the path of the source *name*, for example chakram/roce/psn.pxd.

    In a checkout the top packages have different parents. An installation has one
    parent for both.
    """
    top, _, below = name.partition("/")
    return os.path.join(folders_of(top)[0], below)


def digest(path: str) -> str | None:
    """Return the digest of the file at *path*, or None if it cannot be read."""
    # Imported here because hashlib loads OpenSSL, which is needed only if an extension
    # was built.
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def read_record(path: str) -> dict[str, Digests]:
    """Return the recorded digests by module, or none if the file cannot be read.

    A damaged file is treated like a missing one: the finder cannot check any extension,
    so it loads none.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return cast("dict[str, Digests]", json.load(file)["modules"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def record_path() -> str:
    """Return the path where the build records its digests."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), RECORD)


def requested_mode(environment: Mapping[str, str]) -> Mode:
    """Return the mode that *environment* selects, or ``auto`` by default.

    Raises:
        ImportError: If the value is not a mode. (This function runs during an import.)
    """
    wanted = environment.get(VARIABLE) or "auto"
    for mode in MODES:
        if mode == wanted:
            return mode
    raise ImportError(f"{VARIABLE}={wanted!r} is not one of {', '.join(MODES)}")


def install() -> None:
    """Install the finder ahead of Python's own finders, once per process."""
    if not any(isinstance(finder, CompiledFinder) for finder in sys.meta_path):
        finder = CompiledFinder(requested_mode(os.environ), record=record_path())
        sys.meta_path.insert(0, finder)


def status() -> CompiledStatus:
    """Return the form of each hot module that this process has loaded or would load.

    Raises:
        RuntimeError: If the finder is no longer in ``sys.meta_path``.
    """
    for finder in sys.meta_path:
        if isinstance(finder, CompiledFinder):
            return finder.status()
    raise RuntimeError("the finder of compiled modules is not installed")
