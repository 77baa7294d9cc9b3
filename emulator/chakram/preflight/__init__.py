"""Tests of a fabric before a run: schedule, measurements, verdicts (without I/O)."""
