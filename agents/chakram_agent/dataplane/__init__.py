"""Ports: where a rank's packets leave and enter the host."""
