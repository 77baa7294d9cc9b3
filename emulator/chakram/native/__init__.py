"""Optional native helpers for CPU caches and memory; no-ops if not compiled."""
