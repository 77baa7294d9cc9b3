"""Diagnosis of lost time: simulations of a run without each suspected cause."""
