"""Parser of MSCCL's XML: the steps of all thread blocks of every GPU.

A thread block executes its steps in order. It sends to one GPU and receives from one
GPU, over one channel. Therefore, the k-th message that one end sends is the k-th
message that the other end receives. A step may wait for a step of another thread block
of its GPU (``depid``, ``deps``). The types of steps are:

    s     send                          r     receive, store
    rcs   receive, store, send          rrs   receive, add, send
    rrc   receive, add, store           rrcs  receive, add, store, send
    cpy   copy within the GPU           re    add within the GPU
    nop   wait only

Source: microsoft/msccl-tools, ``msccl/language/ir.py`` (the format), and the
interpreter of microsoft/msccl (the semantics).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn
from xml.parsers import expat

from chakram.collectives.algorithms.symbolic_execution import MAX_ACTIONS
from chakram.foundation.errors import ScheduleError
from chakram.user_algorithms.json_fields import (
    COLLECTIVES,
    MAX_CHANNELS,
    MAX_CHUNKS,
    MAX_RANKS,
)

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp


TYPES = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")
RECEIVE = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
SEND = frozenset({"s", "rcs", "rrs", "rrcs"})
READ = frozenset({"s", "rrs", "rrc", "rrcs", "cpy", "re"})
WRITE = frozenset({"r", "rcs", "rrc", "rrcs", "cpy", "re"})
_PARENTS = {"algo": None, "gpu": "algo", "tb": "gpu", "step": "tb"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a thread block, at a *line* of the file."""

    line: int
    kind: str
    source: tuple[str, int]
    destination: tuple[str, int]
    count: int
    waits_for: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadBlock:
    """A thread block, whose steps run one after another."""

    number: int
    send: int | None
    receive: int | None
    channel: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The GPU of one rank."""

    scratch: int
    blocks: tuple[ThreadBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MscclAlgorithm:
    """The algorithm in one file."""

    source: str
    title: str
    op: CollectiveOp
    chunks: int
    in_place: bool
    gpus: tuple[Gpu, ...]


class _Reader:
    """Parser of elements in document order. Anything unexpected raises an error."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._open: list[str] = []
        self._steps = 0
        self._algo: Mapping[str, str] | None = None
        self._gpus: dict[int, tuple[int, dict[int, ThreadBlock]]] = {}
        self._gpu = 0
        self._block: Mapping[str, str] = {}
        self._block_steps: list[Step] = []

    def read(self, text: bytes) -> MscclAlgorithm:
        try:
            self._parser.Parse(text, True)
        except expat.ExpatError as error:
            raise ScheduleError(
                f"{self._source}:{error.lineno}",
                f"is not XML: {expat.errors.messages.get(error.code, error)}",
                "use an MSCCL algorithm as written by msccl-tools",
            ) from None
        except (ValueError, LookupError) as error:
            # expat leaves some encodings to Python. They may be unknown, have several
            # bytes per character, or be codecs that do not decode text.
            raise ScheduleError(
                f"{self._source}:1",
                f"has an unsupported encoding: {str(error)[:100]}",
                "save it as UTF-8",
            ) from None
        return self._whole()

    def _fail(self, found: str, hint: str | None = None) -> NoReturn:
        line = self._parser.CurrentLineNumber
        raise ScheduleError(f"{self._source}:{line}", found, hint)

    def _refuse_doctype(self, *_: object) -> None:
        self._fail(
            "has a document type declaration",
            "delete it: MSCCL algorithms need none",
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        parent = self._open[-1] if self._open else None
        if tag not in _PARENTS or _PARENTS[tag] != parent:
            self._fail(
                f"<{tag[:40]}> is not allowed here",
                "nest the elements as algo, gpu, tb and step",
            )
        self._open.append(tag)
        if tag == "algo":
            self._algo = attributes
        elif tag == "gpu":
            self._gpu = self._whole_number(attributes, "id", MAX_RANKS - 1)
            if self._gpu in self._gpus:
                self._fail(f"has GPU {self._gpu} twice")
            scratch = self._whole_number(attributes, "s_chunks", MAX_CHUNKS, default=0)
            self._gpus[self._gpu] = (scratch, {})
        elif tag == "tb":
            self._block = attributes
            self._block_steps = []
        else:
            self._block_steps.append(self._step(attributes))

    def _end(self, tag: str) -> None:
        self._open.pop()
        if tag == "tb":
            self._end_block()

    def _end_block(self) -> None:
        blocks = self._gpus[self._gpu][1]
        number = self._whole_number(self._block, "id", MAX_ACTIONS)
        if number in blocks:
            self._fail(f"GPU {self._gpu} has thread block {number} twice")
        send = self._whole_number(self._block, "send", MAX_RANKS, default=-1, least=-1)
        receive = self._whole_number(
            self._block, "recv", MAX_RANKS, default=-1, least=-1
        )
        blocks[number] = ThreadBlock(
            number=number,
            send=None if send < 0 else send,
            receive=None if receive < 0 else receive,
            channel=self._whole_number(
                self._block, "chan", MAX_CHANNELS, default=0, least=-1
            ),
            steps=tuple(self._block_steps),
        )

    def _step(self, attributes: Mapping[str, str]) -> Step:
        self._steps += 1
        if self._steps > MAX_ACTIONS:
            self._fail(f"has more than {MAX_ACTIONS} steps")
        number = self._whole_number(attributes, "s", MAX_ACTIONS)
        if number != len(self._block_steps):
            self._fail(
                f"has step {number}, but the next step must be {len(self._block_steps)}"
            )
        kind = attributes.get("type", "")
        if kind not in TYPES:
            self._fail(
                f"the step type {kind[:40]!r} is unknown",
                f"choose from {', '.join(TYPES)}",
            )
        depends = self._whole_number(attributes, "depid", MAX_ACTIONS, -1, least=-1)
        step = self._whole_number(attributes, "deps", MAX_ACTIONS, -1, least=-1)
        return Step(
            line=self._parser.CurrentLineNumber,
            kind=kind,
            source=self._place(attributes, "src") if kind in READ else ("i", 0),
            destination=(self._place(attributes, "dst") if kind in WRITE else ("i", 0)),
            count=(
                0
                if kind == "nop"
                else self._whole_number(attributes, "cnt", MAX_CHUNKS, least=1)
            ),
            waits_for=None if depends < 0 or step < 0 else (depends, step),
        )

    def _place(self, attributes: Mapping[str, str], end: str) -> tuple[str, int]:
        buffer = attributes.get(f"{end}buf", "")
        if buffer not in ("i", "o", "s"):
            self._fail(
                f"{end}buf is {buffer[:40]!r}",
                "use i (input), o (output) or s (scratch)",
            )
        return buffer, self._whole_number(attributes, f"{end}off", MAX_CHUNKS)

    def _whole_number(
        self,
        attributes: Mapping[str, str],
        name: str,
        most: int,
        default: int | None = None,
        *,
        least: int = 0,
    ) -> int:
        text = attributes.get(name)
        if text is None:
            if default is None:
                self._fail(f"has no attribute {name}")
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
            self._fail(f"{name} is {text[:40]!r}, but must be a whole number")
        if not least <= int(text) <= most:
            self._fail(f"{name} is {text}", f"use a number from {least} to {most}")
        return int(text)

    def _whole(self) -> MscclAlgorithm:
        algo = self._algo
        if algo is None:
            self._fail("has no algo element")
        name = algo.get("coll", "")
        op = COLLECTIVES.get(name)
        if op is None:
            self._fail(
                f"is for the collective {name[:40]!r}",
                f"choose from {', '.join(COLLECTIVES)}",
            )
        nranks = self._whole_number(algo, "ngpus", MAX_RANKS, least=2)
        if sorted(self._gpus) != list(range(nranks)):
            self._fail(
                f"has ngpus {nranks}, but {len(self._gpus)} GPUs",
                f"number the GPUs from 0 to {nranks - 1}",
            )
        return MscclAlgorithm(
            source=self._source,
            title=algo.get("name", ""),
            op=op,
            chunks=self._whole_number(algo, "nchunksperloop", MAX_CHUNKS, least=1),
            in_place=bool(self._whole_number(algo, "inplace", 1, default=0)),
            gpus=tuple(
                Gpu(
                    scratch=self._gpus[rank][0],
                    blocks=tuple(
                        block for _, block in sorted(self._gpus[rank][1].items())
                    ),
                )
                for rank in range(nranks)
            ),
        )


def parse_msccl(text: bytes, *, source: str) -> MscclAlgorithm:
    """Parse an MSCCL algorithm. Errors call the algorithm *source*.

    Raises:
        ScheduleError: If *text* is not MSCCL's XML.
    """
    return _Reader(source).read(text)
