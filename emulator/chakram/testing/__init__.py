"""Helpers for tests: virtual wire and clock, strategies, builders."""
