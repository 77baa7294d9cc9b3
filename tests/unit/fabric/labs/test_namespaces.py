"""Creation of the namespaces of a lab, without privileges."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from chakram.fabric.labs import namespaces
from chakram.fabric.labs.namespaces import make_namespaces
from chakram.foundation.errors import FabricError


def test_no_descriptor_remains_if_there_is_no_routing_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_many(name: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(namespaces, "unshare", lambda _: None)
    monkeypatch.setattr(namespaces, "NetlinkSocket", too_many)
    before = sorted(os.listdir("/proc/self/fd"))

    with pytest.raises(FabricError) as caught:
        make_namespaces({"h0": (), "h1": ()})

    assert "namespace 1 of 2" in caught.value.found
    assert "(ulimit -Hn) to more than 4" in str(caught.value)
    assert len(sorted(Path("/proc/self/fd").iterdir())) == len(before)


def test_a_lab_may_open_two_files_for_each_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = soft - 100
    allowed: list[int] = []

    def refused(_: int) -> None:
        allowed.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(namespaces, "unshare", refused)
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        with pytest.raises(FabricError, match="max_net_namespaces"):
            make_namespaces(dict.fromkeys(map(str, range(50)), ()))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert allowed == [soft]
