"""Synthetic traces: training, inference and traffic patterns for fabric tests."""
