"""Hypothesis strategies shared by the property tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from chakram.plan.transport import PATH_MTUS
from chakram.roce.constants import PSN_MODULUS, Verb
from chakram.roce.headers import (
    Aeth,
    AtomicAnswer,
    AtomicEth,
    Bth,
    Deth,
    Ieth,
    ImmDt,
    Packet,
    Reth,
)
from chakram.roce.opcodes import Opcode, extended_headers

path_mtus = st.sampled_from(PATH_MTUS)
verbs = st.sampled_from(Verb)
psns = st.integers(0, PSN_MODULUS - 1)
# Half of the connections wrap within the first packets.
first_psns = st.one_of(psns, st.integers(PSN_MODULUS - 40, PSN_MODULUS - 1))


def message_sizes(
    path_mtu: int, *, max_packets: int = 40, max_messages: int = 12
) -> st.SearchStrategy[list[int]]:
    """Sizes of messages that follow each other: odd ones, and around whole packets.

    Often several in a row are equal, for those of one packet may share a send.
    """
    around = st.builds(
        lambda count, change: max(0, count * path_mtu + change),
        st.integers(0, max_packets - 1),
        st.integers(-5, 5),
    )
    size = st.one_of(st.integers(0, 8), around, st.integers(0, max_packets * path_mtu))
    row = st.tuples(size, st.integers(1, 4))
    return st.lists(row, min_size=1, max_size=max_messages).map(
        lambda rows: [size for size, times in rows for _ in range(times)][:max_messages]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFaults:
    """Faults of a wire for its first packets; later ones pass unchanged.

    Args:
        drops: Whether packet 0, 1, 2 .. is lost.
        duplicates: Whether it arrives twice.
        extra_delays_ns: How much later it arrives.
    """

    drops: tuple[bool, ...]
    duplicates: tuple[bool, ...]
    extra_delays_ns: tuple[int, ...]

    def drop(self) -> Callable[[], bool]:
        """Return the loss function of a `Pair`."""
        decisions = iter(self.drops)
        return lambda: next(decisions, False)

    def duplicate(self) -> Callable[[], bool]:
        """Return the duplication function of a `Pair`."""
        decisions = iter(self.duplicates)
        return lambda: next(decisions, False)

    def extra_delay_ns(self) -> Callable[[], int]:
        """Return the delay function of a `Pair`."""
        delays = iter(self.extra_delays_ns)
        return lambda: next(delays, 0)


def _flags(max_size: int) -> st.SearchStrategy[tuple[bool, ...]]:
    return st.lists(st.booleans(), max_size=max_size).map(tuple)


wire_faults: st.SearchStrategy[WireFaults] = st.builds(
    WireFaults,
    drops=_flags(120),
    duplicates=_flags(60),
    extra_delays_ns=st.lists(
        st.sampled_from([0, 0, 0, 700, 1_500, 40_000, 3_000_000]), max_size=80
    ).map(tuple),
)


_octets = st.integers(0, 0xFF)
_words = st.integers(0, 0xFFFF_FFFF)
_doubles = st.integers(0, 0xFFFF_FFFF_FFFF_FFFF)
_EXTENDED: dict[str, st.SearchStrategy[Any]] = {
    "deth": st.builds(Deth, queue_key=_words, source_qpn=psns, reserved=_octets),
    "reth": st.builds(
        Reth, virtual_address=_doubles, remote_key=_words, dma_length_bytes=_words
    ),
    "atomic": st.builds(
        AtomicEth,
        virtual_address=_doubles,
        remote_key=_words,
        swap_or_add=_doubles,
        compare=_doubles,
    ),
    "aeth": st.builds(Aeth, syndrome=_octets, msn=psns),
    "atomic_answer": st.builds(AtomicAnswer, original=_doubles),
    "immediate": st.builds(ImmDt, value=_words),
    "invalidate": st.builds(Ieth, remote_key=_words),
}


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    """Any packet that can be encoded."""
    opcode = draw(st.sampled_from(Opcode))
    return Packet(
        bth=Bth(
            opcode=opcode,
            destination_qpn=draw(psns),
            psn=draw(psns),
            ack_request=draw(st.booleans()),
            solicited=draw(st.booleans()),
            migrated=draw(st.booleans()),
            partition_key=draw(st.integers(0, 0xFFFF)),
            forward_congestion=draw(st.booleans()),
            backward_congestion=draw(st.booleans()),
            reserved=draw(st.integers(0, 63)),
            reserved_ack=draw(st.integers(0, 127)),
        ),
        **{name: draw(_EXTENDED[name]) for name in extended_headers(opcode)},
        payload=draw(st.binary(max_size=64)),
        icrc=draw(st.binary(min_size=4, max_size=4)),
    )


@st.composite
def byte_matrices(
    draw: st.DrawFn, *, least_ranks: int = 1, most: int = 9_000
) -> list[list[int]]:
    """Draw the bytes from each rank to each, of up to nine ranks; often none."""
    nranks = draw(st.integers(least_ranks, 9))
    part = st.one_of(st.just(0), st.integers(0, most))
    row = st.lists(part, min_size=nranks, max_size=nranks)
    return draw(st.lists(row, min_size=nranks, max_size=nranks))
