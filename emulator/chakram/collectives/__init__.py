"""Collective operations, algorithms and their transfer schedules. Pure functions."""
