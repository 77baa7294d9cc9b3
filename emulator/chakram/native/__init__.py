"""Optional native helpers for CPU caches and memory.  Uncompiled, they do nothing."""
