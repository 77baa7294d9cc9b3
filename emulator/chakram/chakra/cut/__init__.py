"""Extraction of partial traces: fewer ranks, fewer nodes, anonymous names."""
