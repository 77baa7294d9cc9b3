"""Preparation of a run: load jobs, derive settings and plans, predict times."""
