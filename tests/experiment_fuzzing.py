"""Thousands of invalid experiments for the command that plans them.

Inputs start from experiments that are right.  What is changed in them follows from the
JSON Schema (keys that are not there yet, values of their types, values just beyond
their bounds) and from a list of values that have broken programs before; some inputs
are damaged as text.  All follows from a seed.
``python -m tests.experiment_fuzzing SEED INPUTS`` says what became of how many.
"""

from __future__ import annotations

import contextlib
import copy
import io
import random
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from unittest import mock

import yaml

from chakram.cli import main
from chakram.config.schema import experiment_schema
from chakram.foundation.errors import RunFailed
from chakram.synth.settings import inference, training

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONFIGS = Path(__file__).parents[1] / "configs"
SIMULATED_S = 3.0
"""Processor time after which a simulation is left alone."""
LONGEST_S = 20.0
"""Processor time that an input may take: several times what the slowest one takes."""
MOST_BYTES = 3 << 30
"""Memory that may be taken beyond what the process has: enough for every experiment
that the bounds allow."""
MOST_NODES = 400_000
"""Of a synthetic trace. The product takes 20 million, and minutes for them; so few are
planned in half of `LONGEST_S`, and what takes longer grows faster than its nodes."""

SOUND_ENDS = (0, 2, 3)
"""Done; what the user gave is wrong; the machine cannot do it."""

_NUMBERS = (
    *(0, 1, 2, 3, -1, 5, 17, 63, 64, 65, 255, 257, 1000, 1023, 4097, 65535, 65536),
    *(100_000, 999_999, 1_000_000, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64),
    *(10**25, -(2**63), 0.0, 0.5, -0.5, 1e-30, 1e-5, 1e9, 1e40, 1e300),
    *(float("inf"), float("nan"), True, False),
)
_QUANTITIES = (
    *("1e30GiB", "8000000TiB", "0B", "1B", "3B", "7KiB", "1PiB", "1e-30KB", "999GiB"),
    *("9999999h", "300000h", "277h", "0s", "1ns", "1e-9s", "3s", "1e30s", "0.5us"),
    *("1bit", "1kbit", "1e30Tbit", "0bit", "99Tbit", "400Gbit", "1.5Mbit"),
    *("1e40", "1e-40", "1/3", "1/999999999999", "99999999999999", "7/5"),
    *("989 TFLOPS", "1kFLOPS", "1e30PFLOPS", "3.35 TB/s", "1B/s", "0%", "100%"),
)
_TEXTS = (
    *("", " ", "~", "off", "none", "all", "world", "p2p", "auto", "ring", "tree"),
    *("x" * 300, "a.b", "../..", "/", "/dev/zero", "/proc/self/mem", "\0", "é", "😀"),
    *("ring(channels=99)", "ring(channels=2,chunks=4)", "hierarchical", "{}", "%s%n"),
    *("udp:lo", "memory:", "198.18.0.1/16", "::1", "127.0.0.1:0", "unix:/x", "0"),
)


_MARKS = (b"&a ", b"*a", b"!!x ", b"{", b"\t", b": ")

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the top of an experiment to a value."""


class TooLong(BaseException):
    """An input took more processor time than it may."""


class Fault(AssertionError):
    """The command ended in an unexpected way; the input is kept in a file."""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """Number of inputs per outcome, longest processor time, and all messages."""

    ends: Counter[int]
    slowest_s: float
    said: Counter[str] = field(repr=False)


def starts() -> list[dict[str, Any]]:
    """Return the ready experiments, small enough to be planned in no time."""
    found = []
    for path in sorted(CONFIGS.glob("*.yaml")):
        data = yaml.safe_load(path.read_text("utf-8"))
        assert isinstance(data, dict)
        data["iterations"] = {**data.get("iterations", {}), "warmup": 0, "measured": 1}
        for job in data["jobs"]:
            job["size_scale"] = "1/1024"
        found.append(data)
    return found


class _Schema:
    """The JSON Schema of experiments: allowed keys and values by location."""

    def __init__(self) -> None:
        self._root = experiment_schema()
        self._definitions = self._root.get("$defs", {})

    def forms(self, schema: Any) -> list[dict[str, Any]]:
        """Return the schemas that *schema* represents, its references followed."""
        if not isinstance(schema, dict):
            return []
        if "$ref" in schema:
            return self.forms(self._definitions[schema["$ref"].rpartition("/")[2]])
        either = schema.get("anyOf", schema.get("oneOf"))
        if either is not None:
            return [form for each in either for form in self.forms(each)]
        return [schema]

    def at(self, path: Place) -> list[dict[str, Any]]:
        """Return the schemas of the value at *path*."""
        here = self.forms(self._root)
        for part in path:
            inside: list[dict[str, Any]] = []
            for form in here:
                if isinstance(part, int):
                    inside += self.forms(form.get("items"))
                else:
                    known = form.get("properties", {})
                    more = form.get("additionalProperties")
                    inside += self.forms(known.get(part, more))
            here = inside
        return here

    def keys(self, path: Place) -> list[str]:
        """Return the keys that a mapping may have at *path*."""
        return sorted(
            {key for form in self.at(path) for key in form.get("properties", ())}
        )

    def value(self, rng: random.Random, path: Place, depth: int = 0) -> Any:
        """Return something that the schema of *path* asks for, or almost."""
        forms = self.at(path)
        if not forms or rng.random() < 0.3:
            return odd_value(rng)
        form = rng.choice(forms)
        if "const" in form:
            return form["const"]
        if "enum" in form:
            return rng.choice(form["enum"])
        kind = form.get("type")
        if kind in ("integer", "number"):
            low = form.get("minimum", form.get("exclusiveMinimum", 0))
            high = form.get("maximum", form.get("exclusiveMaximum", 1 << 20))
            few = min(high, low + rng.choice((1, 2, 3, 8)))
            return rng.choice((low, few, few, few, high, high + 1, low - 1))
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "string":
            return rng.choice(form.get("examples", _TEXTS))
        if depth > 4:
            return odd_value(rng)
        if kind == "array":
            return [
                self.value(rng, (*path, index), depth + 1)
                for index in range(rng.randrange(3))
            ]
        if kind == "object":
            needed = list(form.get("required", ()))
            keys = [*needed, *rng.sample(self.keys(path), min(2, len(self.keys(path))))]
            return {key: self.value(rng, (*path, key), depth + 1) for key in keys}
        return odd_value(rng)


def odd_value(rng: random.Random) -> Any:
    """Return an unusual value for any location."""
    match rng.randrange(12):
        case 0 | 1 | 2:
            return rng.choice(_NUMBERS)
        case 3 | 4 | 5 | 6:
            return rng.choice(_QUANTITIES)
        case 7 | 8:
            return rng.choice(_TEXTS)
        case 9:
            return None
        case 10:
            return [odd_value(rng) for _ in range(rng.randrange(3))]
        case _:
            return {str(rng.choice(_TEXTS)): odd_value(rng)}


def _places(data: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the paths of all values."""
    inside: Any = ()
    if isinstance(data, dict):
        inside = data.items()
    elif isinstance(data, list):
        inside = enumerate(data)
    for key, value in inside:
        yield (*path, key)
        yield from _places(value, (*path, key))


class Mutator:
    """Makes mutants of experiments; a schema is costly to look up."""

    def __init__(self) -> None:
        self._schema = _Schema()
        self._starts = starts()

    def mutant(self, rng: random.Random) -> bytes:
        """Return the text of an experiment with a few things changed."""
        data = copy.deepcopy(rng.choice(self._starts))
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            self._change(rng, data)
        text = yaml.safe_dump(data, allow_unicode=True).encode("utf-8", "replace")
        if rng.random() < 0.1:
            text = _damaged(rng, text)
        return text

    def _change(self, rng: random.Random, data: dict[str, Any]) -> None:
        places = list(_places(data))
        if not places:
            return
        path = rng.choice(places)
        outside: Any = data
        for part in path[:-1]:
            outside = outside[part]
        here = outside[path[-1]]
        match rng.randrange(8):
            case 0:
                del outside[path[-1]]
            case 1 | 2:
                outside[path[-1]] = self._schema.value(rng, path)
            case 3 | 4:
                outside[path[-1]] = odd_value(rng)
            case 5 | 6:
                # A key that is not there yet, more often than not a known one.
                target, where = (here, path) if isinstance(here, dict) else (data, ())
                known = self._schema.keys(where)
                if known:
                    key = rng.choice(known)
                    target[key] = self._schema.value(rng, (*where, key))
            case _:
                if isinstance(here, list) and here:
                    here.append(copy.deepcopy(rng.choice(here)))
                elif isinstance(here, dict):
                    here[str(rng.choice(_TEXTS))] = odd_value(rng)


def _damaged(rng: random.Random, text: bytes) -> bytes:
    """Return *text* with bytes lost, changed or repeated."""
    damaged = bytearray(text)
    for _ in range(rng.randrange(1, 5)):
        if not damaged:
            break
        at = rng.randrange(len(damaged))
        match rng.randrange(4):
            case 0:
                damaged[at] = rng.randrange(256)
            case 1:
                del damaged[at : at + rng.randrange(1, 30)]
            case 2:
                damaged[at:at] = damaged[at : at + rng.randrange(1, 30)]
            case _:
                damaged[at:at] = rng.choice(
                    (b"&a ", b"*a", b"!!x ", b"{", b"\t", b": ")
                )
    return bytes(damaged)


def fuzz(*, seed: int, inputs: int, folder: Path) -> Fuzzed:
    """Plan so many broken experiments.

    Raises:
        Fault: If one ends in any other way than it may, or takes too long.
    """
    mutator = Mutator()
    ends: Counter[int] = Counter()
    said: Counter[str] = Counter()
    slowest_s = 0.0
    with _limits():
        for number in range(inputs):
            text = mutator.mutant(random.Random(f"{seed} {number}"))
            path = folder / "experiment.yaml"
            path.write_bytes(text)
            begun_s = time.process_time()
            end, errors = _planned(path, text, f"{seed}-{number}")
            slowest_s = max(slowest_s, time.process_time() - begun_s)
            if end == 0:
                end = _simulated(path, text, f"{seed}-{number}")
            ends[end] += 1
            said[errors] += 1
    return Fuzzed(ends, slowest_s, said)


def _planned(path: Path, text: bytes, name: str) -> tuple[int, str]:
    try:
        end, told = _ended(["plan", str(path)], LONGEST_S)
    except TooLong:
        raise _fault(text, name, f"took more than {LONGEST_S} s") from None
    if end not in SOUND_ENDS or not _is_sound(told):
        raise _fault(text, name, f"exit {end}: {told}")
    return end, told


def _simulated(path: Path, text: bytes, name: str) -> int:
    """Simulate a planned experiment, unless it takes too long."""
    runs = path.parent / "runs"
    try:
        end, told = _ended(["simulate", str(path), "--runs", str(runs)], SIMULATED_S)
    except TooLong:
        return 0
    finally:
        shutil.rmtree(runs, ignore_errors=True)
    # What is run may fail, too: with all packets dropped, no flow ends.
    if end not in (*SOUND_ENDS, RunFailed.exit_code) or not _is_sound(told):
        raise _fault(text, name, f"simulation: exit {end}: {told}")
    return end


def _ended(arguments: Sequence[str], longest_s: float) -> tuple[int, str]:
    """Return the exit code of a command, and its output on stderr."""
    output, errors = io.StringIO(), io.StringIO()
    signal.setitimer(signal.ITIMER_VIRTUAL, longest_s)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            return main(arguments), errors.getvalue()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _is_sound(told: str) -> bool:
    return "unexpected" not in told and "Traceback" not in told


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """Raise an exception if the block needs too much time or memory."""

    def come(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, come)
    had = resource.getrlimit(resource.RLIMIT_AS)
    taken = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    )
    resource.setrlimit(resource.RLIMIT_AS, (taken + MOST_BYTES, had[1]))
    try:
        with (
            mock.patch.object(inference, "MAX_NODES", MOST_NODES),
            mock.patch.object(training, "MAX_NODES", MOST_NODES),
        ):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, had)
        signal.signal(signal.SIGVTALRM, before)


def _fault(text: bytes, name: str, what: str) -> Fault:
    kept = Path(tempfile.gettempdir()) / f"fuzzed-experiment-{name}.yaml"
    kept.write_bytes(text)
    return Fault(f"{kept}: {what}")
