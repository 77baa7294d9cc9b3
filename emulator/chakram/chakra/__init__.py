"""Chakra execution traces: read, check and write them."""
