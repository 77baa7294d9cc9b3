"""Trace sets: the files of all ranks of a job, wherever they stand."""
