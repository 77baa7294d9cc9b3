"""Shared basics: errors, units, addresses, bounded reading and plug-ins."""
