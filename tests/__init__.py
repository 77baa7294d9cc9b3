"""Tests; helpers for them are in `tests.support`."""
