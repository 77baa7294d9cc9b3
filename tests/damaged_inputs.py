"""Damaged inputs for all commands that read files: each is read or refused.

Inputs start from sound ones that Chakram itself has written: run directories,
documents and logs, rules, suites and sweeps, plans, fabrics and archives of traces.
Each gets one to three damages.  Everything follows from a seed.
``python -m tests.damaged_inputs SEED INPUTS [KIND...]`` says how the verbs ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import re
import resource
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from chakram.cli import main
from chakram.config.experiment import load_experiment
from chakram.control.plan_file import MAGIC
from chakram.foundation.errors import ChakramError
from chakram.preparation.saved_plans import load_plan
from chakram.switch.headroom import LinkEnd
from chakram.switch.sonic_config import port_names, read_sonic
from tests import mutated_traces as mutated
from tests.leaks import own_lab
from tests.made_runs import ODD_LINKS, made_run
from tests.run_directories import begin
from tests.small_run import small_rows
from tests.sonic_tables import TABLES
from tests.support import why_no_lab

ENDS = (0, 2, 3, 4, 6)
LONGEST_S = 20.0
"""Processor time that one verb may take."""
MOST_BYTES = 1 << 30
"""Memory that a process may have at most; of addresses it may take four times that."""

_EXPERIMENT = """\
version: 1
name: sound
jobs:
  - name: moe
    trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1, all_to_all: 64KiB,
      all_reduce: 64KiB, dense: 64KiB}
    placement: {pattern: striped}
  - name: p2p
    trace: {synth: incast, ranks: 4, fan_in: 3, receiver: 0, size: 16KiB, repeats: 2}
    placement: {pattern: striped}
iterations: {warmup: 1, measured: 2}
fabric:
  kind: namespaces
  topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 4}}
  links: {host: {rate: 1Gbit}, uplink: {rate: 1Gbit}}
transport: {congestion_control: dcqcn}
faults: {links: [{link: leaf0-spine0, kind: down, at: 1ms, for: 1ms}]}
predict: [bound, alone]
"""
_SUITE = """\
version: 1
name: sizes
base: experiment.yaml
world: simulate
cases: [{name: plain, set: {}}, {name: slow, set: {fabric.links.host.rate: 100Mbit}}]
matrix: {"jobs[0].trace.dense": [64KiB, 128KiB], collectives.all_reduce: [ring, tree]}
baseline: {case: plain, collectives.all_reduce: ring}
"""
_RULES = """\
version: 1
rules:
  - check: run.status == "complete" and unfinished_collectives == 0
    name: it ended
  - each: results
    where: collective != "barrier"
    check: time_ns <= 5ms or cv < 5%
  - each: links
    check: drops == 0
  - check: all(links.drops == 0) and percentile(links.bytes, 99) > 0
  - check: round(max(iterations.mean_ns) / 3, 2) > sum(links.bytes)
"""
_CHECKS = (
    *("percentile(results.time_ns, 50) <= 1e300 * 1e300", "-results.time_ns < 3"),
    *("mean(links.bytes) / 0 > 1", "sum(run) > 1", "links.drops in [1, 2]", "a.b.c"),
    *("results[99].time_ns > 1", "run.name == 5", "max(links.drops)", "round(1, 9)"),
    *("known(messages.pairs)", "len(run.name) > 1", "any([])", "all(results.nranks)"),
    *("(" * 150 + "1" + ")" * 150, "not " * 80 + "1", "9" * 900 + " > 1", "\ud800"),
    *(
        "1 if links else 2",
        "ranks['rank'] > 1",
        "1e999 == 1e999 - 1e999",
        "0x" + "f" * 99,
    ),
    *("percentile(results.time_ns, 1e300) > 0", "abs(10**5)", "min(1, 'a')", "5msms"),
)
_ODD_TEXTS = (
    *(
        "",
        "\x1b[2J\x1b[31m",
        "\u202egnp.exe",
        "[/red]",
        "[bold]",
        "<script>",
        "a|b",
        "\0",
    ),
    *(
        "x" * 3000,
        "p2p:",
        "p2p:0>99999",
        "h9",
        "leaf9:up0",
        "a\nb",
        "]]>",
        "&#0;",
        "\ufffe",
    ),
)
_ODD_NUMBERS = (-(2**63), 2**63 - 1, -1, 0, 1, 2**31 - 1, -(2**31), 2**53, 10**15, 77)
_EXPORTS = ("fct", "pfc", "qlen", "p2p", "links", "nccl-tests", "openmetrics")
_OBJECT = re.compile(r"<[A-Z]\w+\.[A-Z_]+: |\b[A-Z]\w+\([a-z_]+=|<[\w.]+ object at ")
"""Text of an object without its own ``__str__``."""
_RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


class Fault(AssertionError):
    """A command ended in an unexpected way; the input is kept in a folder."""


class TooLong(BaseException):
    """A verb took more than its processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How many inputs there were, how verbs ended, the slowest's processor time."""

    inputs: int
    ends: Counter[tuple[str, int]]
    slowest_s: float


Command = list[str] | Callable[[], object]
"""Arguments of the command line, or a call that may only raise our errors."""


# Sound inputs ---------------------------------------------------------------


def make_sound(folder: Path, *, with_lab: bool = False) -> None:
    """Write one sound input of every kind below *folder*.

    Args:
        folder: An empty one.
        with_lab: Also that of a run between namespaces, which takes seconds.
    """
    experiment = folder / "experiment.yaml"
    experiment.write_text(_EXPERIMENT)
    (folder / "suite.yaml").write_text(_SUITE)
    (folder / "rules.yaml").write_text(_RULES)
    plain = folder / "plain"
    plain.mkdir()
    runs = folder / "runs"
    _must(["simulate", str(experiment), "--runs", str(runs)])
    (folder / "simulated").mkdir()
    next(runs.iterdir()).rename(folder / "simulated" / "run")
    for job in ("moe", "p2p"):
        _must(["simulate", str(experiment), "--runs", str(runs), "--alone", job])
        next(runs.iterdir()).rename(folder / f"alone-{job}")
    if with_lab:
        lab = ["--lab", own_lab("sound")]
        _must(["run", str(experiment), "--runs", str(runs), *lab])
        next(runs.iterdir()).rename(folder / "lab")
    made = made_run(plain, links=ODD_LINKS)
    made.path.rename(folder / "measured")
    killed = begin(folder / "killed-runs")
    for iteration in range(3):
        killed.add(small_rows(iteration))
        killed.flush()
    killed.path.rename(folder / "killed")
    for name in ("nccl-tests", "fct"):
        _must(["export", name, str(folder / "measured"), "--out", str(plain / name)])
    next((plain / "nccl-tests").glob("*.json")).rename(folder / "nccl.json")
    (plain / "fct/fct.txt").rename(folder / "fct.txt")
    document = _must(["show", str(folder / "simulated"), "--json"])
    (folder / "document.json").write_text(document)
    (folder / "console.txt").write_text(_must(["show", str(folder / "measured")]))
    (folder / "astra.log").write_text(
        "".join(
            f"[2026-01-31] [info] sys[{rank}] finished, {1000 + rank} cycles, exposed "
            f"communication {100 + rank} cycles.\n"
            for rank in range(4)
        )
    )
    (folder / "replayedCommsPerf.json").write_text(
        json.dumps(
            [
                {"comms": "all_reduce", "latency_us": 30.5, "global_latency_us": 31.0,
                 "in_msg_size": 1024, "world_size": 4, "dtype": "float", "id": at,
                 "pg_id": 0}
                for at in (1, 2, 1, 2)
            ]
        )
    )  # fmt: skip
    _must(["plan", str(experiment), "--save", str(folder / "saved.plan")])
    text = _must(["fabric", "show", str(experiment), "--infragraph"])
    (folder / "fabric.yaml").write_text(json.dumps(yaml.safe_load(text)))
    (folder / "config_db.json").write_text(json.dumps(TABLES))
    _must(["sweep", str(folder / "suite.yaml"), "--out", str(folder / "sweep")])
    traces = folder / "traces"
    sizes = ["--ranks", "4", "--ep", "2", "--dp", "2", "--layers", "1"]
    _must(["trace", "synth", "moe", *sizes, "--out", str(traces)])
    with tarfile.open(folder / "traces.tar.gz", "w:gz") as archive:
        archive.add(traces, "traces")


def _must(arguments: Sequence[str]) -> str:
    end, told, complaint = run(arguments)
    assert end == 0, (arguments, end, complaint)
    return told


# Damages --------------------------------------------------------------------


def damaged_text(rng: random.Random, data: bytes, *, is_json: bool) -> bytes:
    """Return a file with something done to its members, or to its bytes."""
    own = (
        mutated.odd_value,
        mutated.drop_member,
        mutated.same_ids,
        odd_text,
    )
    others = (
        mutated.flip_bits,
        mutated.truncate,
        mutated.cut_out,
        mutated.repeat,
    )
    kinds = [*own, *own, *own] if is_json else []
    deed = rng.choice([*kinds, *others, mutated.put_in])
    try:
        return deed(rng, data)
    except (ValueError, IndexError, RecursionError):
        return rng.choice(others)(rng, data or b"x")


def odd_text(rng: random.Random, data: bytes) -> bytes:
    """Give members texts and numbers that have broken programs before."""
    document = json.loads(data)
    owners = [each for each in mutated._owners([document]) if each]
    for _ in range(rng.choice((1, 1, 4))):
        owner = rng.choice(owners)
        key = (
            rng.choice(list(owner))
            if isinstance(owner, dict)
            else rng.randrange(len(owner))
        )
        value: Any = rng.choice(
            (*_ODD_TEXTS, *_ODD_NUMBERS, "\ud800", 1e308, -1e308, 10**400)
        )
        if rng.random() < 0.03:
            for _ in range(rng.choice((60, 3000))):
                value = [value]
        owner[key] = value
    with contextlib.suppress(RecursionError):
        return json.dumps(document).encode()
    return b"[" * 3000


def damage_table(rng: random.Random, path: Path) -> None:
    """Do something to the rows or columns of a table."""
    try:
        table = pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException):
        return  # it is damaged already
    names = table.column_names
    name = rng.choice(names)
    at = names.index(name)
    column = table.column(at)  # an earlier damage may have repeated the name
    kind = column.type
    rows = table.num_rows
    deed = rng.randrange(10)
    if deed == 0:
        table = table.drop_columns([name])
    elif deed == 1:
        table = table.rename_columns([*names[:at], "x", *names[at + 1 :]])
    elif deed == 2:
        picked = (
            [rng.randrange(rows) for _ in range(rng.randrange(2 * rows))]
            if rows
            else []
        )
        table = table.take(pa.array(picked, pa.int64()))
    elif deed == 3:
        table = table.slice(0, 0)
    elif deed == 4:
        kinds = (
            pa.string(),
            pa.float64(),
            pa.int8(),
            pa.bool_(),
            pa.list_(pa.int64()),
            pa.null(),
        )
        other = rng.choice(kinds)
        try:
            made = column.cast(pa.string()).cast(other)
        except pa.ArrowException:
            made = pa.nulls(rows, other)
        table = table.set_column(at, name, made)
    elif deed == 5:
        table = table.append_column(
            rng.choice(
                ("predicted_x_ns", "bound_ns", "alone_ns", "fair_ns", "path", name)
            ),
            pa.array([rng.choice(("x", "1", ""))] * rows, pa.string()),
        )
    elif rows:
        values = column.to_pylist()
        places = range(rows) if rng.random() < 0.3 else [rng.randrange(rows)]
        value: Any = None
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        if deed > 6:
            if pa.types.is_integer(plain):
                value = rng.choice(_ODD_NUMBERS)
            elif pa.types.is_boolean(plain):
                value = not values[0]
            elif pa.types.is_floating(plain):
                value = rng.choice((float("nan"), float("inf"), -1.0, 1e300))
            else:
                value = rng.choice((*_ODD_TEXTS, *filter(None, values)))
        for place in places:
            values[place] = value
        try:
            made = pa.array(values, plain)
        except (pa.ArrowException, OverflowError):
            made = pa.nulls(rows, plain)
        table = table.set_column(
            at, name, made if plain == kind else made.dictionary_encode()
        )
    pq.write_table(table, path)


def damage_folder(rng: random.Random, folder: Path) -> str:
    """Damage one file of a folder; return a description."""
    found = sorted(each for each in folder.rglob("*") if each.is_file())
    weighty = [each for each in found if each.stat().st_size]
    path = rng.choice(weighty or found)
    chance = rng.random()
    if path.suffix == ".parquet" and chance < 0.8:
        damage_table(rng, path)
    elif chance < 0.85:
        data = damaged_text(rng, path.read_bytes(), is_json=path.suffix == ".json")
        path.write_bytes(data)
    elif chance < 0.9:
        path.unlink()
    elif chance < 0.93:
        path.unlink()
        path.mkdir()
    elif chance < 0.97:
        path.write_bytes(rng.choice(found).read_bytes())
    else:
        path.write_bytes(b"")
    return path.name


# What reads them ------------------------------------------------------------


def of_run(rng: random.Random, sound: Path, folder: Path) -> list[Command]:
    """Damage a run directory; return verbs that read it."""
    names = ("simulated/run", "measured", "killed", "lab")
    name = rng.choice([each for each in names if (sound / each).exists()])
    run_path = folder / "run"
    shutil.copytree(sound / name, run_path)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        damage_folder(rng, run_path)
    shutil.copytree(sound / "simulated/run", folder / "together")
    run, out, whole = str(run_path), str(folder / "out"), str(sound / "measured")
    verbs: list[Command] = [
        ["show", run],
        ["show", run, "--json"],
        [
            "show",
            run,
            rng.choice(("--queue-pairs", "--ports", "--preflight", "--wide")),
        ],
        ["why", run],
        ["why", run, "--json"],
        ["report", run, "--out", f"{out}.html", "--force"],
        ["report", run, "--out", f"{out}.html", "--force", "--bmwg"],
        ["report", run, whole, "--out", f"{out}.html", "--force"],
        ["timeline", run, "--out", f"{out}.json", "--force"],
        ["compare", *rng.sample([run, whole], 2)],
        ["diff", *rng.sample([run, whole], 2)],
        ["validate", run],
        ["runs", str(folder)],
        ["gate", run, str(sound / "rules.yaml"), "--baseline", whole],
        ["interference", run, str(sound / "alone-moe"), str(sound / "alone-p2p")],
        ["interference", str(folder / "together"), run, str(sound / "alone-p2p")],
        *(["export", each, run, "--out", out, "--force"] for each in _EXPORTS),
    ]
    return rng.sample(verbs, 3)


def of_results(rng: random.Random, sound: Path, folder: Path) -> list[Command]:
    """Damage a document or a log; return verbs that read it."""
    names = ("document.json", "document.json", "nccl.json", "fct.txt", "console.txt")
    name = rng.choice((*names, "astra.log", "replayedCommsPerf.json"))
    path = folder / name
    data = (sound / name).read_bytes()
    for _ in range(rng.choice((1, 1, 2))):
        data = damaged_text(rng, data, is_json=path.suffix == ".json")
    path.write_bytes(data)
    whole, file = str(sound / "measured"), str(path)
    rules = str(sound / "rules.yaml")
    junit = [
        "--junit",
        str(folder / "junit.xml"),
        "--markdown",
        str(folder / "gate.md"),
    ]
    commands: list[Command] = [["compare", *rng.sample([file, whole], 2)]]
    if name == "document.json":
        commands = [
            ["gate", file, rules, *junit],
            ["gate", whole, rules, "--baseline", file, *junit],
            *commands,
        ]
    elif name in ("astra.log", "fct.txt"):
        experiment = str(sound / "experiment.yaml")
        runs = ["--runs", str(folder / "runs")]
        against: Command = ["simulate", experiment, *runs, "--against", file]
        commands += [against] if rng.random() < 0.05 else []
    return commands


def of_rules(rng: random.Random, sound: Path, folder: Path) -> list[Command]:
    """Damage rules of a gate, or take odd ones."""
    path = folder / "rules.yaml"
    document = yaml.safe_load((sound / "rules.yaml").read_text())
    if rng.random() < 0.5:
        words = rng.choice(document["rules"])["check"].split(" ")
        more = " ".join(
            rng.choice((*words, *_CHECKS)) for _ in range(rng.randrange(1, 6))
        )
        document["rules"].append({"check": rng.choice((more, rng.choice(_CHECKS)))})
        if rng.random() < 0.4:
            document["rules"][-1]["each"] = rng.choice(
                ("results", "links", "ranks", "x")
            )
        data = json.dumps(document).encode()
    else:
        data = damaged_text(rng, json.dumps(document).encode(), is_json=True)
    path.write_bytes(data)
    subject = rng.choice(("document.json", "measured"))
    junit = [
        "--junit",
        str(folder / "junit.xml"),
        "--markdown",
        str(folder / "gate.md"),
    ]
    return [["gate", str(sound / subject), str(path), *junit]]


def of_suite(rng: random.Random, sound: Path, folder: Path) -> list[Command]:
    """Damage a suite, or the folder of its sweep."""
    shutil.copy(sound / "experiment.yaml", folder)
    if rng.random() < 0.5:
        text = json.dumps(yaml.safe_load((sound / "suite.yaml").read_text())).encode()
        (folder / "suite.yaml").write_bytes(damaged_text(rng, text, is_json=True))
        return [["sweep", str(folder / "suite.yaml"), "--list"]]
    sweep = folder / "sweep"
    shutil.copytree(sound / "sweep", sweep)
    small = [each for each in sweep.iterdir() if each.is_file()]
    for path in rng.sample(small, min(len(small), rng.choice((1, 1, 2)))):
        is_json = path.suffix == ".json"
        path.write_bytes(damaged_text(rng, path.read_bytes(), is_json=is_json))
    if rng.random() < 0.5:
        damage_folder(rng, sweep)
    commands: list[Command] = [
        ["report", str(sweep), "--out", str(folder / "out.html")],
        [
            *("sweep", str(sound / "suite.yaml"), "--merge", str(sweep)),
            *("--out", str(folder / "merged")),
        ],
    ]
    return commands


def of_plan(rng: random.Random, sound: Path, folder: Path) -> list[Command]:
    """Damage a saved plan, mostly behind its digest."""
    path = folder / "saved.plan"
    data = (sound / path.name).read_bytes()
    body = damaged_text(rng, data[len(MAGIC) + 32 :], is_json=False)
    sealed = MAGIC + hashlib.sha256(body).digest() + body
    is_sealed = rng.random() < 0.9
    path.write_bytes(sealed if is_sealed else damaged_text(rng, data, is_json=False))
    experiment = load_experiment(sound / "experiment.yaml")
    return [lambda: load_plan(path, experiment)]


def of_sonic(rng: random.Random, sound: Path, folder: Path) -> list[Command]:
    """Damage the configuration of a SONiC switch."""
    data = (sound / "config_db.json").read_bytes()
    deeds = (mutated.odd_value, mutated.drop_member, odd_text)
    for _ in range(rng.choice((1, 2))):
        with contextlib.suppress(ValueError, RecursionError):
            damaged = rng.choice(deeds)(rng, data)
            json.loads(damaged)
            data = damaged
    tables = json.loads(data)

    def read() -> object:
        names = port_names(tables, where="config_db.json")
        end = LinkEnd(rate_bps=100 * 10**9, delay_ns=500)
        return read_sonic(tables, [end] * len(names), where="config_db.json")

    (folder / "config_db.json").write_bytes(data)
    return [read]


def of_infragraph(rng: random.Random, sound: Path, folder: Path) -> list[Command]:
    """Damage an InfraGraph document."""
    path = folder / "fabric.yaml"
    path.write_bytes(damaged_text(rng, (sound / path.name).read_bytes(), is_json=True))
    return [["fabric", "convert", str(path)]]


def of_archive(rng: random.Random, sound: Path, folder: Path) -> list[Command]:
    """Damage traces, or the archive that they are in."""
    path = folder / "traces.tar.gz"
    if rng.random() < 0.3:
        data = (sound / path.name).read_bytes()
        path.write_bytes(damaged_text(rng, data, is_json=False))
    else:
        with tarfile.open(path, "w:gz") as archive:
            for file in sorted((sound / "traces").iterdir()):
                data = file.read_bytes()
                if rng.random() < 0.4:
                    form = "groups" if file.suffix == ".json" else "binary"
                    with contextlib.suppress(ValueError, IndexError, ChakramError):
                        data = mutated.mutant_of(rng, form, data)
                odd = rng.random() < 0.05
                info = tarfile.TarInfo(
                    rng.choice(_ODD_TEXTS) if odd else f"t/{file.name}"
                )
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    out = str(folder / "page.html")
    return [
        ["trace", "lint", str(path)],
        ["trace", "show", str(path), *rng.choice(([], ["--json"], ["--html", out]))],
    ]


KINDS: dict[str, tuple[Callable[[random.Random, Path, Path], list[Command]], float]] = {
    "run": (of_run, 8),
    "results": (of_results, 4),
    "rules": (of_rules, 3),
    "suite": (of_suite, 2),
    "plan": (of_plan, 0.5),
    "sonic": (of_sonic, 1),
    "infragraph": (of_infragraph, 1),
    "archive": (of_archive, 1),
}
"""By kind, what damages one and says how it is read, and how many there are of it."""


# How verbs end --------------------------------------------------------------


def run(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Return the exit code of a command, and its output on both streams."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        code = main(arguments)
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return code, texts[0], texts[1]


def judge(command: Command, folder: Path) -> int:
    """Return how a command ended.

    Raises:
        AssertionError: If that is not how verbs may end, or it wrote what it must not.
    """
    if callable(command):
        try:
            command()
        except ChakramError as error:
            return error.exit_code
        return 0
    end, told, complaint = run(command)
    assert end in ENDS, f"exit {end}: {complaint}"
    assert not re.search("unexpected [A-Z]", complaint), complaint
    assert "Traceback" not in complaint, complaint
    for text in (told, complaint):
        assert not _OBJECT.search(text), f"prints an object: {_OBJECT.search(text)}"
        assert not _RAW.search(text), f"prints raw {_RAW.search(text)!r}"
    for page in folder.glob("*.html"):
        text = re.sub(
            r"<script.*?</script>", "", page.read_text("utf-8"), flags=re.DOTALL
        )
        assert not _OBJECT.search(text), f"page: {_OBJECT.search(text)}"
        assert not _RAW.search(text), f"page has raw {_RAW.search(text)!r}"
    if (junit := folder / "junit.xml").exists():
        Xml.fromstring(junit.read_bytes())
    return end


def fuzz(
    sound: Path,
    *,
    seed: int,
    inputs: int,
    kinds: Sequence[str] = (),
    most_bytes: int | None = MOST_BYTES,
) -> Judged:
    """Give verbs so many damaged inputs.

    Args:
        sound: Folder of ``make_sound``.
        seed: Of all damages.
        inputs: How many.
        kinds: Of ``KINDS``; all without any.
        most_bytes: Memory that this process may have taken in all; None: any.

    Raises:
        Fault: If one ends as it must not, takes too long, or too much memory.
    """
    chosen = {name: KINDS[name] for name in kinds or KINDS}
    ends: Counter[tuple[str, int]] = Counter()
    slowest_s = 0.0
    with _limits():
        for number in range(inputs):
            rng = random.Random(f"{seed} {number}")
            (kind,) = rng.choices(
                list(chosen), [weight for _, weight in chosen.values()]
            )
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                command: Command = []
                try:
                    for command in chosen[kind][0](rng, sound, folder):
                        begun_s = time.process_time()
                        signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
                        try:
                            ends[kind, judge(command, folder)] += 1
                        finally:
                            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                        slowest_s = max(slowest_s, time.process_time() - begun_s)
                except BaseException as fault:
                    if isinstance(fault, KeyboardInterrupt):
                        raise
                    kept = (
                        Path(tempfile.gettempdir()) / f"damaged-{kind}-{seed}-{number}"
                    )
                    shutil.copytree(folder, kept, dirs_exist_ok=True)
                    raise Fault(f"{kept}: {command}: {fault!r}") from fault
    status = Path("/proc/self/status").read_text()
    peak_bytes = int(status.partition("VmHWM:")[2].split()[0]) << 10
    assert most_bytes is None or peak_bytes < most_bytes, (
        f"seed {seed}: {peak_bytes} bytes of memory"
    )
    return Judged(inputs=inputs, ends=ends, slowest_s=slowest_s)


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
    resource.setrlimit(resource.RLIMIT_AS, (taken + 4 * MOST_BYTES, had[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, had)
        signal.signal(signal.SIGVTALRM, before)


def command_line(seed: str, inputs: str, *kinds: str) -> None:
    """Judge so many damaged inputs and print how verbs ended."""
    with tempfile.TemporaryDirectory() as folder:
        make_sound(Path(folder), with_lab=why_no_lab() is None)
        judged = fuzz(Path(folder), seed=int(seed), inputs=int(inputs), kinds=kinds)
    ends = sorted(judged.ends.items())
    sys.stdout.write(
        f"{judged.inputs} inputs, slowest {judged.slowest_s:.2f} s\n{ends}\n"
    )


if __name__ == "__main__":
    command_line(*sys.argv[1:])
