"""The start of a shard's process on a host that lacks resources."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from chakram.foundation.errors import EnvironmentProblem
from chakram_agent.shard_handle import ForkServers, ShardProcess


@pytest.mark.parametrize(
    ("owner", "name"),
    [(os, "memfd_create"), (socket, "socketpair"), (os, "posix_spawn")],
)
@pytest.mark.asyncio
async def test_a_lack_of_descriptors_is_reported_and_leaves_none(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = os.listdir("/proc/self/fd")
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, fail)
        with pytest.raises(EnvironmentProblem, match="Too many open files"):
            await ShardProcess.start(0, servers=ForkServers())
    assert os.listdir("/proc/self/fd") == before
