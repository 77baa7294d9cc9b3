"""Topologies: hosts, switches, links, addresses and common shapes. Pure functions."""
