"""Optional native helpers for CPU caches and memory, with fallbacks in Python."""
