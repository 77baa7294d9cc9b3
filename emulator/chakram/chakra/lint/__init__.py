"""Checks for problems and warnings in trace sets."""
