"""Simulation at levels coarser than packets: whole messages and flows."""
