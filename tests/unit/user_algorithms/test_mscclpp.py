"""MSCCL++'s execution plans: meaning and refusals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from chakram.collectives.algorithms.buffer_programs import carry_out
from chakram.foundation.errors import ScheduleError
from chakram.user_algorithms.mscclpp import parse_mscclpp

if TYPE_CHECKING:
    from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm

Json = dict[str, Any]


def local(buffer: str, index: int, size: int = 1) -> Json:
    return {"type": buffer, "index": index, "size": size}


def remote(buffer_id: int, index: int, size: int = 1) -> Json:
    return {"buffer_id": buffer_id, "index": index, "size": size}


def op(name: str, *src: Json, to: tuple[Json, ...] = (), **more: Any) -> Json:
    return {
        "name": name,
        **({"src_buff": list(src)} if src else {}),
        **({"dst_buff": list(to)} if to else {}),
        "channel_type": "port",
        **more,
    }


def on(name: str, *channels: int) -> Json:
    return op(name, channel_ids=list(channels))


def gpu(
    rank: int,
    blocks: list[list[Json]],
    *,
    chunks: tuple[int, int, int],
    peers: list[int],
    remotes: list[tuple[int, str]],
    kind: str = "port",
    semaphores: tuple[int, ...] = (),
) -> Json:
    return {
        "id": rank,
        "input_chunks": chunks[0],
        "output_chunks": chunks[1],
        "scratch_chunks": chunks[2],
        "threadblocks": [
            {
                "id": number,
                "ops": [{**each, "channel_type": kind} for each in operations],
                "channels": [
                    {"channel_type": kind, "channel_ids": list(range(len(peers)))}
                ],
                "remote_buffer_refs": [
                    {
                        "access_channel_type": kind,
                        "remote_buffer_ids": list(range(len(remotes))),
                    }
                ],
            }
            for number, operations in enumerate(blocks)
        ],
        "channels": [{"channel_type": kind, "connected_to": peers}],
        "remote_buffers": [
            {"rank": owner, "type": buffer, "access_channel_types": [kind]}
            for owner, buffer in remotes
        ],
        "semaphores": [{"init_value": value} for value in semaphores],
    }


def plan(collective: str, gpus: list[Json], *, inplace: bool = True) -> bytes:
    return json.dumps(
        {
            "name": "mine",
            "collective": collective,
            "protocol": "Simple",
            "inplace": inplace,
            "gpus": gpus,
        }
    ).encode()


def outcome(text: bytes) -> tuple[ListedAlgorithm | None, list[str]]:
    return carry_out(parse_mscclpp(text, source="p.json"), name="mscclpp:p.json")


def listed(text: bytes) -> ListedAlgorithm:
    found, problems = outcome(text)
    assert problems == []
    assert found is not None
    return found


def rows(how: ListedAlgorithm) -> list[tuple[object, ...]]:
    return [
        (each.step, each.src, each.dst, each.parts, each.after)
        for each in how.transfers
    ]


def gather(*operations: Json) -> list[Json]:
    """Return GPUs of an all_gather in place; ``own`` is where each one's part is."""

    def filled(rank: int) -> list[Json]:
        text = json.dumps(operations).replace('"own"', str(rank))
        return json.loads(text)  # type: ignore[no-any-return] # as it was dumped

    return [
        gpu(
            rank,
            [filled(rank)],
            chunks=(1, 2, 0),
            peers=[1 - rank],
            remotes=[(1 - rank, "o")],
        )
        for rank in range(2)
    ]


OWN: Any = "own"


@pytest.mark.parametrize(
    "operations",
    [
        [
            op("put", local("o", OWN), to=(remote(0, OWN),), channel_ids=[0]),
            on("nop"),
            on("signal", 0),
            on("flush", 0),
            on("wait", 0),
        ],
        [
            op("pws", local("o", OWN), to=(remote(0, OWN),), channel_ids=[0]),
            on("wait", 0),
        ],
        [
            op("pwsf", local("i", 0), to=(remote(0, OWN),), channel_ids=[0]),
            on("wait", 0),
        ],
    ],
)
def test_a_put_is_a_message_and_its_signal_travels_with_it(
    operations: list[Json],
) -> None:
    how = listed(plan("allgather", gather(*operations)))
    assert rows(how) == [(0, 0, 1, ((0, 1),), ()), (0, 1, 0, ((1, 1),), ())]


def test_handshake_is_a_separate_message() -> None:
    how = listed(
        plan(
            "allgather",
            gather(
                on("rlxsignal", 0),
                on("rlxwait", 0),
                op("put", local("o", OWN), to=(remote(0, OWN),), channel_ids=[0]),
                on("signal", 0),
                on("wait", 0),
            ),
        )
    )
    assert rows(how) == [
        (0, 0, 1, (), ()),
        (0, 1, 0, (), ()),
        (1, 0, 1, ((0, 1),), (1,)),
        (1, 1, 0, ((1, 1),), (0,)),
    ]
    assert how.chunk_bytes(0, nranks=2, input_bytes=64) == 0
    assert how.chunk_bytes(2, nranks=2, input_bytes=64) == 64


def test_remote_read_is_a_request_and_an_answer() -> None:
    # Rank 1 reads rank 0's half and adds its own; rank 0 the other; both put back.
    def half(rank: int) -> list[Json]:
        other = 1 - rank
        return [
            op("copy", local("i", other), to=(local("s", 0),)),
            on("signal", 0),
            on("wait", 0),
            op("rre", local("i", rank), remote(0, 0), to=(local("i", rank),)),
            op("put", local("i", rank), to=(remote(1, rank),), channel_ids=[0]),
            on("signal", 0),
            on("wait", 0),
        ]

    gpus = [
        gpu(
            rank,
            [half(rank)],
            chunks=(2, 2, 1),
            peers=[1 - rank],
            remotes=[(1 - rank, "s"), (1 - rank, "i")],
        )
        for rank in range(2)
    ]
    how = listed(plan("allreduce", gpus))
    assert [(each.src, each.parts, each.after) for each in how.transfers] == [
        (0, (), ()),  # ready
        (1, (), ()),
        (0, (), (1,)),  # may I read?
        (1, (), (0,)),
        (0, ((1, 1),), (3,)),  # the answers
        (1, ((0, 1),), (2,)),
        (0, ((0, 1),), (1, 5)),  # the sums
        (1, ((1, 1),), (0, 4)),
    ]


@pytest.mark.parametrize("name", ["res", "rres"])
def test_reduction_can_be_followed_by_a_put(name: str) -> None:
    # Rank 1 gives rank 0 its chunk, or lets it be read; rank 0 adds, keeps and puts.
    lend = op("copy", local("i", 0), to=(local("s", 0),))
    give = op("put", local("i", 0), to=(remote(0, 0),), channel_ids=[0])
    theirs = local("s", 0) if name == "res" else remote(0, 0)
    gpus = [
        gpu(
            0,
            [
                [
                    on("wait", 0),
                    op(name, local("i", 0), theirs, to=(local("i", 0), remote(1, 0))),
                    on("signal", 0),
                ]
            ],
            chunks=(1, 1, 1),
            peers=[1],
            remotes=[(1, "s"), (1, "i")],
        ),
        gpu(
            1,
            [[give if name == "res" else lend, on("signal", 0), on("wait", 0)]],
            chunks=(1, 1, 1),
            peers=[0],
            remotes=[(0, "s")],
        ),
    ]
    how = listed(plan("allreduce", gpus))
    assert len(how.transfers) == (2 if name == "res" else 4)
    assert how.transfers[-1].parts == ((0, 1),)


def test_packets_carry_their_own_signal() -> None:
    gpus = [
        gpu(
            rank,
            [
                [
                    op("ppkt", local("i", 0), to=(remote(0, 0),)),
                    op("repkt", local("i", 0), local("s", 0), to=(local("i", 0),)),
                ]
            ],
            chunks=(1, 1, 1),
            peers=[1 - rank],
            remotes=[(1 - rank, "s")],
            kind="memory",
        )
        for rank in range(2)
    ]
    how = listed(plan("allreduce", gpus))
    assert rows(how) == [(0, 0, 1, ((0, 1),), ()), (0, 1, 0, ((0, 1),), ())]


@pytest.mark.parametrize("meeting", ["barrier", "semaphore", None])
def test_thread_blocks_meet(meeting: str | None) -> None:
    # One thread block receives, another one passes on what came.
    barrier = {**op("barrier"), "barrier_id": 0, "num_threadblocks": 2}
    semaphore = {"semaphore_ids": [0]}
    told = {
        "barrier": [barrier],
        "semaphore": [{**op("sem_release"), **semaphore}],
        None: [],
    }
    awaited = {
        "barrier": [barrier],
        "semaphore": [{**op("sem_acquire"), **semaphore}],
        None: [],
    }
    gpus = [
        gpu(
            0,
            [[op("pws", local("i", 0), to=(remote(0, 0),), channel_ids=[0])]],
            chunks=(1, 1, 0),
            peers=[1],
            remotes=[(1, "i")],
        ),
        gpu(
            1,
            [
                [on("wait", 0), *told[meeting]],
                [
                    *awaited[meeting],
                    op("pws", local("i", 0), to=(remote(0, 0),), channel_ids=[1]),
                ],
            ],
            chunks=(1, 1, 0),
            peers=[0, 2],
            remotes=[(2, "i")],
            semaphores=(0,),
        ),
        gpu(2, [[on("wait", 0)]], chunks=(1, 1, 0), peers=[1], remotes=[]),
    ]
    found, problems = outcome(plan("broadcast", gpus))
    if meeting is None:
        assert (
            "neither waits for the other" in problems[0] or "empty slot" in problems[0]
        )
        return
    assert problems == []
    assert found is not None
    assert rows(found) == [(0, 0, 1, ((0, 1),), ()), (1, 1, 2, ((0, 1),), (0,))]


def test_missing_handshake_is_reported() -> None:
    # Rank 0 writes over what rank 1 still has to send.
    gpus = gather(
        op("put", local("o", OWN), to=(remote(0, OWN),), channel_ids=[0]),
        on("signal", 0),
    )
    listed(plan("allgather", gpus))  # both only write where no rank reads
    swap = [
        gpu(
            rank,
            [
                [
                    op("put", local("i", 0), to=(remote(0, 0),), channel_ids=[0]),
                    on("signal", 0),
                    on("wait", 0),
                ]
            ],
            chunks=(1, 1, 0),
            peers=[1 - rank],
            remotes=[(1 - rank, "i")],
        )
        for rank in range(2)
    ]
    assert "neither waits for the other" in outcome(plan("allreduce", swap))[1][0]


BARRIER = {**op("barrier"), "barrier_id": 0, "num_threadblocks": 2}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            plan(
                "allreduce",
                [
                    gpu(
                        rank,
                        [[BARRIER, BARRIER], [BARRIER]],
                        chunks=(1, 1, 0),
                        peers=[1 - rank],
                        remotes=[],
                    )
                    for rank in range(2)
                ],
            ),
            "ops[1]: its thread block reaches barrier 0 2 times, but another one "
            "reaches it 1 times",
        ),
        (b"[]", "p.json: is not a JSON object"),
        (b"{", "p.json: is not JSON"),
        (b"[" * 100_000, "p.json: is not JSON"),
        (plan("magic", []), "is for the collective 'magic'"),
        (plan("allreduce", []), "has 0 GPUs"),
        (plan("allgather", gather(on("wait", 0))), "which is never sent"),
        (plan("allgather", gather(on("glres"))), "operation 'glres' is not a transfer"),
        (plan("allgather", gather(on("pipeline"))), "operation 'pipeline' is not"),
        (
            plan("allgather", gather(on("wait", 3))),
            "refers to number 3, but there are only 1",
        ),
        (
            plan("allgather", gather({**on("signal", 0), "tbg_info": {}})),
            "signal uses a group of thread blocks",
        ),
        (
            plan("allgather", gather(op("put", local("o", 7), to=(remote(0, 0),)))),
            "uses o[7..7], but o has 2 chunks",
        ),
        (
            plan("allgather", gather(op("put", local("o", -1), to=(remote(0, 0),)))),
            "index is -1",
        ),
        (
            plan("allgather", gather(op("upkt", local("o", 0), to=(local("o", 1),)))),
            "rank 0 ends with part 0 in o[1], but must have part 1",
        ),
    ],
)
def test_invalid_plan_is_refused(text: bytes, told: str) -> None:
    try:
        _, problems = outcome(text)
    except ScheduleError as error:
        problems = [str(error)]
    assert any(told in problem for problem in problems), problems
