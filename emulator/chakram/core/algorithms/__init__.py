"""Collective algorithms: from an operation to a schedule of transfers. Pure."""
