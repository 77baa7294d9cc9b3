"""Replay of rank programs: it starts ready operations and releases their dependents.

The package is pure: it does no I/O and reads no clock.
"""
