"""Summaries of a run: bandwidths, messages, generator health. No I/O."""
