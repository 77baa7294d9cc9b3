"""Algorithms that users bring along: their files read, checked and listed."""
