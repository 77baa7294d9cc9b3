"""Shared code for settings files: limited YAML, quantities and located errors."""
