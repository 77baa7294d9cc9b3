"""Simulation at coarser levels than packets: whole messages and flows."""
