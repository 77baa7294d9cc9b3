"""Mutated trace files, and the outcome of reading them.

A mutant is a real file, or the start of one, with one mutation. A seed determines it.
``judge`` reads it like a command: the outcome is one of our errors, findings, or an
unharmed trace. Any other outcome is a bug.

``python -m tests.mutated_traces FORM SEED COUNT FOLDER`` reads COUNT mutants of whole
files in a separate process. It prints as JSON their outcomes, the longest time and the
maximum memory of the process.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import resource
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chakram.chakra.lint.replay_blockers import check_across_ranks, check_trace_set
from chakram.chakra.read.framing import frame, read_records
from chakram.chakra.read.groups import parse_group_file
from chakram.chakra.read.reader import ReadTrace, read_profile_stream
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.sets.trace_set import assemble, load_trace_set
from chakram.foundation.errors import ChakramError
from tests.trace_bytes import read_stream

MEMORY_BYTES = 200 * 2**20
SLOWEST_S = 2.0
"""Of processor time: a machine may be busy with something else."""

FILES = {
    "binary": [
        "stage/dense_llama_legacyattr_tp2_dp2_4r/workload.0.et",
        "text_converter_8r/DLRM_HybridParallel/w.3.et",
        "astra_sim_custom_collective_ring8/custom_allreduce.2.et",
        "edge_synthetic/dangling_ctrl_dep.0.et",
    ],
    "gzip": ["stage/dense_llama_legacyattr_tp2_dp2_4r/workload.1.et"],
    "jsonizer": [
        "json_variants/chakra_jsonizer/all_to_all_4npus.1.json",
        "json_variants/chakra_jsonizer/moe_mixtral_ep4_tp2_8r.0.json",
    ],
    "feeder": ["chakra_tests/json_trace.tar.gz/jsonData/small_chakra.0.json"],
    "stage": ["json_variants/stage_json_backend_pp2_dp2_4r/workload.2.json"],
    "linked": [
        "pytorch_moe_gloo_8r/linked_json_ranks01.tar.gz/linked_json/linked_1.json"
    ],
    "host": ["pytorch_moe_gloo_8r/host_et_json.tar.gz/host_et_json/host_3.json"],
    "kineto": [
        "pytorch_moe_gloo_8r/kineto_device_json.tar.gz/kineto_device_json/device_2.json"
    ],
    "groups": ["stage/moe_mixtral_ep4_tp2_8r/comm_group.json"],
    "tar": ["chakra_generator_1.0.0_4r/generator_4r.tar.gz"],
}
"""Real files by form.  Two forms wrap another: gzip a binary file, tar a whole set."""

JSON_FORMS = ("jsonizer", "feeder", "stage", "linked", "host", "kineto", "groups")
_ARRAYS = {
    "feeder": "workload_graph",
    "stage": "nodes",
    "linked": "nodes",
    "host": "nodes",
    "kineto": "traceEvents",
}
_OPTIONS = ReadOptions(bytes_per_element=2)
_LONGEST_JSON = 60_000


def contents(traces: Path, name: str) -> bytes:
    """Return the bytes of a file of the data, also of one in an archive."""
    path = traces / name
    for parent in path.parents:
        if parent.is_file():
            with tarfile.open(parent) as archive:
                member = archive.extractfile(path.relative_to(parent).as_posix())
                assert member is not None
                return member.read()
    return path.read_bytes()


def originals(traces: Path, form: str) -> list[bytes]:
    """Return the real files of a form, long JSON cut to its first nodes."""
    files = [contents(traces, name) for name in FILES[form]]
    if form == "gzip":
        return [gzip.compress(data, mtime=0) for data in files]
    return [shortened(form, data, _LONGEST_JSON) for data in files]


def shortened(form: str, data: bytes, length: int) -> bytes:
    """Return a file with only so many of its first nodes that it is as short."""
    if form == "binary" and len(data) > length:
        records = [body for _, body in read_records([data], source="x")]
        kept = [records[0][:4096] if len(records[0]) > length else records[0]]
        for body in records[1:]:
            if sum(map(len, kept)) + len(body) > length:
                break
            kept.append(body)
        return b"".join(map(frame, kept))
    if form in _ARRAYS and len(data) > length:
        document = json.loads(data)
        key = _ARRAYS[form]
        while len(json.dumps(document)) > length and len(document[key]) > 1:
            document[key] = document[key][: len(document[key]) // 2]
        return json.dumps(document).encode()
    if form == "jsonizer" and len(data) > length:
        return data[: data.rfind(b"}{", 0, length) + 1]
    return data


# Deeds ---------------------------------------------------------------------

_ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    2**64,
    10**40,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "-1",
    "9" * 30,
    "\0",
    [],
    [[[[]]]],
    {},
    {"id": 1},
)
_ODD_NUMBERS = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x01",
    b"\xff\xff\x7f",
    b"\x00",
    b"\x80",
)
_ODD_TEXTS = (
    b"[",
    b"{",
    b'"',
    b"}",
    b"]",
    b",",
    b":",
    b"1e999",
    b"\xff",
    b"null",
    b"\\u",
)


def flip_bits(rng: random.Random, data: bytes) -> bytes:
    mutant = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        mutant[rng.randrange(len(mutant))] ^= 1 << rng.randrange(8)
    return bytes(mutant)


def truncate(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def cut_out(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 2, 16, 256)) :]


def repeat(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    part = data[at : at + rng.choice((1, 8, 64, 1024))]
    return data[:at] + part * rng.choice((2, 3, 50)) + data[at:]


def put_in(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    odd = rng.choice((*_ODD_NUMBERS, *_ODD_TEXTS, b"[" * 5000, b"\0" * 100))
    return data[:at] + odd + data[at + rng.choice((0, 0, len(odd))) :]


def swap_records(rng: random.Random, data: bytes) -> bytes:
    records = [body for _, body in read_records([data], source="x")]
    for _ in range(rng.choice((1, 5))):
        a, b = rng.randrange(len(records)), rng.randrange(len(records))
        records[a], records[b] = records[b], records[a]
    return b"".join(map(frame, records))


def lengthen_record(rng: random.Random, data: bytes) -> bytes:
    """Change the length of a record."""
    starts = [offset for offset, _ in read_records([data], source="x")]
    at = rng.choice(starts)
    return data[:at] + rng.choice(_ODD_NUMBERS) + data[at + 1 :]


def close_a_cycle(rng: random.Random, data: bytes) -> bytes:
    """Make every node wait for all others, or for itself, by packed dependencies."""
    records = [body for _, body in read_records([data], source="x")]
    ids = bytes(rng.randrange(1, 100) for _ in range(20))
    at = rng.randrange(1, len(records)) if len(records) > 1 else 0
    for index in range(at, min(len(records), at + 30)):
        records[index] += b"\x2a" + bytes([len(ids)]) + ids
    return b"".join(map(frame, records))


def odd_value(rng: random.Random, data: bytes) -> bytes:
    """Give one member somewhere in the JSON a value that it cannot have."""
    documents = list(_documents(data))
    owners = list(_owners(documents))
    for _ in range(rng.choice((1, 1, 3))):
        owner = rng.choice(owners)
        if isinstance(owner, dict) and owner:
            owner[rng.choice(list(owner))] = rng.choice(_ODD_VALUES)
        elif isinstance(owner, list) and owner:
            owner[rng.randrange(len(owner))] = rng.choice(_ODD_VALUES)
    return "".join(map(json.dumps, documents)).encode()


def drop_member(rng: random.Random, data: bytes) -> bytes:
    documents = list(_documents(data))
    owners = [owner for owner in _owners(documents) if owner]
    owner = rng.choice(owners)
    if isinstance(owner, dict):
        del owner[rng.choice(list(owner))]
    else:
        del owner[rng.randrange(len(owner))]
    return "".join(map(json.dumps, documents)).encode()


def same_ids(rng: random.Random, data: bytes) -> bytes:
    """Exchange values between members of one name: ids, edges, types."""
    documents = list(_documents(data))
    dicts = [owner for owner in _owners(documents) if isinstance(owner, dict) and owner]
    first = rng.choice(dicts)
    key = rng.choice(list(first))
    for owner in rng.sample(dicts, min(len(dicts), 20)):
        if key in owner:
            owner[key] = first[key]
    return "".join(map(json.dumps, documents)).encode()


def _documents(data: bytes) -> Iterator[Any]:
    decoder, text, at = json.JSONDecoder(), data.decode(), 0
    while (rest := text[at:].lstrip()) != "":
        at = len(text) - len(rest)
        value, at = decoder.raw_decode(text, at)
        yield value


def _owners(values: Any) -> Iterator[Any]:
    """Yield all lists and objects, the list of documents aside."""
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(value.values())
        elif isinstance(value, list):
            yield value
            pending.extend(value)


Deed = Callable[[random.Random, bytes], bytes]
_BYTES: tuple[Deed, ...] = (flip_bits, truncate, cut_out, repeat, put_in)
_RECORDS: tuple[Deed, ...] = (swap_records, lengthen_record, close_a_cycle)
_JSON: tuple[Deed, ...] = (odd_value, drop_member, same_ids)


def deeds(form: str) -> tuple[Deed, ...]:
    """Return the mutations for files of a format."""
    if form == "binary":
        return _BYTES + _RECORDS
    return _BYTES + (_JSON if form in JSON_FORMS else ())


def mutant_of(rng: random.Random, form: str, data: bytes) -> bytes:
    """Do something to a file: mostly one deed, sometimes a second one to its bytes."""
    mutant = rng.choice(deeds(form))(rng, data)
    if mutant and rng.random() < 0.2:
        mutant = rng.choice(_BYTES)(rng, mutant)
    return mutant


# What becomes of them ------------------------------------------------------


def judge(form: str, data: bytes, folder: Path) -> str:
    """Read a mutant; return the name of the error, ``findings`` or ``unharmed``.

    Raises:
        BaseException: Whatever is none of our errors: a fault.
    """
    try:
        if form == "groups":
            parse_group_file(data, "comm_group.json")
            return "unharmed"
        if form == "kineto":
            read_profile_stream(io.BytesIO(data), "w.0")
            return "unharmed"
        if form == "tar":
            path = folder / "set.tar.gz"
            path.write_bytes(data)
            traces = load_trace_set(path, prefix="ALL_REDUCE")
            warnings = traces.warnings
        else:
            read: ReadTrace = read_stream(
                io.BytesIO(data), rank=0, source="w.0", options=_OPTIONS
            )
            warnings = read.trace.warnings
            traces = assemble(name="w", traces={0: read}, file_groups={})
        problems = check_trace_set(traces.graphs, traces.groups)
        if not problems:
            problems, _ = check_across_ranks(traces.graphs, traces.groups)
    except ChakramError as error:
        if error.exit_code != 2 or not (error.where and error.found):
            raise AssertionError(f"no sentence for users: {error!r}") from error
        return type(error).__name__
    return "findings" if problems or warnings else "unharmed"


def judge_many(traces: Path, form: str, seed: int, count: int) -> dict[str, Any]:
    """Judge mutants of the whole files of a form, all by one seed."""
    files = originals(traces, form)
    rng = random.Random(f"{form} {seed}")
    outcomes: Counter[str] = Counter()
    slowest_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            mutant = mutant_of(rng, form, rng.choice(files))
            begun_s = time.process_time()
            try:
                outcome = judge(form, mutant, Path(folder))
            except BaseException as fault:
                kept = Path(tempfile.gettempdir()) / f"mutant-{form}-{seed}-{number}"
                kept.write_bytes(mutant)
                raise AssertionError(f"{kept}: {fault!r}") from fault
            slowest_s = max(slowest_s, time.process_time() - begun_s)
            outcomes[outcome] += 1
    return {"outcomes": outcomes, "slowest_s": slowest_s}


def main(form: str, seed: str, count: str, folder: str) -> None:
    """Judge many mutants and print their outcomes."""
    if os.environ.get("CHAKRAM_LIMIT_MEMORY"):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    told = judge_many(Path(folder), form, int(seed), int(count))
    # Not getrusage: its maximum is also that of the process which started this one.
    status = dict(
        line.split(":\t", 1)
        for line in Path("/proc/self/status").read_text().splitlines()
    )
    peak_kib = int(status["VmHWM"].split()[0])
    sys.stdout.write(json.dumps({**told, "peak_bytes": peak_kib * 1024}))


if __name__ == "__main__":
    main(*sys.argv[1:])
