"""Build the compiled modules; everything else stands in pyproject.toml.

A module is compiled if a ``.pxd`` of its name lies beside it, or if it is a ``.pyx``
(see ``emulator/chakram/_compiled.py``, which chooses at import and reads the digests
that are recorded here). Compiling is an option: without Cython there are no extensions,
and without a C compiler those that fail are left out. Only if the environment says
``CHAKRAM_COMPILED=require`` is a failure an error; with ``CHAKRAM_COMPILED=off``
nothing is compiled, and the wheel is one for every machine.

What lies outside of the packages and belongs to the product, the ready experiments and
the schema of the experiment file, goes into the wheel as ``chakram/configs``.
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
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext as setuptools_build_ext
from setuptools.command.build_py import build_py as setuptools_build_py

ROOT = Path(__file__).resolve().parent
# Import name of each package, and the folder (source root) that holds it.
SOURCE_ROOTS = {"chakram": "emulator", "chakram_agent": "agents"}
REQUIRED = os.environ.get("CHAKRAM_COMPILED") == "require"
PURE = os.environ.get("CHAKRAM_COMPILED") == "off"
JOBS = int(os.environ.get("CHAKRAM_BUILD_JOBS") or os.cpu_count() or 1)
DIRECTIVES = {
    "language_level": 3,
    # Annotations are for readers and mypy; C types stand in the .pxd.
    "annotation_typing": False,
    # Sources as comments of C are a fifth of it, and nobody reads them.
    "emit_code_comments": False,
}
SHARED = "chakram._cython"
"""An extension without a source: what all others would have of Cython's own code, as
its views of memory, each a copy that takes longer to compile than what it is for."""


def load_finder() -> ModuleType:
    """Load the finder's module by path: the package itself is not needed to build."""
    path = ROOT / "emulator" / "chakram" / "_compiled.py"
    spec = importlib.util.spec_from_file_location("_compiled", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_compiled"] = module  # its dataclasses look themselves up
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
    return [
        Extension(
            fullname,
            source,
            extra_compile_args=["-O2", "-g0"],
            optional=not REQUIRED,
        )
        for fullname, source in sources.items()
    ]


class build_py(setuptools_build_py):
    """Copies the ready experiments and their schema as well."""

    def run(self) -> None:
        """Copy them into the package; an editable install reads the checkout's."""
        super().run()
        if not self.editable_mode:
            for source, target in self.configs():
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return all files that are copied."""
        copied = [target for _, target in self.configs()]
        return [*super().get_outputs(include_bytecode), *copied]

    def configs(self) -> list[tuple[str, str]]:
        """Return what is copied, and where to."""
        target = Path(self.build_lib) / "chakram" / "configs"
        return [
            (str(path), str(target / path.relative_to(ROOT / "configs")))
            for path in sorted((ROOT / "configs").rglob("*"))
            if path.suffix in (".yaml", ".json")
        ]


class build_ext(setuptools_build_ext):
    """Translate and compile what changed, in parallel, and record the digests."""

    def run(self) -> None:
        """Build all hot modules; in place only those that are out of date."""
        if self.parallel is None:
            self.parallel = JOBS
        build = ROOT / "build"
        build.mkdir(exist_ok=True)
        # Two builds at once (two terminals, an editor) would overwrite each other.
        with open(build / ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.build_and_record()

    def build_and_record(self) -> None:
        """Do the work of `run` under the lock."""
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
        # Digests first: a source that is edited meanwhile counts as changed.
        digests = {ext.name: self.digests(ext.sources) for ext in self.extensions}
        products = {
            ext.name: ROOT / self.build_lib / self.get_ext_filename(ext.name)
            for ext in self.extensions
        }
        for product in products.values():
            product.unlink(missing_ok=True)
        if products:
            print(f"compiling {len(products)} modules", flush=True)
            self.translate()
            super().run()
        for name, product in products.items():
            if product.exists():
                recorded[name] = digests[name]
            else:
                print(f"warning: {name}: not compiled, its plain form will run")
        if SHARED not in recorded:
            recorded = {}  # nothing can be loaded without it
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"builder": builder, "modules": dict(sorted(recorded.items()))}
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)

    def fresh_modules(self, path: Path, builder: str) -> dict[str, Any]:
        """Return the recorded digests of those modules that need not be built."""
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
        """Return where the extension *name* lies beside its source."""
        folder = ROOT / SOURCE_ROOTS[name.partition(".")[0]]
        return folder / self.get_ext_filename(name)

    def translate(self) -> None:
        """Turn the Python sources of the extensions into C; drop those that fail."""
        jobs = min(JOBS, len(self.extensions))
        parts = [self.extensions[place::jobs] for place in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            made = [pair for part in pool.map(c_sources, parts) for pair in part]
        failed = [(ext.sources or [ext.name])[0] for ext, path in made if path is None]
        if failed and REQUIRED:
            raise SystemExit(f"Cython refuses {', '.join(failed)}")
        # setuptools has taken notes on these very objects: only the source changes.
        for ext, path in made:
            ext.sources = [path]
        self.extensions = [ext for ext in self.extensions if ext.sources != [None]]
        self.force = True

    def digests(self, sources: list[str]) -> dict[str, str | None]:
        """Return the digests of *sources* and of all they are compiled with."""
        from Cython.Build.Dependencies import create_dependency_tree
        from Cython.Compiler.Main import CompilationOptions, Context

        options = CompilationOptions(include_path=sorted(SOURCE_ROOTS.values()))
        tree = create_dependency_tree(Context.from_options(options), quiet=True)
        paths = {
            (ROOT / name).resolve()
            for source in sources
            for name in {source, *tree.all_dependencies(source)}
        }
        # Only ours: what Cython itself brings is fixed by its version.
        return current_digests(
            sorted(
                path.relative_to(ROOT / folder).as_posix()
                for path in paths
                for folder in SOURCE_ROOTS.values()
                if path.is_relative_to(ROOT / folder)
            )
        )

    def builder(self) -> str:
        """Return what else decides the outcome: Cython's version and this file."""
        import Cython

        digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        return f"cython {Cython.__version__}, setup.py {digest[:16]}"


TRANSLATOR = """\
import json, sys
from Cython.Compiler.Main import main
told, sys.stdout = sys.stdout, sys.stderr
for sys.argv in json.load(sys.stdin):
    try:
        main(command_line=1)
        print(0, file=told, flush=True)
    except SystemExit as end:
        print(end.code, file=told, flush=True)
"""
"""Does what ``cython`` does, for one list of arguments after the other: to start, and
to read what it needs in all modules, takes it longer than most of them."""


def c_sources(extensions: list[Extension]) -> list[tuple[Extension, str | None]]:
    """Translate *extensions*; return each with its C file, None if Cython refuses it.

    That is done by a process of its own, and not by one of a pool that `cythonize`
    would fork: installers run this file without a module that a fork could import.
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
        commands.append(["cython", "--module-name", ext.name, *options, *what])
    # A refusal stands on standard error.
    done = subprocess.run(
        [sys.executable, "-c", TRANSLATOR],
        cwd=ROOT,
        input=json.dumps(commands),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    codes = [*done.stdout.split(), *["died"] * len(extensions)]
    return [
        (ext, str(folder / f"{ext.name}.c") if code == "0" else None)
        for ext, code in zip(extensions, codes, strict=False)
    ]


def current_digests(names: Iterable[str]) -> dict[str, str | None]:
    """Return the digests of the sources *names* (chakram/roce/psn.py) as they are."""
    return {
        name: FINDER.digest(str(ROOT / SOURCE_ROOTS[name.partition("/")[0]] / name))
        for name in names
    }


setup(
    ext_modules=hot_extensions(),
    cmdclass={"build_ext": build_ext, "build_py": build_py},
)
