"""Congestion controls of a queue pair, by name. Pure."""
