"""Simulation of an experiment in virtual time, at every level of detail."""
