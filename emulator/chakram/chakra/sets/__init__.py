"""Trace sets: the files of all ranks of a job, in a folder or an archive."""
