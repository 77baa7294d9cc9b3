"""Readers that turn trace files of any producer into graphs."""
