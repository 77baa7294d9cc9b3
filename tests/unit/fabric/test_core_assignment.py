"""Assignment of cores to tasks."""

from __future__ import annotations

import pytest

from chakram.fabric.core_assignment import (
    core_mask,
    data_plane_cores,
    forwarding_cores,
    shard_core,
)


@pytest.mark.parametrize("count", range(1, 20))
def test_cores_are_split_with_the_larger_half_for_the_data_plane(count: int) -> None:
    usable = {3 * core + 1 for core in range(count)}
    ours, kernels = data_plane_cores(usable), forwarding_cores(usable)
    assert sorted(ours + kernels) == sorted(usable)
    assert len(ours) - len(kernels) in (0, 1)


def test_data_plane_processes_have_a_core_each_if_there_are_enough() -> None:
    usable = {2, 5, 7}
    assert [shard_core(usable, number=k, shards=3) for k in range(3)] == [2, 5, 7]
    assert shard_core(usable, number=0, shards=4) is None


@pytest.mark.parametrize(
    ("cores", "mask"),
    [
        ([], "0"),
        ([0], "1"),
        ([1], "2"),
        ([0, 2, 31], "80000005"),
        ([32], "1,00000000"),
        ([0, 35, 64], "1,00000008,00000001"),
    ],
)
def test_core_mask_has_the_format_of_the_kernel(cores: list[int], mask: str) -> None:
    assert core_mask(cores) == mask
