"""Tests; helpers for them are in `tests.support`."""

import pytest

# Helpers that assert for tests tell what they compared, as tests do.
pytest.register_assert_rewrite(
    "tests.e2e.traffic_totals",
    "tests.e2e.endings",
    "tests.e2e.hosts",
    "tests.netns.traffic",
    "tests.property.replay_laws",
)
