"""Reads what other simulators have found."""
