"""The loop of a lab's holder."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import time
from collections.abc import Iterator

import pytest

from chakram.fabric.labs.holder import wait_for_input


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Allow 2,000 descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("this user may not open 2,000 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_a_holder_waits_for_descriptors_of_any_number() -> None:
    here, there = socket.socketpair()
    high = fcntl.fcntl(here.fileno(), fcntl.F_DUPFD_CLOEXEC, 1500)
    with here, there:
        try:
            assert wait_for_input([high, there], 0.0) == set()
            there.send(b"x")
            assert wait_for_input([high, there], 1e9) == {high}
            here.recv(1)
            there.close()
            assert wait_for_input([high], None) == {high}
        finally:
            os.close(high)


def test_a_holder_waits_less_than_a_millisecond_exactly() -> None:
    here, there = socket.socketpair()
    with here, there:
        started_ns = time.monotonic_ns()
        assert wait_for_input([here], 0.0005) == set()
        assert time.monotonic_ns() - started_ns >= 500_000
