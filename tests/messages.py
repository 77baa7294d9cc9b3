"""Point-to-point messages and their ports, for tests of message summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.summary.message_summary import MessageTransport, PortFacts, SentMessage

if TYPE_CHECKING:
    from collections.abc import Collection


JOB = "job"


def message(
    src: int,
    dst: int,
    posted_us: int,
    taken_us: int,
    *,
    size_bytes: int = 125_000,
    fair_us: int | None = None,
    retransmitted: int | None = 0,
    cnp: int | None = 0,
    path: tuple[str, ...] | None = None,
    job: str = JOB,
) -> SentMessage:
    """Return a message by when it was posted and how long it took; 1 Mbit."""
    return SentMessage(
        job=job,
        src=src,
        dst=dst,
        size_bytes=size_bytes,
        posted_ns=posted_us * 1000,
        acked_ns=(posted_us + taken_us) * 1000,
        fair_ns=None if fair_us is None else fair_us * 1000,
        retransmitted=retransmitted,
        cnp=cnp,
        ways=None if path is None else (path,),
    )


def transport(
    nranks: int,
    *,
    rate_bps: int | None = 10**9,
    ranks_per_port: int = 1,
    within_hosts: Collection[tuple[int, int]] = (),
    jobs: Collection[str] = (JOB,),
) -> MessageTransport:
    """Return ports of one rate, with so many ranks of each job, packets of 4 KiB."""
    return MessageTransport(
        path_mtu=4096,
        verb="write",
        overhead_bytes=58,
        ports={
            (job, rank): PortFacts(
                number=rank // ranks_per_port,
                host=f"h{rank // ranks_per_port}",
                rate_bps=rate_bps,
            )
            for job in jobs
            for rank in range(nranks)
        },
        within_hosts=frozenset(
            (job, src, dst) for job in jobs for src, dst in within_hosts
        ),
    )
