"""Collectives: what they mean, and how they become transfers. Pure."""
