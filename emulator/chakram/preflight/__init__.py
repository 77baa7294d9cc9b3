"""Tests of a fabric before a run: schedule, measurements and verdicts. No I/O."""
