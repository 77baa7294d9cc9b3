"""Traces of ranks as graphs, in columns. Pure."""
