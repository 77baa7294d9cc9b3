"""Replay of rank programs: start ready operations, then release their dependents.

The package is pure: it does no I/O and reads no clock.
"""
