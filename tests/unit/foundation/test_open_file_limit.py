"""The limit on open files of a process."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from chakram.foundation.open_file_limit import allow_descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def hard() -> Iterator[int]:
    """Return a hard limit, and restore both limits at the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard if hard != resource.RLIM_INFINITY else 1 << 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def soft_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_the_limit_grows_by_what_is_needed(hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    allow_descriptors(30)
    assert soft_limit() == 230
    allow_descriptors(0)
    assert soft_limit() == 230


def test_the_limit_does_not_exceed_that_of_the_administrator(hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    for _ in range(2):
        allow_descriptors(30)
        assert soft_limit() == hard
