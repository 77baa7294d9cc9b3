"""Ranks on a grid, and the groups along its lines."""

from __future__ import annotations

import pytest

from chakram.synth.grid import GroupTable, RankGrid


def test_ranks_form_a_grid_of_neighbors_and_distances() -> None:
    groups = GroupTable(
        RankGrid({"ep": 3, "dp": 2}), {"expert": ("ep",), "data": ("dp",)}
    )
    assert [(g.name, g.ranks) for g in groups.groups] == [
        ("1", (0, 1, 2)),
        ("2", (3, 4, 5)),
        ("3", (0, 3)),
        ("4", (1, 4)),
        ("5", (2, 5)),
    ]
    assert groups.purposes == dict(
        zip("12345", ["expert"] * 2 + ["data"] * 3, strict=True)
    )
    assert groups.of("data", 4) == "4"


def test_order_of_dimensions_determines_neighbors() -> None:
    order = ("dp", "tp", "cp", "ep", "fsdp", "pp")
    grid = RankGrid({"tp": 2, "dp": 2, "pp": 2}, order)
    assert grid.members(0, ["dp"]) == (0, 1)
    assert grid.members(0, ["tp"]) == (0, 2)
    assert grid.members(5, ["tp", "dp"]) == (4, 5, 6, 7)
    assert [grid.position(rank, "tp") for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert grid.moved(6, "pp", 0) == 2


def test_a_rank_alone_has_no_group() -> None:
    groups = GroupTable(RankGrid({"tp": 2}), {"a": ("dp",), "b": ("tp", "dp")})
    assert groups.of("a", 0) is None
    assert [group.ranks for group in groups.groups] == [(0, 1)]


def test_an_order_names_every_dimension_once() -> None:
    with pytest.raises(ValueError, match="once"):
        RankGrid({}, ("tp", "tp", "cp", "ep", "fsdp", "dp"))
