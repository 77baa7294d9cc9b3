"""Processes and Dask workers that do a part of the work of a verb."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chakram.foundation.errors import ConfigError, RunFailed

if TYPE_CHECKING:
    from concurrent.futures import Executor


@contextmanager
def cluster(address: str, *, hint: str) -> Iterator[Executor]:
    """Yield an executor with the workers of a Dask scheduler.

    The workers must have access to the files, and must have Chakram installed. If a
    worker is lost, another worker repeats its work.

    Args:
        address: Address of the scheduler.
        hint: Remedy if the cluster fails.

    Raises:
        ConfigError: If Dask is not installed, or no scheduler answers.
        RunFailed: If the cluster fails.
    """
    from concurrent.futures import CancelledError

    try:
        from distributed import Client, KilledWorker
        from distributed.comm import CommClosedError
    except ImportError as error:
        raise ConfigError(
            f"--dask {address}", "dask.distributed is not installed",
            "pip install 'chakram[dask]'",
        ) from error  # fmt: skip
    try:
        client = Client(address, timeout="30s")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--dask {address}", f"no scheduler answers: {error}",
            "e.g. tcp://10.0.0.1:8786, or tls:// with distributed.comm.tls configured",
        ) from error  # fmt: skip
    with client:
        try:
            yield client.get_executor(pure=False, retries=3)
        except (KilledWorker, CommClosedError, CancelledError) as error:
            raise RunFailed(
                f"--dask {address}", f"the cluster failed: {error or 'canceled'}",
                f"are its workers short of memory? {hint}",
            ) from error  # fmt: skip


@contextmanager
def readers(jobs: int, dask: str | None) -> Iterator[Executor | None]:
    """Yield an executor that reads traces, or None to read them in this process.

    Args:
        jobs: Number of processes.
        dask: Address of a Dask scheduler whose workers read instead.

    Raises:
        ConfigError: As for ``cluster``.
        RunFailed: If a process or the cluster fails.
    """
    if dask is not None:
        with cluster(dask, hint="read the traces again") as executor:
            yield executor
        return
    if jobs == 1:
        yield None
        return
    # Most commands need no other process.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        jobs,
        # Spawn processes instead of forking them, because gRPC has threads.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_reading,
        initargs=(os.getpid(), gc.get_threshold()),
    )
    try:
        yield pool
    except BaseException as error:
        # The remaining work is not needed, so an error or Ctrl-C does not wait for it.
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        if isinstance(error, BrokenProcessPool):
            raise RunFailed(
                f"--jobs {jobs}",
                "a process was killed, perhaps for lack of memory",
                "use fewer processes",
            ) from None
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_reading(parent: int, threshold: tuple[int, int, int]) -> None:
    gc.set_threshold(*threshold)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    if sys.platform == "linux":
        from chakram.fabric.process_control import die_with_parent

        die_with_parent(parent)
