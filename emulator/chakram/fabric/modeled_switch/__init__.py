"""Modeled switches that forward real frames in real time."""
