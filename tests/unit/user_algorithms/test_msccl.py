"""MSCCL's XML: meaning, checks and refusals."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from chakram.collectives.algorithms import UserAlgorithm, algorithm
from chakram.collectives.algorithms.buffer_programs import carry_out
from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm, listed_from
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ScheduleError
from chakram.user_algorithms import msccl_xml
from chakram.user_algorithms.files import load_source
from chakram.user_algorithms.msccl import program_of
from chakram.user_algorithms.msccl_xml import parse_msccl

Row = tuple[object, ...]
"""Type, source, destination, how many chunks, and (thread block, step) to wait for."""


def step(number: int, row: Row) -> str:
    kind, source, destination, *rest = (*row, None, None, None)[:5]
    count = rest[0] if rest[0] is not None else 1
    block, awaited = rest[1] if rest[1] is not None else (-1, -1)  # type: ignore[misc] # two of them, if any
    places = ""
    for end, place in (("src", source), ("dst", destination)):
        text = str(place or "i0")
        places += f'{end}buf="{text[0]}" {end}off="{text[1:]}" '
    return (
        f'<step s="{number}" type="{kind}" {places}cnt="{count}" depid="{block}" '
        f'deps="{awaited}" hasdep="0"/>'
    )


def block(
    number: int, send: int, receive: int, rows: list[Row], *, channel: int = 0
) -> str:
    steps = "".join(step(at, row) for at, row in enumerate(rows))
    return (
        f'<tb id="{number}" send="{send}" recv="{receive}" chan="{channel}">{steps}'
        "</tb>"
    )


def algo(
    coll: str,
    gpus: list[list[str]],
    *,
    chunks: int,
    inplace: int = 1,
    scratch: int = 0,
) -> bytes:
    inside = "".join(
        f'<gpu id="{rank}" i_chunks="1" o_chunks="1" s_chunks="{scratch}">'
        + "".join(blocks)
        + "</gpu>"
        for rank, blocks in enumerate(gpus)
    )
    return (
        f'<algo name="mine" proto="Simple" nchannels="1" nchunksperloop="{chunks}" '
        f'ngpus="{len(gpus)}" coll="{coll}" inplace="{inplace}">{inside}</algo>'
    ).encode()


def listed(text: bytes) -> ListedAlgorithm:
    found, problems = carry_out(
        program_of(parse_msccl(text, source="a.xml")), name="msccl:a.xml"
    )
    assert problems == []
    assert found is not None
    return found


def problems(text: bytes) -> list[str]:
    return carry_out(program_of(parse_msccl(text, source="a.xml")), name="x")[1]


def refusal(text: bytes) -> str:
    with pytest.raises(ScheduleError) as caught:
        listed(text)
    return str(caught.value)


PAIR = [
    [block(0, 1, 1, [("s", "i0", "i0"), ("rrc", "i1", "i1"), ("s", "i1", "i1"),
                     ("r", "i0", "i0")])],
    [block(0, 0, 0, [("s", "i1", "i1"), ("rrc", "i0", "i0"), ("s", "i0", "i0"),
                     ("r", "i1", "i1")])],
]  # fmt: skip
"""An all_reduce of two ranks as reduce_scatter and all_gather."""


def test_number_of_steps_of_a_program_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(msccl_xml, "MAX_ACTIONS", 8)
    listed(algo("allreduce", PAIR, chunks=2))
    monkeypatch.setattr(msccl_xml, "MAX_ACTIONS", 7)
    assert "has more than 7 steps" in refusal(algo("allreduce", PAIR, chunks=2))


def test_steps_become_transfers_that_depend_on_earlier_ones() -> None:
    how = listed(algo("allreduce", PAIR, chunks=2))
    assert [
        (each.step, each.src, each.parts, each.reduce, each.after)
        for each in how.transfers
    ] == [
        (0, 0, ((0, 1),), True, ()),
        (0, 1, ((1, 1),), True, ()),
        (1, 0, ((1, 1),), False, (1,)),
        (1, 1, ((0, 1),), False, (0,)),
    ]
    assert how.chunk_bytes(0, nranks=2, input_bytes=101) == 50
    assert how.chunk_bytes(1, nranks=2, input_bytes=101) == 51
    assert how.unfit(3) == "it is for 2 ranks"


@pytest.mark.parametrize(
    ("name", "op", "nranks"),
    [
        ("msccl_custom_symbolic/ring_allreduce_4r", CollectiveOp.ALL_REDUCE, 4),
        ("msccl_custom_symbolic/ring_allreduce_8r", CollectiveOp.ALL_REDUCE, 8),
        ("msccl_custom_symbolic/ring_allgather_8r", CollectiveOp.ALL_GATHER, 8),
        (
            "astra_sim_custom_collective_ring8/custom_allreduce",
            CollectiveOp.ALL_REDUCE,
            8,
        ),
    ],
)
def test_rings_of_msccl_tools_equal_ours(
    chakram_data: Path, name: str, op: CollectiveOp, nranks: int
) -> None:
    user = UserAlgorithm(kind="msccl", path=str(chakram_data / f"traces/{name}.xml"))
    how = load_source(user).listed(op, nranks=nranks, root=0, size_scale=Fraction(1))
    ours = listed_from(algorithm(op, "ring"), name=how.name, nranks=nranks, root=0)
    moved = [
        sorted(
            (each.step, each.src, each.dst, each.channel, each.parts, each.reduce)
            for each in which.transfers
        )
        for which in (how, ours)
    ]
    assert moved[0] == moved[1]


def test_reduce_is_forwarded_without_being_stored() -> None:
    # Rank 0 -> 1 -> 2 and the sum straight back: rrs at 1, rrcs at 2, rcs at 0.
    gpus = [
        [block(0, 1, 2, [("s", "i0", "i0"), ("rcs", "i0", "i0")])],
        [block(0, 2, 0, [("rrs", "i0", "i0"), ("r", "i0", "i0")])],
        [block(0, 0, 1, [("rrcs", "i0", "i0")])],
    ]
    how = listed(algo("allreduce", gpus, chunks=1))
    assert [(each.src, each.dst, each.after) for each in how.transfers] == [
        (0, 1, ()),
        (1, 2, (0,)),
        (2, 0, (1,)),
        (0, 1, (2,)),
    ]


def test_scratch_copies_and_waits_between_thread_blocks() -> None:
    # What comes in on one thread block is added by another one, which waits for it.
    def gpu(peer: int) -> list[str]:
        return [
            block(0, peer, peer, [("s", "i0", "s0"), ("r", "i0", "s0")]),
            block(
                1,
                -1,
                -1,
                [
                    ("nop", None, None, 1, (0, 1)),
                    ("re", "s0", "i0"),
                    ("cpy", "i0", "o0"),
                ],
            ),
        ]

    how = listed(algo("allreduce", [gpu(1), gpu(0)], chunks=1, inplace=0, scratch=1))
    assert len(how.transfers) == 2


def test_an_all_to_all_out_of_place_has_parts_of_every_pair() -> None:
    gpus = [
        [
            block(
                0,
                1 - rank,
                1 - rank,
                [
                    ("s", f"i{1 - rank}", f"o{rank}"),
                    ("r", f"i{rank}", f"o{1 - rank}"),
                    ("cpy", f"i{rank}", f"o{rank}"),
                ],
            )
        ]
        for rank in range(2)
    ]
    how = listed(algo("alltoall", gpus, chunks=2, inplace=0))
    assert [each.parts for each in how.transfers] == [((1, 1),), ((2, 1),)]
    assert how.nparts == 4


def test_an_all_to_all_serves_splits_too_and_cuts_every_pair(tmp_path: Path) -> None:
    # Two chunks of every pair; 0 and 1 exchange theirs as two messages each.
    gpus = [
        [
            block(
                0,
                1 - rank,
                1 - rank,
                [
                    *(
                        ("s", f"i{2 * (1 - rank) + k}", f"o{2 * rank + k}")
                        for k in (0, 1)
                    ),
                    *(("r", "i0", f"o{2 * (1 - rank) + k}") for k in (0, 1)),
                    ("cpy", f"i{2 * rank}", f"o{2 * rank}", 2),
                ],
            )
        ]
        for rank in range(2)
    ]
    path = tmp_path / "a2a.xml"
    path.write_bytes(algo("alltoall", gpus, chunks=4, inplace=0))
    source = load_source(UserAlgorithm(kind="msccl", path=str(path)))
    op = CollectiveOp.ALL_TO_ALL_V
    how = source.listed(op, nranks=2, root=0, size_scale=Fraction(1))
    assert (how.op, how.nparts) == (op, 8)
    matrix = [[9, 101], [7, 0]]
    assert [
        (each.src, how.uneven_bytes(place, lambda a, b: matrix[a][b]))
        for place, each in enumerate(how.transfers)
    ] == [(0, 50), (1, 3), (0, 51), (1, 4)]
    even = source.listed(
        CollectiveOp.ALL_TO_ALL, nranks=2, root=0, size_scale=Fraction(1)
    )
    assert even.transfers == how.transfers


def test_missing_chunks_are_reported_by_rank() -> None:
    short = [
        [block(0, 1, -1, [("s", "i0", "i0")])],
        [block(0, -1, 0, [("rrc", "i0", "i0")])],
    ]
    assert problems(algo("allreduce", short, chunks=1)) == [
        "rank 0 ends with part 0 in i[0] without the contribution of rank 1"
    ]
    gather = [
        [block(0, 1, -1, [("s", "o0", "o0")])],
        [block(0, -1, 0, [("r", "o0", "o0")])],
    ]
    assert problems(algo("allgather", gather, chunks=2)) == [
        "rank 0 ends without part 1 in o[1]"
    ]


def test_contribution_that_counts_twice_is_reported() -> None:
    twice = [
        [block(0, 1, -1, [("s", "i0", "i0"), ("s", "i0", "i0")])],
        [block(0, -1, 0, [("rrc", "i0", "i0"), ("rrc", "i0", "i0")])],
    ]
    assert problems(algo("allreduce", twice, chunks=1))[0].endswith(
        "tb 0 step 1: counts rank 0 twice in part 0"
    )


def test_unsynchronized_thread_blocks_are_reported() -> None:
    def gpu(peer: int) -> list[str]:
        return [
            block(0, peer, peer, [("s", "i0", "s0"), ("r", "i0", "s0")]),
            block(1, -1, -1, [("re", "s0", "i0")]),
        ]

    found = problems(algo("allreduce", [gpu(1), gpu(0)], chunks=1, scratch=1))
    assert any("neither waits for the other" in text for text in found)


def test_deadlock_is_reported_before_the_run() -> None:
    gpus = [
        [block(0, 1, 1, [("r", "i0", "i0"), ("s", "i0", "i0")])],
        [block(0, 0, 0, [("r", "i0", "i0"), ("s", "i0", "i0")])],
    ]
    assert problems(algo("allreduce", gpus, chunks=1)) == [
        "a.xml:1: GPU 0 tb 0 step 0 waits forever for a message from rank 1 on "
        "channel 0",
        "a.xml:1: GPU 1 tb 0 step 0 waits forever for a message from rank 0 on "
        "channel 0",
    ]


LONE = [[block(0, 1, -1, [("s", "i0", "i0")])], []]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"<algo", "a.xml:1: is not XML: unclosed token"),
        (b"hello", "a.xml:1: is not XML"),
        (
            b"<?xml version='1.0' encoding='utf-7'?><algo/>",
            "a.xml:1: has an unsupported encoding: multi-byte encodings are not "
            "supported (save it as UTF-8)",
        ),
        (b"<?xml version='1.0' encoding='hex'?><algo/>", "has an unsupported encoding"),
        (b"<?xml version='1.0' encoding='idna'?><algo/>", "an unsupported encoding"),
        (b"<?xml version='1.0' encoding='nosuch'?><algo/>", "unsupported encoding"),
        (b"<algo/>", "is for the collective ''"),
        (b'<!DOCTYPE algo [<!ENTITY x "y">]><algo/>', "document type declaration"),
        (b"<gpu/>", "<gpu> is not allowed here"),
        (algo("custom", PAIR, chunks=2), "is for the collective 'custom'"),
        (algo("allgather", PAIR, chunks=3), "its 3 chunks do not divide evenly"),
        (algo("allreduce", PAIR, chunks=1), "i[1..1], but i has 1 chunks"),
        (
            algo("allreduce", [[] for _ in range(64)], chunks=65_536),
            "its buffers have 8388608 chunks in total",
        ),
        (
            algo("allreduce", LONE, chunks=1),
            "rank 0 sends 1 messages to rank 1 on channel 0, but rank 1 receives 0",
        ),
        (
            algo("allreduce", [[block(0, -1, 1, [("s", "i0", "i0")])], []], chunks=1),
            "GPU 0 tb 0 sends to no GPU",
        ),
        (
            algo("allreduce", [[block(0, 1, 1, [("x", "i0", "i0")])], []], chunks=1),
            "the step type 'x' is unknown",
        ),
        (
            algo(
                "allreduce",
                [[block(0, 1, 1, [("s", "i0", "i0", 1, (4, 0))])], []],
                chunks=1,
            ),
            "waits for step 0 of thread block 4, which does not exist",
        ),
        (algo("allreduce", PAIR, chunks=2).replace(b'ngpus="2"', b'ngpus="3"'),
         "has ngpus 3, but 2 GPUs"),
        (algo("allreduce", PAIR, chunks=2).replace(b'cnt="1"', b'cnt="-7"'),
         "cnt is -7 (use a number from 1 to 65536)"),
        (algo("allreduce", PAIR, chunks=2).replace(b'cnt="1"', b'cnt="x"'),
         "cnt is 'x', but must be a whole number"),
    ],
)  # fmt: skip
def test_invalid_algorithm_is_refused(text: bytes, told: str) -> None:
    assert told in refusal(text)


def shared_link(*, sending: int, receiving: int, channel: int) -> bytes:
    """Send two chunks from GPU 0 to GPU 1, one of them on *channel*.

    Args:
        sending: Number of the thread block that sends the second chunk.
        receiving: Number of the thread block that receives it.
        channel: Channel of thread blocks 1.
    """
    ends = []
    for peer, kind, second in ((1, "s", sending), (0, "r", receiving)):
        steps: list[list[Row]] = [[(kind, "i0", "i0")], []]
        steps[second].append((kind, "i1", "i1"))
        send, receive = (peer, -1) if kind == "s" else (-1, peer)
        ends.append(
            [
                block(number, send, receive, rows, channel=number * channel)
                for number, rows in enumerate(steps)
                if rows
            ]
        )
    return algo("broadcast", ends, chunks=2)


def test_two_thread_blocks_may_not_share_a_link_and_direction() -> None:
    listed(shared_link(sending=0, receiving=0, channel=0))
    listed(shared_link(sending=1, receiving=1, channel=1))
    for sending, receiving, told in (
        (1, 0, "a.xml:1: GPU 0 tb 1 sends to GPU 1 on channel 0, as tb 0 does, so"),
        (0, 1, "a.xml:1: GPU 1 tb 1 receives from GPU 0 on channel 0, as tb 0 does"),
    ):
        text = shared_link(sending=sending, receiving=receiving, channel=0)
        assert told in refusal(text)


def test_broadcast_is_rotated_to_its_root(tmp_path: Path) -> None:
    gpus = [
        [block(0, 1, -1, [("s", "i0", "i0")])],
        [block(0, 2, 0, [("rcs", "i0", "i0")])],
        [block(0, -1, 1, [("r", "i0", "i0")])],
    ]
    path = tmp_path / "b.xml"
    path.write_bytes(algo("broadcast", gpus, chunks=1))
    source = load_source(UserAlgorithm(kind="msccl", path=str(path)))
    how = source.listed(
        CollectiveOp.BROADCAST, nranks=3, root=2, size_scale=Fraction(1)
    )
    assert [(each.src, each.dst) for each in how.transfers] == [(2, 0), (0, 1)]
    assert how.root == 2


def test_algorithm_applies_only_to_its_own_collective(tmp_path: Path) -> None:
    path = tmp_path / "pair.xml"
    path.write_bytes(algo("allreduce", PAIR, chunks=2))
    source = load_source(UserAlgorithm(kind="msccl", path=str(path)))
    for op, nranks, told in (
        (CollectiveOp.ALL_GATHER, 2, "is an algorithm for all_reduce"),
        (CollectiveOp.ALL_REDUCE, 4, "is for 2 ranks, but a group has 4"),
    ):
        with pytest.raises(ScheduleError, match=told):
            source.listed(op, nranks=nranks, root=0, size_scale=Fraction(1))
    with pytest.raises(ScheduleError, match="cannot be read"):
        load_source(UserAlgorithm(kind="msccl", path=str(tmp_path / "none.xml")))
