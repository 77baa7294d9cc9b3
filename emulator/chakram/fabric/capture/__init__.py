"""Packet capture on the hosts of a lab."""
