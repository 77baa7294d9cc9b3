"""Summaries of a run: bandwidths, messages, generator health (without I/O)."""
