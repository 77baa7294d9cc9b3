"""Choose between the compiled and the plain form of the hot modules.

A module is *hot* if a ``.pxd`` of the same name lies beside its ``.py`` (one source,
two speeds: Cython compiles the same ``.py``), or if it is a ``.pyx`` (compiled only;
its users fall back to something else). Importing `chakram` puts a finder before
Python's own; for hot modules it does what the variable ``CHAKRAM_COMPILED`` says:

``auto``     the extension if it was built from these very sources, else the ``.py``
``require``  the extension, or an ImportError that says why not
``off``      the ``.py``, always

Whether an extension belongs to the sources is decided by digests, which ``setup.py``
records in ``_compiled.*.json`` when it builds: of the module and of all declarations
that were compiled into it. Times of files would not do, since installers and version
control set them as they like, and a changed ``.pxd`` of *another* module can move the
fields of a class without a word from the linker.
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
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Literal, cast

Mode = Literal["auto", "require", "off"]

MODES: tuple[Mode, ...] = ("auto", "require", "off")
VARIABLE = "CHAKRAM_COMPILED"
PACKAGES = ("chakram", "chakram_agent")
PARTS = (".pxd", ".pyx")
COMPILED = "compiled"
NOT_BUILT = "not built"
# One interpreter's extensions, and its record: others may share the checkout.
SUFFIX = EXTENSION_SUFFIXES[0]
RECORD = f"_compiled{os.path.splitext(SUFFIX)[0]}.json"

Digests = dict[str, str]
"""Digest by file name; names start with the top package, as in chakram/roce/psn.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStatus:
    """Which form of each hot module runs, or would run when imported.

    Attributes:
        mode: What ``CHAKRAM_COMPILED`` asked for.
        modules: By full name, in order: ``"compiled"``, or why it is not.
    """

    mode: Mode
    modules: Mapping[str, str]

    def is_compiled(self) -> bool:
        """Tell whether there are hot modules and all of them are compiled."""
        return bool(self.modules) and all(
            state == COMPILED for state in self.modules.values()
        )


class CompiledFinder:
    """A meta-path finder for the hot modules of *packages*; it ignores all others."""

    def __init__(
        self, mode: Mode, *, packages: Sequence[str] = PACKAGES, record: str
    ) -> None:
        """Read the digests recorded in the file *record*, where it exists."""
        self.mode = mode
        self._packages = frozenset(packages)
        self._recorded = read_record(record)
        self._users = users(self._recorded)
        # The first look at a module decides for the life of the process: an extension
        # that was compiled against another one must meet it, not its plain form, even
        # if a source is edited between the two imports.
        self._looked: dict[str, tuple[str, str | None]] = {}
        # Most declarations are compiled into several modules.
        self._digests: dict[str, str | None] = {}
        # Modules all of whose own are compiled: most are of few large families.
        self._whole: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return how to load the hot module *fullname*; None if it is not hot.

        Raises:
            ImportError: If the mode is ``require`` and there is no extension of these
                sources, or if the mode is not and the module is a ``.pyx`` without one.
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
        """Return the state of all hot modules of the packages imported so far."""
        modules = {
            fullname: self._examine(fullname, stem)[0]
            for package in self._packages & sys.modules.keys()
            for folder in sys.modules[package].__path__
            for fullname, stem in hot_modules(package, folder)
        }
        return CompiledStatus(mode=self.mode, modules=dict(sorted(modules.items())))

    def _examine(self, fullname: str, stem: str) -> tuple[str, str | None]:
        """Return the state of a hot module, and its extension if it is to be used.

        An extension that was compiled against others cannot work with their plain
        forms, and the plain form of a module not with extensions that it was to be
        compiled against: they keep to themselves what its extension may change. So
        of modules that belong together all are used as extensions, or none.
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
        """Return what `_examine` does, but of this module alone."""
        if fullname not in self._looked:
            self._looked[fullname] = self._look_afresh(fullname, stem)
        return self._looked[fullname]

    def _look_afresh(self, fullname: str, stem: str) -> tuple[str, str | None]:
        """Do the work of `_look`."""
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


def hot_source(stem: str) -> str | None:
    """Return the source of the hot module at *stem* (a path without suffix), or None.

    Of a package no ``__init__`` is hot, whatever lies beside it.
    """
    if os.path.isfile(stem + ".pyx"):
        return stem + ".pyx"
    if os.path.isfile(stem + ".pxd") and os.path.isfile(stem + ".py"):
        return stem + ".py"
    return None


def hot_modules(package: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield full name and stem of the hot modules of *package*, which is *folder*."""
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
    """Return the module whose source is named *source*, as in ``Digests``."""
    return os.path.splitext(source)[0].replace("/", ".")


def users(recorded: Mapping[str, Digests]) -> dict[str, set[str]]:
    """Return by module those of its package that were compiled against it.

    Another package may never be imported, and is examined when it is.
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
    """Return where the source *name*, e.g. chakram/roce/psn.pxd, lies.

    In a checkout the top packages have different parents, installed they have one.
    """
    top, _, below = name.partition("/")
    return os.path.join(sys.modules[top].__path__[0], below)


def digest(path: str) -> str | None:
    """Return the digest of the file at *path*; None if it cannot be read."""
    # Imported here because it loads OpenSSL, and nothing needs it where no extension
    # was ever built.
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def read_record(path: str) -> dict[str, Digests]:
    """Return the digests recorded at *path* by module; none if it cannot be read.

    A record that is damaged is like none: what it describes then counts as not built.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return cast("dict[str, Digests]", json.load(file)["modules"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def record_path() -> str:
    """Return where the build records its digests."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), RECORD)


def requested_mode(environment: Mapping[str, str]) -> Mode:
    """Return the mode that *environment* asks for, ``auto`` by default.

    Raises:
        ImportError: If it asks for something else (this runs at import).
    """
    wanted = environment.get(VARIABLE) or "auto"
    for mode in MODES:
        if mode == wanted:
            return mode
    raise ImportError(f"{VARIABLE}={wanted!r} is not one of {', '.join(MODES)}")


def install() -> None:
    """Put the finder before Python's own, once per process."""
    if not any(isinstance(finder, CompiledFinder) for finder in sys.meta_path):
        finder = CompiledFinder(requested_mode(os.environ), record=record_path())
        sys.meta_path.insert(0, finder)


def status() -> CompiledStatus:
    """Return which form of each hot module this process runs, or would run.

    Raises:
        RuntimeError: If the finder is gone from ``sys.meta_path``.
    """
    for finder in sys.meta_path:
        if isinstance(finder, CompiledFinder):
            return finder.status()
    raise RuntimeError("the finder of compiled modules is not installed")
