"""Build the compiled modules; pyproject.toml holds all other settings.

A module is compiled if it is a ``.pyx``, or if a ``.pxd`` of its name is next to it.
``emulator/chakram/_compiled.py`` chooses the form at import, and reads the digests that
this file records.

Compilation is optional. Without Cython there are no extensions. Without a C compiler,
extensions that fail to compile are omitted. With ``CHAKRAM_COMPILED=require`` any
failure is an error. With ``CHAKRAM_COMPILED=off`` nothing is compiled, and the wheel is
independent of the platform.

Ready experiments, dashboards, alert rules and the examples of the documentation are
outside the packages. They go into the wheel below ``chakram/files``, with their paths.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext as setuptools_build_ext
from setuptools.command.build_py import build_py as setuptools_build_py

ROOT = Path(__file__).resolve().parent
# Import name of each package, and the source root that holds it.
SOURCE_ROOTS = {"chakram": "emulator", "chakram_agent": "agents"}
REQUIRED = os.environ.get("CHAKRAM_COMPILED") == "require"
PURE = os.environ.get("CHAKRAM_COMPILED") == "off"
OPTIMIZATION = os.environ.get("CHAKRAM_OPTIMIZATION", "-O2")
"""With ``-O1``, the build is twice as fast, and the data plane a few percent slower."""

QUIET = (
    "-Wno-sign-compare",
    # GCC warns of a release of the memory view None, which the code before rules out.
    "-Wno-stringop-overflow",
    # Clang does not know that option.
    "-Wno-unknown-warning-option",
)
JOBS = int(os.environ.get("CHAKRAM_BUILD_JOBS") or os.cpu_count() or 1)
DIRECTIVES = {
    "language_level": 3,
    # Annotations are for readers and mypy. The C types are in the .pxd files.
    "annotation_typing": False,
    # Source lines as C comments would make up a fifth of the output.
    "emit_code_comments": False,
    "show_performance_hints": False,
    # No object of a compiled class is pickled or copied.
    "auto_pickle": False,
}
UNTRACKED = frozenset(
    {
        "chakram.replay.rank_progress",
        "chakram.roce.burst",
        "chakram.roce.events",
        "chakram.roce.message",
    }
)
"""Modules whose objects the garbage collector does not track.

Their objects cannot be part of a reference cycle. Millions of them are created, and
each removal from the collector's list reads two neighbors, which are in no cache.
Cython ignores ``@cython.no_gc`` in the ``.pxd`` file of a Python module.
"""

MANY = 20
"""More modules take so long that their time is announced."""

SHARED = "chakram._cython"
"""Extension without a source file, which holds Cython's shared utility code.

Each extension would otherwise contain a copy, for example of memory views. A copy takes
longer to compile than the module itself."""


def load_finder() -> ModuleType:
    """Load the finder's module by path, because the package may not be installed."""
    path = ROOT / "emulator" / "chakram" / "_compiled.py"
    spec = importlib.util.spec_from_file_location("_compiled", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_compiled"] = module  # dataclasses look their module up here
    spec.loader.exec_module(module)
    return module


FINDER = load_finder()


def hot_extensions() -> list[Extension]:
    """Return one extension per hot module; none if nothing is to be compiled."""
    if PURE:
        return []
    if importlib.util.find_spec("Cython") is None:
        if REQUIRED:
            raise SystemExit("CHAKRAM_COMPILED=require, but Cython is not installed")
        return []
    sources = {SHARED: []} | {
        fullname: [os.path.relpath(FINDER.hot_source(stem), ROOT)]
        for package, source_root in SOURCE_ROOTS.items()
        for fullname, stem in FINDER.hot_modules(
            package, str(ROOT / source_root / package)
        )
    }
    needed = FINDER.OPTIONAL
    return [
        Extension(
            fullname,
            source,
            libraries=[needed[fullname]] if fullname in needed else [],
            extra_compile_args=[OPTIMIZATION, "-g0", *QUIET],
            optional=not REQUIRED,
        )
        for fullname, source in sources.items()
        if fullname not in needed or has_headers("infiniband/verbs.h")
    ]


def has_headers(name: str) -> bool:
    """Return whether the C compiler finds a header."""
    compiler = os.environ.get("CC", "cc").split()
    try:
        found = subprocess.run(
            [*compiler, "-E", "-x", "c", "-"],
            input=f"#include <{name}>\n",
            text=True,
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return found.returncode == 0


class Progress:
    """Prints how many of *total* modules are done, about ten times in all."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.lock = Lock()

    def advance(self) -> None:
        """Count one more module; threads may call this."""
        with self.lock:
            self.done += 1
            if self.total > 9 and not self.done % (self.total // 9):
                print(f"  {self.done} of {self.total} {self.what}", flush=True)


PACKAGED = {
    "configs": (".yaml", ".json"),
    "dashboards/grafana": (".json",),
    "dashboards/rules": (".yaml",),
    "deploy/prometheus": (".yml",),
    "docs/examples": (".py", ".yaml", ".toml", ".ipynb"),
}
"""Folders of the checkout that the wheel holds, with the suffixes of their files."""


class build_py(setuptools_build_py):
    """Also copies the files of the folders in `PACKAGED`."""

    def run(self) -> None:
        """Copy the files into the package; an editable install reads the checkout."""
        super().run()
        if not self.editable_mode:
            for source, target in self.packaged():
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return all output files, including the copied ones."""
        copied = [target for _, target in self.packaged()]
        return [*super().get_outputs(include_bytecode), *copied]

    def packaged(self) -> list[tuple[str, str]]:
        """Return pairs of source and target paths."""
        target = Path(self.build_lib) / "chakram" / "files"
        return [
            (str(path), str(target / path.relative_to(ROOT)))
            for folder, suffixes in PACKAGED.items()
            for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in suffixes and "__pycache__" not in path.parts
        ]


class build_ext(setuptools_build_ext):
    """Translate and compile changed modules in parallel, and record their digests."""

    def run(self) -> None:
        """Build all hot modules; in place, only those that are out of date."""
        if self.parallel is None:
            self.parallel = JOBS
        build = ROOT / "build"
        build.mkdir(exist_ok=True)
        # Concurrent builds, from two terminals or an editor, would conflict.
        with open(build / ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.build_and_record()

    def build_and_record(self) -> None:
        """Do the work of `run` while it holds the lock."""
        builder = self.builder()
        in_place = path = ROOT / "emulator" / "chakram" / FINDER.RECORD
        recorded = self.fresh_modules(in_place, builder)
        if not self.inplace:
            path = Path(self.build_lib) / "chakram" / FINDER.RECORD
            for name in recorded:
                target = Path(self.build_lib, self.get_ext_filename(name))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.in_place_path(name), target)
        self.extensions = [ext for ext in self.extensions if ext.name not in recorded]
        if not self.extensions and self.inplace:
            return
        # Compute digests first, so that a source edited during the build counts as
        # changed.
        digests = {ext.name: self.digests(ext.sources) for ext in self.extensions}
        products = {
            ext.name: ROOT / self.build_lib / self.get_ext_filename(ext.name)
            for ext in self.extensions
        }
        for product in products.values():
            product.unlink(missing_ok=True)
        if products:
            count = len(products.keys() - {SHARED})
            takes = " (1 to 2 minutes)" if count > MANY else ""
            shared = " and the code they share" if SHARED in products else ""
            print(f"compiling {count} hot modules{shared}{takes}", flush=True)
            self.progress = Progress("files translated to C", len(products))
            self.translate()
            self.progress = Progress("files compiled", len(self.extensions))
            super().run()
        for name, product in products.items():
            if product.exists():
                recorded[name] = digests[name]
            else:
                print(f"warning: {name}: not compiled, its plain form will run")
        if SHARED not in recorded:
            recorded = {}  # no extension can be loaded without it
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"builder": builder, "modules": dict(sorted(recorded.items()))}
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)

    def build_extension(self, ext: Extension) -> None:
        """Compile one module, and print progress."""
        super().build_extension(ext)
        self.progress.advance()

    def fresh_modules(self, path: Path, builder: str) -> dict[str, Any]:
        """Return the recorded digests of the modules that need no build."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if record.get("builder") != builder:
            return {}
        names = {ext.name for ext in self.extensions}
        return {
            name: files
            for name, files in record["modules"].items()
            if name in names
            and self.in_place_path(name).exists()
            and files == current_digests(files)
        }

    def in_place_path(self, name: str) -> Path:
        """Return the path of the extension *name* next to its source."""
        folder = ROOT / SOURCE_ROOTS[name.partition(".")[0]]
        return folder / self.get_ext_filename(name)

    def translate(self) -> None:
        """Translate the sources of the extensions to C; drop those that fail."""
        jobs = min(JOBS, len(self.extensions))
        parts = [self.extensions[place::jobs] for place in range(jobs)]
        translate = partial(c_sources, advance=self.progress.advance)
        with ThreadPoolExecutor(jobs) as pool:
            made = [pair for part in pool.map(translate, parts) for pair in part]
        failed = [(ext.sources or [ext.name])[0] for ext, path in made if path is None]
        if failed and REQUIRED:
            raise SystemExit(f"Cython refuses {', '.join(failed)}")
        # setuptools keeps state on these objects, so only their source is replaced.
        for ext, path in made:
            ext.sources = [path]
        self.extensions = [ext for ext in self.extensions if ext.sources != [None]]
        self.force = True

    def digests(self, sources: list[str]) -> dict[str, str | None]:
        """Return the digests of *sources* and of everything compiled into them."""
        from Cython.Build.Dependencies import create_dependency_tree
        from Cython.Compiler.Main import CompilationOptions, Context

        options = CompilationOptions(include_path=sorted(SOURCE_ROOTS.values()))
        tree = create_dependency_tree(Context.from_options(options), quiet=True)
        paths = {
            (ROOT / name).resolve()
            for source in sources
            for name in {source, *tree.all_dependencies(source)}
        }
        # Only this project's files: `builder` covers the files of Cython.
        return current_digests(
            sorted(
                path.relative_to(ROOT / folder).as_posix()
                for path in paths
                for folder in SOURCE_ROOTS.values()
                if path.is_relative_to(ROOT / folder)
            )
        )

    def builder(self) -> str:
        """Return the other build inputs: Cython's version and this file's digest."""
        import Cython

        digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        return f"cython {Cython.__version__}, {OPTIMIZATION}, setup.py {digest[:16]}"


TRANSLATOR = """\
import json, sys
from Cython.Compiler import Options
Options.buffer_max_dims = 2  # a memory view is copied at each call: 64 bytes, not 208
from Cython.Compiler.Main import main
from Cython.Compiler.Options import get_directive_defaults
get_directive_defaults()["no_gc"] = False  # or the option is unknown
told, sys.stdout = sys.stdout, sys.stderr
for sys.argv in json.load(sys.stdin):
    try:
        main(command_line=1)
        print(0, file=told, flush=True)
    except SystemExit as end:
        print(end.code, file=told, flush=True)
"""
"""Program that runs ``cython`` for several lists of arguments in one process.

Starting Cython and reading the shared declarations takes longer than translating most
modules.
"""


def c_sources(
    extensions: list[Extension], advance: Callable[[], None]
) -> list[tuple[Extension, str | None]]:
    """Translate *extensions*; return each with its C file, or None if Cython fails.

    *advance* is called after each.

    A separate process does this. `cythonize` would fork a pool, but installers run this
    file without a module that a forked process could import.
    """
    folder = Path("build", "cython")
    folder.mkdir(parents=True, exist_ok=True)
    options = [f"--directive={name}={value}" for name, value in DIRECTIVES.items()]
    options += [f"--include-dir={root}" for root in SOURCE_ROOTS.values()]
    commands = []
    for ext in extensions:
        target = str(folder / f"{ext.name}.c")
        what = ["--shared", SHARED, "--output-file", target, *ext.sources]
        if ext.name == SHARED:
            what = ["--generate-shared", target]
        if ext.name in UNTRACKED:
            what = ["--directive=no_gc=True", *what]
        commands.append(["cython", "--module-name", ext.name, *options, *what])
    # Cython prints its errors on standard error.
    with subprocess.Popen(
        [sys.executable, "-c", TRANSLATOR],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump(commands, process.stdin)
        process.stdin.close()
        codes = []
        for line in process.stdout:
            codes.append(line.strip())
            advance()
    codes += ["died"] * len(extensions)
    return [
        (ext, str(folder / f"{ext.name}.c") if code == "0" else None)
        for ext, code in zip(extensions, codes, strict=False)
    ]


def current_digests(names: Iterable[str]) -> dict[str, str | None]:
    """Return the current digests of the sources *names* (chakram/roce/psn.py)."""
    return {
        name: FINDER.digest(str(ROOT / SOURCE_ROOTS[name.partition("/")[0]] / name))
        for name in names
    }


setup(
    ext_modules=hot_extensions(),
    cmdclass={"build_ext": build_ext, "build_py": build_py},
)
