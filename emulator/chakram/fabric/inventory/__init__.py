"""Hosts and ports of real fabrics: inventory files, and host lists of other tools."""
