"""Optional native helpers for CPU caches and memory, without effect if uncompiled."""
