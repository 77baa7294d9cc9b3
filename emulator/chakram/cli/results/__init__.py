"""Verbs that read run directories."""
